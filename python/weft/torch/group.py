"""Groups of ranks whose tensors are torch's."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from weft import _core
from weft._core import Group as CoreGroup
from weft._words import Algorithm, Padding, ReduceOp, Sharding
from weft.torch import _operators as operators
from weft.torch._columns import Columns
from weft.torch._counts import Counts
from weft.torch._norms import Norms
from weft.torch._operators import CURRENT_STREAM, Watched, is_compiling

Message = tuple[torch.Tensor, int] | tuple[torch.Tensor, int, int]


class Group(Columns, Norms):
    """A weft.Group for tensors of torch. The methods are those of weft.Group, and their docstrings hold.

    Keep it as long as graphs are replayed that were captured with it.
    """

    def __init__(self, group: CoreGroup) -> None:
        self.group = group
        self.rank, self.size, self.cuda_device = group.rank, group.size, group.cuda_device
        self.number = _core._torch_add_group(group)

    def __del__(self) -> None:
        if number := getattr(self, "number", 0):
            _core._torch_remove_group(number)

    def all_reduce_(
        self,
        x: torch.Tensor,
        *,
        op: ReduceOp = "sum",
        algorithm: Algorithm = "automatic",
        tag: int = 0,
        blocks: int = 0,
        threads: int = 0,
        cluster: int = 0,
    ) -> torch.Tensor:
        """x = the reduction over ranks; returns x."""
        if not is_compiling():
            try:
                self.group.all_reduce(
                    x, op=op, algorithm=algorithm, stream=CURRENT_STREAM,
                    tag=tag, blocks=blocks, threads=threads, cluster=cluster,
                )
                return x
            except Watched:
                pass
        options = operators.reduction_options(op, algorithm, tag, blocks, threads, cluster)
        operators.call(operators.ops.all_reduce_.default, x, self.number, options)
        return x

    def all_reduce(
        self,
        x: torch.Tensor,
        *,
        op: ReduceOp = "sum",
        algorithm: Algorithm = "automatic",
        tag: int = 0,
        blocks: int = 0,
        threads: int = 0,
        cluster: int = 0,
    ) -> torch.Tensor:
        """A new tensor: the reduction over ranks of x."""
        if not (is_compiling() or _core._torch_must_see(x)):
            result = torch.empty_like(x, memory_format=torch.contiguous_format)
            self.group.all_reduce(
                result, x, op=op, algorithm=algorithm, stream=CURRENT_STREAM,
                tag=tag, blocks=blocks, threads=threads, cluster=cluster,
            )
            return result
        options = operators.reduction_options(op, algorithm, tag, blocks, threads, cluster)
        made: torch.Tensor = operators.call(operators.ops.all_reduce.default, x, self.number, options)
        return made

    def reduce(
        self, output: torch.Tensor | None, input: torch.Tensor, *,
        op: ReduceOp = "sum", root: int = 0, tag: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0,
    ) -> None:
        """output = on rank `root` of the group, the reduction over ranks of their inputs."""
        if not is_compiling():
            try:
                self.group.reduce(
                    output, input, op=op, root=root, stream=CURRENT_STREAM,
                    tag=tag, blocks=blocks, threads=threads, cluster=cluster,
                )
                return
            except Watched:
                pass
        options = operators.reduction_options(op, "automatic", tag, blocks, threads, cluster)
        operators.call(operators.ops.reduce.default, output, input, self.number, root, options)

    def all_gather_into_tensor(
        self, output: torch.Tensor, input: torch.Tensor, *,
        tag: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0,
    ) -> None:
        """output = the inputs of all ranks, in rank order."""
        if not is_compiling():
            try:
                self.group.all_gather_into_tensor(
                    output, input, stream=CURRENT_STREAM, tag=tag, blocks=blocks, threads=threads, cluster=cluster
                )
                return
            except Watched:
                pass
        options = operators.options(tag, blocks, threads, cluster)
        operators.call(operators.ops.all_gather_into_tensor.default, output, input, self.number, options)

    def reduce_scatter_tensor(
        self, output: torch.Tensor, input: torch.Tensor, *,
        op: ReduceOp = "sum", tag: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0,
    ) -> None:
        """output = this rank's part of the reduction of all inputs."""
        if not is_compiling():
            try:
                self.group.reduce_scatter_tensor(
                    output, input, op=op, stream=CURRENT_STREAM,
                    tag=tag, blocks=blocks, threads=threads, cluster=cluster,
                )
                return
            except Watched:
                pass
        options = operators.reduction_options(op, "automatic", tag, blocks, threads, cluster)
        operators.call(operators.ops.reduce_scatter_tensor.default, output, input, self.number, options)

    def all_to_all(
        self, output: torch.Tensor, input: torch.Tensor, *,
        tag: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0,
    ) -> None:
        """Part q of the input goes to rank q, and part r of the output comes from rank r."""
        if not is_compiling():
            try:
                self.group.all_to_all(
                    output, input, stream=CURRENT_STREAM, tag=tag, blocks=blocks, threads=threads, cluster=cluster
                )
                return
            except Watched:
                pass
        options = operators.options(tag, blocks, threads, cluster)
        operators.call(operators.ops.all_to_all.default, output, input, self.number, options)

    def broadcast_(
        self, x: torch.Tensor, *, root: int = 0, tag: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0
    ) -> torch.Tensor:
        """x = that of rank `root` of the group; returns x."""
        if not is_compiling():
            try:
                self.group.broadcast(
                    x, root=root, stream=CURRENT_STREAM, tag=tag, blocks=blocks, threads=threads, cluster=cluster
                )
                return x
            except Watched:
                pass
        options = operators.options(tag, blocks, threads, cluster)
        operators.call(operators.ops.broadcast_.default, x, self.number, root, options)
        return x

    def gather(
        self, output: torch.Tensor | None, input: torch.Tensor, *,
        root: int = 0, tag: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0,
    ) -> None:
        """output = on rank `root` of the group, the inputs of all ranks, in rank order."""
        if not is_compiling():
            try:
                self.group.gather(
                    output, input, root=root, stream=CURRENT_STREAM,
                    tag=tag, blocks=blocks, threads=threads, cluster=cluster,
                )
                return
            except Watched:
                pass
        options = operators.options(tag, blocks, threads, cluster)
        operators.call(operators.ops.gather.default, output, input, self.number, root, options)

    def scatter(
        self, output: torch.Tensor, input: torch.Tensor | None = None, *,
        root: int = 0, tag: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0,
    ) -> None:
        """output = this rank's part of the input of rank `root` of the group."""
        if not is_compiling():
            try:
                self.group.scatter(
                    output, input, root=root, stream=CURRENT_STREAM,
                    tag=tag, blocks=blocks, threads=threads, cluster=cluster,
                )
                return
            except Watched:
                pass
        options = operators.options(tag, blocks, threads, cluster)
        operators.call(operators.ops.scatter.default, output, input, self.number, root, options)

    def send(
        self, tensor: torch.Tensor, peer: int, *,
        tag: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0,
    ) -> None:
        """Sends a tensor to rank `peer` of the group, which receives it."""
        if not is_compiling():
            try:
                self.group.send(
                    tensor, peer, stream=CURRENT_STREAM, tag=tag, blocks=blocks, threads=threads, cluster=cluster
                )
                return
            except Watched:
                pass
        options = operators.options(tag, blocks, threads, cluster)
        operators.call(operators.ops.send.default, tensor, self.number, peer, options)

    def receive(
        self, tensor: torch.Tensor, peer: int, *,
        tag: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0,
    ) -> None:
        """tensor = what rank `peer` of the group sends."""
        if not is_compiling():
            try:
                self.group.receive(
                    tensor, peer, stream=CURRENT_STREAM, tag=tag, blocks=blocks, threads=threads, cluster=cluster
                )
                return
            except Watched:
                pass
        options = operators.options(tag, blocks, threads, cluster)
        operators.call(operators.ops.receive.default, tensor, self.number, peer, options)

    def send_receive(
        self, sends: Sequence[Message] = (), receives: Sequence[Message] = (), *,
        blocks: int = 0, threads: int = 0, cluster: int = 0,
    ) -> None:
        """Sends and receives messages, (tensor, peer) or (tensor, peer, tag) each, all at once."""
        from_here, to_here = [message[0] for message in sends], [message[0] for message in receives]
        if not from_here and not to_here:  # an operator needs a tensor, which tells it the device
            return
        numbers = [number for message in (*receives, *sends) for number in _peer_and_tag(message)]
        options = operators.options(0, blocks, threads, cluster)
        operators.call(operators.ops.send_receive.default, to_here, from_here, numbers, self.number, options)

    def barrier(self, x: torch.Tensor, *, tag: int = 0) -> None:
        """No rank's barrier ends before every rank's has begun. `x`, which is not read, says on which device."""
        operators.call(operators.ops.barrier.default, x, self.number, operators.options(tag, 0, 0, 0))

    def all_gather_v(
        self,
        output: torch.Tensor | Sequence[torch.Tensor],
        input: torch.Tensor | Sequence[torch.Tensor],
        counts: Counts,
        *,
        group_ranks: int = 1,
        tag: int = 0,
        blocks: int = 0,
        threads: int = 0,
        cluster: int = 0,
    ) -> None:
        """output = the rows of all ranks, each in its slot; of one tensor, or of 1 to 8."""
        outputs = [output] if isinstance(output, torch.Tensor) else list(output)
        inputs = [input] if isinstance(input, torch.Tensor) else list(input)
        rules = counts.rows, counts.slots, self.number, counts.sharding, counts.padding, counts.slot_rows
        options = operators.options(tag, blocks, threads, cluster)
        operators.call(operators.ops.all_gather_v.default, outputs, inputs, *rules, group_ranks, options)

    def reduce_scatter_v(
        self, output: torch.Tensor, input: torch.Tensor, counts: Counts, *,
        op: ReduceOp = "sum", tag: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0,
    ) -> None:
        """output = this rank's slot of the reduction of all inputs."""
        rules = counts.rows, counts.slots, self.number, counts.sharding, counts.padding, counts.slot_rows
        options = operators.reduction_options(op, "automatic", tag, blocks, threads, cluster)
        operators.call(operators.ops.reduce_scatter_v.default, output, input, *rules, options)

    def gather_sums(
        self, output: torch.Tensor, input: torch.Tensor, counts: Counts, *,
        group_ranks: int, tag: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0,
    ) -> None:
        """output = the sums of each group's rows, on every rank, in all ranks' slots. Neighbours share rows."""
        rules = counts.rows, counts.slots, self.number, counts.sharding, counts.padding, counts.slot_rows
        options = operators.options(tag, blocks, threads, cluster)
        operators.call(operators.ops.gather_sums.default, output, input, *rules, group_ranks, options)

    def scatter_sums(
        self, output: torch.Tensor, input: torch.Tensor, counts: Counts, *,
        group_ranks: int, tag: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0,
    ) -> None:
        """output = the sums of all ranks' rows of this rank's group. Neighbours share rows."""
        rules = counts.rows, counts.slots, self.number, counts.sharding, counts.padding, counts.slot_rows
        options = operators.options(tag, blocks, threads, cluster)
        operators.call(operators.ops.scatter_sums.default, output, input, *rules, group_ranks, options)

    def take_rows(
        self, output: torch.Tensor, input: torch.Tensor, counts: Counts, *,
        slots: int, slot: int, shards: int = 1, shard: int = 0, split_slots: bool = False,
    ) -> None:
        """output = the rows of one slot of a tensor that all_gather_v has made. Local."""
        rules = counts.rows, counts.slots, self.number, counts.sharding, counts.padding, counts.slot_rows
        operators.call(operators.ops.take_rows.default, output, input, *rules, slots, slot, shards, shard, split_slots)

    def all_gather_counts(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        *,
        group_ranks: int = 1,
        sharding: Sharding = "balanced",
        split_slots: bool = False,
        padding: Padding = "none",
        slot_rows: int = 0,
        tag: int = 0,
    ) -> None:
        """output = what all ranks' words say (weft.GatheredCounts)."""
        of_shards = operators.number("sharding", sharding, operators.SHARDINGS), split_slots
        of_slots = operators.number("padding", padding, operators.PADDINGS), slot_rows
        rules = self.number, group_ranks, *of_shards, *of_slots, operators.options(tag, 0, 0, 0)
        operators.call(operators.ops.all_gather_counts.default, output, input, *rules)


def _peer_and_tag(message: Message) -> tuple[int, int]:
    if len(message) not in (2, 3):
        raise ValueError(f"a message is (tensor, peer) or (tensor, peer, tag), not {len(message)} values")
    return message[1], operators.options(message[2], 0, 0, 0) if len(message) == 3 else 0
