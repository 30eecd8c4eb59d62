"""Payloads beside rows in torch: as weft.Exchange has them, compiled or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import weft
import weft.torch
from ranks import run_ranks
from torch_cases import Case, bits
from torch_checks import alone, check, spied_on, through_operators
from torch_operators import RANKS


class Payloads:
    """An exchange of two payloads, and calls of it."""

    def __init__(self, rank: weft.Communicator) -> None:
        self.case = Case(weft.torch.Group(rank.world))
        self.case.exchanged()
        definition: dict[str, Any] = {"tokens": 4, "hidden": 64, "experts": 6, "top_k": 2, "handles": 64}
        self.exchange = weft.torch.Exchange(self.case.group, **definition, payload_bytes=[20, 4])
        first = torch.arange(20, dtype=torch.float32).view(4, 5) + 100 * rank.rank
        self.given = [first, torch.arange(4, dtype=torch.int32) + 1000 * rank.rank]

    def outputs(self) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
        rows = self.exchange.output_rows
        payloads = [torch.full((rows, 5), -1.0), torch.full((rows,), -1, dtype=torch.int32)]
        counts = torch.empty(self.exchange.local_experts, dtype=torch.int32)
        return torch.zeros(rows, 64, dtype=torch.bfloat16), counts, payloads

    def whole(self) -> list[torch.Tensor]:
        rows, counts, payloads = self.outputs()
        tokens = self.case.tokens, self.case.topk_ids, self.case.topk_weights
        given = {"payloads": self.given, "output_payloads": payloads}
        handle = self.exchange.dispatch(rows, *tokens, counts=counts, **given)
        results = torch.empty_like(self.case.tokens)
        self.exchange.combine(results, rows, handle)
        return [rows, counts, results, *payloads]

    def halves(self) -> list[torch.Tensor]:
        rows, counts, payloads = self.outputs()
        tokens = self.case.tokens, self.case.topk_ids, self.case.topk_weights
        handle = self.exchange.dispatch_send(*tokens, payloads=self.given)
        self.exchange.dispatch_wait(handle, rows, counts=counts, output_payloads=payloads)
        results = torch.empty_like(self.case.tokens)
        self.exchange.combine(results, rows, handle)
        return [rows, counts, results, *payloads]

    def through_core(self) -> list[bytes]:
        rows, counts, payloads = self.outputs()
        outputs = [payload.numpy() for payload in payloads]
        tokens = self.case.tokens, self.case.topk_ids, self.case.topk_weights
        given = [payload.numpy() for payload in self.given]
        exchange = self.exchange.exchange
        handle = exchange.dispatch(rows, *tokens, payloads=given, output_payloads=outputs, counts=counts.numpy())
        results = torch.empty_like(self.case.tokens)
        exchange.combine(results, rows, handle)
        assert np.count_nonzero(outputs[1] != -1) == int(counts.sum())
        return [bits(rows), bits(counts), bits(results), *(output.tobytes() for output in outputs)]


def test_operators_have_the_bits_of_the_methods() -> None:
    def work(rank: weft.Communicator) -> None:
        payloads = Payloads(rank)
        expected = payloads.through_core()
        assert [bits(tensor) for tensor in payloads.whole()] == expected
        assert [bits(tensor) for tensor in payloads.halves()] == expected

    run_ranks(RANKS, work)


def test_compiled_equals_eager() -> None:
    def work(rank: weft.Communicator) -> None:
        payloads = Payloads(rank)
        for call in (payloads.whole, payloads.halves):
            eager = [bits(tensor) for tensor in call()]
            compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
            assert [bits(tensor) for tensor in compiled()] == eager

    alone(work)


def test_the_operator_is_checked() -> None:
    def work(rank: weft.Communicator) -> None:
        payloads = Payloads(rank)  # the operator finds the exchange while it lives
        payloads.whole()
        [(operator, values)] = [call for call in called if call[0].name() == "weft::dispatch"]
        check(operator, values)

    with through_operators(), spied_on() as called:
        alone(work)
