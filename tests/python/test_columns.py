"""Columns of all ranks side by side, from Python: those of every rank, and those of a rank's group alone."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from ranks import run_ranks
from test_operations import RANKS, REDUCED, columns, given, numbers


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("dtype", REDUCED)
@pytest.mark.parametrize("gaps", [False, True])
def test_all_gather_columns(ranks: int, dtype: str, gaps: bool) -> None:
    """A vocabulary whose last shard ends with pads; every type keeps its bits."""
    shards = [numbers(dtype, (3, 40), rank) for rank in range(ranks)]
    width = 40 * ranks - 5
    expected = np.concatenate(shards, axis=1)[:, :width]

    def work(rank: weft.Communicator) -> None:
        x, y = shards[rank.rank], np.zeros_like(expected)
        if gaps:
            x, y = columns(x), columns(y)
        rank.world.all_gather_columns(given(y, dtype), given(x, dtype), tag=2)
        assert y.tobytes() == expected.tobytes()

    run_ranks(ranks, work)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("group_ranks", [1, 2])
@pytest.mark.parametrize("padding", ["none", "per_rank"])
def test_all_to_all_columns(ranks: int, group_ranks: int, padding: str) -> None:
    """Each group gets its own rows, and nothing behind them is written."""
    if ranks % group_ranks:
        group_ranks = ranks
    rows = [(5, 0, 3, 1)[group] for group in range(ranks // group_ranks)]
    slots = [count + 1 for count in rows] if padding == "per_rank" else rows
    counts = weft.Counts(
        np.array(rows, np.int32),
        padding=padding,
        slots=np.array(slots, np.int32) if padding == "per_rank" else None,
    )
    shards = [numbers("bf16", (sum(slots), 24), rank) for rank in range(ranks)]
    whole = np.concatenate(shards, axis=1)[:, : 24 * ranks - 5]

    def work(rank: weft.Communicator) -> None:
        group = rank.rank // group_ranks
        begin, count = sum(slots[:group]), rows[group]
        y = np.full((6, whole.shape[1]), 7, np.uint16)
        rank.world.all_to_all_columns(
            given(y, "bf16"), given(shards[rank.rank], "bf16"), counts, group_ranks=group_ranks
        )
        assert y[:count].tobytes() == whole[begin : begin + count].tobytes()
        assert (y[count:] == 7).all()

    run_ranks(ranks, work)


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("wide", [False, True])
def test_columns_are_scaled_and_capped(dtype: str, wide: bool) -> None:
    """Scales of powers of two are exact, and a cap is within the rounding of NumPy's tanh in f64."""
    shards = [numbers(dtype, (3, 24), rank) for rank in range(2)]
    whole = np.concatenate(shards, axis=1)
    values = (whole.astype(np.uint32) << 16).view(np.float32) if dtype == "bf16" else whole.astype(np.float32)
    kind = "f32" if wide else dtype
    spacing = {"bf16": 2.0**-7, "f16": 2.0**-10, "f32": 2.0**-21}[kind]

    def work(rank: weft.Communicator) -> None:
        y = np.zeros(whole.shape, REDUCED[kind])
        rank.world.all_gather_columns(given(y, kind), given(shards[rank.rank], dtype), scale=0.25)
        got = (y.astype(np.uint32) << 16).view(np.float32) if kind == "bf16" else y.astype(np.float32)
        assert (got == values * 0.25).all()
        rank.world.all_gather_columns(given(y, kind), given(shards[rank.rank], dtype), scale=0.25, soft_cap=30.0)
        got = (y.astype(np.uint32) << 16).view(np.float32) if kind == "bf16" else y.astype(np.float32)
        exact = 30 * np.tanh(values.astype(np.float64) / 120)
        assert (np.abs(got - exact) <= np.abs(exact) * spacing).all()

    run_ranks(2, work)
