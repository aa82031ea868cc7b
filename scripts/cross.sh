# What the scripts for other machines share: sourced after lib.sh, not run.

# target MACHINE: sets $triplet, by which the cross compiler and the cross file go, and $qemu.
target() {
  case $1 in
  aarch64) triplet=aarch64-linux-gnu debian=arm64 qemu=qemu-aarch64 ;;
  armhf) triplet=arm-linux-gnueabihf debian=armhf qemu=qemu-arm ;;
  s390x | riscv64) triplet=$1-linux-gnu debian=$1 qemu=qemu-$1 ;;
  *) die "unknown machine: $1 (there are aarch64, armhf, s390x, riscv64)" ;;
  esac
}

# need_compiler gcc|g++: for the target.
need_compiler() {
  need "$1-$triplet" "libc6-dev-$debian-cross"
}

# need_source PACKAGE VERSION: its source from Debian into subprojects/, where the wrap of that
# name looks before it downloads. Without apt the wrap is left to do so.
need_source() {
  local package=$1 folder=subprojects/$1-$2 apt
  [ ! -e "$folder" ] && command -v apt-get >/dev/null || return 0
  say "fetching the source of $package"
  apt=$(mktemp -d)
  mkdir -p "$apt/parts" "$apt/lists/partial"
  # Source packages, which few machines list, in a list of our own: the machine's is left alone.
  [ ! -f /etc/apt/sources.list ] || sed 's/^deb /deb-src /' /etc/apt/sources.list >"$apt/parts/main.list"
  for list in /etc/apt/sources.list.d/debian*.sources; do
    [ ! -f "$list" ] || sed 's/^Types:.*/Types: deb-src/' "$list" >"$apt/parts/${list##*/}"
  done
  (
    options=(-o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$apt/parts"
      -o Dir::State::Lists="$apt/lists" -o APT::Sandbox::User=root)
    cd "$apt" && apt-get "${options[@]}" update &&
      apt-get "${options[@]}" source --download-only "$package" &&
      mkdir unpacked && tar -xf "${package}_$2.orig.tar.gz" -C unpacked
  ) >"$apt/log" 2>&1 || { tail -n 5 "$apt/log" >&2; rm -rf "$apt"; return 0; }
  mv "$apt/unpacked/$package-$2" "$folder"
  cp subprojects/packagefiles/"$package"/* "$folder"
  rm -rf "$apt"
}
