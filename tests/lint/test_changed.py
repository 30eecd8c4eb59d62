#!/usr/bin/env python3
"""tools/changed.py names the tests of what has changed, and never too few.

  test_changed.py [WEFT-SIM-TESTS]   with the executable: its tests each belong to a family
"""

import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import changed  # noqa: E402

SIM_TESTS = sys.argv.pop() if len(sys.argv) > 1 and Path(sys.argv[-1]).is_file() else None

# Names of ctest, and the files whose change must run these tests.
TESTS = [
    ("Ranks/AllReduce.Everything/3  # GetParam() = 4", "src/ops/all_reduce/two_shot_all_reduce.hpp"),
    ("Ranks/Ragged.Everything/3", "src/ops/moves/push_copy.hpp"),
    ("RmsNormFaults.ARankThatDies", "src/ops/norm/rms_norm.cpp"),
    ("MoeFaults.ARankThatDies", "src/ops/moe/moe_send.hpp"),
    ("Sim/RandomSchedules.AreRight/two_shot_bf16", "src/ops/all_reduce/two_shot_all_reduce.hpp"),
    ("Sim/PctSchedules.AreRight/moves_ragged", "src/ops/moves/push_copy.hpp"),
    ("Sim/Exhaustive.AllSchedulesWithinTheBoundAreRight/rms_norm_ranks2", "src/ops/norm/rms_norm.hpp"),
    ("Sim/Faults.EndAsTheyMust/stops_moe_apart", "src/ops/moe/moe_send.hpp"),
    ("Sim/Faults.EndAsTheyMust/stops_two_shot", "src/ops/all_reduce/two_shot_all_reduce.hpp"),
    ("Algorithms/Faults.ARankThatDies/two_shot", "src/ops/all_reduce/two_shot_all_reduce.hpp"),
    ("Sim/RandomSchedules.AreRight/pipelined_cpu", "src/ops/all_reduce/all_reduce_plan.hpp"),
    ("Sim/Mutants.IsKilled/one_bank  # GetParam() = 55", "src/ops/all_reduce/one_shot_all_reduce.hpp"),
    ("Fork.AChildIsRejected", "tests/comm/fork_test.cpp"),
    ("Kernels.AreLoaded", "src/ops/moe/moe_send.hpp"),
    ("Ranks/Columns.Everything/2", "src/ops/columns/columns.cpp"),
    ("Ranks/Columns.Everything/2", "src/ops/moves/flow_copy.hpp"),
    ("Ranks/KindSequences.Columns/2", "src/ops/columns/columns.cpp"),
    ("Ranks/RecordedKinds.AllReducesWithNorm/2", "src/ops/norm/rms_norm.cpp"),
    ("Plan.Norms", "src/ops/norm/norm_plan.cpp"),
    ("LayerChoice.OfRank", "src/ops/layer/layer_choice.cpp"),
    # Headers that other families include.
    ("Ranks/Ragged.Everything/3", "src/ops/all_reduce/all_reduce_plan.hpp"),
    ("MoeFaults.ARankThatDies", "src/ops/all_reduce/all_reduce.hpp"),
]


class Changed(unittest.TestCase):
    def setUp(self):
        os.chdir(ROOT)

    def assert_selects(self, files, test):
        self.assertTrue(any(re.search(part, test) for part in changed.tests_of(files)[1]), (files, test))

    def test_a_file_has_the_tests_of_its_family(self):
        for test, file in TESTS:
            self.assert_selects([file], test)

    def test_a_file_has_no_tests_of_other_families(self):
        for test, file in (
            ("Ranks/Ragged.Everything/3", "src/ops/norm/rms_norm.cpp"),
            ("MoeFaults.ARankThatDies", "src/ops/norm/rms_norm.cpp"),
            ("Sim/PctSchedules.AreRight/moe_apart", "src/ops/norm/rms_norm.cpp"),
            ("MoeFaults.ARankThatDies", "src/ops/all_reduce/all_reduce.cpp"),
            ("Sim/Faults.EndAsTheyMust/stops_moves_ragged", "src/ops/all_reduce/all_reduce.cpp"),
            ("Sim/PctSchedules.AreRight/moe_host_counts", "src/ops/moves/push_copy.hpp"),
        ):
            parts = changed.tests_of([file])[1]
            self.assertFalse(any(re.search(part, test) for part in parts), test)

    def test_families_add_up(self):
        for test in ("RmsNormFaults.ARankThatDies", "MoeFaults.ARankThatDies"):
            self.assert_selects(["src/ops/norm/rms_norm.cpp", "docs/moe.md", "src/ops/moe/moe_send.hpp"], test)

    def test_other_files_have_all_tests(self):
        for file in ("src/base/pack.hpp", "src/ops/kernels.cpp", "tests/support/world.cpp", "tests/gpu/moe_test.cpp", "dev",
                     "tests/twins/broken_fabric_test.cpp", "oracle/moe.cpp", "examples/moe.cpp", "cmake/tests.cmake"):
            self.assertIsNone(changed.tests_of(["docs/moe.md", file]), file)

    def test_documents_have_none(self):
        self.assertEqual(changed.tests_of(["README.md", "docs/notes/0001-the-first.md"]), ([], []))

    def test_every_operation_is_a_family(self):
        folders = {path.name for path in Path("src/ops").iterdir() if path.is_dir()}
        self.assertEqual(folders, set(changed.FAMILIES))

    def test_seeded_bugs_of_the_host_are_those_of_the_changed_files(self):
        files = ["src/ops/moe/exchange.cpp", "src/ops/moe/exchange.hpp", "docs/moe.md"]
        self.assertEqual(changed.host_mutants_of(files), ["ops/moe/exchange.cpp"])
        self.assertIn("weft-mutant-tests", changed.tests_of(files)[0])
        self.assertNotIn("weft-mutant-tests", changed.tests_of(["src/ops/moe/exchange.hpp"])[0])

    def test_cases_have_their_full_names(self):
        listed = "A.\n  One\n  Two\nAll/B.  # TypeParam = int\n  One/0  # GetParam() = 4\n  DISABLED_One\n"
        self.assertEqual(list(changed.cases_of(listed, r"^A\.Two|One/")), ["A.Two", "All/B.One/0"])
        self.assertEqual(list(changed.cases_of(listed, "One$")), ["A.One"])

    def test_an_algorithm_in_a_file_of_its_own_has_its_own_set_ups(self):
        file = "src/ops/all_reduce/two_shot_all_reduce.hpp"
        self.assert_selects([file], "Ranks/AllReduce.Everything/3")
        for of in ("one_shot_bf16", "pipelined_cpu", "rms_norm_two_shot_bf16"):
            parts = changed.tests_of([file])[1]
            self.assertFalse(any(re.search(part, f"Sim/RandomSchedules.AreRight/{of}") for part in parts), of)
        self.assert_selects(["src/ops/moe/ring.hpp"], "Sim/PctSchedules.AreRight/moe_compact_both")
        self.assert_selects(["src/ops/moe/ring_rounds.hpp"], "Sim/Faults.EndAsTheyMust/stops_moe_rounds_ring_ranks2")
        for known in changed.ALGORITHMS:
            self.assertTrue(Path(known).is_file(), known)
            self.assertEqual(len(changed.families_of(known, changed.includers())), 1, known)

    # Suites that no family has are of the host, and a change of an operation does not concern them.
    def test_suites_of_operations_are_of_a_family(self):
        parts = [part for family in changed.FAMILIES for part in changed.family_tests(family)]
        for folder in ("moe", "comm"):
            for file in Path("tests", folder).glob("*_test.cpp"):
                for suite in changed.SUITE.findall(file.read_text()):
                    if re.match("Moe|Layer|Exchange|SharedExperts|RmsNorm|Crossing|Gather|Ragged|Column|TopK|Message", suite):
                        self.assertTrue(any(re.search(part, f"{suite}.Case") for part in parts), suite)

    if SIM_TESTS:

        def test_every_set_up_is_of_a_family(self):
            listed = subprocess.run([SIM_TESTS, "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
            suite, found = "", 0
            for line in listed.splitlines():
                if not line.startswith("  "):
                    suite = line
                elif re.match(r"Sim/(RandomSchedules|PctSchedules|Exhaustive|Faults)\.", suite):
                    found += 1
                    test = suite + line.split("  #")[0].strip()
                    parts = [part for family in changed.FAMILIES for part in changed.family_tests(family)]
                    self.assertTrue(any(re.search(part, test) for part in parts), test)
            self.assertGreater(found, 1000)


if __name__ == "__main__":
    unittest.main()
