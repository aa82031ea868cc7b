# What the scripts share: sourced, not run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=$(nproc)

say() { printf '== %s\n' "$*" >&2; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# Installs the Debian packages of the list that are missing, and only those; says which before.
need() {
  local missing=() package
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
      [[ " ${missing[*]} " = *" $package "* ]] || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  command -v apt-get >/dev/null || die "please install: ${missing[*]}"
  say "installing, with apt-get: ${missing[*]}"
  local sudo=''
  [ "$(id -u)" -eq 0 ] || sudo=sudo
  { $sudo apt-get update && DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y \
      --no-install-recommends "${missing[@]}"; } >"${TMPDIR:-/tmp}/libmha-apt.log" 2>&1 ||
    { tail -n 20 "${TMPDIR:-/tmp}/libmha-apt.log" >&2; die "could not install ${missing[*]}"; }
}

# configure FOLDER OPTION...: meson setup, or the same options on a folder that exists.
configure() {
  local folder=$1
  shift
  if [ -f "$folder/build.ninja" ]; then
    meson configure "$folder" "$@" >/dev/null
  else
    meson setup "$folder" "$root" "$@" >"$folder.log" 2>&1 || { cat "$folder.log" >&2; return 1; }
    rm -f "$folder.log"
  fi
}

# forget_tests FOLDER...: removes the logs of earlier runs, which must not be counted.
forget_tests() {
  local folder
  for folder in "$@"; do
    rm -f "$folder"/meson-logs/testlog*.json "$folder"/meson-logs/planned.txt
  done
}

# run_tests FOLDER OPTION...: runs the built tests, and writes what report-tests reads: a list
# of all tests, and meson's log of those that ran.
run_tests() {
  local folder=$1
  shift
  meson test -C "$folder" --no-rebuild "$@" --list >"$folder/meson-logs/planned.txt" &&
    meson test -C "$folder" --no-rebuild "$@" --print-errorlogs --num-processes "$jobs"
}
