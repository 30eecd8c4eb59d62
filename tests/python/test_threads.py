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


def of_ones(*shape: int, type: type = np.float32) -> np.ndarray:
    return np.ones(shape, type)


def of_a_norm(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """output, residual_output, input and gamma."""
    normed, sums, x = (of_ones(rows, 8, type=np.float16) for _ in range(3))
    return normed, sums, x, of_ones(8, type=np.float16)


# Calls in which rank 0 waits for rank 1.
METHODS: dict[str, Callable[[weft.Group], object]] = {
    "reduce": lambda world: world.reduce(of_ones(1, 8), of_ones(1, 8), root=0),
    "all_gather_into_tensor": lambda world: world.all_gather_into_tensor(of_ones(2, 8), of_ones(1, 8)),
    "reduce_scatter_tensor": lambda world: world.reduce_scatter_tensor(of_ones(1, 8), of_ones(2, 8)),
    "all_to_all": lambda world: world.all_to_all(of_ones(2, 8), of_ones(2, 8)),
    "broadcast": lambda world: world.broadcast(of_ones(1, 8), of_ones(1, 8), root=1),
    "all_gather_v": lambda world: world.all_gather_v(of_ones(2, 8), of_ones(1, 8), weft.Counts([1, 1])),
    "reduce_scatter_v": lambda world: world.reduce_scatter_v(of_ones(1, 8), of_ones(2, 8), weft.Counts([1, 1])),
    "gather_sums": lambda world: world.gather_sums(
        of_ones(2, 8), of_ones(2, 8), weft.Counts([1, 1]), group_ranks=2
    ),
    "scatter_sums": lambda world: world.scatter_sums(
        of_ones(2, 8), of_ones(2, 8), weft.Counts([1, 1]), group_ranks=2
    ),
    "all_gather_counts": lambda world: world.all_gather_counts(
        of_ones(weft.GatheredCounts(2).words, type=np.int32), of_ones(1, type=np.int32)
    ),
    "all_reduce_rms_norm": lambda world: world.all_reduce_rms_norm(*of_a_norm(2)),
    "gather_sums_rms_norm": lambda world: world.gather_sums_rms_norm(*of_a_norm(2), weft.Counts([1, 1]), group_ranks=2),
    "scatter_sums_rms_norm": lambda world: world.scatter_sums_rms_norm(*of_a_norm(2), weft.Counts([1, 1]), group_ranks=2),
    "send_receive": lambda world: world.send_receive([(of_ones(8), 1 - world.rank)], [(of_ones(8), 1 - world.rank)]),
    "receive": lambda world: world.send(of_ones(8), 0) if world.rank else world.receive(of_ones(8), 1),
    "gather": lambda world: world.gather(of_ones(2, 8), of_ones(1, 8), root=0),
    "scatter": lambda world: world.scatter(of_ones(1, 8), of_ones(2, 8), root=1),
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


@pytest.mark.parametrize("name", [*CALLS, *METHODS])
def test_other_threads_run_while_a_rank_waits(name: str) -> None:
    """Rank 0 waits until this thread makes the call of rank 1, and a third thread counts meanwhile."""
    call = CALLS.get(name, lambda made: (made, lambda: METHODS[name](made.world)))
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
