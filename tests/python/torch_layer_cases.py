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

    def up(self, gemm: weft.torch.ExpertGemm) -> None:
        experts = slice(gemm.first_expert, gemm.first_expert + gemm.experts)
        self.rounds_seen.add(gemm.round)
        gemm.output[experts, :, :64] = GATE
        gemm.output[experts, :, 64:] = gemm.input[experts]

    def down(self, gemm: weft.torch.ExpertGemm) -> None:
        experts = slice(gemm.first_expert, gemm.first_expert + gemm.experts)
        gemm.output[experts] = gemm.input[experts] / GATE

    def expected(self) -> torch.Tensor:
        return self.case.dispatch_and_combine()[2]

    def run(self, schedule: str, rounds: int) -> torch.Tensor:
        _, _, ids, weights, results = self.case.exchanged()
        self.layer.run(
            results,
            self.case.tokens,
            ids,
            weights,
            up=self.up,
            down=self.down,
            residual=self.case.tokens,
            schedule=schedule,
            rounds=rounds,
            send_num_sms=2 if self.case.device == "cpu" else 4,
        )
        return results


SCHEDULES = [("plain", 1), ("automatic", 1), ("rounds", 2), ("rounds", 3), ("combine_rounds", 2)]
