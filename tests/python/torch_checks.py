"""Parts of the tests of torch's operators, on CPUs and GPUs, and torch.library.opcheck.

opcheck makes each call several times. A half of an exchange, or a single message, is refused or waits if it is made
again alone. A mode of torch gives each of these calls its other half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from threading import Thread
from typing import Any
from unittest.mock import patch

import torch
import weft
import weft.torch
from torch._higher_order_ops.auto_functionalize import auto_functionalized_v2, auto_functionalized_v2_dense
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch_cases import NAMES, Case

SCHEMAS = [schema for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("weft::")]
DEFINED = {schema.name.split("::")[1] for schema in SCHEMAS}
ALONE = [name for name in NAMES if name != "send_and_receive"]  # what a world of one can call
HALVES = ["dispatch_send", "dispatch_wait", "combine_send", "combine_wait"]
MESSAGES = ["send", "receive"]


def config_on(device: str) -> weft.Config:
    return weft.Config(device=device, deadline=25, rendezvous_deadline=25)


def alone(work: Callable[[weft.Communicator], None], device: str = "cpu") -> None:
    """Runs a world of one in this thread: torch 2.11's compiler crashes in the second thread that uses it."""
    work(weft.Communicator.local(1, config_on(device))[0])


@contextmanager
def through_operators() -> Iterator[None]:
    """Calls go through torch's operators, as where something traces them."""
    with ExitStack() as patches:
        for part in (weft.torch.group, weft.torch._columns):
            patches.enter_context(patch.object(part, "is_compiling", lambda: True))
        yield


@contextmanager
def spied_on() -> Iterator[list[tuple[Any, tuple[Any, ...]]]]:
    """The operators that weft.torch calls, with their values before the call."""
    called: list[tuple[Any, tuple[Any, ...]]] = []
    original = weft.torch._operators.call

    def spy(operator: Any, *values: Any) -> object:
        called.append((operator, tree_map_only(torch.Tensor, torch.clone, values)))
        return original(operator, *values)

    weft.torch._operators.call = spy
    try:
        yield called
    finally:
        weft.torch._operators.call = original


def calls_of(group: weft.torch.Group) -> int:
    return len(group.group.recent_calls())  # of 32 at most


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


def check_whole_calls(name: str, device: str = "cpu") -> None:
    """The operators that a case calls, but halves of an exchange."""

    def work(rank: weft.Communicator) -> None:
        case = Case(weft.torch.Group(rank.world), device)
        case.broadcast = lambda: [case.group.broadcast_(case.x.clone())]  # type: ignore[method-assign]
        case.fp8 = torch.uint8  # opcheck multiplies tensors, and torch does not multiply e4m3
        getattr(case, name)()
        assert called
        for operator, values in called:
            if name_of(operator) not in HALVES:
                check(operator, values)

    with through_operators(), spied_on() as called:
        alone(work, device)


def check_half(half: str, device: str = "cpu") -> None:
    """Each is made with the handle of a dispatch of its own: a handle cannot be used twice."""

    def work(rank: weft.Communicator) -> None:
        case = Case(weft.torch.Group(rank.world), device)
        case.halves_of_an_exchange()
        [(operator, values)] = [call for call in called if name_of(call[0]) == half]
        exchange, rows, ids, weights, results = case.exchanged()
        counts = torch.empty(exchange.local_experts, dtype=torch.int32, device=device)

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
        alone(work, device)


def check_message(name: str, device: str = "cpu") -> None:
    """Rank 1, in another thread and on a stream of its own, answers each of them."""
    mine, other = (weft.torch.Group(rank.world) for rank in weft.Communicator.local(2, config_on(device)))
    operator = getattr(torch.ops.weft, name).default
    asked: SimpleQueue[bool] = SimpleQueue()

    def answer() -> None:
        with ExitStack() as place:
            if device != "cpu":
                place.enter_context(torch.cuda.device(other.cuda_device))
                place.enter_context(torch.cuda.stream(torch.cuda.Stream()))
            while asked.get():
                if name == "send":
                    other.receive(torch.empty(3, device=device), 0)
                else:
                    other.send(torch.full((3,), 5.0, device=device), 0)

    def call(*values: Any) -> None:
        asked.put(True)
        operator(*values)

    answering = Thread(target=answer)
    answering.start()
    try:
        with Completed(operator, call) as completed:
            check(operator, (torch.ones(3, device=device), mine.number, 1, 0))
        assert completed.calls >= 3
    finally:
        asked.put(False)
        answering.join()
