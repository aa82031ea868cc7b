#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What would change bits is refused by a header that every file that computes includes. clang has
# no macro for a part of -ffast-math; its pragma there switches it off.
#
# usage: strict.sh SOURCE_ROOT C_COMPILER FLAG...     (those of meson.build's float_arguments)
set -eu
root=$1
shift
compiles() {
  "$@" -std=c11 -I"$root/include" -I"$root/src" -fsyntax-only -x c "$root/src/kernels.h" 2>/dev/null
}
compiles "$@" || { echo "kernels.h doesn't compile at all"; exit 1; }
flags='-ffast-math -ffinite-math-only -Ofast'
if ! "$@" --version | grep -q clang; then
  flags="$flags -funsafe-math-optimizations -freciprocal-math -fno-signed-zeros"
fi
for flag in $flags; do
  if compiles "$@" "$flag"; then
    echo "$flag is accepted"
    exit 1
  fi
  echo "$flag is refused"
done
# These neither compute nor compare numbers.
for file in "$root"/src/*.c; do
  case $file in
  */error.c | */cpu.c) continue ;;
  esac
  "$@" -std=c11 -I"$root/include" -I"$root/src" -M "$file" | grep -q strict.h || {
    echo "$file doesn't include strict.h"
    exit 1
  }
done
echo "every file that computes includes it"
