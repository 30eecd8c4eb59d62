"""DeepEP: the low-latency and normal kernels of its Buffer, and its ElasticBuffer. For bench/rivals.py."""

from __future__ import annotations

from collections.abc import Iterator

import deep_ep
import torch
from rival_ranks import Operation, Ranks, Tokens, difference

LOW_LATENCY_TOKENS = 128  # its buffer grows with tokens × experts: 1.8 GB for DeepSeek-V3
NOT_WEIGHTED = "no weights, rows cast before"


def choices(tokens: Tokens, layer: int) -> dict:
    return {
        "topk_idx": tokens.ids[layer].to(getattr(deep_ep, "topk_idx_t", torch.int64)),
        "topk_weights": tokens.weights[layer],
    }


def as_bf16(rows: torch.Tensor | tuple) -> torch.Tensor:
    return rows[0].to(torch.bfloat16) if isinstance(rows, tuple) else rows


def low_latency(ranks: Ranks, every: list[Tokens], sms: int) -> Iterator[Operation]:
    fitting = [tokens for tokens in every if tokens.count <= LOW_LATENCY_TOKENS]
    if not fitting:
        raise ValueError(f"its buffer is made for up to {LOW_LATENCY_TOKENS} tokens")
    most, experts, layers = max(t.count for t in fitting), ranks.of["experts"], range(len(fitting[0].ids))
    buffer = deep_ep.Buffer(
        ranks.group,
        num_rdma_bytes=deep_ep.Buffer.get_low_latency_rdma_size_hint(most, ranks.of["hidden"], ranks.size, experts),
        low_latency_mode=True,
        num_qps_per_rank=ranks.local_experts,
        allow_nvlink_for_low_latency_mode=True,
        explicitly_destroy=True,
    )
    about = ("DeepEP LL", f"{'casts' if ranks.fp8 else 'bf16'}, rows by expert, weights in combine; all SMs")
    for tokens in fitting:
        ids = [choices(tokens, layer)["topk_idx"] for layer in layers]

        def dispatch(layer: int, fp8: bool = ranks.fp8, tokens: Tokens = tokens, ids: list = ids) -> tuple:
            return buffer.low_latency_dispatch(tokens.x, ids[layer], most, experts, use_fp8=fp8)

        rows, handles, wrong = [], [], ""
        for layer in layers:
            received, counts, handle, *_ = dispatch(layer, fp8=False)
            want = ranks.rows_of_experts(tokens, layer)
            torch.cuda.synchronize()
            if counts.tolist() != want:
                wrong = wrong or f"rows of experts {counts.tolist()}, not {want}"
            rows.append(received)
            handles.append(handle)

        def combine(layer: int, tokens: Tokens = tokens, ids: list = ids, rows: list = rows, handles: list = handles):
            return buffer.low_latency_combine(rows[layer], ids[layer], tokens.weights[layer], handles[layer])

        for layer, weights in enumerate(tokens.weights):
            wrong = wrong or difference(combine(layer)[0], tokens.x.float() * weights.sum(1, keepdim=True), 0.01)
        yield Operation(*about, tokens, "combine", [lambda i=i: combine(i) for i in layers], wrong)
        yield Operation(*about, tokens, "dispatch", [lambda i=i: dispatch(i) for i in layers], wrong)
    buffer.destroy()


def normal(ranks: Ranks, every: list[Tokens], sms: int) -> Iterator[Operation]:
    if sms:
        deep_ep.Buffer.set_num_sms(sms)
    buffer = deep_ep.Buffer(ranks.group, num_nvl_bytes=1 << 30, explicitly_destroy=True)
    configs = deep_ep.Buffer.get_dispatch_config(ranks.size), deep_ep.Buffer.get_combine_config(ranks.size)
    about = (
        "DeepEP normal",
        f"{NOT_WEIGHTED}, one for each rank of a token; the layout included, output for the worst case, no wait of the "
        "host",
    )
    for tokens in every:
        rows = ranks.ready_rows(tokens.x)

        def dispatch(layer: int, rows: torch.Tensor | tuple = rows, tokens: Tokens = tokens, worst: bool = True) -> tuple:
            mine = choices(tokens, layer)
            of_ranks, _, of_experts, sent, _ = buffer.get_dispatch_layout(mine["topk_idx"], ranks.of["experts"])
            return buffer.dispatch(
                rows,
                num_tokens_per_rank=of_ranks,
                is_token_in_rank=sent,
                num_tokens_per_expert=of_experts,
                config=configs[0],
                num_worst_tokens=tokens.count * ranks.size if worst else 0,
                **mine,
            )

        yield from both_ways(ranks, tokens, about, dispatch, lambda y, handle: buffer.combine(y, handle, config=configs[1]),
                             handle_at=4, sms=deep_ep.Buffer.num_sms)  # fmt: skip
    buffer.destroy()


def elastic(ranks: Ranks, every: list[Tokens], sms: int) -> Iterator[Operation]:
    if not hasattr(deep_ep, "ElasticBuffer"):
        raise ValueError("this version has no ElasticBuffer")
    buffer = deep_ep.ElasticBuffer(
        ranks.group,
        num_max_tokens_per_rank=max(t.count for t in every),
        hidden=ranks.of["hidden"],
        num_topk=ranks.of["top_k"],
        use_fp8_dispatch=ranks.fp8,
        allow_hybrid_mode=False,
        explicitly_destroy=True,
    )
    sms = sms or buffer.get_theoretical_num_sms(ranks.of["experts"], ranks.of["top_k"])
    about = ("DeepEP V2", f"{NOT_WEIGHTED}, by expert in blocks of 128; output for the worst case, no wait of the host")
    for tokens in every:
        rows = ranks.ready_rows(tokens.x)

        def dispatch(layer: int, rows: torch.Tensor | tuple = rows, tokens: Tokens = tokens, worst: bool = True) -> tuple:
            return buffer.dispatch(
                rows,
                num_experts=ranks.of["experts"],
                num_sms=sms,
                do_cpu_sync=not worst,
                do_expand=True,
                expert_alignment=128,
                **choices(tokens, layer),
            )

        yield from both_ways(ranks, tokens, about, dispatch, lambda y, handle: buffer.combine(y, handle, num_sms=sms),
                             handle_at=3, sms=sms, rows_of_token=ranks.of["top_k"])  # fmt: skip
    buffer.destroy()


def both_ways(ranks, tokens, about, dispatch, combine, *, handle_at, sms, rows_of_token=0) -> Iterator[Operation]:
    """Combine of what a dispatch has brought adds up a token's rows: one of each rank, or `rows_of_token`."""
    layers = range(len(tokens.ids))
    got = [dispatch(layer, worst=False) for layer in layers]
    rows, handles = [as_bf16(one[0]) for one in got], [one[handle_at] for one in got]
    sent = tokens.x.to(torch.float8_e4m3fn) if ranks.fp8 else tokens.x
    wrong = ""
    for layer in layers:
        count = rows_of_token or ranks.copies(tokens, layer)
        wrong = wrong or difference(combine(rows[layer], handles[layer])[0], sent.float() * count, 0.01)
    calls = [lambda i=i: combine(rows[i], handles[i]) for i in layers]
    yield Operation(*about, tokens, "combine", calls, wrong, sms)
    yield Operation(*about, tokens, "dispatch", [lambda i=i: dispatch(i) for i in layers], wrong, sms)
