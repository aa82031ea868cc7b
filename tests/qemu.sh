#!/bin/sh
# Runs the test programs on other CPUs, by emulation: an x86 before AVX, one with AVX but no FMA,
# one with FMA but no AVX2, one with AVX2 but no AVX-512. Checks what is chosen there and that the
# bits are the same. An instruction that such a CPU lacks ends a program.
#
#     tests/qemu.sh FOLDER      where the test programs are
#
# Run in the tests' folder. Exit status 77: qemu-x86_64 isn't here.
set -u
programs=$1
qemu=qemu-x86_64
if ! command -v $qemu >/dev/null; then
    echo "SKIP: $qemu is not installed"
    exit 77
fi
passed=0
failed=0

# verdict STATUS WHAT
verdict() {
    if [ "$1" -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok: $2"
    else
        failed=$((failed + 1))
        echo "FAILED: $2"
        cat "$log"
    fi
}

# run MODEL PROGRAM [NAME=VALUE...]: must succeed
run() {
    model=$1 program=$2
    shift 2
    env "$@" $qemu -cpu "$model" "$programs/$program" >"$log" 2>&1
    verdict $? "$model: $program $*"
}

# chooses MODEL TABLE: that table must be chosen, and all choices right
chooses() {
    run "$1" test_cpu
    grep -qx "chosen: $2" "$log"
    verdict $? "$1: chooses $2"
}

# lacks MODEL ISA: asking for it must be refused in words
lacks() {
    MHA_ISA=$2 $qemu -cpu "$1" "$programs/test_kernel_pack" >"$log" 2>&1
    [ $? -eq 77 ] && grep -qx "SKIP: $2 is not supported by this CPU" "$log"
    verdict $? "$1: lacks $2"
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Without the features that the emulator lacks: it would warn at every start.
before_avx=Nehalem
without_fma=SandyBridge,-x2apic,-tsc-deadline
fma_alone=Haswell-noTSX,-pcid,-x2apic,-tsc-deadline,-invpcid,-avx2
without_avx512=Haswell-noTSX,-pcid,-x2apic,-tsc-deadline,-invpcid

chooses $before_avx scalar
chooses $without_fma scalar
chooses $fma_alone scalar_fma
chooses $without_avx512 avx2
lacks $before_avx avx2
lacks $without_fma avx2
lacks $without_fma avx512
lacks $without_avx512 avx512

for model in $before_avx $without_fma; do
    run $model test_golden_bits MHA_TEST_STRIDE=2
    run $model test_fma MHA_TEST_STRIDE=200
    run $model test_exp2 MHA_TEST_STRIDE=5003
    for kernel in gemm softmax rows pack; do
        run $model test_kernel_$kernel MHA_TEST_STRIDE=25600
    done
done
run $fma_alone test_golden_bits MHA_TEST_STRIDE=2 MHA_ISA=scalar
run $without_avx512 test_golden_bits MHA_TEST_STRIDE=2 MHA_ISA=avx2

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
