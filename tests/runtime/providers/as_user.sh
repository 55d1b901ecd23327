#!/bin/sh
# Runs a test program as an ordinary user: as `nobody` when started by root, else as who started it.
#   as_user.sh TEST PROGRAM...   (the programs that it needs beside it)
set -eu
if [ "$(id -u)" != 0 ]; then
  exec "$1"
fi
# A place that nobody may walk to, which a build directory need not be.
place=$(mktemp -d /tmp/holt-as-user-XXXXXX)
trap 'rm -rf "$place"' EXIT
chmod 755 "$place"
cp "$@" "$place"
cd /
HOLT_TEST_PROGRAMS="$place" setpriv --reuid=65534 --regid=65534 --clear-groups "$place/$(basename "$1")"
