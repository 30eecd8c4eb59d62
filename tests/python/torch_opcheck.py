"""torch.library.opcheck on every operator: its schema, its fake, and what a compiler makes of it.

opcheck makes each call several times. A half of an exchange, or a single message, is refused or waits if it is made
again alone. A mode of torch gives each of these calls its other half.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

import pytest
import torch
import weft
import weft.torch
from processes import CONFIG
from torch._higher_order_ops.auto_functionalize import auto_functionalized_v2, auto_functionalized_v2_dense
from torch.utils._python_dispatch import TorchDispatchMode
from torch_cases import Case
from torch_operators import ALONE, DEFINED, alone, spied_on, through_operators

HALVES = ["dispatch_send", "dispatch_wait", "combine_send", "combine_wait"]
MESSAGES = ["send", "receive"]


def name_of(operator: Any) -> str:
    name: str = operator.name().split("::")[1]
    return name


class Completed(TorchDispatchMode):
    """Calls of an operator with real tensors are made by `call`, which does what must be done besides."""

    def __init__(self, operator: Any, call: Callable[..., object]) -> None:
        super().__init__()
        self.operator, self.call, self.calls = operator, call, 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        traced = any(isinstance(value, torch.Tensor) and type(value) is not torch.Tensor for value in args)
        if function is not self.operator or traced:
            return function(*args, **(kwargs or {}))
        self.calls += 1
        return self.call(*args)


@auto_functionalized_v2.py_impl(Completed)
def within(mode: Completed, *args: Any, **kwargs: Any) -> Any:
    """From torch 2.15 on, its compiler calls the operator inside of this one with real tensors, too."""
    with mode:
        return auto_functionalized_v2_dense(*args, **kwargs)


checked: set[str] = set()


def check(operator: Any, values: tuple[Any, ...]) -> None:
    """All of opcheck's tests: none is left out."""
    assert set(torch.library.opcheck(operator, values).values()) == {"SUCCESS"}
    checked.add(name_of(operator))


@pytest.mark.parametrize("name", ALONE)
def test_whole_calls(name: str) -> None:
    def work(rank: weft.Communicator) -> None:
        case = Case(weft.torch.Group(rank.world))
        case.broadcast = lambda: [case.group.broadcast_(case.x.clone())]  # type: ignore[method-assign]
        case.fp8 = torch.uint8  # opcheck multiplies tensors, and torch's CPUs do not multiply e4m3
        getattr(case, name)()
        assert called
        for operator, values in called:
            if name_of(operator) not in HALVES:
                check(operator, values)

    with through_operators(), spied_on() as called:
        alone(work)


@pytest.mark.parametrize("half", HALVES)
def test_halves_of_an_exchange(half: str) -> None:
    """Each is made with the handle of a dispatch of its own: a handle cannot be used twice."""

    def work(rank: weft.Communicator) -> None:
        case = Case(weft.torch.Group(rank.world))
        case.halves_of_an_exchange()
        [(operator, values)] = [call for call in called if name_of(call[0]) == half]
        exchange, rows, ids, weights, results = case.exchanged()
        counts = torch.empty(exchange.local_experts, dtype=torch.int32)

        def dispatch_send(handle: torch.Tensor, *rest: Any) -> None:
            operator(handle, *rest)
            exchange.dispatch_wait(handle, rows, counts=counts)

        def dispatch_wait(_: torch.Tensor, *rest: Any) -> None:
            operator(exchange.dispatch_send(case.tokens, ids, weights), *rest)

        def combine_send(input: torch.Tensor, _: torch.Tensor, *rest: Any) -> None:
            handle = exchange.dispatch(rows, case.tokens, ids, weights, counts=counts)
            operator(input, handle, *rest)
            exchange.combine_wait(results, handle)

        def combine_wait(output: torch.Tensor, input: torch.Tensor | None, _: torch.Tensor, *rest: Any) -> None:
            handle = exchange.dispatch(rows, case.tokens, ids, weights, counts=counts)
            exchange.combine_send(rows, handle)
            operator(output, input, handle, *rest)

        with Completed(operator, locals()[half]) as completed:
            check(operator, values)
        assert completed.calls >= 3

    with through_operators(), spied_on() as called:
        alone(work)


@pytest.mark.parametrize("name", MESSAGES)
def test_single_messages(name: str) -> None:
    """Rank 1, in another thread, answers each of them."""
    mine, other = (weft.torch.Group(rank.world) for rank in weft.Communicator.local(2, CONFIG))
    operator = getattr(torch.ops.weft, name).default
    asked: SimpleQueue[bool] = SimpleQueue()

    def answer() -> None:
        while asked.get():
            if name == "send":
                other.receive(torch.empty(3), 0)
            else:
                other.send(torch.full((3,), 5.0), 0)

    def call(*values: Any) -> None:
        asked.put(True)
        operator(*values)

    answering = Thread(target=answer)
    answering.start()
    try:
        with Completed(operator, call) as completed:
            check(operator, (torch.ones(3), mine.number, 1, 0))
        assert completed.calls >= 3
    finally:
        asked.put(False)
        answering.join()


def test_no_operator_was_left_out() -> None:
    """Of a whole run of this file."""
    assert checked == DEFINED
