"""Crossings with a norm from Python give what the oracle says."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import pytest
import weft
import weft_oracle
from ranks import run_ranks
from test_operations import Array, given, numbers

HIDDEN = 256


class Made(NamedTuple):
    """The results of a call."""

    normed: Array
    rows: Array
    scales: Array


def room(rows: int, dtype: Any) -> Made:
    shapes = ((rows, HIDDEN), dtype), ((rows, HIDDEN), np.uint8), ((rows, HIDDEN // 128), np.float32)
    return Made(*(np.full(shape, 7, of) for shape, of in shapes))


# Of each tensor of Made.
ROW_BYTES = (2 * HIDDEN, HIDDEN, 4 * (HIDDEN // 128))


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
    padding: weft.Padding,
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

    lasts = range(group_ranks - 1, ranks, group_ranks)
    filled = [sum(rows[last + 1 - group_ranks : last + 1]) for last in lasts]
    ends = [slots[last].end - slots[last + 1 - group_ranks].begin for last in lasts]
    inputs = [filled[rank // group_ranks] if gathers else slots[-1].end for rank in range(ranks)]
    tensors = [numbers(dtype, (count, HIDDEN), rank) for rank, count in enumerate(inputs)]
    before = [numbers(dtype, (count, HIDDEN), 50 + rank) for rank, count in enumerate(rows)]
    places = [row for slot, count in zip(slots, rows) for row in range(slot.begin, slot.begin + count)]

    def sums_of(rank: int) -> bytes:
        """The rank's rows of its group's sums, or of all ranks'."""
        first = rank - rank % group_ranks
        members = range(first, first + group_ranks) if gathers else range(ranks)
        messages = [(tensors[r] if gathers else tensors[r][places]).tobytes() for r in members]
        return weft_oracle.scattered(
            dtype, "sum", [rows[r] for r in members], "none", 0, [], messages, rank - members[0], 2 * HIDDEN
        )

    def normed_of(rank: int) -> tuple[bytes, bytes]:
        residual = before[rank].tobytes() if dtype == "bf16" else b""
        return weft_oracle.normed(
            dtype, [sums_of(rank)], residual, gamma.tobytes(), HIDDEN, rules["epsilon"], rules["gamma_plus_one"]
        )

    own = [normed_of(rank) for rank in range(ranks)]
    # Of each output what each rank sends.
    sent = [[normed for _, normed in own]]
    sent += map(list, zip(*(weft_oracle.cast(dtype, normed, HIDDEN, 128) for normed in sent[0])))

    def expected_of(rank: int) -> list[bytes]:
        """Each output, without the row behind it."""
        if gathers:
            return [
                weft_oracle.gathered(rows, padding, slot_rows, [], messages, row_bytes)
                for messages, row_bytes in zip(sent, ROW_BYTES)
            ]
        group = rank // group_ranks
        members = slice(group * group_ranks, (group + 1) * group_ranks)
        pads = ends[group] - filled[group]
        return [b"".join(messages[members]) + bytes(pads * of) for messages, of in zip(sent, ROW_BYTES)]

    def work(rank: weft.Communicator) -> None:
        me = rank.rank
        end = slots[-1].end if gathers else ends[me // group_ranks]
        counts = weft.Counts(np.array(rows, np.int32), padding=padding, slot_rows=slot_rows)
        # A row more than there are.
        got, sums = room(end + 1, before[me].dtype), before[me].copy()
        residual = given(sums, dtype)
        call = rank.world.gather_sums_rms_norm if gathers else rank.world.scatter_sums_rms_norm
        call(
            given(got.normed, dtype) if "normed" in written else None,
            residual,
            given(tensors[me], dtype),
            given(gamma, weights),
            counts,
            residual if dtype == "bf16" else None,
            group_ranks=group_ranks,
            fp8=fp8_of(got) if "rows" in written else None,
            tag=5,
            **rules,
        )
        assert sums.tobytes() == own[me][0]
        untouched = room(end + 1, before[me].dtype)
        for name, tensor, old, wanted in zip(Made._fields, got, untouched, expected_of(me)):
            after = wanted + old[end:].tobytes() if name in written else old.tobytes()
            assert tensor.tobytes() == after, name

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
