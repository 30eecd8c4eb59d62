"""fp8_mega_moe of sgl-deep-gemm, one kernel for a whole layer of experts on Hopper. For bench/rivals.py."""

from __future__ import annotations

import math
from collections.abc import Iterator

import deep_gemm
import torch
from rival_ranks import Operation, Ranks, Tokens, blocks_of, difference

CHECKED_TOKENS = 2  # of each rank and layer
CONTAINS = "fp8 between the GEMMs, sums in bf16; its cast of the input (mega_moe_pre_dispatch_sm90) included"


def expert_weights(ranks: Ranks, layer: int, expert: int) -> tuple[torch.Tensor, torch.Tensor]:
    """[2 × intermediate, hidden] and [hidden, intermediate] in e4m3. Every rank can make every expert's."""
    hidden, middle = ranks.of["hidden"], ranks.of["intermediate"]
    torch.manual_seed(7919 * (layer + 1) + expert)
    shapes = (2 * middle, hidden), (hidden, middle)
    up, down = (torch.randn(shape, dtype=torch.bfloat16, device=ranks.device) for shape in shapes)
    return up.to(torch.float8_e4m3fn), down.to(torch.float8_e4m3fn)


def scale(columns: int) -> float:
    return 1 / math.sqrt(columns)


def with_scales(ranks: Ranks, weights: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """All experts' weights, with the same scale for each block of 128 × 128."""
    rows, columns = weights[0].shape
    shape = (len(weights), rows // 128, columns // 128)
    return torch.stack(weights), torch.full(shape, scale(columns), dtype=torch.float32, device=ranks.device)


def transformed(ranks: Ranks, layer: int) -> tuple:
    first = ranks.rank * ranks.local_experts
    experts = [expert_weights(ranks, layer, first + expert) for expert in range(ranks.local_experts)]
    ups, downs = ([one[part] for one in experts] for part in (0, 1))
    return deep_gemm.transform_weights_for_mega_moe_sm90(with_scales(ranks, ups), with_scales(ranks, downs))


def expected(ranks: Ranks, tokens: Tokens, layer: int, token: int) -> torch.Tensor:
    mine, middle = tokens.layers[layer][ranks.rank], ranks.of["intermediate"]
    ids, weights = (blocks_of(mine[key], ranks.of["top_k"])[token] for key in ("ids", "weights"))
    x = tokens.x[token].float()
    total = x * 0
    for expert, weight in zip(ids, weights, strict=True):
        up, down = expert_weights(ranks, layer, expert)
        both = (up.float() @ x) * scale(ranks.of["hidden"])
        gate = both[:middle]
        total = total + (down.float() @ (gate / ((-gate).exp() + 1) * both[middle:])) * scale(middle) * weight
    return total


def layers(ranks: Ranks, every: list[Tokens], sms: int) -> Iterator[Operation]:
    of = ranks.of
    if of["intermediate"] == 0:
        raise ValueError("it is a whole layer, and this file has tokens of dispatch and combine alone")
    if not ranks.fp8:
        raise ValueError("its GEMMs are in fp8, and this file's are in " + of["dispatched"])
    if sms:
        deep_gemm.set_num_sms(sms)
    buffer = deep_gemm.get_symm_buffer_for_sm90_mega_moe(
        ranks.group, of["experts"], max(t.count for t in every), of["top_k"], of["hidden"], of["intermediate"]
    )
    weights = [transformed(ranks, layer) for layer in range(len(every[0].ids))]
    for tokens in every:
        y = torch.empty(tokens.x.shape, dtype=torch.bfloat16, device=ranks.device)
        ids = [one.to(torch.int32) for one in tokens.ids]

        def layer(i: int, tokens: Tokens = tokens, ids: list = ids, y: torch.Tensor = y) -> None:
            deep_gemm.mega_moe_pre_dispatch_sm90(
                tokens.x, ids[i], tokens.weights[i], buffer.x, buffer.x_sf, buffer.topk_idx, buffer.topk_weights,
                tokens.count,
            )  # fmt: skip
            deep_gemm.fp8_mega_moe(y, *weights[i], buffer)

        wrong = ""
        for i in range(len(weights)):
            layer(i)
            ranks.meet()
            for token in range(min(tokens.count, CHECKED_TOKENS)):
                wrong = wrong or difference(y[token], expected(ranks, tokens, i, token), 0.05)
        calls = [lambda i=i: layer(i) for i in range(len(weights))]
        yield Operation("mega MoE", CONTAINS, tokens, "layer", calls, wrong, sms)
