#!/bin/sh
# Every C and C++ file is as clang-format 14 writes it (the configuration is in the tree).
# usage: format.sh SOURCE_ROOT
cd "$1" || exit 1
command -v clang-format >/dev/null || { echo "SKIP: no clang-format"; exit 77; }
case $(clang-format --version) in
*' 14.'*) ;;
*) echo "SKIP: clang-format is not version 14"; exit 77 ;;
esac
find include src tools tests bench examples -name '*.[ch]' -o -name '*.cc' |
  xargs clang-format --dry-run -Werror
