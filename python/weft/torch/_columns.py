"""Calls of a group on matrices whose columns the ranks share."""

from __future__ import annotations

import torch

from weft._core import Group as CoreGroup
from weft.torch import _operators as operators
from weft.torch._counts import Counts
from weft.torch._operators import CURRENT_STREAM, Watched, is_compiling


class Columns:
    """A part of weft.torch.Group."""

    group: CoreGroup
    number: int

    def all_gather_columns(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        *,
        even_shards: bool = False,
        scale: float = 1.0,
        soft_cap: float = 0.0,
        tag: int = 0,
        blocks: int = 0,
        threads: int = 0,
        cluster: int = 0,
    ) -> None:
        """output = the inputs of all ranks beside each other: [rows, columns], scaled and capped on their way."""
        if not is_compiling():
            try:
                self.group.all_gather_columns(
                    output,
                    input,
                    even_shards=even_shards,
                    scale=scale,
                    soft_cap=soft_cap,
                    stream=CURRENT_STREAM,
                    tag=tag,
                    blocks=blocks,
                    threads=threads,
                    cluster=cluster,
                )
                return
            except Watched:
                pass
        options = operators.options(tag, blocks, threads, cluster)
        rules = even_shards, scale, soft_cap
        operators.call(operators.ops.all_gather_columns.default, output, input, self.number, *rules, options)

    def all_to_all_columns(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        counts: Counts,
        *,
        group_ranks: int = 1,
        even_shards: bool = False,
        scale: float = 1.0,
        soft_cap: float = 0.0,
        tag: int = 0,
        blocks: int = 0,
        threads: int = 0,
        cluster: int = 0,
    ) -> None:
        """output = all columns of the rows of this rank's group. Counts are of groups of `group_ranks` neighbours."""
        options = operators.options(tag, blocks, threads, cluster)
        rules = group_ranks, counts.sharding, counts.padding, counts.slot_rows, even_shards, scale, soft_cap
        operators.call(
            operators.ops.all_to_all_columns.default, output, input, counts.rows, counts.slots, self.number, *rules, options
        )

    def top_k_columns(
        self,
        values: torch.Tensor | None,
        indices: torch.Tensor,
        input: torch.Tensor,
        *,
        columns: int = 0,
        even_shards: bool = False,
        tag: int = 0,
        blocks: int = 0,
        threads: int = 0,
        cluster: int = 0,
    ) -> None:
        """values, indices = for each row the k largest of all ranks' columns, on every rank. indices: [rows, k] i32."""
        if not is_compiling():
            try:
                self.group.top_k_columns(
                    values,
                    indices,
                    input,
                    columns=columns,
                    even_shards=even_shards,
                    stream=CURRENT_STREAM,
                    tag=tag,
                    blocks=blocks,
                    threads=threads,
                    cluster=cluster,
                )
                return
            except Watched:
                pass
        options = operators.options(tag, blocks, threads, cluster)
        operators.call(operators.ops.top_k_columns.default, values, indices, input, self.number, columns, even_shards, options)
