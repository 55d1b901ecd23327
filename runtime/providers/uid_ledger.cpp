#include "runtime/providers/uid_ledger.hpp"

#include <sys/file.h>
#include <unistd.h>

#include <sstream>

namespace holt::providers {

namespace {
constexpr const char* file_name = "uids";
constexpr std::size_t max_file_bytes = 64UL * 1024 * 1024;
} // namespace

tl::expected<std::unique_ptr<uid_ledger>, std::string> uid_ledger::open(int directory, range uids) {
  // The lock is on a file of its own, since the ledger itself is replaced when it is compacted.
  unique_fd lock(::openat(directory, "uids.lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock)
    return tl::unexpected(errno_text("uids.lock"));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return tl::unexpected(std::string("the data directory is in use by another holt server"));

  std::unique_ptr<uid_ledger> ledger(new uid_ledger({}, uids));
  ledger->next_ = uids.first;
  const auto text = read_file(directory, file_name, max_file_bytes).value_or("");
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    if (lines.eof() && !text.empty() && text.back() != '\n')
      break; // cut by a crash: it was never acknowledged
    std::istringstream fields(line);
    char sign = '\0';
    uid_t uid = 0;
    std::string environment;
    if (!(fields >> sign >> uid >> environment) || (sign != '+' && sign != '-'))
      return tl::unexpected("uids: malformed line: " + line);
    if (sign == '+')
      ledger->next_ = uid + 1;
    if (sign == '+') {
      if (const auto before = ledger->by_uid_.find(uid); before != ledger->by_uid_.end())
        ledger->by_environment_.erase(before->second);
      ledger->by_environment_[environment] = uid;
      ledger->by_uid_[uid] = environment;
    } else {
      ledger->by_environment_.erase(environment);
      ledger->by_uid_.erase(uid);
    }
  }
  std::string compact;
  for (const auto& [uid, environment] : ledger->by_uid_)
    compact += "+ " + std::to_string(uid) + " " + environment + "\n";
  if (!replace_file(directory, file_name, compact, 0600))
    return tl::unexpected(errno_text(file_name));
  ledger->file_.reset(::openat(directory, file_name, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW));
  if (!ledger->file_ || ::fsync(ledger->file_.get()) != 0 || ::fsync(directory) != 0)
    return tl::unexpected(errno_text(file_name));
  ledger->lock_ = std::move(lock);
  return ledger;
}

tl::expected<uid_t, std::string> uid_ledger::claim(const std::string& environment_id) {
  const std::lock_guard guard(mutex_);
  if (const auto known = by_environment_.find(environment_id); known != by_environment_.end())
    return known->second;
  for (std::uint32_t tried = 0; tried < range_.count; ++tried) {
    if (next_ < range_.first || next_ - range_.first >= range_.count)
      next_ = range_.first;
    const auto uid = next_++;
    if (by_uid_.contains(uid))
      continue;
    if (!append('+', uid, environment_id))
      return tl::unexpected(errno_text(file_name));
    by_environment_[environment_id] = uid;
    by_uid_[uid] = environment_id;
    return uid;
  }
  return tl::unexpected("no uid is left in the range of " + std::to_string(range_.count) + " from "
                        + std::to_string(range_.first));
}

std::optional<uid_t> uid_ledger::find(const std::string& environment_id) const {
  const std::lock_guard guard(mutex_);
  const auto known = by_environment_.find(environment_id);
  return known == by_environment_.end() ? std::nullopt : std::optional(known->second);
}

void uid_ledger::adopt(const std::string& environment_id, uid_t uid) {
  const std::lock_guard guard(mutex_);
  if (by_environment_.contains(environment_id) || by_uid_.contains(uid))
    return;
  if (append('+', uid, environment_id)) {
    by_environment_[environment_id] = uid;
    by_uid_[uid] = environment_id;
  }
}

bool uid_ledger::rename(const std::string& from, const std::string& to) {
  const std::lock_guard guard(mutex_);
  const auto known = by_environment_.find(from);
  if (known == by_environment_.end() || by_environment_.contains(to))
    return false;
  const auto uid = known->second;
  // Read from the top, the second line takes the uid over: no moment in which it is nobody's.
  if (!append('+', uid, to))
    return false;
  by_environment_.erase(known);
  by_environment_[to] = uid;
  by_uid_[uid] = to;
  return true;
}

bool uid_ledger::release(const std::string& environment_id) {
  const std::lock_guard guard(mutex_);
  const auto known = by_environment_.find(environment_id);
  if (known == by_environment_.end())
    return true;
  if (!append('-', known->second, environment_id))
    return false;
  by_uid_.erase(known->second);
  by_environment_.erase(known);
  return true;
}

bool uid_ledger::sync() {
  const std::lock_guard guard(mutex_);
  if (!unsynced_)
    return true;
  if (::fdatasync(file_.get()) != 0)
    return false;
  unsynced_ = false;
  return true;
}

bool uid_ledger::append(char sign, uid_t uid, const std::string& environment_id) {
  const auto line = std::string(1, sign) + " " + std::to_string(uid) + " " + environment_id + "\n";
  unsynced_ = true;
  return ::write(file_.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

} // namespace holt::providers
