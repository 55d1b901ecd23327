#!/usr/bin/env bash
# The server stops in order within 5 s under load, as often as asked (spec 100).
# usage: stop_under_load.sh HOLT SOURCE_TREE [TIMES]
set -euo pipefail
HOLT=$1
source "$2/tests/support/server.sh"
times=${3:-10}

scratch=$(mktemp -d /tmp/holt-stop.XXXXXX)
trap 'end_everything "$scratch/data"; rm -rf "$scratch"' EXIT
start_server "$scratch/data"
env_id=$(api POST /v1/environments --json '{}' | jq -er .id)
"$HOLT" exec "$env_id" -- true
stop_server

for n in $(seq "$times"); do
  start_server "$scratch/data"
  clients=()
  for c in 1 2 3 4; do
    (while curl_with_key -o /dev/null --json '{"command":"echo hello; sleep 0.01"}' "$HOLT_URL/v1/environments/$env_id/exec" 2>/dev/null; do :; done) &
    clients+=($!)
  done
  # One that streams, one that runs for long, one that holds a connection and says nothing.
  curl_with_key -N -o /dev/null -H 'Accept: text/event-stream' --json '{"command":"yes"}' "$HOLT_URL/v1/environments/$env_id/exec" 2>/dev/null &
  clients+=($!)
  curl_with_key -o /dev/null --json '{"command":"sleep 60"}' "$HOLT_URL/v1/environments/$env_id/exec" 2>/dev/null &
  clients+=($!)
  until [ "$(api GET "/v1/environments/$env_id" | jq -r .activity.running)" -ge 2 ]; do :; done
  stop_server
  for pid in "${clients[@]}"; do
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  # What the streams left running in the sandbox is ended, so that rounds are alike.
  start_server "$scratch/data"
  api GET "/v1/environments/$env_id/processes" | jq -r '.items[] | select(.state == "running") | .op_id' | while read -r op; do
    api POST "/v1/environments/$env_id/processes/$op/stop" --json '{}' >/dev/null
  done
  stop_server
done
grep -q 'stop hung' "$scratch/data.log" && fail "the watchdog had to end it"
echo "stopped $times times"
