"""Exchanges, and symmetric memory, as tensors of torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, cast

import torch
from torch.utils.dlpack import from_dlpack
from typing_extensions import TypedDict, Unpack  # torch needs it, too

from weft import _core
from weft._core import Exchange as CoreExchange
from weft._core import Group as CoreGroup
from weft._core import SymmetricMemory
from weft.torch import _operators as operators
from weft.torch.group import Group


class Outputs(TypedDict, total=False):
    """Tensors that a dispatch fills, if they are given: those of weft.Exchange.dispatch."""

    output_scales: torch.Tensor | None
    counts: torch.Tensor | None
    offsets: torch.Tensor | None
    output_sources: torch.Tensor | None
    source_tokens: torch.Tensor | None
    source_wait_ns: torch.Tensor | None
    host_counts: torch.Tensor | None
    output_ids: torch.Tensor | None
    output_weights: torch.Tensor | None
    rank_prefix: torch.Tensor | None


_P = ParamSpec("_P")


def _with_arguments_of(
    create: Callable[Concatenate[CoreGroup, _P], CoreExchange],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Exchange, Group, _P], None]]:
    """For checkers of types: the arguments behind the group are those of `create`."""
    return lambda method: method


class Exchange:
    """A weft.Exchange for tensors of torch. The methods are those of weft.Exchange, and their docstrings hold.

    A handle is a tensor of four i64 in the CPU's memory, so that a compiled graph keeps a combine behind its dispatch.
    Keep the exchange as long as graphs are replayed that were captured with it.
    """

    @_with_arguments_of(CoreExchange.create)
    def __init__(self, group: Group, **definition: Any) -> None:
        """Collective: weft.Exchange.create(group, **definition)."""
        self.exchange = CoreExchange.create(group.group, **definition)
        self.local_experts = self.exchange.local_experts
        self.capacity = self.exchange.capacity
        self.output_rows = self.exchange.output_rows
        self.number = _core._torch_add_exchange(self.exchange)

    def __del__(self) -> None:
        if number := getattr(self, "number", 0):
            _core._torch_remove_exchange(number)

    def free(self) -> None:
        """Gives the memory back on all ranks. Collective."""
        self.exchange.free()

    def set_experts(self, experts_of_rank: torch.Tensor | Sequence[int], *, first_map: int = 0) -> None:
        """Experts move, for dispatches behind this on the current stream. Collective; never captured or compiled.

        experts_of_rank: integers [maps, ranks, places] of any shape, as EPLB's physical_to_logical_map.
        """
        given = experts_of_rank.flatten().tolist() if isinstance(experts_of_rank, torch.Tensor) else experts_of_rank
        self.exchange.set_experts(given, first_map=first_map, stream=operators.CURRENT_STREAM)

    def dispatch(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        topk_ids: torch.Tensor | None = None,
        topk_weights: torch.Tensor | None = None,
        *,
        scales: torch.Tensor | None = None,
        rank_mask: torch.Tensor | None = None,
        again: torch.Tensor | None = None,
        payloads: Sequence[torch.Tensor] = (),
        output_payloads: Sequence[torch.Tensor] = (),
        tag: int = 0,
        discard: bool = False,
        rounds: int | Sequence[int] = 1,
        most_tokens: int = 0,
        map: int = 0,
        blocks: int = 0,
        threads: int = 0,
        cluster: int = 0,
        **outputs: Unpack[Outputs],
    ) -> torch.Tensor:
        """Sends this rank's tokens to the ranks of their experts, and takes its own rows. Returns the handle.

        rank_mask: instead of topk_ids, bool or u8 [tokens, ranks]: the ranks that get a token's row. The memory for the
        ids that follow is made here.
        """
        handle = torch.empty(4, dtype=torch.int64)
        inputs = input, topk_ids, topk_weights, scales, rank_mask, _ids_for(rank_mask), again, list(payloads)
        end = _list_of(rounds), self.number, operators.options(tag, blocks, threads, cluster), discard, most_tokens, map
        taken = *_in_order(outputs), list(output_payloads)
        operators.call(operators.ops.dispatch.default, handle, *inputs, output, *taken, *end)
        return handle

    def dispatch_send(
        self,
        input: torch.Tensor,
        topk_ids: torch.Tensor | None = None,
        topk_weights: torch.Tensor | None = None,
        *,
        scales: torch.Tensor | None = None,
        rank_mask: torch.Tensor | None = None,
        again: torch.Tensor | None = None,
        payloads: Sequence[torch.Tensor] = (),
        tag: int = 0,
        discard: bool = False,
        rounds: int | Sequence[int] = 1,
        most_tokens: int = 0,
        map: int = 0,
        blocks: int = 0,
        threads: int = 0,
        cluster: int = 0,
    ) -> torch.Tensor:
        """The first half of dispatch: waits for no rank. Returns the handle."""
        handle = torch.empty(4, dtype=torch.int64)
        inputs = input, topk_ids, topk_weights, scales, rank_mask, _ids_for(rank_mask), again, list(payloads)
        end = _list_of(rounds), self.number, operators.options(tag, blocks, threads, cluster), discard, most_tokens, map
        operators.call(operators.ops.dispatch_send.default, handle, *inputs, *end)
        return handle

    def dispatch_wait(
        self,
        handle: torch.Tensor,
        output: torch.Tensor,
        *,
        output_payloads: Sequence[torch.Tensor] = (),
        round: int = 0,
        tag: int = 0,
        blocks: int = 0,
        threads: int = 0,
        cluster: int = 0,
        **outputs: Unpack[Outputs],
    ) -> None:
        """The second half: takes the outputs of dispatch."""
        end = self.number, operators.options(tag, blocks, threads, cluster), round
        taken = *_in_order(outputs), list(output_payloads)
        operators.call(operators.ops.dispatch_wait.default, handle, output, *taken, *end)

    def combine(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        handle: torch.Tensor,
        residual: torch.Tensor | None = None,
        *,
        topk_weights: torch.Tensor | None = None,
        source_wait_ns: torch.Tensor | None = None,
        rounds: int | Sequence[int] = 1,
        tag: int = 0,
        blocks: int = 0,
        threads: int = 0,
        cluster: int = 0,
    ) -> None:
        """output = for each of this rank's tokens the weighted sum of its experts' rows, then the residual."""
        tensors = output, input, handle, residual, source_wait_ns, topk_weights
        end = _list_of(rounds), self.number, operators.options(tag, blocks, threads, cluster)
        operators.call(operators.ops.combine.default, *tensors, *end)

    def combine_send(
        self,
        input: torch.Tensor | None,
        handle: torch.Tensor,
        *,
        topk_weights: torch.Tensor | None = None,
        rounds: int | Sequence[int] = 1,
        round: int = 0,
        tag: int = 0,
        blocks: int = 0,
        threads: int = 0,
        cluster: int = 0,
    ) -> None:
        """The first half of combine: waits for no rank. With weights_at_combine, only the weights travel."""
        end = _list_of(rounds), self.number, operators.options(tag, blocks, threads, cluster), round
        operators.call(operators.ops.combine_send.default, input, handle, topk_weights, *end)

    def combine_wait(
        self,
        output: torch.Tensor,
        handle: torch.Tensor,
        *,
        input: torch.Tensor | None = None,
        residual: torch.Tensor | None = None,
        source_wait_ns: torch.Tensor | None = None,
        tag: int = 0,
        blocks: int = 0,
        threads: int = 0,
        cluster: int = 0,
    ) -> None:
        """The second half. An exchange for more tokens than `ring_rows`, or with weights_at_combine, reads `input`."""
        tensors = output, input, handle, residual, source_wait_ns
        options = operators.options(tag, blocks, threads, cluster)
        operators.call(operators.ops.combine_wait.default, *tensors, self.number, options)


def symmetric_tensor(
    memory: SymmetricMemory, shape: Sequence[int], dtype: torch.dtype = torch.bfloat16, offset: int = 0
) -> torch.Tensor:
    """A tensor in this rank's part of symmetric memory, from byte `offset` on: an output for gathers of large rows.

    It keeps the memory's handle. After memory.free(), or release() of the communicator, it must not be used.
    """
    # DLPack has no name for some of torch's types: bytes have one.
    count = math.prod(shape) * dtype.itemsize
    raw: torch.Tensor = from_dlpack(memory.tensor([count], "u8", offset))
    return raw.view(dtype).view(*shape)


def _ids_for(rank_mask: torch.Tensor | None) -> torch.Tensor | None:
    if rank_mask is None:
        return None
    return torch.empty(rank_mask.shape, dtype=torch.int32, device=rank_mask.device)


def _list_of(rounds: int | Sequence[int]) -> list[int]:
    return [rounds] if isinstance(rounds, int) else list(rounds)


def _in_order(outputs: Outputs) -> list[torch.Tensor | None]:
    given = cast("dict[str, torch.Tensor | None]", outputs)
    for name in given:
        if name not in operators.OUTPUTS:
            raise TypeError(f"unexpected keyword argument {name!r}; outputs are {', '.join(operators.OUTPUTS)}")
    return [given.get(name) for name in operators.OUTPUTS]
