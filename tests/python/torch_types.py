"""Uses of weft.torch whose faults a checker of types finds: mypy refuses an `ignore` of no fault. Nothing runs them."""

from __future__ import annotations

import torch
import weft.torch


def words(group: weft.torch.Group, x: torch.Tensor) -> None:
    group.all_reduce(x, op="max", algorithm="one_shot")
    group.all_reduce(x, op="mean")  # type: ignore[arg-type]
    group.all_reduce_(x, algorithm="ring")  # type: ignore[arg-type]
    weft.torch.Counts([1], padding="q")  # type: ignore[arg-type]


def exchanges(group: weft.torch.Group, x: torch.Tensor) -> None:
    exchange = weft.torch.Exchange(group, tokens=1, hidden=8, experts=2, top_k=1, layout="rank_major")
    weft.torch.Exchange(group, tokens=1, hidden=8, experts=2, top_k=1, layout="masked")  # type: ignore[arg-type]
    weft.torch.Exchange(group, tokens=1, hidden=8, experts=2, topk=1)  # type: ignore[call-arg]
    handle = exchange.dispatch(x, x, x, source_tokens=x)
    exchange.dispatch(x, x, x, count=x)  # type: ignore[call-arg]
    exchange.dispatch_wait(handle, x, offset=x)  # type: ignore[call-arg]
