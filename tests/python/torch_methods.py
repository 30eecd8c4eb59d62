"""The calls of torch_cases.py as methods of weft.Group, with outputs of NumPy."""

from __future__ import annotations

import numpy as np
import torch
import weft
from torch_cases import Case, bits


def through_core(case: Case, name: str) -> list[bytes]:
    """The same call of weft.Group."""
    core, ranks = case.group.group, case.group.size
    x = case.x.numpy()
    if name in ("all_reduce_", "all_reduce"):
        y = np.empty_like(x)
        core.all_reduce(y, x, op="max" if name == "all_reduce_" else "sum")
        return [y.tobytes()]
    if name == "reduce":
        y = np.empty_like(x)
        core.reduce(y, x, root=ranks - 1)
        return [y.tobytes()] if case.rank == ranks - 1 else []
    if name == "all_gather":
        y = np.empty((4 * ranks, 16), np.float32)
        core.all_gather_into_tensor(y, x)
        return [y.tobytes()]
    if name == "all_gather_columns":
        y = np.empty((2, 64 * ranks - 3), np.float32)
        core.all_gather_columns(y, case.halves, scale=0.5, soft_cap=30.0)
        return [y.tobytes()]
    if name == "all_to_all_columns":
        y = np.zeros((2 + case.rank, 16 * ranks - 3), np.float32)
        core.all_to_all_columns(y, case.logits, weft.Counts(case.rows.numpy()), scale=0.5, soft_cap=30.0)
        return [y.tobytes()]
    if name == "columns_of_one_group":
        shared, one = np.zeros((2, 16 * ranks), np.uint16), weft.Counts(case.rows.numpy()[:1])
        core.all_to_all_columns(weft.Tensor(shared, "bf16"), case.logits, one, group_ranks=ranks)
        return [shared.tobytes()]
    if name == "top_k_columns":
        values, indices = np.empty((2, 5), np.uint16), np.empty((2, 5), np.int32)
        core.top_k_columns(weft.Tensor(values, "bf16"), indices, case.halves, columns=64 * ranks - 3)
        return [values.tobytes(), indices.tobytes()]
    if name == "even_columns":
        y, shared = np.empty((2, 15 * ranks + 1), np.uint16), np.zeros((2, 15 * ranks + 1), np.uint16)
        indices, one = np.empty((2, 5), np.int32), weft.Counts(case.rows.numpy()[:1])
        core.all_gather_columns(weft.Tensor(y, "bf16"), case.logits[:2], even_shards=True)
        core.all_to_all_columns(weft.Tensor(shared, "bf16"), case.logits, one, group_ranks=ranks, even_shards=True)
        core.top_k_columns(None, indices, case.logits[:2], columns=15 * ranks + 1, even_shards=True)
        return [y.tobytes(), shared.tobytes(), indices.tobytes()]
    if name == "reduce_scatter":
        y = np.empty((4, 16), np.float32)
        core.reduce_scatter_tensor(y, np.tile(x, (ranks, 1)))
        return [y.tobytes()]
    if name == "all_to_all":
        y = np.empty((4 * ranks, 16), np.float32)
        core.all_to_all(y, np.tile(x, (ranks, 1)))
        return [y.tobytes()]
    if name == "broadcast":
        y = x.copy()
        core.broadcast(y, root=1)
        return [y.tobytes()]
    if name in ("gather", "scatter"):
        y = np.empty(((4 * ranks, 16) if name == "gather" else (4, 16)), np.float32)
        if name == "scatter":
            core.scatter(y, np.tile(x, (ranks, 1)), root=ranks - 1)
            return [y.tobytes()]
        core.gather(y, x, root=ranks - 1)
        return [y.tobytes()] if case.rank == ranks - 1 else []
    if name in ("send_receive", "send_and_receive"):
        return through_messages(case, name)
    if name == "barrier":
        core.barrier()
        return []
    if name == "norm":
        normed, sums = torch.empty_like(case.halves), torch.empty_like(case.halves)
        rows, scales = np.empty((2, 64), np.uint8), np.empty(2, np.float32)
        residual = case.gamma.repeat(2, 1)
        core.all_reduce_rms_norm(
            normed, sums, case.halves, case.gamma, residual, fp8=weft.Fp8Output(rows, scales, floor=400)
        )
        return [bits(normed), bits(sums), rows.tobytes(), scales.tobytes()]
    rows = case.rows.numpy()
    if name == "all_gather_v":
        y, ids = np.empty((case.end, 16), np.float32), np.empty(case.end, np.int64)
        core.all_gather_v([y, ids], [case.own, case.ids], weft.Counts(rows))
        return [y.tobytes(), ids.tobytes()]
    if name == "reduce_scatter_v":
        y = np.empty((2 + case.rank, 16), np.float32)
        core.reduce_scatter_v(y, case.parts, weft.Counts(rows), op="avg")
        return [y.tobytes()]
    if name in ("gather_sums", "scatter_sums"):
        y = np.empty((case.end, 16), np.float32)
        getattr(core, name)(y, case.parts, weft.Counts(rows), group_ranks=ranks)
        return [y.tobytes()]
    if name in ("gather_sums_rms_norm", "scatter_sums_rms_norm"):
        normed, sums = torch.empty_like(case.logits), torch.empty_like(case.shard)
        cast, scales = np.empty((case.end, 16), np.uint8), np.empty(case.end, np.float32)
        counts = weft.Counts(rows)
        if name == "scatter_sums_rms_norm":
            core.scatter_sums_rms_norm(normed, sums, case.logits, case.gamma[:16], counts, group_ranks=ranks)
            return [bits(normed), bits(sums)]
        of, fp8 = (case.logits, case.gamma_f32[:16], counts, case.shard), weft.Fp8Output(cast, scales, floor=300)
        core.gather_sums_rms_norm(normed, sums, *of, group_ranks=ranks, fp8=fp8)
        return [bits(normed), bits(sums), cast.tobytes(), scales.tobytes()]
    if name == "take_rows":
        y = np.empty((4, 16), np.float32)
        core.take_rows(y, case.everything, weft.Counts(rows), slots=ranks, slot=ranks - 1)
        return [y.tobytes()]
    if name in ("dispatch_and_combine", "halves_of_an_exchange", "rounds_of_an_exchange", "combine_with_weights"):
        made, rows_of_all, ids, weights, results = case.exchanged()
        exchange, counts = made.exchange, np.empty(made.local_experts, np.int32)
        handle = exchange.dispatch(rows_of_all, case.tokens, ids, weights, counts=counts)
        exchange.combine(results, rows_of_all, handle, case.tokens)
        return [bits(rows_of_all), counts.tobytes(), bits(results)]
    if name == "compact_rows":
        made, rows_of_all, outputs = case.compact()
        results, named = torch.empty_like(case.tokens), {key: tensor.numpy() for key, tensor in outputs.items()}
        handle = made.exchange.dispatch(rows_of_all, case.tokens, case.topk_ids, case.topk_weights, **named)
        made.exchange.combine(results, rows_of_all, handle, case.tokens)
        return [bits(rows_of_all), bits(results), *(array.tobytes() for array in named.values())]
    if name == "experts_that_moved":  # in an exchange that is made with the maps
        _, rows_of_all = case.moved()
        of = {"tokens": 4, "hidden": 64, "experts": 6, "top_k": 2, "maps": 2}
        exchange = weft.Exchange.create(core, **of, experts_of_rank=case.maps.flatten().tolist())
        counts, results = np.empty(exchange.local_experts, np.int32), torch.empty_like(case.tokens)
        given = case.tokens, case.topk_ids, case.topk_weights
        handle = exchange.dispatch(rows_of_all, *given, counts=counts, map=1)
        exchange.combine(results, rows_of_all, handle, case.tokens)
        exchange.free()
        return [bits(rows_of_all), counts.tobytes(), bits(results)]
    if name == "made_again":
        made, rows_of_all, others = case.repeated()
        exchange, counts, results = made.exchange, np.empty(made.local_experts, np.int32), torch.empty_like(case.tokens)
        handle = exchange.dispatch(rows_of_all, case.tokens, case.topk_ids, case.topk_weights, counts=counts)
        again = exchange.dispatch(others, 2 * case.tokens, again=handle, discard=True)
        exchange.combine(results, others, again, case.tokens)
        return [bits(rows_of_all), bits(others), counts.tobytes(), bits(results)]
    if name == "rows_by_mask":  # by ids that say the same
        made, rows_of_all, mask = case.masked()
        exchange, counts, offsets = made.exchange, np.empty(1, np.int32), np.empty(2, np.int32)
        ids, results = np.where(mask.cpu().numpy(), np.arange(ranks), -1).astype(np.int32), torch.empty_like(case.tokens)
        handle = exchange.dispatch(rows_of_all, case.tokens, ids, counts=counts, offsets=offsets)
        exchange.combine(results, rows_of_all, handle, case.tokens)
        return [bits(rows_of_all), counts.tobytes(), bits(results)]
    table = np.empty(case.table, np.int32)
    core.all_gather_counts(table, case.words)
    return [table.tobytes()]


def through_messages(case: Case, name: str) -> list[bytes]:
    core, x = case.group.group, case.x.numpy()
    y = np.empty_like(x)
    if name == "send_receive":
        after, before = (case.rank + 1) % core.size, (case.rank - 1) % core.size
        ids = np.empty(2 + before, np.int64)
        core.send_receive([(x, after), (case.ids, after, 7)], [(y, before), (ids, before, 7)])
        return [y.tobytes(), ids.tobytes()]
    if case.rank == 0:
        core.send_receive([(x, peer) for peer in range(1, core.size)])
        return []
    core.receive(y, 0)
    return [y.tobytes()]
