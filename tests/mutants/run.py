#!/usr/bin/env python3
"""Switches on the seeded bugs of a table one by one: each must be found by the test that is named for it.

    tests/mutants/run.py --table tests/mutants/host.json build/dev/bin/weft-mutant-tests
    tests/mutants/run.py --table tests/oracle/mutants.json build/dev/bin/weft-oracle-tests

The executable has tests over a copy that tools/mutate.py has made: of the library, all CPU tests; of the oracle, its
cases computed by hand. WEFT_MUTANT says which bug is on. The same tests have to pass first without any. A test that hangs has not found anything.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SECONDS = 60  # for one test with one bug


def run(binary, tests, number):
    """(result, seconds). The result is "passed", "failed", "crashed", "hung" or "no test"."""
    began = time.monotonic()
    try:
        result = subprocess.run([binary, f"--gtest_filter={tests}"], env={**os.environ, "WEFT_MUTANT": str(number)},
                                check=False, capture_output=True, text=True, errors="replace", timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return "hung", SECONDS
    seconds = time.monotonic() - began
    if not re.search(r"^\[ RUN      \]", result.stdout, re.MULTILINE):
        return "no test", seconds
    if result.returncode < 0:
        return "crashed", seconds
    return "passed" if result.returncode == 0 else "failed", seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=Path)
    parser.add_argument("--table", type=Path, required=True)
    # Some tests wait for deadlines for a long time, so there are more jobs than cores.
    parser.add_argument("--jobs", type=int, default=(os.cpu_count() or 1) + 2)
    parser.add_argument("--files", nargs="+", help="only bugs of these files, named as in the table")
    args = parser.parse_args()
    mutants = list(enumerate(json.loads(args.table.read_text(encoding="utf-8")), 1))
    if args.files:
        mutants = [(number, mutant) for number, mutant in mutants
                   if any(edit["file"] in args.files for edit in mutant["edits"])]
    binary = args.binary.resolve()
    wrong = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        tests = sorted({mutant["test"] for _, mutant in mutants})
        for test, (verdict, _) in zip(tests, pool.map(lambda test: run(binary, test, 0), tests)):
            if verdict != "passed":
                wrong += 1
                print(f"without a bug: {verdict} ({test})")
        found = pool.map(lambda one: run(binary, one[1]["test"], one[0]), mutants)
        for (_, mutant), (verdict, seconds) in zip(mutants, found):
            killed = verdict in ("failed", "crashed")
            wrong += not killed
            print(f"{'found' if killed else 'NOT FOUND'}: {mutant['name']} ({verdict} after {seconds:.1f} s: {mutant['test']})")
    print(f"{len(mutants)} seeded bugs, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
