#!/usr/bin/env bash
# A real job through the API and the command line only, in a sandbox without network: holt's own sources are copied in, one
# of its libraries is configured and built there and its tests run; an edit makes a test fail, grep finds the place, an edit
# mends it, and the tests pass again.
# usage: real_job.sh HOLT SOURCE_TREE
set -euo pipefail
HOLT=$1
source_tree=$2
source "$source_tree/tests/support/server.sh"

scratch=$(mktemp -d /tmp/holt-job.XXXXXX)
trap 'end_everything "$scratch/data"; rm -rf "$scratch"' EXIT
start_server "$scratch/data"

# What git would give: no build folders.
mkdir "$scratch/tree"
tar -C "$source_tree" --exclude=./build --exclude=./.git --exclude=./node_modules -cf - . | tar -C "$scratch/tree" -xf -

env_id=$("$HOLT" env create job --json | jq -er .id)
expect "network" none "$("$HOLT" env show "$env_id" --json | jq -r .network)"
"$HOLT" cp "$scratch/tree" "$env_id:/workspace/holt"
expect "files copied" "$(cd "$scratch/tree" && find . -type f | wc -l)" \
  "$("$HOLT" exec "$env_id" -- sh -c 'cd /workspace/holt && find . -type f | wc -l')"
expect "content copied" "$(cd "$scratch/tree" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum)" \
  "$("$HOLT" exec "$env_id" -- sh -c 'cd /workspace/holt && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum')"

"$HOLT" exec "$env_id" -- cmake -S holt -B build -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DHOLT_BENCH=OFF
"$HOLT" exec "$env_id" -- ninja -C build protocols_test
"$HOLT" exec "$env_id" -- build/tests/protocols/protocols_test

edit() { # PATH OLD NEW
  jq -n --arg path "$1" --arg old "$2" --arg new "$3" '{path: $path, edits: [{old_text: $old, new_text: $new}]}' |
    api POST "/v1/environments/$env_id/fs/edit" --header 'Content-Type: application/json' --data-binary @- >/dev/null
}

# A mistake that a test must notice: the replacement character is written wrongly.
good='\xEF\xBF\xBD'
place=$(jq -n --arg pattern "$good" '{pattern: $pattern, literal: true, path: "holt/protocols", globs: ["utf8.*"]}' |
  api POST "/v1/environments/$env_id/fs/grep" --header 'Content-Type: application/json' --data-binary @- |
  jq -er '[.items[] | select(.type == "match")][0].path')
bad='\xEF\xBF\xBC'
edit "$place" "$good" "$bad"
"$HOLT" exec "$env_id" -- ninja -C build protocols_test
if "$HOLT" exec "$env_id" -- build/tests/protocols/protocols_test >"$scratch/failed.txt"; then
  fail "the tests passed with the mistake in"
fi
grep -q 'FAILED' "$scratch/failed.txt" || fail "the failing test said nothing"

found=$(jq -n --arg pattern "$bad" '{pattern: $pattern, literal: true, path: "holt/protocols"}' |
  api POST "/v1/environments/$env_id/fs/grep" --header 'Content-Type: application/json' --data-binary @- |
  jq -er '[.items[] | select(.type == "match")][0].path')
expect "where grep finds the mistake" "$place" "$found"
edit "$found" "$bad" "$good"
"$HOLT" exec "$env_id" -- ninja -C build protocols_test
"$HOLT" exec "$env_id" -- build/tests/protocols/protocols_test

"$HOLT" cp "$env_id:$place" "$scratch/back"
cmp "$scratch/back" "$scratch/tree/${place#/workspace/holt/}" || fail "the file that came back differs"
stop_server
echo "the job is done"
