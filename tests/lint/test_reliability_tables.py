#!/usr/bin/env python3
"""The messages of tools/reliability_tables.py about runs and pages that fall short."""

import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import reliability_tables  # noqa: E402


def run_of(setups=12, exhaustive=100_000, random=100_000, each=None):
    """The recorded properties of tests: everything that must be run, unless the arguments change it."""
    tests = []
    for i in range(setups):
        name = f"setup-{i}"
        tests.append({"strategy": "exhaustive", "setup": name, "executions": str(exhaustive), "bound": "1", "steps": "9"})
        tests.append({"strategy": "random", "setup": name, "executions": str(each or random), "steps": "9"})
    return tests + [{"mutant": mutant["name"], "setup": "setup-0", "killed_by": "deadlock", "schedules": "3"}
                    for mutant in reliability_tables.MUTANTS]


def wrong_with(tests):
    return reliability_tables.shortfalls(*reliability_tables.numbers_of(tests))


class Runs(unittest.TestCase):
    def test_enough_is_enough(self):
        self.assertEqual(wrong_with(run_of()), [])

    def test_too_little_is_told(self):
        self.assertIn("11 set-ups searched exhaustively", wrong_with(run_of(setups=11))[0])
        self.assertIn("600 executions of exhaustive", wrong_with(run_of(exhaustive=50))[0])
        self.assertIn("960000 random executions", wrong_with(run_of(random=80_000))[0])
        few = run_of(setups=200, each=9_999)
        self.assertEqual(len(wrong_with(few)), 200)
        self.assertIn("9999 random executions of setup-0", wrong_with(few)[0])
        large = {"strategy": "random", "setup": "large", "executions": "1000", "steps": "9"}
        self.assertEqual(wrong_with([*run_of(), large]), [])
        large["executions"] = "999"
        self.assertIn("999 random executions of large", wrong_with([*run_of(), large])[0])

    def test_a_bug_that_is_not_looked_for_is_told(self):
        tests = run_of()
        self.assertEqual(wrong_with(tests[:-1]), [f"seeded bug {tests[-1]['mutant']} is missing"])

    def test_reports_of_ctest_are_read(self):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder, "Sim/Exhaustive.All")
            place.mkdir(parents=True)
            Path(place, "one.xml").write_text(
                '<testsuites><testsuite><testcase name="x"><properties><property name="strategy" value="random"/>'
                '<property name="setup" value="a"/></properties></testcase></testsuite></testsuites>', encoding="utf-8")
            self.assertEqual(reliability_tables.reports_of(Path(folder)), [{"strategy": "random", "setup": "a"}])


class Pages(unittest.TestCase):
    @staticmethod
    def page(tests):
        return ("| random schedules | 1 | 1 690 000 | 842 282 094 |\n| PCT schedules | 1 | 215 000 | 1 |\n\n"
                "All of it takes 99 s in 2 processes.\n\n" + reliability_tables.recorded() + "\n\n" +
                reliability_tables.schedules(tests) + "\n\n## Seeded bugs\n\n" + reliability_tables.mutants(tests))

    def test_a_page_says_what_the_run_was(self):
        tests = run_of()
        self.assertEqual(reliability_tables.numbers_on(self.page(tests)), reliability_tables.numbers_of(tests))

    def test_an_old_page_is_told(self):
        page = self.page(run_of())
        self.assertEqual(reliability_tables.page_shortfalls(page), [])
        name, kind = (reliability_tables.MUTANTS[0][key] for key in ("name", "kind"))
        lines = page.splitlines()
        row = next(i for i, line in enumerate(lines) if line.startswith((f"| {name} |", f"| {name} —")))
        without = "\n".join(lines[:row] + lines[row + 1:])
        self.assertEqual(reliability_tables.page_shortfalls(without), [f"seeded bug {name} is missing"])
        other = page.replace(lines[row], lines[row].replace(f"| {kind} |", "| 99 |", 1))
        self.assertEqual(reliability_tables.page_shortfalls(other), [f"seeded bug {name} is of kind {kind}, not 99"])
        record = page.replace("executions without a failure", "executions")
        self.assertIn("another record", reliability_tables.page_shortfalls(record)[0])
        self.addCleanup(setattr, reliability_tables, "RECORDED_RANDOM_EACH", reliability_tables.RECORDED_RANDOM_EACH)
        reliability_tables.RECORDED_RANDOM_EACH = 20_000
        self.assertIn("in the record: at least 20000", reliability_tables.page_shortfalls(page)[0])
        reliability_tables.RECORDED_RANDOM_EACH = 10_000
        self.addCleanup(setattr, reliability_tables, "protocols", reliability_tables.protocols)
        reliability_tables.protocols = lambda: "others"
        self.assertIn("other protocols", reliability_tables.page_shortfalls(page)[0])


class Protocols(unittest.TestCase):
    def test_their_digest_is_of_their_code(self):
        self.addCleanup(setattr, reliability_tables, "ROOT", reliability_tables.ROOT)
        digests = []
        with tempfile.TemporaryDirectory() as folder:
            reliability_tables.ROOT = Path(folder)
            header = Path(folder, "src/wire/line.hpp")
            header.parent.mkdir(parents=True)
            for code in ("int a = 1;\n", "int  a = 1;  // one\n", "int a = 2;\n"):
                header.write_text(code, encoding="utf-8")
                digests.append(reliability_tables.protocols())
        self.assertEqual(digests[0], digests[1])
        self.assertNotEqual(digests[1], digests[2])


class Steps(unittest.TestCase):
    def test_a_run_of_too_many_is_told(self):
        page = Pages.page(run_of())
        most = reliability_tables.MOST_STEPS
        long = page.replace("| 1 |\n\n", f"| {most - 842_282_093} |\n\n", 1)
        self.assertEqual(reliability_tables.page_shortfalls(long), [f"{most + 1} steps: 1 to {most} are allowed"])

    def test_a_page_without_them_is_told(self):
        page = Pages.page(run_of()).partition("\n\n")[2]
        most = reliability_tables.MOST_STEPS
        self.assertEqual(reliability_tables.page_shortfalls(page), [f"0 steps: 1 to {most} are allowed"])


if __name__ == "__main__":
    unittest.main()
