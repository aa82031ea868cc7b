#!/bin/sh
# SPDX-License-Identifier: MIT
#
# include/mha.h alone is a whole C11 and a whole C++17 file, without a warning.
#
# usage: header.sh HEADER C_COMPILER...
set -eu
header=$1
shift
warnings='-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -fsyntax-only'
"$@" -x c -std=c11 $warnings "$header"
"$@" -x c -std=c17 $warnings "$header"
echo "C11, C17: good"
cxx=
for name in "${CXX:-}" c++ g++ clang++; do
  if [ -n "$name" ] && command -v "$name" >/dev/null; then
    cxx=$name
    break
  fi
done
if [ -z "$cxx" ]; then
  echo "SKIP: C++17: no C++ compiler"
  exit 77
fi
"$cxx" -x c++ -std=c++17 $warnings -Wold-style-cast "$header"
# It links as C++, too, if names aren't mangled.
echo '#include "mha.h"
const char *(*pointer)() = mha_version;' | "$cxx" -x c++ -std=c++17 -I "$(dirname "$header")" \
  -S -o - - | grep -q '\bmha_version\b'
echo "C++17: good"
