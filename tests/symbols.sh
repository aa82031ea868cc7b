#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Every name that the library exports starts with mha_, in the shared and in the static
# library; and nothing but the C library is needed at run time. readelf reads the files
# of any machine.
#
# usage: symbols.sh SHARED_LIBRARY STATIC_LIBRARY [PROGRAM]
set -eu
failures=0

fail() {
  echo "$1"
  failures=$((failures + 1))
}

# defined FILE OPTION: names of global symbols that the file defines.
defined() {
  readelf -W "$2" "$1" | awk '$5 ~ /^(GLOBAL|WEAK|UNIQUE)$/ && $7 != "UND" && NF >= 8 {
    sub(/@.*/, "", $8); print $8 }'
}

# needed FILE: the libraries that it needs.
needed() {
  readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'
}

shared=$1 static=$2
exported=$(defined "$shared" --dyn-syms)
case "$exported" in
*mha_forward*) ;;
*) fail "mha_forward is not exported: nothing was checked" ;;
esac
for name in $exported; do
  grep -qw "$name" "$(dirname "$0")/../include/mha.h" || fail "exported, but not in mha.h: $name"
done
for name in $(sed -n 's/^MHA_API.*[ *]\(mha_[a-z_]*\)(.*/\1/p' "$(dirname "$0")/../include/mha.h"); do
  echo "$exported" | grep -qx "$name" || fail "in mha.h, but not exported: $name"
done
all=$(defined "$static" --syms)
case "$all" in
*mha_scalar_gemm*) ;;
*) fail "mha_scalar_gemm is not in $static: nothing was checked" ;;
esac
for name in $exported $all; do
  case $name in
  mha_* | __x86.get_pc_thunk.*) ;; # the second are the compiler's, hidden, one copy a program
  *) fail "without the prefix: $name" ;;
  esac
done
shift 2
for file in "$shared" "$@"; do
  for library in $(needed "$file"); do
    case $library in
    libc.* | libm.* | libpthread.* | ld-* | ld64.so.* | libmha.so.*) ;;
    *) fail "$file needs $library" ;;
    esac
  done
done
readelf -d "$shared" | grep -q 'SONAME.*\[libmha\.so\.[0-9.]*\]' || fail "no soname"
echo "$(echo "$exported" | wc -l) exported, $(echo "$all" | wc -l) global in the static library"
exit $((failures > 0))
