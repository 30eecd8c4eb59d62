#!/usr/bin/env python3
"""Kernels must read their arguments in place, and never through their address. Otherwise each use of an argument is
a load through a generic pointer, again after every wait. Such loads took a fifth of the time of ragged gathers
(docs/notes/0024-arguments-are-passed-not-kept.md). Fails if a kernel of arguments.cu takes that address."""

import argparse
import sys
import tempfile
from pathlib import Path

from gpu_code import FLAGS, entries, opcode, run

SOURCE = Path(__file__).with_name("arguments.cu")


def through_addresses(ptx):
    """One line for each kernel that takes the address of an argument."""
    counts = {name: sum(opcode(one).startswith("cvta.param") for one in code) for name, code in entries(ptx).items()}
    return [f"{name}: takes the address of its arguments {count} times" for name, count in counts.items() if count]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvcc", default="nvcc")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "arguments.ptx"
        run([args.nvcc, *FLAGS, "-arch=sm_90", "-ptx", SOURCE, "-o", path])
        ptx = path.read_text(encoding="utf-8")
    wrong = through_addresses(ptx)
    found, wanted = len(entries(ptx)), SOURCE.read_text(encoding="utf-8").count("template __global__")
    if found != wanted:
        wrong.append(f"{found} kernels were compiled, of {wanted}")
    print("\n".join(wrong) or f"{found} kernels read their arguments in place")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
