"""torch.ops.weft: definitions, fakes, and how the classes call them."""

from __future__ import annotations

import torch

from weft import _core

OPS, ALGORITHMS, SHARDINGS, PADDINGS, SCALINGS, SCALE_TYPES, OUTPUTS = (
    {word: number for number, word in enumerate(words)} for words in _core._torch_words()
)


def number(argument: str, word: str, numbers: dict[str, int]) -> int:
    if word not in numbers:
        raise ValueError(f"{argument} is {word!r}; it must be one of {', '.join(numbers)}")
    return numbers[word]


def options(tag: int, blocks: int, threads: int, op: int = 0, algorithm: int = 0) -> int:
    """What most calls have beside their tensors, in one integer (PackedOptions of python/core/torch_call.hpp)."""
    if not tag | blocks | threads:
        return op << 55 | algorithm << 58
    for name, value, end in (("tag", tag, 1 << 32), ("blocks", blocks, 1 << 12), ("threads", threads, 1 << 11)):
        if not 0 <= value < end:
            raise ValueError(f"{name} is {value}; it must be 0 to {end - 1}")
    return tag | blocks << 32 | threads << 44 | op << 55 | algorithm << 58


def _define() -> None:
    _core._torch_define()

    def nothing(*_: object) -> None:
        return None

    for name in (
        "all_reduce_",
        "reduce",
        "all_gather_into_tensor",
        "all_to_all",
        "reduce_scatter_tensor",
        "broadcast_",
        "barrier",
        "all_reduce_rms_norm",
        "all_gather_v",
        "reduce_scatter_v",
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
        return x.new_empty(x.shape)

    torch.library.register_fake("weft::all_reduce", like)


_define()
ops = torch.ops.weft


def refuse_gradients(x: torch.Tensor) -> None:
    if x.requires_grad and torch.is_grad_enabled():
        raise RuntimeError("weft has no gradients: call it under torch.no_grad(), or detach the tensor")


is_compiling = torch.compiler.is_compiling  # looked up once


def direct(cuda_device: int, x: torch.Tensor | None, y: torch.Tensor | None = None) -> int | None:
    """The current stream's address if weft.Group can be called without torch's dispatcher, which takes microseconds.

    Nothing traces or watches the call then, and the tensors are plain memory without gradients. On CPU ranks it is 0.
    """
    return None if is_compiling() else _core._torch_direct_stream(cuda_device, x, y)


def call(operator: object, *values: object) -> object:
    if is_compiling():
        return operator(*values)  # type: ignore[operator]
    try:
        return operator(*values)  # type: ignore[operator]
    except RuntimeError:
        _core._torch_check()  # raises weft.Error with its record, if it was Weft's
        raise
