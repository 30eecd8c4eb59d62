#!/usr/bin/env python3
"""Names the tests of what has changed, for `./dev test --changed`.

  tools/changed.py [BASE]   prints ctest's regular expression; nothing if only documents have changed; `.` for all tests

A change counts since BASE (origin/main, or HEAD if there is none), and also if it is not committed. A file in the folder
of an operation has the tests of its family: cases on CPU ranks, set-ups and faults in the simulator, and the seeded bugs
of its files. A test file has its own cases. A file that several families use has all tests.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

# By folder of src/ops: suites of tests, and the beginnings of the simulator's set-ups.
FAMILIES = {
    "all_reduce": (
        r"AllReduce|Pipelined|Multimem|Ranks/Sequence|Thresholds|^Plan\.|Algorithms/Faults",
        r"one_shot|two_shot|pipelined|multimem",
    ),
    "moves": (
        r"Gather|Ragged|MovePlans|^Moves/|Misfits|Symmetric|Shards|Slots|^Layout|TakenRows|Attention|Broadcast",
        r"all_gather|all_to|broadcast|chunks|gathered_counts|moves|reduce_scatter|symmetric",
    ),
    "norm": (r"Norm", r"rms_norm"),
    "moe": (r"Moe", r"moe"),
}
# Quick, and for every change.
ALWAYS = r"^Kernels\.|^lint_"
MUTANTS = [Path("tests/sim/mutants.json"), Path("tests/sim/mutants_deep.json")]
SUITE = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),", re.MULTILINE)
PROSE = re.compile(r"\.(md|jsonl|svg)$|^(LICENSE|examples/|\.ci/)")


def git(*arguments):
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.splitlines()


def changed_files(base):
    uncommitted = git("ls-files", "--others", "--exclude-standard")
    return sorted({*git("diff", "--name-only", git("merge-base", base, "HEAD")[0]), *uncommitted})


def default_base():
    known = subprocess.run(["git", "rev-parse", "--verify", "--quiet", "origin/main"], capture_output=True)
    return "origin/main" if known.returncode == 0 else "HEAD"


def mutants_of(files):
    """The simulator's tests of bugs that are seeded in these files."""
    for table in MUTANTS:
        for mutant in json.loads(table.read_text()):
            if any(f"src/{edit['file']}" in files for edit in mutant["edits"]):
                yield r"Mutants\.\w+/" + re.sub(r"[^A-Za-z0-9]", "_", mutant["name"]) + "$"


def tests_of(files):
    """ctest's regular expression, or None for all tests."""
    wanted = []
    for file in files:
        family = re.match(r"src/ops/(\w+)/", file)
        if family:
            suites, setups = FAMILIES[family[1]]
            wanted += [suites, rf"^Sim/(Random|Pct|Exhaustive|Faults).*/\w*({setups})"]
        elif re.match(r"tests/.*_test\.cpp$", file) and Path(file).is_file():
            wanted += [rf"(^|/){suite}\." for suite in SUITE.findall(Path(file).read_text())]
        elif not PROSE.search(file):
            return None
    return "|".join(dict.fromkeys([*wanted, *mutants_of(files), ALWAYS])) if wanted else ""


def main(arguments):
    wanted = tests_of(changed_files(arguments[0] if arguments else default_base()))
    print("." if wanted is None else wanted)


if __name__ == "__main__":
    main(sys.argv[1:])
