#!/usr/bin/env bash
# kill -9 of the server at any moment (spec 44, 83, 100): every environment and acknowledged write is there afterwards, the
# sandboxes and their processes went on and are adopted, clients attach again by op_id, and nothing is run twice.
# usage: server_killed.sh HOLT SOURCE_TREE [ROUNDS]
set -euo pipefail
HOLT=$1
source "$2/tests/support/server.sh"
rounds=${3:-5}

scratch=$(mktemp -d /tmp/holt-kill.XXXXXX)
trap 'end_everything "$scratch/data"; rm -rf "$scratch"' EXIT
start_server "$scratch/data"

env_id=$(api POST /v1/environments --json '{"name":"kept","labels":{"test":"kill"}}' | jq -er .id)
"$HOLT" exec "$env_id" -- sh -c 'echo begin > log; echo 0 > once'

# A process that outlives the server: one line every 20 ms.
api POST "/v1/environments/$env_id/processes" --json \
  '{"op_id":"op_counter","command":"i=0; while [ $i -lt 100000 ]; do i=$((i+1)); echo $i; sleep 0.02; done"}' >/dev/null
pid_before=$(api GET "/v1/environments/$env_id/processes/op_counter" | jq -er .pid)

for round in $(seq "$rounds"); do
  acknowledged=$scratch/acknowledged.$round
  : >"$acknowledged"
  # Clients at work while the server dies: environments made, files written, commands with ids of their own.
  (
    for n in $(seq 1000); do
      name=r$round-n$n
      id=$(api POST /v1/environments --json "{\"name\":\"$name\"}" 2>/dev/null | jq -er .id) || break
      echo "environment $id $name" >>"$acknowledged"
      [ "$(curl_with_key -o /dev/null -w '%{http_code}' -T <(printf %s "$name") "$HOLT_URL/v1/environments/$env_id/files/workspace/$name" 2>/dev/null || true)" = 201 ] || break
      echo "file $name" >>"$acknowledged"
      api POST "/v1/environments/$env_id/exec" --json "{\"op_id\":\"op_$name\",\"command\":\"echo ran >> ran.$name; echo answer-$name\"}" >/dev/null 2>&1 || break
      echo "command $name" >>"$acknowledged"
    done
  ) &
  client=$!
  # Somewhere in the middle of it, another place each round.
  until [ "$(wc -l <"$acknowledged")" -ge $((4 + round * 3)) ]; do
    kill -0 "$client" 2>/dev/null || fail "the client ended before the server was killed: $(cat "$acknowledged")"
  done
  kill_server
  wait "$client" || true
  last=$(sed -n 's/^environment [^ ]* //p' "$acknowledged" | tail -n 1)
  start_server "$scratch/data"

  while read -r kind a b; do
    case $kind in
      environment) expect "environment after the crash" "$b" "$(api GET "/v1/environments/$a" | jq -r .name)" ;;
      file) expect "file after the crash" "$a" "$("$HOLT" env cat "$env_id:/workspace/$a")" ;;
      command)
        # The same id and arguments again: the kept answer, and no second run.
        again=$(api POST "/v1/environments/$env_id/exec" --json "{\"op_id\":\"op_$a\",\"command\":\"echo ran >> ran.$a; echo answer-$a\"}")
        expect "kept answer" "answer-$a" "$(jq -r .stdout <<<"$again" | tr -d '\n')"
        expect "times it ran" 1 "$("$HOLT" exec -n "$env_id" -- wc -l "ran.$a" | cut -d' ' -f1)"
        ;;
    esac
  done <"$acknowledged"

  # The one that was under way when the server died: however it ended, repeating it never makes it run twice.
  again=$(curl_with_key --json "{\"op_id\":\"op_$last\",\"command\":\"echo ran >> ran.$last; echo answer-$last\"}" \
    "$HOLT_URL/v1/environments/$env_id/exec")
  expect "runs of the interrupted command" 1 "$("$HOLT" exec -n "$env_id" -- wc -l "ran.$last" | cut -d' ' -f1)"

  state=$(api GET "/v1/environments/$env_id/processes/op_counter")
  expect "the process that outlived the server" "running $pid_before" "$(jq -r '"\(.state) \(.pid)"' <<<"$state")"
done

# Its log has no hole: line n is n.
api POST "/v1/environments/$env_id/processes/op_counter/stop" --json '{}' >/dev/null
api GET "/v1/environments/$env_id/processes/op_counter/log?from=0&max=8000000" >"$scratch/log"
awk '$0 != NR { print "line " NR " is " $0; exit 1 }' "$scratch/log" || fail "the log has a hole"
[ "$(wc -l <"$scratch/log")" -gt 50 ] || fail "the process didn't go on"
echo "survived $rounds kills"
