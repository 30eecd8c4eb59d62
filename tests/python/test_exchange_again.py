"""Dispatches that are made again with the routing of an earlier one."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from ranks import run_ranks
from test_exchange import HIDDEN, Case, Outputs, check_dispatch


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("layout", ["expert_masked", "rank_compact"])
def test_a_dispatch_is_made_again(layout: weft.RowLayout, halves: bool) -> None:
    case = Case(2, layout)

    def work(rank: weft.Communicator) -> None:
        me = rank.rank
        exchange = case.exchange(rank.world, path="ring", repeatable=True)
        other = case.exchange(rank.world, path="ring", repeatable=True)
        got = Outputs(exchange, 2, "none")
        tokens = case.counts[me]
        x, ids, weights = case.input(me), case.ids[me, :tokens].copy(), case.weights[me, :tokens].copy()
        given = weft.Tensor(x, "bf16")
        handle = exchange.dispatch(got.view, given, ids, weights, **got.named(layout, "none"))
        check_dispatch(case, me, 2, got)
        first = got.rows.copy()
        got.rows[:] = 0x7F
        x ^= 1
        if halves:
            again = exchange.dispatch_send(given, again=handle, discard=True)
            exchange.dispatch_wait(again, got.view)
        else:
            again = exchange.dispatch(got.view, given, again=handle, discard=True)
        assert again == handle
        assert (got.rows == np.where(first == 0x7F, first, first ^ 1)).all()
        back = np.zeros((tokens, HIDDEN), np.uint16)
        exchange.combine(weft.Tensor(back, "bf16"), got.view, again)
        with pytest.raises(weft.Error, match="again: with it there are neither topk_ids"):
            exchange.dispatch(got.view, given, ids, again=handle)
        with pytest.raises(weft.Error, match="most_tokens: 6 is not the 0 of `again`"):
            exchange.dispatch(got.view, given, again=handle, most_tokens=6)
        with pytest.raises(weft.Error, match="again: of a dispatch of another exchange"):
            other.dispatch(got.view, given, again=handle)

    run_ranks(2, work)
