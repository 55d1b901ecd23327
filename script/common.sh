# Sourced by the other scripts: a known PATH, the repository's root as the current directory, and a few words to speak.
# shellcheck shell=bash
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

say() { printf '%s\n' "$*" >&2; }
die() {
  say "${0##*/}: $*"
  exit 1
}

# Configures build/PRESET when it has no build files yet; ninja itself notices changed CMake files later.
configure() {
  [ -f "build/$1/build.ninja" ] || cmake --preset "$1" >&2
}
