"""A layer of experts of torch that gives rows back as they came, on CPUs or on GPUs."""

from __future__ import annotations

import torch
import weft.torch
from torch_cases import Case

GATE = 64  # silu of it is the number itself, and a product with it is exact


class Layer:
    """Its result must have the bits of a combine of dispatch's rows."""

    def __init__(self, group: weft.torch.Group, device: str = "cpu") -> None:
        self.case = Case(group, device)
        self.exchange, *_ = self.case.exchanged()
        self.layer = weft.torch.MoeLayer(self.exchange, intermediate=64)
        self.rounds_seen: set[int] = set()
        self.shared_calls = 0

    def up(self, gemm: weft.torch.ExpertGemm) -> None:
        experts = slice(gemm.first_expert, gemm.first_expert + gemm.experts)
        self.rounds_seen.add(gemm.round)
        gemm.output[experts, :, :64] = GATE
        gemm.output[experts, :, 64:] = gemm.input[experts]

    def down(self, gemm: weft.torch.ExpertGemm) -> None:
        experts = slice(gemm.first_expert, gemm.first_expert + gemm.experts)
        gemm.output[experts] = gemm.input[experts] / GATE

    def shared(self, expert: weft.torch.SharedExpert) -> None:
        """Adds nothing of its own. It is late on GPUs: who does not wait for it finds no residual."""
        assert expert.input is self.case.tokens and expert.residual is self.case.tokens and expert.scales is None
        assert (expert.tokens, expert.hidden, expert.num_sms) == (*self.case.tokens.shape, 7)
        assert expert.output.shape == self.case.tokens.shape and expert.output.dtype == torch.bfloat16
        self.shared_calls += 1
        if self.case.device != "cpu":
            torch.cuda._sleep(1_000_000)
        expert.output.copy_(expert.residual)

    def expected(self) -> torch.Tensor:
        return self.case.dispatch_and_combine()[2]

    def run(self, schedule: str, rounds: int, *, shared: bool = False) -> torch.Tensor:
        _, _, ids, weights, results = self.case.exchanged()
        self.layer.run(
            results,
            self.case.tokens,
            ids,
            weights,
            up=self.up,
            down=self.down,
            shared=self.shared if shared else None,
            residual=self.case.tokens,
            schedule=schedule,
            rounds=rounds,
            send_num_sms=2 if self.case.device == "cpu" else 4,
            shared_num_sms=7,
        )
        return results


SCHEDULES = [("plain", 1), ("automatic", 1), ("rounds", 2), ("rounds", 3), ("combine_rounds", 2)]
