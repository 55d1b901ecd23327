#include "protocols/utf8.hpp"

#include <cstdint>
#include <cstring>

namespace holt::protocols::utf8 {
namespace {

enum class verdict { whole, broken, open };

struct step {
  verdict what;
  std::size_t length; // of the character, or of the piece to replace, or of what is there
};

/// Looks at the character at the front of `bytes`. REQUIRES: not empty.
step look(const char* data, std::size_t size) {
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(data[i]); };
  const std::uint8_t first = at(0);
  if (first < 0x80) {
    return {verdict::whole, 1};
  }
  std::size_t length = 0;
  std::uint8_t low = 0x80;
  std::uint8_t high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) {
      low = 0xA0;
    } else if (first == 0xED) {
      high = 0x9F;
    }
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) {
      low = 0x90;
    } else if (first == 0xF4) {
      high = 0x8F;
    }
  } else {
    return {verdict::broken, 1};
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (i == size) {
      return {verdict::open, size};
    }
    if (at(i) < low || at(i) > high) {
      return {verdict::broken, i};
    }
    low = 0x80;
    high = 0xBF;
  }
  return {verdict::whole, length};
}

/// How many bytes at the front are plain ASCII, looking at eight at a time.
std::size_t ascii_prefix(const char* data, std::size_t size) {
  std::size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    std::uint64_t word;
    std::memcpy(&word, data + i, 8);
    if ((word & 0x8080808080808080U) != 0) {
      break;
    }
  }
  while (i < size && static_cast<std::uint8_t>(data[i]) < 0x80) {
    ++i;
  }
  return i;
}

/// Appends whole characters and replacements; returns where an open character at the end begins (size if there is
/// none).
std::size_t append_certain(std::string& out, std::string_view bytes, bool& lossy) {
  std::size_t done = 0; // appended up to here
  std::size_t i = 0;
  while (i < bytes.size()) {
    i += ascii_prefix(bytes.data() + i, bytes.size() - i);
    if (i == bytes.size()) {
      break;
    }
    const step next = look(bytes.data() + i, bytes.size() - i);
    if (next.what == verdict::whole) {
      i += next.length;
      continue;
    }
    out.append(bytes.substr(done, i - done));
    if (next.what == verdict::open) {
      return i;
    }
    out.append(replacement);
    lossy = true;
    i += next.length;
    done = i;
  }
  out.append(bytes.substr(done));
  return bytes.size();
}

} // namespace

bool valid(std::string_view bytes) {
  std::size_t i = 0;
  while (i < bytes.size()) {
    i += ascii_prefix(bytes.data() + i, bytes.size() - i);
    if (i == bytes.size()) {
      return true;
    }
    const step next = look(bytes.data() + i, bytes.size() - i);
    if (next.what != verdict::whole) {
      return false;
    }
    i += next.length;
  }
  return true;
}

std::size_t complete_prefix(std::string_view bytes) {
  // An open character has at most three bytes, and begins with its lead byte.
  const std::size_t floor = bytes.size() > 3 ? bytes.size() - 3 : 0;
  for (std::size_t i = bytes.size(); i > floor; --i) {
    const auto byte = static_cast<std::uint8_t>(bytes[i - 1]);
    if (byte >= 0x80 && byte < 0xC0) {
      continue;
    }
    return look(bytes.data() + i - 1, bytes.size() - i + 1).what == verdict::open ? i - 1 : bytes.size();
  }
  return bytes.size();
}

std::size_t count(std::string_view text) {
  std::size_t n = 0;
  for (const char c : text) {
    n += (static_cast<std::uint8_t>(c) & 0xC0) != 0x80;
  }
  return n;
}

bool append_repaired(std::string& out, std::string_view bytes) {
  bool lossy = false;
  if (append_certain(out, bytes, lossy) != bytes.size()) {
    out.append(replacement);
    lossy = true;
  }
  return lossy;
}

repaired repair(std::string_view bytes) {
  repaired result;
  result.text.reserve(bytes.size());
  result.lossy = append_repaired(result.text, bytes);
  return result;
}

void stream_decoder::feed(std::string_view piece, std::string& out) {
  while (pending_size_ > 0 && !piece.empty()) {
    pending_[pending_size_++] = piece.front();
    const step next = look(pending_, pending_size_);
    if (next.what == verdict::open) {
      piece.remove_prefix(1);
      continue;
    }
    if (next.what == verdict::whole) {
      out.append(pending_, next.length);
      piece.remove_prefix(1);
    } else {
      // The byte that broke it is not part of it, and is looked at again as the beginning of something.
      out.append(replacement);
      lossy_ = true;
    }
    pending_size_ = 0;
  }
  const std::size_t open = append_certain(out, piece, lossy_);
  if (open < piece.size()) {
    pending_size_ = piece.size() - open;
    std::memcpy(pending_, piece.data() + open, pending_size_);
  }
}

void stream_decoder::finish(std::string& out) {
  if (pending_size_ > 0) {
    out.append(replacement);
    lossy_ = true;
    pending_size_ = 0;
  }
}

} // namespace holt::protocols::utf8
