# What the scripts for other machines share: sourced after lib.sh, not run.

# target MACHINE: sets $triplet, by which the cross compiler and the cross file go, and $qemu.
target() {
  case $1 in
  aarch64) triplet=aarch64-linux-gnu debian=arm64 qemu=qemu-aarch64 ;;
  armhf) triplet=arm-linux-gnueabihf debian=armhf qemu=qemu-arm ;;
  i686) triplet=i686-linux-gnu debian=i386 qemu=qemu-i386 ;;
  s390x | riscv64) triplet=$1-linux-gnu debian=$1 qemu=qemu-$1 ;;
  *) die "unknown machine: $1 (there are aarch64, armhf, i686, s390x, riscv64)" ;;
  esac
}

# compiler_packages gcc|g++ MACHINE...: what to install for compiling for them.
compiler_packages() {
  local compiler=$1 machine
  shift
  for machine in "$@"; do
    target "$machine"
    echo "$compiler-$triplet" "libc6-dev-$debian-cross"
  done
}
