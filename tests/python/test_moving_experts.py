"""Experts move between the places of an exchange."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import weft
from ranks import run_ranks
from test_exchange import EXPERTS, HIDDEN, TOKENS, TOP_K, Case, Outputs
from test_layer import array, call_of

# Of two ranks: replicas on both and on one, and empty places.
MAPS = [[0, 1, 2, -1, 3, 4, 0, 0], [4, 3, 2, 2, 1, 0, -1, 4], [2, -1, 0, 1, 1, 3, 4, 2]]
PLACES = len(MAPS[0])


def places_of(ids: npt.NDArray[np.int32], experts: list[int], rank: int) -> npt.NDArray[np.int32]:
    """The places that serve a rank's entries."""
    chosen = np.full_like(ids, -1)
    for token, k in np.ndindex(*ids.shape):
        replicas = [place for place, expert in enumerate(experts) if expert == ids[token, k]]
        if ids[token, k] >= 0:
            chosen[token, k] = replicas[(rank + token) % len(replicas)]
    return chosen


def made(exchange: weft.Exchange, case: Case, ids: npt.NDArray[np.int32], rank: int, **options: Any) -> list[bytes]:
    got = Outputs(exchange, 2, "none")
    weights = case.weights[rank, : case.counts[rank]].copy()
    x, back = weft.Tensor(case.input(rank), "bf16"), np.zeros((case.counts[rank], HIDDEN), np.uint16)
    handle = exchange.dispatch(got.view, x, ids, weights, counts=got.counts, **options)
    exchange.combine(weft.Tensor(back, "bf16"), got.view, handle)
    return [got.rows.tobytes(), got.counts.tobytes(), back.tobytes()]


@pytest.mark.parametrize("path", ["slots", "ring"])
def test_maps_follow_each_other(path: str) -> None:
    case = Case(2, "expert_masked")

    def work(rank: weft.Communicator) -> None:
        me = rank.rank
        moving = case.exchange(rank.world, path=path, experts_of_rank=MAPS[0] + MAPS[1], maps=2)
        definition: dict[str, Any] = {"tokens": TOKENS, "hidden": HIDDEN, "top_k": TOP_K, "path": path}
        of_places = weft.Exchange.create(rank.world, experts=PLACES, **definition)
        ids = case.ids[me, : case.counts[me]].copy()

        def check(number: int, experts: list[int]) -> None:
            wanted = made(of_places, case, places_of(ids, experts, me), me)
            assert made(moving, case, ids, me, map=number) == wanted
            assert moving.experts_of_map(number) == experts[4 * me : 4 * me + 4]

        check(0, MAPS[0])
        check(1, MAPS[1])
        moving.set_experts(MAPS[2], first_map=1)
        check(0, MAPS[0])
        check(1, MAPS[2])
        with pytest.raises(weft.Error, match="element 7 is 1 on rank 0 and 4 on rank 1") as apart:
            moving.set_experts([*MAPS[1][:7], 4 if me == 1 else 1])
        assert apart.value.code == weft.Errc.mismatch
        check(0, MAPS[0])
        moving.set_experts(MAPS[1] + MAPS[0])
        assert moving.experts == MAPS[1][4 * me : 4 * me + 4]
        check(0, MAPS[1])
        check(1, MAPS[0])
        with pytest.raises(weft.Error, match="experts_of_rank's length: 7 is not a multiple of 8 up to 16"):
            moving.set_experts(MAPS[0][:7])
        with pytest.raises(weft.Error, match="map: 2 is not between 0 and 1"):
            moving.experts_of_map(2)

    run_ranks(2, work)


def test_layers_take_their_map() -> None:
    case = Case(2, "expert_masked")

    def work(rank: weft.Communicator) -> None:
        me = rank.rank
        moving = case.exchange(rank.world, experts_of_rank=MAPS[0] + MAPS[1], maps=2)
        layer = weft.MoeLayer.create(moving, intermediate=HIDDEN)
        results = []
        for number in (0, 1):
            given = call_of(case, me, layer)
            counts: list[list[int]] = []

            def up(gemm: weft.ExpertGemm, of: Any = given["up"], told: list[list[int]] = counts) -> None:
                told.append(array(gemm.counts, "i32").tolist())
                of(gemm)

            layer.run(**given | {"up": up, "map": number})
            results.append(counts[0])
        for number, counts_of in enumerate(results):
            chosen = [places_of(case.ids[r, : case.counts[r]], MAPS[number], r) for r in range(2)]
            everywhere = np.concatenate([ids.ravel() for ids in chosen])
            assert counts_of == [int((everywhere == place).sum()) for place in range(4 * me, 4 * me + 4)]
        assert sum(map(sum, results)) > 0 and EXPERTS == 5

    run_ranks(2, work)
