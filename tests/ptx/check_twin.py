#!/usr/bin/env python3
"""Compares the library's kernel of one call with a hand-written one that does the same (twin.cu), as compiled for
sm_90: registers, stack, spills, and instructions by class. Fails if the template costs more than the tolerance."""

import argparse
import re
import sys
import tempfile
from pathlib import Path

from gpu_code import FLAGS, disassembly, entries, nvcc_version, opcode, resources, run

SOURCE = Path(__file__).with_name("twin.cu")
MORE_INSTRUCTIONS = 0.05
MORE_REGISTERS = 5

# The first match counts.
CLASSES = {
    "parameters": r"(ld|st)\.param",
    "wait, barrier, atomic": r"griddepcontrol|bar|barrier|atom|red|fence|membar",
    "loads": r"ld",
    "stores": r"st",
    "branches and calls": r"bra|brx|ret|call",
    "moves": r"mov|cvta",
    "float arithmetic": r"(add|sub|mul|fma)(\.\w+)*\.f32|cvt.*f32",
    "integer arithmetic": r".*",
}


def mix(code):
    counts = dict.fromkeys(CLASSES, 0)
    for instruction in code:
        counts[next(name for name, pattern in CLASSES.items() if re.match(pattern, opcode(instruction)))] += 1
    return counts


def only(found, pattern):
    """The value of the only kernel whose name matches."""
    matching = [value for name, value in found.items() if re.search(pattern, name)]
    if len(matching) != 1:
        raise SystemExit(f"{len(matching)} kernels are called {pattern}, of {list(found)}")
    return matching[0]


def figures(pattern, ptx, ptxas, sass):
    """{row of the table: number} of one kernel."""
    registers, stack, spills = only(resources(ptxas), pattern)
    code = only(entries(ptx), pattern)
    rows = {"registers": registers, "stack bytes": stack, "spill bytes": spills, "PTX instructions": len(code)}
    rows |= {f"- {name}": count for name, count in mix(code).items()}
    if sass is not None:
        rows["SASS instructions"] = len(only(sass, pattern))
    return rows


def excesses(twin, library):
    """One line for each figure in which the template costs more than the tolerance."""
    limits = {"registers": twin["registers"] + MORE_REGISTERS, "stack bytes": twin["stack bytes"], "spill bytes": 0}
    for row in ("PTX instructions", "SASS instructions"):
        if row in twin:
            limits[row] = twin[row] * (1 + MORE_INSTRUCTIONS)
    return [f"{row}: {library[row]}, at most {limit:g} allowed" for row, limit in limits.items() if library[row] > limit]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvcc", default="nvcc")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ptx, cubin = Path(folder) / "twin.ptx", Path(folder) / "twin.cubin"
        run([args.nvcc, *FLAGS, "-arch=sm_90", "-ptx", SOURCE, "-o", ptx])
        ptxas = run([args.nvcc, *FLAGS, "-arch=sm_90", "-cubin", "-Xptxas=-v", SOURCE, "-o", cubin])
        outputs = ptx.read_text(encoding="utf-8"), ptxas, disassembly(cubin)
    twin, library = figures("^hand_written$", *outputs), figures("collective", *outputs)
    print(f"| sm_90, nvcc {nvcc_version(args.nvcc)} | hand-written | template |\n|---|---:|---:|")
    for row in twin:
        print(f"| {row} | {twin[row]} | {library[row]} |")
    if outputs[2] is None:
        print("\nNo cuobjdump or nvdisasm on PATH: SASS was left out.")
    wrong = excesses(twin, library)
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
