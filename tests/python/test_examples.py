"""The examples run as they say, without a GPU and without a framework."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import run_program, run_programs, torchrun_variables

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_all_reduce_as_processes() -> None:
    outcomes = run_programs([str(EXAMPLES / "all_reduce.py")], torchrun_variables(4))
    assert outcomes == [(0, f"rank {rank} of 4: every sum is 10\n", "") for rank in range(4)]


def test_all_reduce_without_a_launcher() -> None:
    assert run_program([str(EXAMPLES / "all_reduce.py")]) == (0, "rank 0 of 1: every sum is 1\n", "")


def test_all_reduce_fails_with_the_reason() -> None:
    """It names the variable, and shows no traceback."""
    variables = {**torchrun_variables(2)[1], "MASTER_PORT": "none"}
    code, output, errors = run_program([str(EXAMPLES / "all_reduce.py")], variables)
    assert (code, output) == (1, "")
    assert "MASTER_PORT" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("arguments", [[], ["1"], ["3"]])
def test_threads(arguments: list[str]) -> None:
    ranks = arguments[0] if arguments else "4"
    told = f"{ranks} ranks: sums and gathered rows are right, and 16 tokens of each came back doubled\n"
    assert run_program([str(EXAMPLES / "threads.py"), *arguments]) == (0, told, "")


def test_threads_fails_with_the_reason() -> None:
    errors = "world_size: 73 is not between 1 and 72\n"
    assert run_program([str(EXAMPLES / "threads.py"), "73"]) == (1, "", errors)
