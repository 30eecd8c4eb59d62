"""The example of a whole layer with real GEMMs, on CPU ranks. It compares itself with plain torch."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from processes import run_programs, torchrun_variables
from ranks import run_ranks

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "moe_layer.py"
sys.path += [str(EXAMPLE.parent), str(ROOT / "tests" / "stubs" / "deep_gemm")]
import deep_gemm  # noqa: E402
import moe_layer  # noqa: E402

GEMMS = ["torch", "deep_gemm"]
SCHEDULES = [("plain", 1), ("rounds", 3), ("combine_rounds", 2)]


def differences(ranks: int, gemm: str, schedule: str, rounds: int) -> list[tuple[float, float]]:
    words = ["--device", "cpu", "--gemm", gemm, "--schedule", schedule, "--rounds", str(rounds)]
    args = moe_layer.options().parse_args(words)
    return run_ranks(ranks, lambda rank: moe_layer.largest_difference(rank, args))


@pytest.mark.parametrize("ranks", [2, 4])
def test_programs(ranks: int) -> None:
    variables = [{**of, "OMP_NUM_THREADS": "1"} for of in torchrun_variables(ranks)]
    for rank, outcome in enumerate(run_programs([str(EXAMPLE), "--device", "cpu"], variables, seconds=200)):
        assert (outcome.code, outcome.errors) == (0, "")
        text = rf"rank {rank} of {ranks}: torch's experts differ by 0\.\d\d% of the largest number\n"
        assert re.fullmatch(text, outcome.output), outcome.output


def test_a_program_that_differs_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moe_layer, "largest_difference", lambda *_: (float("nan"), 0.01))
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--device", "cpu"])
    for variable in [name for name in os.environ if name.startswith(("RANK", "WORLD_SIZE"))]:
        monkeypatch.delenv(variable)
    with pytest.raises(SystemExit, match="rank 0 of 1: torch's experts differ by nan% of the largest number; at most 1%"):
        moe_layer.main()


@pytest.mark.parametrize(("schedule", "rounds"), SCHEDULES)
@pytest.mark.parametrize("gemm", GEMMS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_the_layer_is_that_of_plain_torch(ranks: int, gemm: str, schedule: str, rounds: int) -> None:
    for difference, allowed in differences(ranks, gemm, schedule, rounds):
        assert 0 < difference <= allowed  # it is not compared with itself


def another_experts_weights(right: Callable[..., Any], number_of: int) -> Callable[..., Any]:
    def broken(*args: Any, **more: Any) -> Any:
        moved = list(args)
        weights = args[number_of]
        moved[number_of] = weights.roll(1, 0) if isinstance(weights, torch.Tensor) else [w.roll(1, 0) for w in weights]
        return right(*moved, **more)

    return broken


def last_rows(ends: list[int], fault: str) -> slice:
    """The rows of the last group, or the last of them."""
    begin, end = ends[-2:]
    return slice(begin if fault == "expert" else max(begin, end - 1), end)


def without_torch(right: Callable[..., Any], fault: str) -> Callable[..., Any]:
    def broken(rows: torch.Tensor, weights: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = right(rows, weights, offs=offs)
        made[last_rows([0, *offs.tolist()], fault)] = 0
        return made

    return broken


def without_deep_gemm(right: Callable[..., Any], fault: str) -> Callable[..., Any]:
    def broken(a: Any, b: Any, d: torch.Tensor, masked_m: torch.Tensor, expected_m: int) -> None:
        right(a, b, d, masked_m, expected_m)
        d[-1, last_rows([0, int(masked_m[-1])], fault)] = 0

    return broken


@pytest.mark.parametrize(("schedule", "rounds"), SCHEDULES[:2])
@pytest.mark.parametrize("fault", ["weights", "expert", "row"])
@pytest.mark.parametrize("gemm", GEMMS)
def test_faults_are_found(
    monkeypatch: pytest.MonkeyPatch, gemm: str, fault: str, schedule: weft.LayerSchedule, rounds: int
) -> None:
    """Weights of another expert; an expert without its rows; one row that is lost."""
    module: Any = torch if gemm == "torch" else deep_gemm
    name = "_grouped_mm" if gemm == "torch" else "fp8_m_grouped_gemm_nt_masked"
    without = without_torch if gemm == "torch" else without_deep_gemm
    right = getattr(module, name)
    broken = another_experts_weights(right, 1) if fault == "weights" else without(right, fault)
    monkeypatch.setattr(module, name, broken)
    found = differences(2, gemm, schedule, rounds)
    assert any(not difference <= allowed for difference, allowed in found), found
