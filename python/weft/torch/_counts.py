"""Counts whose numbers are in tensors of torch."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch

from weft._words import Padding, Sharding
from weft.torch import _operators as operators


class Counts:
    """How many rows each rank has: weft.Counts, of tensors or lists.

    Tensors on the group's device may change between replays of a captured graph. Lists, and tensors on the CPU, are
    read when the call is made.
    """

    def __init__(
        self,
        rows: torch.Tensor | Sequence[int],
        *,
        sharding: Sharding = "none",
        padding: Padding = "none",
        slot_rows: int = 0,
        slots: torch.Tensor | Sequence[int] | None = None,
    ) -> None:
        self.rows, self.slots, self.slot_rows = _numbers(rows), None if slots is None else _numbers(slots), slot_rows
        self.sharding = operators.number("sharding", sharding, operators.SHARDINGS)
        self.padding = operators.number("padding", padding, operators.PADDINGS)


def _numbers(given: torch.Tensor | Sequence[int]) -> torch.Tensor:
    if isinstance(given, torch.Tensor):
        return given
    return torch.tensor([operator.index(number) for number in given], dtype=torch.int32, device="cpu")
