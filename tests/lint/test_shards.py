"""run_shards of tools/test.sh: a few processes at a time run all shares of a suite, and each case is counted once."""

import os
import pathlib
import stat
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# Writes down when it begins and when it ends. Share 3 fails.
SUITE = """#!/usr/bin/env bash
echo begin >>times
sleep 0.05
echo end >>times
echo "[ RUN      ] Suite.Case$GTEST_SHARD_INDEX"
[[ $GTEST_SHARD_INDEX == 3 ]] && echo "[  FAILED  ] Suite.Case3 (0 ms)" || echo "[       OK ] Suite.Case$GTEST_SHARD_INDEX (0 ms)"
echo "[==========] 1 test from 1 test suite ran. (0 ms total)"
"""

SHELL = """
set -euo pipefail
say() { echo "dev: $*"; }
source "$ROOT/tools/build.sh"
source "$ROOT/tools/test.sh"
mkdir -p build
run_shards some 9 2 ./suite
echo "$tests_passed passed, $tests_failed failed"
"""


class Shards(unittest.TestCase):
    said: str
    folder: pathlib.Path

    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        suite = cls.folder / "suite"
        suite.write_text(SUITE)
        suite.chmod(suite.stat().st_mode | stat.S_IXUSR)
        names = {**os.environ, "ROOT": str(ROOT), "WEFT_NCCL": "none"}  # with a name nobody looks for one
        cls.said = subprocess.run(["bash", "-c", SHELL], cwd=folder.name, env=names, capture_output=True, text=True,
                                  check=True, timeout=60).stdout

    def test_no_more_run_at_a_time_than_are_asked_for(self) -> None:
        running = most = 0
        for word in (self.folder / "times").read_text().split():
            running += 1 if word == "begin" else -1
            most = max(most, running)
        self.assertLessEqual(most, 2)

    def test_every_share_runs_and_is_counted(self) -> None:
        self.assertIn("8 passed, 1 failed", self.said)


if __name__ == "__main__":
    unittest.main()
