"""Children of fork(): they may be ranks, but none is the rank that its parent is."""

from __future__ import annotations

import multiprocessing
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import weft
from processes import CONFIG, end, expect_sums, on_each, run_program

FORK = multiprocessing.get_context("fork")
# Python 3.12 and later warn of a fork() beside threads, such as weft-watch.
QUIET = ["-W", "ignore::DeprecationWarning", "-c"]


def work_on_cpu(id: bytes, rank: int, size: int) -> None:
    made = weft.Communicator.from_id(id, rank, size, CONFIG)
    assert (made.rank, made.size) == (rank, size)
    for _ in range(20):
        expect_sums(made.world)


def test_each_forked_child_may_be_a_rank() -> None:
    expect_sums(weft.Communicator.local(1, CONFIG)[0].world)  # the library has worked in the parent
    # Children inherit what listens for the id, so that any of them may be rank 0.
    id = weft.Communicator.create_id()
    children = [FORK.Process(target=work_on_cpu, args=(id, rank, 3), daemon=True) for rank in range(3)]
    for child in children:
        child.start()
    for child in children:
        end(child)


class Rank:
    """The objects of a rank, which its child inherits."""

    def __init__(self, made: weft.Communicator) -> None:
        self.x = np.ones(4, np.int32)
        self.made = made
        self.world = made.world
        self.exchange = weft.Exchange.create(self.world, tokens=1, hidden=8, experts=2, top_k=1)
        self.layer = weft.MoeLayer.create(self.exchange, intermediate=8)
        self.memory = weft.SymmetricMemory.allocate(made, 256)
        self.recording = weft.Recording.capture(made, lambda: self.world.all_reduce(self.x))

    def experts(self) -> dict[str, Any]:
        def nothing(_: object) -> None:
            """Made of zeros, it is right: the workspace has nothing else."""

        return {"workspace": np.zeros(self.layer.workspace_bytes, np.uint8), "up": nothing, "down": nothing}

    def run_layer(self) -> None:
        x, y = weft.Tensor(np.zeros((1, 8), np.uint16), "bf16"), weft.Tensor(np.ones((1, 8), np.uint16), "bf16")
        self.layer.run(y, x, np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32), **self.experts())

    def run_experts(self) -> None:
        self.layer.run_experts(**self.experts())

    def calls(self) -> list[Callable[[], object]]:
        return [
            lambda: self.world.all_reduce(self.x),
            self.world.barrier,
            self.recording.replay,
            lambda: weft.Recording.capture(self.made, lambda: None),
            lambda: weft.MoeLayer.create(self.exchange, intermediate=8),
            self.run_layer,
            self.run_experts,
            self.exchange.free,
            self.memory.free,
            lambda: self.memory.data_ptr,
            lambda: self.memory.tensor([4], "i32"),
            lambda: weft.SymmetricMemory.allocate(self.made, 16),
            lambda: weft.Exchange.create(self.world, tokens=1, hidden=8, experts=2, top_k=1),
            lambda: self.made.split(0),
            self.made.release,
            self.made.acquire,
            self.made.status,
            self.made.check,
            self.world.status,
            lambda: self.made.rank,
            lambda: self.made.memory,
            lambda: self.world.members,
        ]


def live_as_a_child(rank: Rank) -> None:
    for number, call in enumerate(rank.calls()):
        with pytest.raises(weft.Error, match=r"fork\(\)") as caught:
            call()
        assert caught.value.code is weft.Errc.unsupported, number
    rank.made.abort()  # does nothing, as the parent's next calls show
    own = weft.Communicator.local(1, CONFIG)[0]
    del rank.made, rank.world, rank.exchange, rank.layer, rank.memory, rank.recording
    expect_sums(own.world)


def test_a_forked_child_is_no_rank_and_harms_none() -> None:
    ranks = on_each(weft.Communicator.local(2, CONFIG), Rank)
    child = FORK.Process(target=live_as_a_child, args=(ranks[0],), daemon=True)
    child.start()
    end(child)

    def work_on(rank: Rank) -> None:
        expect_sums(rank.world)
        rank.recording.replay()
        assert (rank.x == 2).all()
        rank.run_layer()
        assert rank.made.status() is None

    on_each(ranks, work_on)


def make_a_world_of_one() -> None:
    expect_sums(weft.Communicator.local(1, CONFIG)[0].world)


def test_a_fork_while_a_thread_waits_in_a_call() -> None:
    """The child has a copy of every lock of the library, as the waiting thread has left them."""
    first, second = weft.Communicator.local(2, CONFIG)
    started = threading.Event()

    def wait() -> None:
        started.set()
        expect_sums(first.world)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        started.wait()
        child = FORK.Process(target=make_a_world_of_one, daemon=True)
        child.start()
        end(child)
        expect_sums(second.world)
        waiting.result()


def test_a_child_that_ends_as_a_program_does_leaves_no_trace() -> None:
    """multiprocessing ends its children without the interpreter's end; os.fork() does not."""
    program = """
        import os, weft
        made = weft.Communicator.local(1, weft.Config(device="cpu"))[0]
        memory = weft.SymmetricMemory.allocate(made, 256)
        exchange = weft.Exchange.create(made.world, tokens=1, hidden=8, experts=2, top_k=1)
        recording = weft.Recording.capture(made, made.world.barrier)
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
            recording.replay()
            memory.free()
            exchange.free()
    """
    assert run_program([*QUIET, textwrap.dedent(program)]) == (0, "", "")


def test_a_child_ends_that_was_forked_while_a_call_of_a_thread_came_back() -> None:
    """The thread waits for the interpreter, and is not in the child, where nobody may wait for it."""
    program = """
        import os, signal, sys, threading, time, weft
        ranks = weft.Communicator.local(2, weft.Config(device="cpu", deadline=None))
        def wait():
            try:
                ranks[0].world.barrier()
            except weft.Error as error:
                assert error.code is weft.Errc.aborted
        thread = threading.Thread(target=wait)
        thread.start()
        while not ranks[0].world.recent_calls():
            time.sleep(0.001)
        sys.setswitchinterval(100)  # this thread keeps the interpreter, and the other one has to wait
        ranks[1].abort()
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            pass
        child = os.fork()
        if child:
            thread.join()
            for _ in range(2000):
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    sys.exit(status)
                time.sleep(0.01)
            os.kill(child, signal.SIGKILL)
            sys.exit("the child does not end")
    """
    assert run_program([*QUIET, textwrap.dedent(program)]) == (0, "", "")
