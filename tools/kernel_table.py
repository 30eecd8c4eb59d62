#!/usr/bin/env python3
"""Writes how many kernels each folder has into docs/architecture.md, between its markers.

  tools/kernel_table.py WEFT-TESTS           rewrites the table, as the executable counts
  tools/kernel_table.py --check WEFT-TESTS   exits 1 if the page says something else

The executable is build/dev/bin/weft-tests. Its case Kernels.AreCounted counts the kernels that are loaded.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import result_tables

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "architecture.md"
CASE = "Kernels.AreCounted"
MARKERS = ("<!-- kernels:begin -->", "<!-- kernels:end -->")


def counts_of(executable):
    """{folder: kernels}"""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        subprocess.run([executable, f"--gtest_filter={CASE}", f"--gtest_output=json:{report}"], check=True,
                       stdout=subprocess.DEVNULL)
        case = json.loads(report.read_text(encoding="utf-8"))["testsuites"][0]["testsuite"][0]
    return {key: int(value) for key, value in case.items() if key == "comm" or key.startswith("ops/")}


def table(counts):
    rows = [[f"`src/{folder}`", str(count)] for folder, count in sorted(counts.items(), key=lambda one: (-one[1], one[0]))]
    return "\n".join(["| folder | kernels |", "|---|---:|"] +
                     ["| " + " | ".join(row) + " |" for row in [*rows, ["all", str(sum(counts.values()))]]]) + "\n"


def main(arguments):
    check = arguments[:1] == ["--check"]
    counts = counts_of(arguments[-1])
    old = PAGE.read_text(encoding="utf-8")
    new = result_tables.rewrite(old, table(counts), PAGE.name, MARKERS)
    if not counts:
        sys.exit(f"{arguments[-1]}: {CASE} has counted nothing")
    if check and new != old:
        sys.exit(f"{PAGE.name} has other numbers of kernels; run tools/kernel_table.py {arguments[-1]}")
    PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
