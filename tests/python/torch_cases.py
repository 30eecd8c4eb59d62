"""A call of every operator of weft.torch, with its tensors on CPUs or on GPUs."""

from __future__ import annotations

import torch
import weft
import weft.torch


def given(rank: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    return (torch.randn(shape, generator=generator) * 100).to(dtype)


def bits(tensor: torch.Tensor) -> bytes:
    raw: bytes = tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes()
    return raw


class Case:
    """A call of every operator on one rank, and the tensors that it writes."""

    def __init__(self, group: weft.torch.Group, device: str = "cpu") -> None:
        self.group, self.rank, self.device = group, group.rank, device
        ranks = group.size
        self.x = given(self.rank, (4, 16)).to(device)
        self.halves = given(self.rank, (2, 64), torch.bfloat16).to(device)
        self.fp8 = torch.float8_e4m3fn
        self.gamma, self.gamma_f32 = given(9, (64,), torch.bfloat16).to(device), given(9, (64,)).to(device)
        self.rows = torch.tensor([2 + rank for rank in range(ranks)], dtype=torch.int32, device=device)
        self.end = sum(2 + rank for rank in range(ranks))
        self.words = torch.tensor([5 + self.rank, 1], dtype=torch.int32, device=device)
        # Made here: torch's compiler knows no generators, and no classes of nanobind.
        self.own = given(self.rank, (2 + self.rank, 16)).to(device)
        self.ids = torch.arange(2 + self.rank, device=device)
        self.parts, self.everything = given(self.rank, (self.end, 16)).to(device), given(7, (self.end, 16)).to(device)
        self.logits = given(self.rank, (self.end, 16), torch.bfloat16).to(device)
        self.shard = given(self.rank + 30, (2 + self.rank, 16), torch.bfloat16).to(device)
        self.table = weft.GatheredCounts(ranks, 2).words

    def all_reduce_(self) -> list[torch.Tensor]:
        return [self.group.all_reduce_(self.x.clone(), op="max", tag=3)]

    def all_reduce(self) -> list[torch.Tensor]:
        return [self.group.all_reduce(self.x)]

    def reduce(self) -> list[torch.Tensor]:
        root = self.group.size - 1
        output = torch.empty_like(self.x) if self.rank == root else None
        self.group.reduce(output, self.x, root=root)
        return [] if output is None else [output]

    def all_gather(self) -> list[torch.Tensor]:
        output = self.x.new_empty((4 * self.group.size, 16))
        self.group.all_gather_into_tensor(output, self.x)
        return [output]

    def all_gather_columns(self) -> list[torch.Tensor]:
        """Of bf16 into f32, without the last shard's pads."""
        output = torch.empty((2, 64 * self.group.size - 3), device=self.device)
        self.group.all_gather_columns(output, self.halves, scale=0.5, soft_cap=30.0)
        return [output]

    def all_to_all_columns(self) -> list[torch.Tensor]:
        """Of bf16 into f32, to groups of one rank with the rows of ragged calls."""
        output = torch.zeros((2 + self.rank, 16 * self.group.size - 3), device=self.device)
        self.group.all_to_all_columns(output, self.logits, weft.torch.Counts(self.rows), scale=0.5, soft_cap=30.0)
        return [output]

    def columns_of_one_group(self) -> list[torch.Tensor]:
        """All ranks get the same rows."""
        output = torch.zeros((2, 16 * self.group.size), dtype=torch.bfloat16, device=self.device)
        one = weft.torch.Counts(self.rows[:1])
        self.group.all_to_all_columns(output, self.logits, one, group_ranks=self.group.size)
        return [output]

    def top_k_columns(self) -> list[torch.Tensor]:
        """Of bf16, without the last shard's pads."""
        indices = torch.empty((2, 5), dtype=torch.int32, device=self.device)
        values = torch.empty((2, 5), dtype=torch.bfloat16, device=self.device)
        self.group.top_k_columns(values, indices, self.halves, columns=64 * self.group.size - 3)
        return [values, indices]

    def even_columns(self) -> list[torch.Tensor]:
        """Shards of which the first has one column more: side by side, for one group, and the largest."""
        columns = 15 * self.group.size + 1
        output = torch.empty((2, columns), dtype=torch.bfloat16, device=self.device)
        self.group.all_gather_columns(output, self.logits[:2], even_shards=True)
        shared = torch.zeros_like(output)
        one = weft.torch.Counts(self.rows[:1])
        self.group.all_to_all_columns(shared, self.logits, one, group_ranks=self.group.size, even_shards=True)
        indices = torch.empty((2, 5), dtype=torch.int32, device=self.device)
        self.group.top_k_columns(None, indices, self.logits[:2], columns=columns, even_shards=True)
        return [output, shared, indices]

    def reduce_scatter(self) -> list[torch.Tensor]:
        output, many = self.x.new_empty((4, 16)), self.x.repeat(self.group.size, 1)
        self.group.reduce_scatter_tensor(output, many)
        return [output]

    def all_to_all(self) -> list[torch.Tensor]:
        many = self.x.repeat(self.group.size, 1)
        output = torch.empty_like(many)
        self.group.all_to_all(output, many)
        return [output]

    def broadcast(self) -> list[torch.Tensor]:
        return [self.group.broadcast_(self.x.clone(), root=1)]

    def gather(self) -> list[torch.Tensor]:
        root = self.group.size - 1
        output = self.x.new_empty((4 * self.group.size, 16)) if self.rank == root else None
        self.group.gather(output, self.x, root=root)
        return [] if output is None else [output]

    def scatter(self) -> list[torch.Tensor]:
        root = self.group.size - 1
        output = self.x.new_empty((4, 16))
        self.group.scatter(output, self.x.repeat(self.group.size, 1) if self.rank == root else None, root=root)
        return [output]

    def send_receive(self) -> list[torch.Tensor]:
        after, before = (self.rank + 1) % self.group.size, (self.rank - 1) % self.group.size
        output, ids = torch.empty_like(self.x), torch.empty(2 + before, dtype=torch.int64, device=self.device)
        self.group.send_receive([(self.x, after), (self.ids, after, 7)], [(output, before), (ids, before, 7)])
        return [output, ids]

    def send_and_receive(self) -> list[torch.Tensor]:
        """Rank 0 to the others; a rank that is alone does nothing."""
        if self.rank == 0:
            for peer in range(1, self.group.size):
                self.group.send(self.x, peer)
            return []
        output = torch.empty_like(self.x)
        self.group.receive(output, 0)
        return [output]

    def barrier(self) -> list[torch.Tensor]:
        self.group.barrier(self.x, tag=4)
        return []

    def norm(self) -> list[torch.Tensor]:
        normed, sums = torch.empty_like(self.halves), torch.empty_like(self.halves)
        rows = torch.empty(self.halves.shape, dtype=self.fp8, device=self.device)
        scales = torch.empty(self.halves.shape[0], device=self.device)
        residual = self.gamma.repeat(2, 1)
        self.group.all_reduce_rms_norm(
            normed, sums, self.halves, self.gamma, residual, fp8_rows=rows, fp8_scales=scales, scale_floor=400.0
        )
        return [normed, sums, rows, scales]

    def all_gather_v(self) -> list[torch.Tensor]:
        output, ids = self.x.new_empty((self.end, 16)), torch.empty(self.end, dtype=torch.int64, device=self.device)
        of = weft.torch.Counts(self.rows)
        self.group.all_gather_v([output, ids], [self.own, self.ids], of)
        return [output, ids]

    def reduce_scatter_v(self) -> list[torch.Tensor]:
        output = self.x.new_empty((2 + self.rank, 16))
        self.group.reduce_scatter_v(output, self.parts, weft.torch.Counts(self.rows), op="avg")
        return [output]

    def gather_sums(self) -> list[torch.Tensor]:
        """All ranks are one group, whose rows are those of all slots."""
        output = torch.empty_like(self.parts)
        counts = weft.torch.Counts(self.rows)
        self.group.gather_sums(output, self.parts, counts, group_ranks=self.group.size)
        return [output]

    def scatter_sums(self) -> list[torch.Tensor]:
        output = torch.empty_like(self.parts)
        counts = weft.torch.Counts(self.rows)
        self.group.scatter_sums(output, self.parts, counts, group_ranks=self.group.size, tag=3)
        return [output]

    def gather_sums_rms_norm(self) -> list[torch.Tensor]:
        """With residual and e4m3 rows."""
        normed, sums = torch.empty_like(self.logits), torch.empty_like(self.shard)
        rows = torch.empty(self.logits.shape, dtype=self.fp8, device=self.device)
        scales = torch.empty(self.end, device=self.device)
        self.group.gather_sums_rms_norm(
            normed,
            sums,
            self.logits,
            self.gamma_f32[:16],
            weft.torch.Counts(self.rows),
            self.shard,
            group_ranks=self.group.size,
            fp8_rows=rows,
            fp8_scales=scales,
            scale_floor=300.0,
        )
        return [normed, sums, rows, scales]

    def scatter_sums_rms_norm(self) -> list[torch.Tensor]:
        normed, sums = torch.empty_like(self.logits), torch.empty_like(self.shard)
        counts, ranks = weft.torch.Counts(self.rows), self.group.size
        self.group.scatter_sums_rms_norm(normed, sums, self.logits, self.gamma[:16], counts, group_ranks=ranks, tag=3)
        return [normed, sums]

    def take_rows(self) -> list[torch.Tensor]:
        output = self.x.new_empty((4, 16))
        slots = self.group.size
        self.group.take_rows(output, self.everything, weft.torch.Counts(self.rows), slots=slots, slot=slots - 1)
        return [output]

    def exchanged(self) -> tuple[weft.torch.Exchange, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """An exchange, rows for its output, and a rank's ids, weights and place for results."""
        if not hasattr(self, "exchange"):
            self.exchange = weft.torch.Exchange(self.group, tokens=4, hidden=64, experts=6, top_k=2, handles=64)
            self.tokens = given(self.rank, (4, 64), torch.bfloat16).to(self.device)
            self.topk_ids = torch.tensor([[self.rank, self.rank + 1], [5, 0], [3, 4], [2, -1]], device=self.device)
            self.topk_weights = (given(self.rank + 20, (4, 2)) / 100).to(self.device)
        rows = torch.zeros(self.exchange.output_rows, 64, dtype=torch.bfloat16, device=self.device)
        return self.exchange, rows, self.topk_ids, self.topk_weights, torch.empty_like(self.tokens)

    def share_exchange_of(self, other: Case) -> None:
        """Compiled calls keep their case, and a communicator has room for some exchanges."""
        other.exchanged()
        self.exchange, self.tokens = other.exchange, other.tokens
        self.topk_ids, self.topk_weights = other.topk_ids, other.topk_weights

    def combine_with_weights(self) -> list[torch.Tensor]:
        if not hasattr(self, "late"):
            self.exchanged()
            self.late = weft.torch.Exchange(
                self.group, tokens=4, hidden=64, experts=6, top_k=2, handles=64, weights_at_combine=True
            )
        exchange, results = self.late, torch.empty_like(self.tokens)
        rows = torch.zeros(exchange.output_rows, 64, dtype=torch.bfloat16, device=self.device)
        counts = torch.empty(exchange.local_experts, dtype=torch.int32, device=self.device)
        handle = exchange.dispatch(rows, self.tokens, self.topk_ids, counts=counts)
        exchange.combine(results, rows, handle, self.tokens, topk_weights=self.topk_weights)
        return [rows, counts, results]

    def masked(self) -> tuple[weft.torch.Exchange, torch.Tensor, torch.Tensor]:
        """An exchange of an expert for each rank, rows for its output, and a mask of ranks."""
        self.exchanged()
        if not hasattr(self, "by_mask"):
            ranks = self.group.size
            definition = {"tokens": 4, "hidden": 64, "experts": ranks, "top_k": ranks, "handles": 64}
            self.by_mask = weft.torch.Exchange(self.group, **definition, weighted=False, layout="expert_contiguous")
            self.mask = torch.tensor([[(self.rank + 2 * i + to) % 3 > 0 for to in range(ranks)] for i in range(4)])
            self.mask = self.mask.to(self.device)
        rows = torch.zeros(self.by_mask.output_rows, 64, dtype=torch.bfloat16, device=self.device)
        return self.by_mask, rows, self.mask

    def rows_by_mask(self) -> list[torch.Tensor]:
        exchange, rows, mask = self.masked()
        counts = torch.empty(1, dtype=torch.int32, device=self.device)
        offsets, results = torch.empty(2, dtype=torch.int32, device=self.device), torch.empty_like(self.tokens)
        handle = exchange.dispatch(rows, self.tokens, rank_mask=mask, counts=counts, offsets=offsets)
        exchange.combine(results, rows, handle, self.tokens)
        return [rows, counts, results]

    def compact(self) -> tuple[weft.torch.Exchange, torch.Tensor, dict[str, torch.Tensor]]:
        """An exchange of compact rows, rows for its output, and its other outputs."""
        self.exchanged()
        if not hasattr(self, "of_compact"):
            self.of_compact = weft.torch.Exchange(
                self.group, tokens=4, hidden=64, experts=6, top_k=2, handles=64, layout="rank_compact"
            )
        exchange, ranks = self.of_compact, self.group.size
        rows = torch.zeros(exchange.output_rows, 64, dtype=torch.bfloat16, device=self.device)
        outputs = {
            "counts": torch.empty(exchange.local_experts, dtype=torch.int32, device=self.device),
            "output_ids": torch.full((exchange.output_rows, 2), -2, dtype=torch.int32, device=self.device),
            "output_weights": torch.zeros(exchange.output_rows, 2, device=self.device),
            "rank_prefix": torch.empty(ranks, ranks, dtype=torch.int32, device=self.device),
        }
        return exchange, rows, outputs

    def compact_rows(self) -> list[torch.Tensor]:
        exchange, rows, outputs = self.compact()
        results = torch.empty_like(self.tokens)
        handle = exchange.dispatch(rows, self.tokens, self.topk_ids, self.topk_weights, **outputs)
        exchange.combine(results, rows, handle, self.tokens)
        return [rows, results, *outputs.values()]

    def moved(self) -> tuple[weft.torch.Exchange, torch.Tensor]:
        """An exchange whose experts have moved in map 1, and rows for its output."""
        self.exchanged()
        if not hasattr(self, "of_places"):
            places = torch.arange(8 * self.group.size).view(self.group.size, 8) % 6
            self.maps = torch.stack([places, places.flip(0, 1)])
            definition = {"tokens": 4, "hidden": 64, "experts": 6, "top_k": 2, "handles": 64, "maps": 2}
            before = torch.stack([places, places]).flatten().tolist()
            self.of_places = weft.torch.Exchange(self.group, **definition, experts_of_rank=before)
            self.of_places.set_experts(self.maps[1], first_map=1)
        exchange = self.of_places
        return exchange, torch.zeros(exchange.output_rows, 64, dtype=torch.bfloat16, device=self.device)

    def experts_that_moved(self) -> list[torch.Tensor]:
        exchange, rows = self.moved()
        counts = torch.empty(exchange.local_experts, dtype=torch.int32, device=self.device)
        results = torch.empty_like(self.tokens)
        handle = exchange.dispatch(rows, self.tokens, self.topk_ids, self.topk_weights, counts=counts, map=1)
        exchange.combine(results, rows, handle, self.tokens)
        return [rows, counts, results]

    def repeated(self) -> tuple[weft.torch.Exchange, torch.Tensor, torch.Tensor]:
        """A repeatable exchange, and rows for the outputs of two dispatches."""
        self.exchanged()
        if not hasattr(self, "repeatable"):
            definition = {"tokens": 4, "hidden": 64, "experts": 6, "top_k": 2, "handles": 64, "path": "ring"}
            self.repeatable = weft.torch.Exchange(self.group, **definition, repeatable=True)
        rows = torch.zeros(2, self.repeatable.output_rows, 64, dtype=torch.bfloat16, device=self.device)
        return self.repeatable, rows[0], rows[1]

    def made_again(self) -> list[torch.Tensor]:
        exchange, rows, others = self.repeated()
        counts = torch.empty(exchange.local_experts, dtype=torch.int32, device=self.device)
        results = torch.empty_like(self.tokens)
        handle = exchange.dispatch(rows, self.tokens, self.topk_ids, self.topk_weights, counts=counts)
        again = exchange.dispatch(others, 2 * self.tokens, again=handle, discard=True)
        exchange.combine(results, others, again, self.tokens)
        return [rows, others, counts, results]

    def dispatch_and_combine(self) -> list[torch.Tensor]:
        exchange, rows, ids, weights, results = self.exchanged()
        counts = torch.empty(exchange.local_experts, dtype=torch.int32, device=self.device)
        handle = exchange.dispatch(rows, self.tokens, ids, weights, counts=counts, tag=2)
        exchange.combine(results, rows, handle, self.tokens)
        return [rows, counts, results]

    def halves_of_an_exchange(self) -> list[torch.Tensor]:
        exchange, rows, ids, weights, results = self.exchanged()
        counts = torch.empty(exchange.local_experts, dtype=torch.int32, device=self.device)
        handle = exchange.dispatch_send(self.tokens, ids, weights)
        exchange.dispatch_wait(handle, rows, counts=counts)
        exchange.combine_send(rows, handle)
        exchange.combine_wait(results, handle, residual=self.tokens)
        return [rows, counts, results]

    def rounds_of_an_exchange(self) -> list[torch.Tensor]:
        _, rows, ids, weights, results = self.exchanged()
        if not hasattr(self, "ring"):  # beside it only slots serve rounds
            definition = {"tokens": 4, "hidden": 64, "experts": 6, "top_k": 2, "handles": 64, "path": "ring"}
            self.ring = weft.torch.Exchange(self.group, **definition, slot_tokens=4)
        exchange = self.ring
        counts = torch.empty(exchange.local_experts, dtype=torch.int32, device=self.device)
        experts = -(-6 // self.group.size)
        division = [1, experts - 1]
        handle = exchange.dispatch_send(self.tokens, ids, weights, rounds=division, most_tokens=4)
        for number in range(2):
            exchange.dispatch_wait(handle, rows, counts=counts, round=number)
            exchange.combine_send(rows, handle, rounds=division, round=number)
        exchange.combine_wait(results, handle, residual=self.tokens)
        return [rows, counts, results]

    def all_gather_counts(self) -> list[torch.Tensor]:
        output = torch.empty(self.table, dtype=torch.int32, device=self.device)
        self.group.all_gather_counts(output, self.words)
        return [output]


NAMES = [
    "all_reduce_",
    "all_reduce",
    "reduce",
    "all_gather",
    "all_gather_columns",
    "all_to_all_columns",
    "columns_of_one_group",
    "even_columns",
    "top_k_columns",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "gather",
    "scatter",
    "send_receive",
    "send_and_receive",
    "barrier",
    "norm",
    "all_gather_v",
    "reduce_scatter_v",
    "gather_sums",
    "scatter_sums",
    "gather_sums_rms_norm",
    "scatter_sums_rms_norm",
    "take_rows",
    "all_gather_counts",
    "dispatch_and_combine",
    "combine_with_weights",
    "halves_of_an_exchange",
    "rounds_of_an_exchange",
    "rows_by_mask",
    "compact_rows",
    "experts_that_moved",
    "made_again",
]
