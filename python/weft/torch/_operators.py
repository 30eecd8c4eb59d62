"""torch.ops.weft: definitions, fakes, and how the classes call them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from weft import _core
from weft._words import Algorithm, ReduceOp

_NUMBERS = {kind: {word: number for number, word in enumerate(words)} for kind, words in _core._words().items()}
OPS, ALGORITHMS = _NUMBERS["ReduceOp"], _NUMBERS["Algorithm"]
SHARDINGS, PADDINGS = _NUMBERS["Sharding"], _NUMBERS["Padding"]
SCALINGS, SCALE_TYPES = _NUMBERS["Fp8Scaling"], _NUMBERS["ScaleType"]
OUTPUTS = tuple(_NUMBERS["DispatchOutput"])


def number(argument: str, word: str, numbers: dict[str, int]) -> int:
    if word not in numbers:
        raise ValueError(f"{argument} is {word!r}; it must be one of {', '.join(numbers)}")
    return numbers[word]


def options(tag: int, blocks: int, threads: int, cluster: int, op: int = 0, algorithm: int = 0) -> int:
    """The options that most calls have beside their tensors, in one integer (PackedOptions of python/core/torch_call.hpp)."""
    if not (0 <= tag < 1 << 32 and 0 <= blocks < 1 << 12 and 0 <= threads < 1 << 11 and 0 <= cluster < 1 << 2):
        given = ("tag", tag, 1 << 32), ("blocks", blocks, 1 << 12), ("threads", threads, 1 << 11)
        for name, value, end in (*given, ("cluster", cluster, 1 << 2)):
            if not 0 <= value < end:
                raise ValueError(f"{name} is {value}; it must be 0 to {end - 1}")
    return tag | blocks << 32 | threads << 44 | op << 55 | algorithm << 58 | cluster << 61


def reduction_options(op: ReduceOp, algorithm: Algorithm, tag: int, blocks: int, threads: int, cluster: int) -> int:
    if op == "sum" and algorithm == "automatic" and not (tag or blocks or threads or cluster):
        return 0
    numbers = number("op", op, OPS), number("algorithm", algorithm, ALGORITHMS)
    return options(tag, blocks, threads, cluster, *numbers)


def refuse_gradients(values: Iterable[object]) -> None:
    """Any of an operator's tensors may be on the way to a gradient: weights and residuals as well as the input."""
    if not torch.is_grad_enabled():
        return
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.requires_grad:
                raise RuntimeError("weft has no gradients: call it under torch.no_grad(), or detach the tensor")
        elif isinstance(value, list):
            refuse_gradients(value)


def _define() -> bool:
    knows_gradients = _core._torch_define()

    def nothing(*values: object) -> None:
        refuse_gradients(values)

    for name in (
        "all_reduce_",
        "reduce",
        "all_gather_into_tensor",
        "all_to_all",
        "reduce_scatter_tensor",
        "all_gather_columns",
        "all_to_all_columns",
        "top_k_columns",
        "broadcast_",
        "barrier",
        "all_reduce_rms_norm",
        "all_gather_v",
        "reduce_scatter_v",
        "gather_sums",
        "scatter_sums",
        "gather_sums_rms_norm",
        "scatter_sums_rms_norm",
        "take_rows",
        "all_gather_counts",
        "send",
        "receive",
        "send_receive",
        "gather",
        "scatter",
        "dispatch",
        "dispatch_send",
        "dispatch_wait",
        "combine",
        "combine_send",
        "combine_wait",
    ):
        torch.library.register_fake(f"weft::{name}", nothing)

    def like(x: torch.Tensor, *_: object) -> torch.Tensor:
        refuse_gradients([x])
        return x.new_empty(x.shape)

    torch.library.register_fake("weft::all_reduce", like)
    return knows_gradients


OPERATORS_KNOW_GRADIENTS = _define()  # if not, calls by an operator's name alone do not refuse them
ops = torch.ops.weft


is_compiling = torch.compiler.is_dynamo_compiling  # looked up once

# With this stream, a method of weft.Group is a call without torch's dispatcher, which takes microseconds. It raises
# Watched, before anything has happened, if torch must see the call: something traces or watches, or a tensor is no plain
# memory without gradients. For methods of Group alone. The `try` stands in each of them: a function around it would
# take 0.4 µs of the 2 that a call from Python may cost.
CURRENT_STREAM, Watched = _core._torch_stream, _core._Watched


def call(operator: Callable[..., Any], *values: object) -> Any:
    if is_compiling():
        return operator(*values)
    if not OPERATORS_KNOW_GRADIENTS:
        refuse_gradients(values)
    try:
        return operator(*values)
    except RuntimeError:
        _core._torch_check()  # raises weft.Error with its record, if it was Weft's
        raise
