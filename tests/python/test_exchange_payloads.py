"""Payloads that travel beside rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import weft
from ranks import run_ranks
from test_exchange import TOKENS, Case, Outputs, check_dispatch

PAYLOAD_BYTES = [20, 4]


def given_payloads(rank: int, tokens: int) -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(rank)
    return [random.random((tokens, 5), np.float32), random.integers(0, 1 << 30, (tokens, 1), np.int32)]


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("path", ["slots", "ring"])
@pytest.mark.parametrize("layout", ["expert_masked", "expert_contiguous", "rank_major", "rank_compact"])
def test_payloads_come_with_their_rows(layout: weft.RowLayout, path: weft.RowPath, halves: bool) -> None:
    if layout == "rank_compact":
        path = "ring"
    case = Case(2, layout)

    def work(rank: weft.Communicator) -> None:
        me = rank.rank
        exchange = case.exchange(rank.world, path=path, payload_bytes=PAYLOAD_BYTES)
        got = Outputs(exchange, 2, "none")
        tokens, rows = case.counts[me], exchange.output_rows
        payloads = given_payloads(me, tokens)
        outputs = [np.full((rows, 5), -1, np.float32), np.full((rows, 1), -1, np.int32)]
        call = weft.Tensor(case.input(me), "bf16"), case.ids[me, :tokens].copy(), case.weights[me, :tokens].copy()
        named = got.named(layout, "none") | {"output_payloads": outputs}
        if halves:
            handle = exchange.dispatch_send(*call, payloads=payloads)
            exchange.dispatch_wait(handle, got.view, **named)
        else:
            exchange.dispatch(got.view, *call, payloads=payloads, **named)
        check_dispatch(case, me, 2, got)
        taken = {row for row, _ in case.expected[me][2]}
        source = np.arange(rows) if layout == "rank_major" else got.sources
        for row in range(rows):
            of, token = divmod(int(source[row]), TOKENS)
            for number, output in enumerate(outputs):
                wanted = given_payloads(of, case.counts[of])[number][token] if row in taken else -1
                assert (output[row] == wanted).all()

    run_ranks(2, work)


def test_wrong_payloads_are_rejected() -> None:
    case = Case(1, "expert_masked")

    def work(rank: weft.Communicator) -> None:
        exchange = case.exchange(rank.world, payload_bytes=PAYLOAD_BYTES)
        none = case.exchange(rank.world)
        got = Outputs(exchange, 1, "none")
        call = got.view, weft.Tensor(case.input(0), "bf16"), case.ids[0].copy(), case.weights[0].copy()
        first, second = given_payloads(0, TOKENS)
        outputs = [np.zeros((exchange.output_rows, 20), np.uint8), np.zeros(exchange.output_rows, np.int32)]
        counts = got.counts
        for message, payloads, output_payloads in (
            (r"payloads: 1 tensors; the exchange has 2 payloads", [first], outputs),
            (r"output_payloads: 3 tensors; the exchange has 2 payloads", [first, second], [*outputs, outputs[0]]),
            (r"payloads\[1\]: .* 5 elements; 6 are needed", [first, second[1:]], outputs),
            (r"output_payloads\[0\]: .* 30 elements; ", [first, second], [first, outputs[1]]),
            (r"payloads\[0\]: rows of 4 bytes; the exchange's payload has 20", [np.zeros(6 * TOKENS, np.int32), second], outputs),
            (r"payloads\[1\]: rows of 8 bytes; ", [first, second.astype(np.int64)], outputs),
            (r"payloads\[1\]: rows of 8 bytes; ", [first, second[:, 0].astype(np.int64)], outputs),
            (r"payloads\[0\]: rows of 32 bytes; ", [np.zeros((TOKENS, 8), np.float32), second], outputs),
            (r"output_payloads\[1\]: rows of 20 bytes; ", [first, second], [outputs[0], outputs[0]]),
            (r"payloads\[0\]: null", None, outputs),
            (r"output_payloads\[0\]: null", [first, second], None),
        ):
            with pytest.raises(weft.Error, match=message):
                exchange.dispatch(*call, counts=counts, payloads=payloads, output_payloads=output_payloads)
        with pytest.raises(TypeError, match="payloads: must be a sequence of tensors"):
            exchange.dispatch(*call, counts=counts, payloads=5, output_payloads=outputs)
        with pytest.raises(weft.Error, match="payloads: 2 tensors; the exchange has 0 payloads"):
            none.dispatch(*call, counts=counts, payloads=[first, second])
        exchange.dispatch(*call, counts=counts, payloads=[first, second], output_payloads=outputs)  # nothing was sent
        with pytest.raises(weft.Error, match="payload_bytes: 6 is not a multiple of 4 between 4 and 4608"):
            case.exchange(rank.world, payload_bytes=[6])

    run_ranks(1, work)
