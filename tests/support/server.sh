# Starts and ends a real `holt serve` for a test script. Source it with HOLT set to the program.
#
#   start_server DATA [FLAG …]   → server_pid, HOLT_URL, HOLT_KEY (exported); waits until it answers
#   stop_server                  → asks it to stop and waits; fails when it takes over 5 s
#   kill_server                  → kill -9, as a crash would
#   api METHOD PATH [CURL ARG …] → the body on stdout; fails on a status of 400 or more, with the body on stderr
#   status METHOD PATH [CURL ARG …] → the status code alone
set -euo pipefail

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

# expect WHAT WANTED GOT
expect() {
  [ "$2" = "$3" ] || fail "$1: wanted '$2', got '$3'"
}

start_server() {
  local data=$1
  shift
  local said=$data.out
  : >"$said"
  "$HOLT" serve --listen 127.0.0.1:0 --data-dir "$data" --log.format text "$@" >"$said" 2>>"$data.log" </dev/null &
  server_pid=$!
  local tries=0
  until grep -q '^holt serves on ' "$said"; do
    kill -0 "$server_pid" 2>/dev/null || { tail -n 20 "$data.log" >&2; fail "the server ended at its start"; }
    tries=$((tries + 1))
    [ "$tries" -le 200 ] || fail "the server didn't start within 20 s"
    sleep 0.1
  done
  HOLT_URL=$(sed -n 's/^holt serves on \(http[^ ]*\).*/\1/p' "$said" | head -n 1)
  HOLT_KEY=$(cat "$data/first-key")
  export HOLT_URL HOLT_KEY
}

# Ends the server whatever became of the test, and the sandboxes that outlive it.
end_everything() {
  local data=$1
  if [ -n "${server_pid:-}" ] && kill -0 "$server_pid" 2>/dev/null; then
    kill -TERM "$server_pid" 2>/dev/null || true
    wait "$server_pid" 2>/dev/null || true
  fi
  "$HOLT" admin stop-instances --data-dir "$data" >/dev/null 2>&1 || true
}

stop_server() {
  local begin end
  begin=$(date +%s%N)
  kill -TERM "$server_pid"
  wait "$server_pid" || fail "the server's exit code at its stop was $?"
  end=$(date +%s%N)
  server_pid=
  [ $(((end - begin) / 1000000)) -le 5000 ] || fail "the stop took $(((end - begin) / 1000000)) ms"
}

kill_server() {
  kill -KILL "$server_pid"
  wait "$server_pid" 2>/dev/null || true
  server_pid=
}

# The key goes by a file that only we read, never by the command line.
curl_with_key() {
  curl --silent --show-error --max-time 120 --config <(printf 'header = "Authorization: Bearer %s"\n' "$HOLT_KEY") "$@"
}

api() {
  local method=$1 path=$2
  shift 2
  curl_with_key --fail-with-body --request "$method" "$HOLT_URL$path" "$@" || {
    printf '%s %s failed\n' "$method" "$path" >&2
    return 1
  }
}

status() {
  local method=$1 path=$2
  shift 2
  curl_with_key --output /dev/null --write-out '%{http_code}' --request "$method" "$HOLT_URL$path" "$@"
}
