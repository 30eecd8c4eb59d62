"""Columns of all ranks from Python: side by side on every rank, those of a rank's group alone, and the largest ones."""

from __future__ import annotations

import numpy as np
import pytest
import weft
import weft_oracle
from ranks import run_ranks
from test_operations import RANKS, REDUCED, Array, columns, given, numbers


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


def even_shards(whole: Array, ranks: int, pads: int) -> list[Array]:
    """The ranks' inputs for the columns of `whole`: torch.tensor_split's parts, and pads up to one width behind each."""
    parts = np.array_split(whole, ranks, axis=1)
    width = parts[0].shape[1] + pads
    return [np.pad(part, ((0, 0), (0, width - part.shape[1])), mode="edge") for part in parts]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("pads", [0, 3])
def test_even_shards(ranks: int, pads: int) -> None:
    """All calls take a vocabulary that is divided as torch.tensor_split does; pads are no columns and no candidates."""
    whole = few_numbers("f32", (3, 10 * ranks + 1), 5)
    shards = even_shards(whole, ranks, pads)
    values, indices = weft_oracle.largest("f32", whole.tobytes(), whole.shape[1], 9)

    def work(rank: weft.Communicator) -> None:
        x, y = shards[rank.rank], np.zeros_like(whole)
        rank.world.all_gather_columns(y, x, even_shards=True)
        assert y.tobytes() == whole.tobytes()
        y[:] = 0
        one = weft.Counts(np.array([3], np.int32))
        rank.world.all_to_all_columns(y, x, one, group_ranks=ranks, even_shards=True)
        assert y.tobytes() == whole.tobytes()
        found, places = np.zeros((3, 9), np.float32), np.full((3, 9), -1, np.int32)
        rank.world.top_k_columns(found, places, x, columns=whole.shape[1], even_shards=True)
        assert places.ravel().tolist() == indices
        assert found.tobytes() == values

    run_ranks(ranks, work)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("group_ranks", [1, 2])
@pytest.mark.parametrize("padding", ["none", "per_rank"])
def test_all_to_all_columns(ranks: int, group_ranks: int, padding: weft.Padding) -> None:
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


# NaN, −0, +0 and infinities.
SPECIAL = {
    "bf16": [0x7FC1, 0xFFC0, 0x8000, 0, 0x7F80, 0xFF80],
    "f16": [0x7E01, 0xFE00, 0x8000, 0, 0x7C00, 0xFC00],
    "f32": [0x7FC00001, 0xFFC00000, 0x80000000, 0, 0x7F800000, 0xFF800000],
}


def few_numbers(dtype: str, shape: tuple[int, int], seed: int) -> Array:
    """Rows in which most numbers come several times."""
    some = numbers(dtype, (18,), 9)
    bits = np.uint32 if dtype == "f32" else np.uint16
    special = np.array(SPECIAL[dtype], bits).view(some.dtype)
    return np.random.default_rng(seed).choice(np.concatenate([some, special]), shape)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("dtype", SPECIAL)
@pytest.mark.parametrize("k", [1, 9])
@pytest.mark.parametrize("gaps", [False, True])
def test_top_k_columns(ranks: int, dtype: str, k: int, gaps: bool) -> None:
    """A vocabulary whose last shard ends with pads; of equal numbers the first comes first."""
    shards = [few_numbers(dtype, (3, 40), rank) for rank in range(ranks)]
    width = 40 * ranks - 5
    whole = np.concatenate(shards, axis=1)[:, :width]
    values, indices = weft_oracle.largest(dtype, whole.tobytes(), width, k)

    def work(rank: weft.Communicator) -> None:
        x = columns(shards[rank.rank]) if gaps else shards[rank.rank]
        found, places = np.zeros((3, k), x.dtype), np.full((3, k), -1, np.int32)
        rank.world.top_k_columns(given(found, dtype), places, given(x, dtype), columns=width, tag=4)
        assert places.ravel().tolist() == indices
        assert found.tobytes() == values
        places[:] = -1
        rank.world.top_k_columns(None, places, given(x, dtype), columns=width)
        assert places.ravel().tolist() == indices

    run_ranks(ranks, work)
