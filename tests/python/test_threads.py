"""Threads of Python run while a rank waits in a call, the collector of garbage included."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import weft
from processes import expect_sums, on_each
from ranks import run_ranks

# Only a test that fails waits for it: a rank that lets no other thread run waits for its peer in vain.
CPU = weft.Config(device="cpu", deadline=10, rendezvous_deadline=10)

Rank = tuple[weft.Communicator, Callable[[], object]]  # with a call that waits for its peer


def with_exchange(made: weft.Communicator) -> Rank:
    exchange = weft.Exchange.create(
        made.world, tokens=1, hidden=8, experts=2, top_k=1, type="f16", combine_type="f16", weighted=False
    )
    rows, x = np.zeros((1, exchange.capacity, 8), np.float16), np.ones((1, 8), np.float16)
    counts, ids = np.zeros(1, np.int32), np.ones((1, 1), np.int32)

    def call() -> None:
        handle = exchange.dispatch(rows, x, ids, counts=counts)
        exchange.combine(x, rows, handle)
        handle = exchange.dispatch_send(x, ids)
        exchange.dispatch_wait(handle, rows, counts=counts)
        exchange.combine_send(rows, handle)
        exchange.combine_wait(x, handle)
        exchange.free()

    return made, call


def with_memory(made: weft.Communicator) -> None:
    weft.SymmetricMemory.allocate(made, 4096).free()


def sleeping(made: weft.Communicator) -> None:
    made.release()
    made.acquire()


def methods(world: weft.Group) -> dict[str, Callable[[], object]]:
    """Calls in which rank 0 waits for rank 1."""
    x, y, rows = np.ones((1, 8), np.float32), np.zeros((1, 8), np.float32), np.zeros((2, 8), np.float32)
    halves, (normed, rest), gamma = np.zeros((2, 8), np.float16), np.zeros((2, 2, 8), np.float16), np.ones(8, np.float16)
    one, table = np.ones(1, np.int32), np.zeros(weft.GatheredCounts(2).words, np.int32)
    counts, peer = weft.Counts(np.ones(2, np.int32)), 1 - world.rank
    return {
        "reduce": lambda: world.reduce(y, x, root=0),
        "all_gather_into_tensor": lambda: world.all_gather_into_tensor(rows, x),
        "reduce_scatter_tensor": lambda: world.reduce_scatter_tensor(y, rows),
        "all_to_all": lambda: world.all_to_all(np.zeros((2, 8), np.float32), rows),
        "broadcast": lambda: world.broadcast(y, x, root=1),
        "all_gather_v": lambda: world.all_gather_v(rows, x, counts),
        "reduce_scatter_v": lambda: world.reduce_scatter_v(y, rows, counts),
        "all_gather_counts": lambda: world.all_gather_counts(table, one),
        "all_reduce_rms_norm": lambda: world.all_reduce_rms_norm(normed, rest, halves, gamma),
        "send_receive": lambda: world.send_receive([(x, peer)], [(y, peer)]),
        "receive": lambda: world.send(x, 0) if world.rank else world.receive(y, 1),
        "gather": lambda: world.gather(rows, x, root=0),
        "scatter": lambda: world.scatter(y, rows, root=1),
    }


CALLS: dict[str, Callable[[weft.Communicator], Rank]] = {
    "all_reduce": lambda made: (made, lambda: expect_sums(made.world)),
    "barrier": lambda made: (made, made.world.barrier),
    "replay": lambda made: (made, weft.Recording.capture(made, made.world.barrier).replay),
    "split": lambda made: (made, lambda: made.split(0)),
    "release and acquire": lambda made: (made, lambda: sleeping(made)),
    "memory": lambda made: (made, lambda: with_memory(made)),
    "exchange": lambda made: (made, lambda: with_exchange(made)),
    "calls of an exchange": with_exchange,
}


METHODS = (
    "reduce all_gather_into_tensor reduce_scatter_tensor all_to_all broadcast all_gather_v reduce_scatter_v "
    "all_gather_counts all_reduce_rms_norm send_receive receive gather scatter"
).split()


@pytest.mark.parametrize("name", [*CALLS, *METHODS])
def test_other_threads_run_while_a_rank_waits(name: str) -> None:
    """Rank 0 waits until this thread makes the call of rank 1, and a third thread counts meanwhile."""
    call = CALLS.get(name, lambda made: (made, methods(made.world)[name]))
    first, second = on_each(weft.Communicator.local(2, CPU), call)
    begun, counted, done = threading.Event(), threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        first[1]()

    def count() -> None:
        assert begun.wait(20)
        for number in itertools.count():
            if number == 10_000:
                counted.set()
            if done.is_set():
                return

    with ThreadPoolExecutor(2) as pool:
        waiting, counting = pool.submit(wait), pool.submit(count)
        try:
            assert counted.wait(20)
            assert not waiting.done()
            second[1]()
        finally:
            done.set()
        waiting.result()
        counting.result()
    assert first[0].status() is None


def test_other_threads_run_while_ranks_meet() -> None:
    id = weft.Communicator.create_id()

    def meet(rank: int) -> None:
        expect_sums(weft.Communicator.from_id(id, rank, 2, CPU).world)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(meet, 0)
        assert not waiting.done()
        meet(1)
        waiting.result()


def test_a_wait_in_one_group_does_not_hold_up_another() -> None:
    """Different groups may be used from different threads of a rank."""

    def work(made: weft.Communicator) -> None:
        groups = [made.split(0) for _ in range(3)]

        def repeat(group: weft.Group) -> None:
            for _ in range(50):
                expect_sums(group)

        on_each([group for group in groups if group], repeat)

    run_ranks(2, work, CPU)


def test_garbage_is_collected_while_ranks_communicate() -> None:
    done = threading.Event()

    def litter() -> None:
        """Cycles with everything that Weft has. The collector may find them in any thread, those of ranks included."""
        array = np.ones(8, np.float32)
        while not done.is_set():
            made = weft.Communicator.local(1, CPU)[0]
            recording = weft.Recording.capture(made, made.world.barrier)
            memory = weft.SymmetricMemory.allocate(made, 256)
            cycle = [made, made.world, recording, memory, memory.tensor([4], "f32"), weft.Tensor(array)]
            cycle.append(cycle)
            del made, recording, memory, cycle
            gc.collect()

    def work(made: weft.Communicator) -> None:
        for _ in range(100):
            expect_sums(made.world)
            gc.collect(0)

    with ThreadPoolExecutor(2) as pool:
        littering = [pool.submit(litter) for _ in range(2)]
        try:
            run_ranks(3, work, CPU)
        finally:
            done.set()
        for one in littering:
            one.result()
