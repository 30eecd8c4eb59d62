#!/usr/bin/env python3
"""tools/changed.py names the tests of what has changed, and never too few."""

import os
import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import changed  # noqa: E402

# Tests of ctest by name, and the files whose change must run them.
TESTS = {
    "Ranks/AllReduce.Everything/3": "src/ops/all_reduce/two_shot_all_reduce.hpp",
    "Ranks/Ragged.Everything/3": "src/ops/moves/push_copy.hpp",
    "RmsNormFaults.ARankThatDies": "src/ops/norm/rms_norm.cpp",
    "MoeFaults.ARankThatDies": "src/ops/moe/moe_send.hpp",
    "Sim/RandomSchedules.AreRight/two_shot_bf16": "src/ops/all_reduce/two_shot_all_reduce.hpp",
    "Sim/PctSchedules.AreRight/moves_ragged": "src/ops/moves/push_copy.hpp",
    "Sim/Exhaustive.AllSchedulesWithinTheBoundAreRight/rms_norm_ranks2": "src/ops/norm/rms_norm.hpp",
    "Sim/Faults.EndAsTheyMust/stops_moe_apart": "src/ops/moe/moe_send.hpp",
    "Sim/Mutants.IsKilled/one_bank": "src/ops/all_reduce/one_shot_all_reduce.hpp",
    "Fork.AChildIsRejected": "tests/comm/fork_test.cpp",
    "lint_rules": "src/ops/moe/moe_send.hpp",
}


class Changed(unittest.TestCase):
    def setUp(self):
        os.chdir(ROOT)

    def test_a_file_has_the_tests_of_its_family(self):
        for test, file in TESTS.items():
            self.assertRegex(test, changed.tests_of([file]), file)

    def test_a_file_has_no_tests_of_other_families(self):
        for test in ("Ranks/Ragged.Everything/3", "MoeFaults.ARankThatDies", "Sim/PctSchedules.AreRight/moe_apart"):
            self.assertIsNone(re.search(changed.tests_of(["src/ops/norm/rms_norm.cpp"]), test), test)

    def test_families_add_up(self):
        both = changed.tests_of(["src/ops/norm/rms_norm.cpp", "docs/moe.md", "src/ops/moe/moe_send.hpp"])
        for test in ("RmsNormFaults.ARankThatDies", "MoeFaults.ARankThatDies"):
            self.assertRegex(test, both)

    def test_a_file_of_several_families_has_all_tests(self):
        for file in ("src/base/pack.hpp", "src/ops/kernels.cpp", "tests/support/world.cpp", "cmake/tests.cmake", "dev"):
            self.assertIsNone(changed.tests_of(["docs/moe.md", file]), file)

    def test_documents_have_none(self):
        self.assertEqual(changed.tests_of(["README.md", "docs/notes/0001-the-first.md"]), "")

    def test_every_operation_is_a_family(self):
        folders = {path.name for path in Path("src/ops").iterdir() if path.is_dir()}
        self.assertEqual(folders, set(changed.FAMILIES))


if __name__ == "__main__":
    unittest.main()
