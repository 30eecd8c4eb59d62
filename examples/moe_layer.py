"""A whole layer of experts whose grouped GEMMs are torch's or DeepGEMM's. Plain torch makes it, too, and they must agree.

torchrun --nproc-per-node 4 examples/moe_layer.py --schedule rounds --rounds 2
python examples/moe_layer.py --device cpu         # without a launcher this is a world of one

With `--gemm deep_gemm` the GEMMs are DeepGEMM's, in fp8: moe_deep_gemm.py says what it needs.
On GPUs the second call is a CUDA graph. Nothing waits for the host: GEMMs read the numbers of rows on the device.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.nn.functional as F
import weft
import weft.torch

Matrices = Callable[[int], tuple[torch.Tensor, torch.Tensor]]  # of an expert: [2 · intermediate, hidden] and its down


class Experts(Protocol):
    """The grouped GEMMs of a rank's experts, and what a program in plain torch must know of them."""

    exchange: dict[str, Any]  # options of the exchange
    down_cast: weft.RowCast
    tolerance: float  # of the largest difference, as a part of the largest number

    def gemm(self, gemm: weft.torch.ExpertGemm) -> None: ...
    def rows(self, rows: torch.Tensor) -> torch.Tensor: ...  # what is left of f32 rows in front of a GEMM
    def matrix(self, matrix: torch.Tensor) -> torch.Tensor: ...  # and of an expert's matrix


class TorchExperts:
    """torch._grouped_mm: bf16, one expert behind the other, their ends on the device.

    Its groups begin at row 0 and it makes a new tensor, so a GEMM is copied. The last row of the output is nobody's: an
    expert of an odd number of rows has a pad, as experts are aligned to two rows.
    """

    def __init__(self, matrices: Matrices, experts: range) -> None:
        self.exchange = {"layout": "expert_contiguous", "alignment": 2}
        self.down_cast: weft.RowCast = "none"
        self.tolerance = 0.01
        both = [matrices(expert) for expert in experts]
        self.matrices = {"up": torch.stack([up for up, _ in both]), "down": torch.stack([down for _, down in both])}

    def gemm(self, gemm: weft.torch.ExpertGemm) -> None:
        assert gemm.offsets is not None
        matrices, first, end = self.matrices[gemm.which], gemm.first_expert, gemm.first_expert + gemm.experts
        # Experts of earlier rounds lie in front. The last of them stands for all, and nobody reads what comes of it.
        group = max(first - 1, 0)
        made = torch._grouped_mm(
            gemm.input, matrices[group:end].transpose(1, 2), offs=gemm.offsets[group + 1 : end + 1]
        )
        if gemm.experts == len(matrices):
            gemm.output.copy_(made)
            return
        # Rows of other experts may be read or written meanwhile.
        row = torch.arange(len(made), device=made.device)
        mine = (row >= gemm.offsets[first]) & (row < gemm.offsets[end])
        gemm.output.index_copy_(0, torch.where(mine, row, len(made) - 1), made)

    def rows(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.bfloat16().float()

    def matrix(self, matrix: torch.Tensor) -> torch.Tensor:
        return matrix.float()


def random_matrices(args: argparse.Namespace, device: str) -> Matrices:
    """Every rank can make every expert, since plain torch needs all of them."""

    def of(expert: int) -> tuple[torch.Tensor, torch.Tensor]:
        random = torch.Generator().manual_seed(expert)
        up = torch.randn(2 * args.intermediate, args.hidden, generator=random) / args.hidden**0.5
        down = torch.randn(args.hidden, args.intermediate, generator=random) / args.intermediate**0.5
        return up.bfloat16().to(device), down.bfloat16().to(device)

    return of


def routed_tokens(args: argparse.Namespace, seed: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(1_000_000 + seed)
    x = torch.randn(tokens, args.hidden, generator=random).bfloat16()
    scores, ids = torch.rand(tokens, args.experts, generator=random).topk(args.top_k)
    return x, ids.int(), scores.softmax(1)


def plain_torch(
    x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, experts: Experts, matrices: Matrices, count: int
) -> torch.Tensor:
    """The layer, rounded where the other one is."""
    y = torch.zeros(x.shape, device=x.device)
    for expert in range(count):
        up, down = (experts.matrix(matrix) for matrix in matrices(expert))
        token, place = (ids == expert).nonzero(as_tuple=True)
        gate, linear = (experts.rows(x[token].float()) @ up.T).bfloat16().float().chunk(2, dim=1)
        made = (experts.rows(F.silu(gate) * linear) @ down.T).bfloat16().float()
        y.index_add_(0, token, made * weights[token, place, None])
    return y


def opened(args: argparse.Namespace, matrices: Matrices, experts: range, tokens: int) -> Experts:
    if args.gemm == "torch":
        return TorchExperts(matrices, experts)
    from moe_deep_gemm import DeepGemmExperts  # noqa: PLC0415  # only where DeepGEMM is

    return DeepGemmExperts(matrices, experts, all_tokens=tokens, expected_rows=tokens * args.top_k // args.experts)


def largest_difference(communicator: weft.Communicator, args: argparse.Namespace) -> tuple[float, float]:
    """Between the layer and plain torch, as a part of the largest number; and what is allowed."""
    world, device = communicator.world, communicator.device
    if device == "cuda":
        device = f"cuda:{communicator.cuda_device}"
        torch.cuda.set_device(device)
    if args.experts % world.size != 0:
        sys.exit(f"{args.experts} experts cannot be divided among {world.size} ranks")
    local, matrices = args.experts // world.size, random_matrices(args, device)
    experts = opened(args, matrices, range(world.rank * local, (world.rank + 1) * local), args.tokens * world.size)

    sizes = {"tokens": args.tokens, "hidden": args.hidden, "experts": args.experts, "top_k": args.top_k}
    exchange = weft.torch.Exchange(weft.torch.Group(world), **sizes, **experts.exchange)
    layer = weft.torch.MoeLayer(exchange, intermediate=args.intermediate, down_cast=experts.down_cast)
    workspace = torch.empty(layer.workspace_bytes, dtype=torch.uint8, device=device)
    tokens = max(args.tokens - world.rank, 1)  # ranks need not have as many
    x, ids, weights = (given.to(device) for given in routed_tokens(args, world.rank, tokens))
    y = torch.empty_like(x)

    def eager() -> None:
        layer.run(y, x, ids, weights, up=experts.gemm, down=experts.gemm, workspace=workspace,
                  schedule=args.schedule, rounds=args.rounds)  # fmt: skip

    def replayed() -> Callable[[], object]:
        eager()  # libraries may load or compile at their first call
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            eager()
        return graph.replay

    calls: list[Callable[[], object]] = [eager, eager if device == "cpu" else replayed()]
    worst = torch.zeros((), device=device)
    for number, call in enumerate(calls):
        seed = world.rank + number * world.size
        for tensor, given in zip((x, ids, weights), routed_tokens(args, seed, tokens), strict=True):
            tensor.copy_(given)
        y.fill_(torch.nan)
        call()
        expected = plain_torch(x, ids, weights, experts, matrices, args.experts)
        worst = torch.maximum(worst, (y.float() - expected).abs().max() / expected.abs().max())  # a NaN stays
    difference = float(worst)  # waits for the GPU
    communicator.check()
    return difference, experts.tolerance


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gemm", choices=["torch", "deep_gemm"], default="torch")
    parser.add_argument("--schedule", choices=["plain", "rounds", "combine_rounds", "automatic"], default="plain")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--device", choices=["automatic", "cpu", "cuda"], default="automatic")
    for name, size in {"tokens": 32, "hidden": 256, "intermediate": 128, "experts": 16, "top-k": 4}.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    return parser


def main() -> None:
    args = options().parse_args()
    communicator = weft.Communicator.from_environment(weft.Config(device=args.device))
    with torch.no_grad():
        difference, allowed = largest_difference(communicator, args)
    rank = f"rank {communicator.rank} of {communicator.world.size}"
    found = f"{args.gemm}'s experts differ by {difference:.2%} of the largest number"
    if not difference <= allowed:  # NaN is nothing that is allowed
        sys.exit(f"{rank}: {found}; at most {allowed:.0%} is rounding")
    print(f"{rank}: {found}")


if __name__ == "__main__":
    try:
        main()
    except weft.Error as error:
        sys.exit(str(error))
