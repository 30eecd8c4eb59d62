"""The shared expert of a layer is a function of Python."""

from __future__ import annotations

import numpy as np
import pytest
import weft
from ranks import run_ranks
from test_exchange import HIDDEN, Case
from test_layer import array, call_of


@pytest.mark.parametrize("schedule", ["plain", "rounds", "combine_rounds"])
def test_a_shared_expert_has_the_bits_of_its_rows_as_a_residual(schedule: str) -> None:
    case = Case(2, "expert_masked")

    def work(rank: weft.Communicator) -> None:
        me = rank.rank
        layer = weft.MoeLayer.create(case.exchange(rank.world), intermediate=HIDDEN)
        given = call_of(case, me, layer, schedule=schedule, rounds=1 if schedule == "plain" else 2, shared_num_sms=3)
        shape, rows = (case.counts[me], HIDDEN), case.input(me)[::-1].copy()
        told: list[object] = []

        def shared(expert: weft.SharedExpert) -> None:
            assert expert.input is given["input"] and expert.scales is None
            assert (expert.tokens, expert.hidden, expert.num_sms, expert.stream) == (*shape, 3, 0)
            assert expert.output.dtype == "bf16" and expert.output.shape == shape
            told.append(expert.residual)
            array(expert.output, "u16")[:] = rows

        residual = weft.Tensor(rows, "bf16")
        results = []
        for added in ({"residual": residual}, {"shared": shared}, {"shared": shared, "residual": residual}):
            output = np.zeros(shape, np.uint16)
            layer.run(**given | added | {"output": weft.Tensor(output, "bf16")})
            results.append(output.tobytes())
        assert results[0] == results[1] == results[2] != np.zeros(shape, np.uint16).tobytes()
        assert told == [None, residual]

    run_ranks(2, work)
