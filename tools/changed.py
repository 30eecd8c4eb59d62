#!/usr/bin/env python3
"""Names the tests of what has changed, for `./dev test --changed`.

  tools/changed.py [BASE]          prints three lines: executables to build, a regular expression for names of tests
                                   (`.` for all tests; empty lines if only documents have changed), and the changed files
                                   that have seeded bugs of the host
  tools/changed.py --cases REGEX   prints the cases of `EXECUTABLE --gtest_list_tests` (input) that REGEX finds, as a
                                   flag for the executable; nothing if there are none

A change counts since BASE (origin/main, or HEAD if there is none), and also if it is not committed. A file in the folder
of an operation has the tests of its family, and of every family that includes it: cases on CPU ranks, set-ups and
faults in the simulator, and the seeded bugs of its files. An algorithm that is alone in a file has its own set-ups alone. A test of CPU ranks has its own cases. Any other file has
all tests.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

# By folder of src/ops: how names of suites begin, and words in names of the simulator's set-ups.
FAMILIES = {
    "all_reduce": (
        "AllReduce Pipelined Multimem Sequence Thresholds Plan FarOffsets Recording Faults Checkers",
        "(?<!norm_)one_shot (?<!norm_)two_shot pipelined multimem overlap rejections",
    ),
    "moves": (
        "Gather Ragged MovePlans Moves/ KindSequences Misfits Symmetric Shards Slots Layout ParallelLayout TakenRows "
        "Attention Barrier FarOffsets RecordedKinds BenchDp BenchGather OracleMoves",
        "all_gather all_to barrier broadcast chunks counts detour moves ragged reduce_ relay scatter symmetric take copies",
    ),
    "columns": (
        "Columns ColumnArguments ColumnShares RaggedColumns KindSequences RecordedKinds HyperbolicTangent BenchLogits "
        "OracleColumns",
        "columns",
    ),
    "top_k": ("TopK KindSequences RecordedKinds OracleLargest", "top_k"),
    "crossings": (
        "Crossing Counts/Crossing GatherFaults RecordedKinds Attention BenchDp OracleMoves",
        "(?<!normed_)crossings",
    ),
    "normed_crossings": ("NormedCrossing Counts/NormedCrossing RecordedKinds", "normed_crossings"),
    "messages": ("Message", "messages"),
    "norm": ("RmsNorm FarNorms RecordedKinds Plan Thresholds Tuning Pairs BenchNorm OracleNorms", "rms_norm norm_"),
    "moe": ("Moe ExchangeChoice ExchangeTuning TuneExchange BenchMoe InfoMoe OracleMoe", "moe"),
    "layer": ("MoeLayer SharedExperts LayerChoice LayerTuning TuneLayer CLayers BenchMoeLayer", "moe_rounds"),
}
RING = "moe_ring moe_both moe_compact moe_places_ring moe_rounds_ring"
# An algorithm in a file of its own, that no other family includes: the words of its set-ups.
ALGORITHMS = {
    "src/ops/all_reduce/one_shot_all_reduce.hpp": "(?<!norm_)one_shot overlap",
    "src/ops/all_reduce/two_shot_all_reduce.hpp": "(?<!norm_)two_shot overlap",
    "src/ops/all_reduce/pipelined_all_reduce.hpp": "pipelined",
    "src/ops/all_reduce/multimem_one_shot.hpp": "multimem_one_shot",
    "src/ops/all_reduce/multimem_two_shot.hpp": "multimem_two_shot",
    **{
        f"src/ops/moe/{file}.hpp": RING
        for file in ("ring", "ring_combine", "ring_dispatch", "ring_routing", "ring_rows", "ring_sources")
    },
    "src/ops/moe/ring_again.hpp": "again",
    "src/ops/moe/ring_rounds.hpp": "moe_ring_rounds moe_ring_payloads_rounds moe_rounds_ring",
    "src/ops/moves/barrier.hpp": "barrier",
    "src/ops/moves/take_rows.hpp": "take",
}
# Quick, and for every change.
ALWAYS = ["^Kernels\\."]
EXECUTABLES = ["weft-tests", "weft-sim-tests"]
HOST_MUTANTS, HOST_MUTANT_TESTS = Path("tests/mutants/host.json"), "weft-mutant-tests"
SIM_MUTANTS = [Path(f"tests/sim/{table}.json") for table in ("mutants", "mutants_deep", "mutants_time")]
SUITE = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),", re.MULTILINE)
OF_FAMILY = re.compile(r"src/ops/(\w+)/")
OWN_CASES = re.compile(r"tests/(?!gpu/|twins/|oracle/).*_test\.cpp$")
PROSE = re.compile(r"\.(md|jsonl|svg)$|^(LICENSE$|\.ci/)")
INCLUDE = re.compile(r'^\s*#\s*include\s*"(ops/[^"]+)"', re.MULTILINE)


def git(*arguments):
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.splitlines()


def changed_files(base):
    uncommitted = git("ls-files", "--others", "--exclude-standard")
    return sorted({*git("diff", "--name-only", "--no-renames", git("merge-base", base, "HEAD")[0]), *uncommitted})


def default_base():
    known = subprocess.run(["git", "rev-parse", "--verify", "--quiet", "origin/main"], capture_output=True)
    return "origin/main" if known.returncode == 0 else "HEAD"


def includers():
    """{file of src/ops: files of src that include it}"""
    found = {}
    for path in Path("src").rglob("*.[hc]*"):
        for name in INCLUDE.findall(path.read_text()):
            found.setdefault(f"src/{name}", set()).add(str(path))
    return found


def families_of(file, included_by):
    """The families of a file and of all files that include it, through others or not."""
    reached, todo = {file}, [file]
    while todo:
        new = included_by.get(todo.pop(), set()) - reached
        reached |= new
        todo += new
    return sorted({found[1] for found in map(OF_FAMILY.match, reached) if found})


def family_tests(family, setups=None):
    """Parts of a regular expression. `setups`: words, if not all of the family's."""
    suites, all_setups = FAMILIES[family]
    others = "" if family in ("moe", "layer") else "(?!\\w*moe)"  # whose names have words of every kind
    words = (setups or all_setups).split()
    return [
        *(f"(?:^|(?<!Sim)/){suite}" for suite in suites.split()),
        *(f"Sim/[A-Za-z]*\\.[A-Za-z]*/{others}\\w*{word}" for word in words),
    ]


def mutants_of(files):
    """The simulator's tests of bugs that are seeded in these files."""
    for table in SIM_MUTANTS:
        for mutant in json.loads(table.read_text()):
            if any(f"src/{edit['file']}" in files for edit in mutant["edits"]):
                yield "Mutants\\.[A-Za-z]*/" + re.sub(r"[^A-Za-z0-9]", "_", mutant["name"])


def host_mutants_of(files):
    """The files, seen from src, in which bugs of the host are seeded."""
    seeded = {edit["file"] for mutant in json.loads(HOST_MUTANTS.read_text()) for edit in mutant["edits"]}
    return sorted(seeded & {file.removeprefix("src/") for file in files})


def tests_of(files):
    """(executables, parts of a regular expression); None for all tests, or two empty lists for none."""
    wanted, included_by = [], includers()
    for file in files:
        if OF_FAMILY.match(file):
            families = families_of(file, included_by)
            for family in families:
                wanted += family_tests(family, ALGORITHMS.get(file) if len(families) == 1 else None)
        elif OWN_CASES.match(file) and Path(file).is_file():
            for suite in SUITE.findall(Path(file).read_text()):
                wanted += [f"^{suite}\\.", f"/{suite}\\."]
        elif not PROSE.search(file):
            return None
    if not wanted:
        return [], []
    executables = [*EXECUTABLES, *([HOST_MUTANT_TESTS] if host_mutants_of(files) else [])]
    return executables, list(dict.fromkeys([*wanted, *mutants_of(files), *ALWAYS]))


def cases_of(listed, expression):
    """Full names of the cases that GoogleTest has listed and the expression finds."""
    suite = ""
    for line in listed.splitlines():
        name = line.split("  #")[0].rstrip()
        if not line.startswith("  "):
            suite = name
        elif re.search(expression, suite + name.strip()) and "DISABLED_" not in suite + name:
            yield suite + name.strip()


def main(arguments):
    if arguments[:1] == ["--cases"]:
        cases = list(cases_of(sys.stdin.read(), arguments[1]))
        print("--gtest_filter=" + ":".join(cases) + "\n" if cases else "", end="")
        return
    base = arguments[0] if arguments else default_base()
    files = changed_files(base)
    if not files:
        sys.exit(f"changed.py: no file differs from {base}; name another one")
    tests = tests_of(files)
    print(" ".join(tests[0]) if tests else "")
    print("|".join(tests[1]) if tests else ".")
    print(" ".join(host_mutants_of(files)))


if __name__ == "__main__":
    main(sys.argv[1:])
