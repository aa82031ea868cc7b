#!/bin/sh
# SPDX-License-Identifier: MIT
#
# libmha as a meson subproject: the project in tests/subproject/ is built and run in a separate
# folder.
#
# usage: subproject.sh MESON SOURCE_ROOT
set -eu
meson=$1 root=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$root"/tests/subproject/* "$folder"
mkdir "$folder/subprojects"
ln -s "$root" "$folder/subprojects/libmha"
cd "$folder"
"$meson" setup build . --wrap-mode=nodownload
"$meson" compile -C build
"$meson" test -C build --print-errorlogs main
