#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What `meson install` installs is all that a user needs: the example of README is compiled
# against it by way of pkg-config, shared and static, and run.
#
# usage: install.sh MESON SOURCE_ROOT BUILD_ROOT PREFIX C_COMPILER...
set -eu
meson=$1 root=$2 build=$3 prefix=$4
shift 4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$meson" install -C "$build" --destdir "$folder/root" --no-rebuild --quiet
libraries=$(dirname "$(find "$folder/root$prefix" -name libmha.so)")
test -f "$folder/root$prefix/include/mha.h"
export PKG_CONFIG_PATH="$libraries/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$folder/root"
test "$(pkg-config --modversion mha)" = "$(sed -n "s/^ *version: '\(.*\)',/\1/p" "$root/meson.build")"

set -f
source=$root/examples/self_attention.c
"$@" -std=c11 -Wall -Wextra -Werror "$source" $(pkg-config --cflags --libs mha) -o "$folder/shared"
LD_LIBRARY_PATH=$libraries "$folder/shared" >"$folder/shared.txt"
find "$libraries" -name "libmha.so*" -delete
"$@" -std=c11 "$source" $(pkg-config --static --cflags --libs mha) -o "$folder/static"
"$folder/static" >"$folder/static.txt"
cmp "$folder/shared.txt" "$folder/static.txt"
cat "$folder/shared.txt"
