#!/usr/bin/env python3
"""Runs llvm-mca on the inner loops of the NEON kernels. scripts/mca calls it.

usage: mca.py [--assembly] OBJECT_FILE...

The share is of the FMA units' limit: the cycles of the loop's FMAs alone, divided by the cycles
of the loop; "units" are the cycles for which the loop occupies the busiest unit, a lower bound.
llvm-mca lets no instruction of an in-order core finish before an earlier one: behind an FMA (10
cycles) a load waits for 6 cycles (its own latency is 4) or, of four registers, for 3 (7). A
Cortex-A53 doesn't do that, so for it there is a second figure, with the same latencies and units
but without that rule. The branch back is left out.
"""
import re
import subprocess
import sys

CORES = ["cortex-a53", "cortex-a72", "cortex-a76", "neoverse-n1"]
ITERATIONS = 100
# name, FMAs, registers of A (0: not a GEMM)
LOOPS = [("GEMM 4x16, P V", 64, 4), ("GEMM 1x64", 64, 1), ("exp, 16 keys", 36, 0)]


def loops(path):
    """The loops of one basic block in an object file, each a list of instructions."""
    text = subprocess.run(["aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", path],
                          check=True, capture_output=True, text=True).stdout
    code = [(int(a, 16), i) for a, i in re.findall(r"^\s*([0-9a-f]+):\t(.*)$", text, re.M)]
    address = {a: n for n, (a, _) in enumerate(code)}
    branch = re.compile(r"(?:b|b\.\w+|cbn?z|tbn?z)\s+(?:.*, )?([0-9a-f]+) <")
    branches = {n: address.get(int(m[1], 16)) for n, (_, i) in enumerate(code)
                if (m := branch.match(i))}
    for end, start in branches.items():
        if start is not None and start <= end and not any(start <= n < end for n in branches):
            yield [re.sub(r"\s*(//|<).*", "", i) for _, i in code[start:end]]


def kind(loop):
    fmas = [i for i in loop if i.startswith("fmla")]
    rows = {m[1] for i in fmas if (m := re.search(r"(v\d+)\.s\[", i))}
    return len(fmas), len(rows)


def llvm_mca(core, loop, *options):
    return subprocess.run(["llvm-mca-19", "-mtriple=aarch64-linux-gnu", f"-mcpu={core}",
                           f"-iterations={ITERATIONS}", *options], check=True, text=True,
                          input="\n".join(loop), capture_output=True).stdout


def timing(core, loop):
    """(latency, cycles for which its unit is occupied) of each instruction."""
    info = llvm_mca(core, loop, "-instruction-info", "-resource-pressure=false")
    rows = re.findall(r"^ +\d+ +(\d+) +([\d.]+) .*\t(\S.*)$", info, re.M)
    assert len(rows) == len(loop)
    return [(int(latency), float(taken)) for latency, taken, _ in rows]


def registers(instruction):
    """(read, written), by number; x and w, and v, q, d and s, are the same."""
    name, _, operands = instruction.partition("\t")
    found = [("v" if r[0] in "vqds" else "x") + r[1:]
             for r in re.findall(r"\b([vqdsxw]\d+|sp)\b", operands)]
    if name.startswith(("st", "cmp")):
        return found, []
    count = 2 if name == "ldp" else 1
    written = found[:count]
    if several := re.match(r"\{v(\d+)\.4s-v(\d+)\.4s\}", operands):
        count, written = 2, [f"v{n}" for n in range(int(several[1]), int(several[2]) + 1)]
    if re.search(r"\], #|\]!", operands):  # writes the address back
        written = written + found[-1:]
    return found if name in ("fmla", "bit", "bsl") else found[count:], written


def in_order(loop, times):
    """Cycles of an iteration on a core that issues two at a time in order, one of each kind
    (load or store; vector; the rest), and starts each when its operands are there."""
    ready, free, now, issued = {}, {}, 0, 0
    for _ in range(ITERATIONS):
        for instruction, (latency, taken) in zip(loop, times):
            name = instruction.split()[0]
            unit = ("memory" if name.startswith(("ld", "st")) else
                    "vector" if re.search(r"\bv\d", instruction) else "integer")
            read, written = registers(instruction)
            start = max([now, free.get(unit, 0)] + [ready.get(r, 0) for r in read])
            if start == now and issued == 2:
                start = now + 1
            issued = issued + 1 if start == now else 1
            now = start
            free[unit] = start + taken
            for r in written:
                ready[r] = start + latency
        now, issued = now + (issued == 2), 0  # the branch
    return now / ITERATIONS


def main():
    arguments = sys.argv[1:]
    assembly = "--assembly" in arguments
    print(f"{'loop':<16}{'compiler':<10}{'core':<13}{'cycles':>8}{'units':>8}{'FMAs':>8}{'share':>8}")
    found = {}
    for path in (a for a in arguments if a != "--assembly"):
        compiler = path.rsplit("/", 1)[-1].split("-")[0]
        for loop in loops(path):
            found.setdefault((kind(loop), compiler), loop)
    for name, fmas, rows in LOOPS:
        for compiler in ("gcc", "clang"):
            loop = found.get(((fmas, rows), compiler))
            if not loop:
                sys.exit(f"no loop {name} with {fmas} FMAs from {compiler}: spilled, or unrolled?")
            if assembly:
                print("\n".join("    " + i for i in loop))
            for core in CORES:
                times = timing(core, loop)
                limit = sum(t for i, (_, t) in zip(loop, times) if i.startswith("fmla"))
                summary = llvm_mca(core, loop)
                cycles = int(re.search(r"Total Cycles: +(\d+)", summary)[1])
                units = float(re.search(r"Block RThroughput: +([\d.]+)", summary)[1])
                rows_of = [(core, cycles / ITERATIONS)]
                if core == "cortex-a53":
                    rows_of.append((core + " *", in_order(loop, times)))
                for label, c in rows_of:
                    print(f"{name:<16}{compiler:<10}{label:<13}{c:>8.1f}{units:>8.1f}"
                          f"{limit:>8.1f}{limit / c:>8.0%}")
    print("* without llvm-mca's rule that nothing finishes ahead of an earlier instruction")


main()
