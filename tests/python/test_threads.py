"""Threads of Python run while a rank waits in a call, the collector of garbage included."""

from __future__ import annotations

import gc
import itertools
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import weft
from processes import expect_sums, on_each, run_programs, torchrun_variables
from ranks import run_ranks

# Only a test that fails waits for it: a rank that lets no other thread run waits for its peer in vain.
CPU = weft.Config(device="cpu", deadline=10, rendezvous_deadline=10)

Rank = tuple[weft.Communicator, Callable[[], object]]  # with a call that waits for its peer


class WithExchange:
    """A rank with an exchange and a layer. Its token has an expert of rank 1."""

    def __init__(self, made: weft.Communicator) -> None:
        self.exchange = weft.Exchange.create(
            made.world, tokens=1, hidden=8, experts=2, top_k=1, type="f16", combine_type="f16", experts_of_rank=[0, 1]
        )
        self.rows, self.x = np.zeros((1, self.exchange.capacity, 8), np.float16), np.ones((1, 8), np.float16)
        self.counts, self.weights = np.zeros(1, np.int32), np.ones((1, 1), np.float32)
        self.ids = np.ones((1, 1), np.int32)

    def dispatch(self) -> weft.DispatchHandle:
        return self.exchange.dispatch(self.rows, self.x, self.ids, self.weights, counts=self.counts)

    def dispatch_in_halves(self) -> None:
        handle = self.exchange.dispatch_send(self.x, self.ids, self.weights)
        self.exchange.dispatch_wait(handle, self.rows, counts=self.counts)

    def combine(self, handle: weft.DispatchHandle) -> None:
        self.exchange.combine(self.x, self.rows, handle)

    def combine_in_halves(self, handle: weft.DispatchHandle) -> None:
        self.exchange.combine_send(self.rows, handle)
        self.exchange.combine_wait(self.x, handle)

    def move_experts(self) -> None:
        self.exchange.set_experts([1, 0])

    def run_layer(self) -> None:
        layer = weft.MoeLayer.create(self.exchange, intermediate=8)
        workspace = np.zeros(layer.workspace_bytes, np.uint8)
        layer.run(self.x, self.x.copy(), self.ids, self.weights, up=nothing, down=nothing, workspace=workspace)


def nothing(_: weft.ExpertGemm) -> None:
    """An expert whose rows are what the workspace has."""


def behind_a_dispatch(made: weft.Communicator, call: Callable[[WithExchange, weft.DispatchHandle], None]) -> Rank:
    of = WithExchange(made)
    handle = of.dispatch()
    return made, lambda: call(of, handle)


def released(made: weft.Communicator) -> weft.Communicator:
    made.release()
    return made


def of_world(call: Callable[[weft.Group], object]) -> Callable[[weft.Communicator], Rank]:
    return lambda made: (made, lambda: call(made.world))


def of_ones(*shape: int, type: type = np.float32) -> np.ndarray:
    return np.ones(shape, type)


def of_a_norm(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """output, residual_output, input and gamma."""
    normed, sums, x = (of_ones(rows, 8, type=np.float16) for _ in range(3))
    return normed, sums, x, of_ones(8, type=np.float16)


# A message that rank 0 cannot send without rank 1.
LARGE = 1 << 18

# A call of each method of Group in which rank 0 waits for rank 1.
METHODS: dict[str, Callable[[weft.Group], object]] = {
    "all_reduce": expect_sums,
    "barrier": lambda world: world.barrier(),
    "reduce": lambda world: world.reduce(of_ones(1, 8), of_ones(1, 8), root=0),
    "all_gather_into_tensor": lambda world: world.all_gather_into_tensor(of_ones(2, 8), of_ones(1, 8)),
    "reduce_scatter_tensor": lambda world: world.reduce_scatter_tensor(of_ones(1, 8), of_ones(2, 8)),
    "all_to_all": lambda world: world.all_to_all(of_ones(2, 8), of_ones(2, 8)),
    "broadcast": lambda world: world.broadcast(of_ones(1, 8), of_ones(1, 8), root=1),
    "all_gather_columns": lambda world: world.all_gather_columns(of_ones(2, 8), of_ones(2, 4)),
    "all_to_all_columns": lambda world: world.all_to_all_columns(of_ones(1, 8), of_ones(2, 4), weft.Counts([1, 1])),
    "top_k_columns": lambda world: world.top_k_columns(None, of_ones(2, 3, type=np.int32), of_ones(2, 4)),
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
    "send": lambda world: world.receive(of_ones(LARGE), 0) if world.rank else world.send(of_ones(LARGE), 1),
    "gather": lambda world: world.gather(of_ones(2, 8), of_ones(1, 8), root=0),
    "scatter": lambda world: world.scatter(of_ones(1, 8), of_ones(2, 8), root=1),
}


CALLS: dict[str, Callable[[weft.Communicator], Rank]] = {
    "Recording.replay": lambda made: (made, weft.Recording.capture(made, made.world.barrier).replay),
    "Communicator.split": lambda made: (made, lambda: made.split(0)),
    "Communicator.release": lambda made: (made, made.release),
    "Communicator.acquire": lambda made: (made, released(made).acquire),
    "SymmetricMemory.allocate": lambda made: (made, lambda: weft.SymmetricMemory.allocate(made, 4096)),
    "SymmetricMemory.free": lambda made: (made, weft.SymmetricMemory.allocate(made, 4096).free),
    "Exchange.create": lambda made: (made, lambda: WithExchange(made)),
    "Exchange.free": lambda made: (made, WithExchange(made).exchange.free),
    "Exchange.set_experts": lambda made: (made, WithExchange(made).move_experts),
    "Exchange.dispatch": lambda made: (made, WithExchange(made).dispatch),
    "Exchange.dispatch_wait": lambda made: (made, WithExchange(made).dispatch_in_halves),
    "Exchange.combine": lambda made: behind_a_dispatch(made, WithExchange.combine),
    "Exchange.combine_wait": lambda made: behind_a_dispatch(made, WithExchange.combine_in_halves),
    "MoeLayer.run": lambda made: (made, WithExchange(made).run_layer),
    **{f"Group.{name}": of_world(call) for name, call in METHODS.items()},
}


@pytest.mark.parametrize("name", CALLS)
def test_other_threads_run_while_a_rank_waits(name: str) -> None:
    """Rank 0 waits until this thread makes the call of rank 1, and a third thread counts meanwhile."""
    first, second = on_each(weft.Communicator.local(2, CPU), CALLS[name])
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


# Tests of their own, below, wait in these methods: ranks are apart until the others have come.
MEETINGS = {"Communicator.from_id", "Communicator.from_environment"}

# Methods that this file does not call, and why.
OTHERS = {
    "Communicator.from_nccl": "ranks of GPUs alone, which an engine's NCCL has brought together",
    "Communicator.local": "it makes all ranks itself",
    "Communicator.create_id": "it only begins to listen",
    "Communicator.abort": "waits for no rank",
    "Communicator.status": "reads this rank's fault",
    "Communicator.check": "reads this rank's fault",
    "Group.status": "reads this rank's fault",
    "Group.check": "reads this rank's fault",
    "Group.recent_calls": "reads this rank's records",
    "Group.take_rows": "copies within this rank",
    "Exchange.memory": "calculates",
    "Exchange.experts_of_map": "reads this rank's map",
    "Exchange.dispatch_send": "waits for no rank; called with its wait",
    "Exchange.combine_send": "waits for no rank; called with its wait",
    "MoeLayer.create": "not collective",
    "MoeLayer.run_experts": "the experts of this rank alone",
    "SymmetricMemory.peer": "an address",
    "SymmetricMemory.tensor": "a view",
    "Recording.capture": "plans calls, and makes none",
}
TYPES = (weft.Communicator, weft.Group, weft.Exchange, weft.MoeLayer, weft.SymmetricMemory, weft.Recording)


def test_no_method_was_left_out() -> None:
    """A new method fails here until a test waits in it, or OTHERS says why it needs none."""
    methods = [
        f"{type.__name__}.{name}"
        for type in TYPES
        for name in vars(type)
        if not name.startswith("_") and callable(getattr(type, name))
    ]
    assert sorted(methods) == sorted([*CALLS, *MEETINGS, *OTHERS])


def test_other_threads_run_while_processes_meet(tmp_path: Path) -> None:
    """Rank 1 comes when a thread of rank 0 has run. It can only run when the thread that waits lets it."""
    program = """
        import os, sys, threading, time, weft
        from pathlib import Path
        config, seen = weft.Config(device="cpu", deadline=10, rendezvous_deadline=10), Path(sys.argv[1])
        begun = threading.Event()
        def tell():
            begun.wait()
            seen.touch()
        if os.environ["RANK"] == "0":
            threading.Thread(target=tell, daemon=True).start()
            sys.setswitchinterval(100)  # the interpreter takes its lock from no thread
            begun.set()
        else:
            while not seen.exists():
                time.sleep(0.001)
        weft.Communicator.from_environment(config).world.barrier()
    """
    outcomes = run_programs(["-c", textwrap.dedent(program), str(tmp_path / "seen")], torchrun_variables(2), 20)
    assert outcomes == [(0, "", "")] * 2


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
