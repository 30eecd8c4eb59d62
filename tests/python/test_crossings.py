"""Crossings from Python give what the oracle says."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import weft
import weft_oracle
from ranks import run_ranks


def numbers(shape: tuple[int, ...], seed: int) -> npt.NDArray[Any]:
    """Numbers whose sums need rounding."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * 100


@pytest.mark.parametrize(("padding", "slot_rows"), [("none", 0), ("aligned", 4), ("max", 0)])
@pytest.mark.parametrize(("ranks", "group_ranks"), [(2, 1), (2, 2), (4, 2)])
def test_crossings(ranks: int, group_ranks: int, padding: weft.Padding, slot_rows: int) -> None:
    rows = [(3, 1, 0, 2)[rank] for rank in range(ranks)]
    slots = weft.slots_of(rows, padding, slot_rows)
    first = [rank - rank % group_ranks for rank in range(ranks)]
    of_group = [sum(rows[f : f + group_ranks]) for f in first]
    partial = [numbers((of_group[rank], 24), rank + 3) for rank in range(ranks)]
    dense = [numbers((sum(rows), 24), 5 * rank + 2) for rank in range(ranks)]
    to_all = weft_oracle.gathered_sums(
        "f32", rows, padding, slot_rows, group_ranks, [part.tobytes() for part in partial], 96
    )

    def work(rank: weft.Communicator) -> None:
        me, counts = rank.rank, weft.Counts(np.array(rows, np.int32), padding=padding, slot_rows=slot_rows)
        y = np.full((slots[-1].end, 24), np.nan, np.float32)
        rank.world.gather_sums(y, partial[me], counts, group_ranks=group_ranks)
        assert y.tobytes() == to_all

        x, before = np.full((slots[-1].end, 24), np.nan, np.float32), 0
        for slot, count in zip(slots, rows):
            x[slot.begin : slot.begin + count] = dense[me][before : before + count]
            before += count
        own = np.full((slots[first[me] + group_ranks - 1].end - slots[first[me]].begin, 24), np.nan, np.float32)
        rank.world.scatter_sums(own, x, weft.Counts(rows, padding=padding, slot_rows=slot_rows), group_ranks=group_ranks)
        messages = [part.tobytes() for part in dense]
        expected = weft_oracle.scattered_sums("f32", rows, padding, slot_rows, group_ranks, messages, me, 96)
        assert own.tobytes() == expected
        with pytest.raises(weft.Error, match="group_ranks: 3 is no divisor"):
            rank.world.gather_sums(y, partial[me], counts, group_ranks=3)

        # The same rows on each rank of a group, of which it sends its own shard.
        same = numbers((of_group[me], 24), first[me] + 9)
        rank.world.all_gather_v(y, same, counts, group_ranks=group_ranks)
        for owner, slot in enumerate(slots):
            start = sum(rows[first[owner] : owner])
            theirs = numbers((of_group[owner], 24), first[owner] + 9)[start : start + rows[owner]]
            assert y[slot.begin : slot.begin + rows[owner]].tobytes() == theirs.tobytes()
            assert not y[slot.begin + rows[owner] : slot.end].any()

    run_ranks(ranks, work)
