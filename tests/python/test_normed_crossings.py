"""Crossings with a norm from Python have the bits of the three calls that they replace."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pytest
import weft
from ranks import run_ranks
from test_operations import Array, given, numbers

HIDDEN = 256


class Made(NamedTuple):
    """What a call makes of its rows."""

    normed: Array
    rows: Array
    scales: Array


def room(rows: int, dtype: Any) -> Made:
    shapes = ((rows, HIDDEN), dtype), ((rows, HIDDEN), np.uint8), ((rows, HIDDEN // 128), np.float32)
    return Made(*(np.full(shape, 7, of) for shape, of in shapes))


def fp8_of(made: Made) -> weft.Fp8Output:
    return weft.Fp8Output(made.rows, made.scales, scaling="per_128_columns")


@pytest.mark.parametrize("gathers", [True, False])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("written", [("normed",), ("normed", "rows", "scales"), ("rows", "scales")])
@pytest.mark.parametrize("f32", [False, True])
@pytest.mark.parametrize(("padding", "slot_rows"), [("none", 0), ("aligned", 4), ("max", 0)])
@pytest.mark.parametrize(("ranks", "group_ranks"), [(1, 1), (2, 1), (2, 2), (4, 2)])
def test_crossings_with_a_norm(
    gathers: bool,
    dtype: str,
    written: tuple[str, ...],
    f32: bool,
    padding: str,
    slot_rows: int,
    ranks: int,
    group_ranks: int,
) -> None:
    """bf16 with a residual in place; f16 without one, and with weights of 1 + gamma; gamma also as f32."""
    rows = [(3, 1, 0, 2)[rank] for rank in range(ranks)]
    slots = weft.slots_of(rows, padding, slot_rows)
    weights = "f32" if f32 else dtype
    gamma = numbers(weights, (HIDDEN,), 99)
    rules: dict[str, Any] = {"gamma_plus_one": dtype == "f16", "epsilon": 1e-6 if dtype == "bf16" else 0.5}

    def work(rank: weft.Communicator) -> None:
        me, world = rank.rank, rank.world
        first = me - me % group_ranks
        of_group, last = rows[first : first + group_ranks], slots[first + group_ranks - 1]
        filled, end = sum(of_group), last.end - slots[first].begin
        inputs, outputs = (filled, slots[-1].end) if gathers else (slots[-1].end, end)
        x, before = numbers(dtype, (inputs, HIDDEN), me), numbers(dtype, (rows[me], HIDDEN), 50 + me)
        counts = weft.Counts(np.array(rows, np.int32), padding=padding, slot_rows=slot_rows)
        group, alone = rank.split(me // group_ranks), rank.split(me)
        assert group is not None and alone is not None

        # A row more than there are.
        fused, sums = room(outputs + 1, x.dtype), before.copy()
        residual = given(sums, dtype)
        call = world.gather_sums_rms_norm if gathers else world.scatter_sums_rms_norm
        call(
            given(fused.normed, dtype) if "normed" in written else None,
            residual,
            given(x, dtype),
            given(gamma, weights),
            counts,
            residual if dtype == "bf16" else None,
            group_ranks=group_ranks,
            fp8=fp8_of(fused) if "rows" in written else None,
            tag=5,
            **rules,
        )

        part = np.zeros((slots[me].end - slots[me].begin, HIDDEN), x.dtype)
        if gathers:
            group.reduce_scatter_v(given(part, dtype), given(x, dtype), weft.Counts(of_group))
        else:
            world.reduce_scatter_v(given(part, dtype), given(x, dtype), counts)
        shard, added = room(rows[me], x.dtype), np.zeros_like(sums)
        alone.all_reduce_rms_norm(
            given(shard.normed, dtype),
            given(added, dtype),
            given(part[: rows[me]], dtype),
            given(gamma, weights),
            given(before, dtype) if dtype == "bf16" else None,
            fp8=fp8_of(shard),
            **rules,
        )
        apart = room(outputs + 1, x.dtype)
        if gathers:
            world.all_gather_v([*apart], [*shard], counts)
        else:
            group.all_gather_v([*apart], [*shard], weft.Counts(of_group))
            for made in apart:
                made[filled:end] = 0

        assert sums.tobytes() == added.tobytes()
        for name, got, wanted in zip(Made._fields, fused, apart):
            assert got.tobytes() == (wanted if name in written else np.full_like(wanted, 7)).tobytes(), name

    run_ranks(ranks, work)


def halves(*shape: int) -> Array:
    return np.zeros(shape, np.float16)


def bytes_of(*shape: int) -> Array:
    return np.zeros(shape, np.uint8)


SCALES = np.zeros(3, np.float32)
REJECTED: list[tuple[dict[str, Any], str]] = [
    ({"group_ranks": 3}, "group_ranks: 3 is no divisor of the group's 1"),
    ({"input": halves(2)}, "input: shape [2]; it must be [tokens, hidden]"),
    ({"gamma": halves(120)}, "gamma: shape [120] has 120 elements; 128 are needed"),
    ({"gamma": halves(136)}, "gamma: 136 elements; hidden is 128"),
    ({"gamma": np.zeros(136, np.float32)}, "gamma: 136 elements; hidden is 128"),
    ({"gamma": np.zeros(128, np.float64)}, "gamma: elements are f64; they must be f16 or f32"),
    ({"residual_output": halves(2, 64)}, "residual_output: f16 [2, 64]; it must be f16 [rows, 128]"),
    ({"residual": halves(1, 128)}, "residual: f16 [1, 128]; it must be f16 [2, 128]"),
    ({"output": np.zeros((3, 128), np.float32)}, "output: f32 [3, 128]; it must be f16 [rows, 128]"),
    ({"output": None}, "output: null, and no fp8.rows either"),
    ({"fp8": weft.Fp8Output(bytes_of(2, 128), SCALES)}, "fp8.rows: u8 [2, 128]; it must be e4m3 or u8 [3, 128]"),
    ({"fp8": weft.Fp8Output(bytes_of(3, 128))}, "fp8.scales: none; only scaling 'fixed' needs none"),
    (
        {"output": None, "fp8": weft.Fp8Output(bytes_of(5, 128), SCALES)},
        "fp8.scales: shape [3] has 3 elements; 5 are needed",
    ),
    (
        {"output": None, "fp8": weft.Fp8Output(bytes_of(3, 128), SCALES, floor=0)},
        "fp8.floor: 0 is not a number between 1e-30 and 448",
    ),
    ({"epsilon": -1.0}, "epsilon: -1 is not a number between 0 and 1e30"),
    ({"counts": weft.Counts(np.ones(1, np.int64))}, "counts.rows: elements are i64; they must be i32"),
    ({"blocks": 99}, "launch.blocks: 99"),
]


@pytest.mark.parametrize("name", ["gather_sums_rms_norm", "scatter_sums_rms_norm"])
def test_bad_calls_are_rejected(name: str) -> None:
    usual: dict[str, Any] = {"residual_output": halves(2, 128), "input": halves(2, 128), "gamma": halves(128)}
    usual |= {"counts": weft.Counts([2]), "group_ranks": 1}

    def work(rank: weft.Communicator) -> None:
        call = getattr(rank.world, name)
        for changes, says in REJECTED:
            with pytest.raises(weft.Error, match=re.escape(says)) as rejected:
                call(**{"output": halves(3, 128), **usual, **changes})
            assert rejected.value.code == weft.Errc.invalid_argument
        output = np.ones((3, 128), np.float16)
        call(output, **usual)
        assert not output[:2].any() and output[2].all()
        with pytest.raises(weft.Error, match=r"ha(s|ve) 3 rows, and .+ 2\b") as misfit:
            call(output, **{**usual, "counts": weft.Counts([3])})
        assert misfit.value.code == weft.Errc.capacity

    run_ranks(1, work)


def test_a_rank_may_have_no_rows_at_all() -> None:
    """Its tensors are empty, and perhaps without an address; rank 0 has a residual all the same."""

    def work(rank: weft.Communicator) -> None:
        rows = 2 if rank.rank == 0 else 0
        sums = halves(rows, 128) + np.float16(1)
        shard: Any = sums if rows else weft.Tensor.at(0, [0, 128], "f16")
        output = halves(2, 128)
        rank.world.gather_sums_rms_norm(
            output, shard, halves(rows, 128), halves(128) + np.float16(1), weft.Counts([2, 0]), shard, group_ranks=1
        )
        assert (output == 1).all() and (sums == 1).all()

    run_ranks(2, work)
