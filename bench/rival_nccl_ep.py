"""NCCL EP's low-latency kernels, rows by expert, through its Python interface. For bench/rivals.py."""

from __future__ import annotations

from collections.abc import Iterator

import nccl.core as core
import nccl.ep as ep
import torch
from rival_ranks import Operation, Ranks, Tokens, difference

CONTAINS = "bf16 rows whatever Weft's are, by expert, weights in combine; no dispatch casts; the routing is set before"


def low_latency(ranks: Ranks, every: list[Tokens], sms: int) -> Iterator[Operation]:
    identity = ranks.gathered(core.get_unique_id() if ranks.rank == 0 else None)[0]
    world = core.Communicator.init(nranks=ranks.size, rank=ranks.rank, unique_id=identity)
    most, hidden = max(t.count for t in every), ranks.of["hidden"]
    group = ep.Group.create(
        world,
        ep.GroupConfig(
            algorithm=ep.Algorithm.LOW_LATENCY,
            num_experts=ranks.of["experts"],
            max_dispatch_tokens_per_rank=most,
            max_recv_tokens_per_rank=most * ranks.size,
            max_token_bytes=hidden * 2,
            max_num_sms=sms,
        ),
    )
    rows = torch.empty((ranks.local_experts, most * ranks.size, hidden), dtype=torch.bfloat16, device=ranks.device)
    counts = torch.empty((ranks.local_experts,), dtype=torch.int32, device=ranks.device)
    for tokens in every:
        yield from operations(ranks, group, tokens, rows, counts, sms)
    group.destroy()
    world.destroy()


def operations(ranks: Ranks, group, tokens: Tokens, rows, counts, sms: int) -> Iterator[Operation]:
    """A combine takes what its dispatch has sent, so the two are timed together, and dispatch alone."""
    result = torch.empty(tokens.x.shape, dtype=torch.bfloat16, device=ranks.device)
    there = ep.DispatchInputs(tokens=ep.Tensor(tokens.x)), ep.DispatchOutputs(tokens=ep.Tensor(rows))
    received = ep.LayoutInfo(expert_counters=ep.Tensor(counts))
    back = ep.CombineInputs(tokens=ep.Tensor(rows))
    sums = [ep.CombineOutputs(tokens=ep.Tensor(result), topk_weights=ep.Tensor(w)) for w in tokens.weights]

    def stream() -> int:
        return torch.cuda.current_stream().cuda_stream

    handles = [
        group.create_handle(ep.Layout.EXPERT_MAJOR, ep.Tensor(ids), layout_info=None, stream=stream())
        for ids in tokens.ids
    ]

    def dispatch(layer: int) -> None:
        handles[layer].dispatch(*there, layout_info=received, config=ep.DispatchConfig(), stream=stream())

    def both(layer: int) -> None:
        dispatch(layer)
        handles[layer].combine(back, sums[layer], config=ep.CombineConfig(), stream=stream())

    wrong = ""
    for layer, weights in enumerate(tokens.weights):
        both(layer)
        torch.cuda.synchronize()
        want = ranks.rows_of_experts(tokens, layer)
        if counts.tolist() != want:
            wrong = wrong or f"rows of experts {counts.tolist()}, not {want}"
        wrong = wrong or difference(result, tokens.x.float() * weights.sum(1, keepdim=True), 0.01)
    layers = range(len(handles))
    about = ("NCCL EP", CONTAINS)
    yield Operation(*about, tokens, "both", [lambda i=i: both(i) for i in layers], wrong, sms)
    yield Operation(*about, tokens, "dispatch", [lambda i=i: dispatch(i) for i in layers], wrong, sms)
    for handle in handles:
        handle.destroy()
