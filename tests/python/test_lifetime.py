"""Objects may be dropped in any order, keep alive what they need, and free it in the end."""

from __future__ import annotations

import ctypes
import gc
import itertools
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import weft
from processes import expect_sums, on_each

Array = npt.NDArray[Any]

CPU = weft.Config(device="cpu", deadline=20)


class Owner(np.ndarray[Any, Any]):
    """An array that can be watched, and can have attributes."""


def owner(count: int = 8, dtype: Any = np.float32) -> Any:
    return np.ones(count, dtype).view(Owner)


def array_in(view: Any) -> Array:
    return np.from_dlpack(view)


def windows() -> int:
    """Memory that CPU ranks share, and this process still maps."""
    return Path("/proc/self/maps").read_text().count("memfd:weft")


@pytest.fixture(autouse=True)
def nothing_stays() -> Any:
    gc.collect()
    before = windows()
    yield
    gc.collect()
    assert windows() == before


# ---------------------------------------------------------------------------------------------------------- any order

F16: Any = {"type": "f16", "combine_type": "f16"}
KINDS = ("communicator", "group", "exchange", "memory", "recording")
OF_LAYERS = ("communicator", "group", "exchange", "layer")  # all six have 720 orders


class Objects:
    """A rank alone, and what is made with it, of these kinds. All are made: the others die first."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        made = weft.Communicator.local(1, CPU)[0]
        self.x = np.ones(4, np.int32)
        exchange = weft.Exchange.create(made.world, tokens=1, hidden=8, experts=2, top_k=1, **F16)
        everything = {
            "communicator": made,
            "group": made.world,
            "exchange": exchange,
            "layer": weft.MoeLayer.create(exchange, intermediate=8),
            "memory": weft.SymmetricMemory.allocate(made, 4096),
            "recording": weft.Recording.capture(made, lambda: made.world.all_reduce(self.x)),
        }
        self.alive: dict[str, Any] = {kind: everything[kind] for kind in kinds}

    def work(self) -> None:
        """Uses whatever is left."""
        uses: dict[str, Callable[[Any], object]] = {
            "communicator": lambda made: expect_sums(made.world),
            "group": expect_sums,
            "exchange": exchange_a_row,
            "layer": run_a_layer,
            "memory": lambda memory: ctypes.memset(memory.data_ptr, 7, memory.bytes),
            "recording": lambda recording: recording.replay(),
        }
        for kind, one in self.alive.items():
            uses[kind](one)
        assert (self.x == 1).all()


def exchange_a_row(exchange: weft.Exchange) -> None:
    rows = np.zeros((exchange.local_experts, exchange.capacity, 8), np.float16)
    counts = np.zeros(exchange.local_experts, np.int32)
    x, y = np.full((1, 8), 3, np.float16), np.zeros((1, 8), np.float16)
    handle = exchange.dispatch(rows, x, np.ones((1, 1), np.int32), np.ones((1, 1), np.float32), counts=counts)
    assert counts.tolist() == [0, 1]
    exchange.combine(y, rows, handle)
    assert (y == x).all()


def run_a_layer(layer: weft.MoeLayer, workspace: Array | None = None, **more: Any) -> None:
    """With experts that give back what they get."""

    def up(gemm: weft.ExpertGemm) -> None:
        made = array_in(gemm.output)
        made[..., :8] = 64  # silu of it is the number itself
        made[..., 8:] = array_in(gemm.input)

    def down(gemm: weft.ExpertGemm) -> None:
        array_in(gemm.output)[:] = array_in(gemm.input) / 64

    if workspace is None:
        workspace = np.zeros(layer.workspace_bytes, np.uint8)
    x, y = np.full((1, 8), 3, np.float16), np.zeros((1, 8), np.float16)
    ids, weights = np.ones((1, 1), np.int32), np.ones((1, 1), np.float32)
    layer.run(y, x, ids, weights, **{"up": up, "down": down, "workspace": workspace, **more})
    assert (y == x).all()


@pytest.mark.parametrize(("kinds", "first"), [(kinds, first) for kinds in (KINDS, OF_LAYERS) for first in kinds])
def test_objects_die_in_any_order(kinds: tuple[str, ...], first: str) -> None:
    before = windows()
    for others in itertools.permutations(set(kinds) - {first}):
        objects = Objects(kinds)
        for kind in (first, *others):
            objects.work()
            del objects.alive[kind]
        assert windows() == before, others


def test_a_rank_may_leave_while_its_peers_work_on() -> None:
    made = weft.Communicator.local(3, CPU)
    groups = on_each(made, lambda rank: rank.split(0 if rank.rank != 1 else -1))
    del made[1]

    def work(group: weft.Group) -> None:
        for _ in range(20):
            expect_sums(group)

    on_each([group for group in groups if group], work)
    assert [rank.status() for rank in made] == [None, None]


def test_a_cycle_is_collected() -> None:
    made = weft.Communicator.local(1, CPU)
    cycle: list[Any] = [made]
    cycle.append(cycle)
    before = windows()
    del made, cycle
    gc.collect()
    assert windows() < before


# ---------------------------------------------------------------------------------------------------------- views


def test_a_view_keeps_its_array_alive_and_lets_it_go() -> None:
    array = owner()
    watch = weakref.ref(array)
    view = weft.Tensor(array)
    address = array.ctypes.data
    del array
    assert watch() is not None
    assert view.data_ptr == address
    weft.Communicator.local(1, CPU)[0].world.all_reduce(view)
    again = weft.Tensor(view)  # a view of a view
    del view
    assert watch() is not None
    del again
    assert watch() is None


@pytest.mark.parametrize("keep", [weft.Tensor, weft.Counts], ids=["Tensor", "Counts"])
def test_an_array_that_has_its_own_view_is_collected(keep: Callable[[Any], object]) -> None:
    """A view that is made once for all calls is best kept with its tensor."""
    array = owner()
    watch = weakref.ref(array)
    array.kept = keep(array)
    del array
    gc.collect()
    assert watch() is None


def test_a_call_keeps_no_array() -> None:
    world = weft.Communicator.local(1, CPU)[0].world
    array, counts = owner(), owner(1, np.int32)
    watches = weakref.ref(array), weakref.ref(counts)
    world.all_reduce(array)
    world.all_gather_v(array, array.copy(), weft.Counts(counts))
    with pytest.raises(weft.Error):
        world.all_reduce(array, op="mean")  # type: ignore[arg-type]
    del array, counts
    assert [watch() for watch in watches] == [None, None]


def test_a_layer_keeps_no_workspace_and_no_function() -> None:
    """Functions often have their layer, and the collector must find no cycle that it cannot see."""
    exchange = weft.Exchange.create(weft.Communicator.local(1, CPU)[0].world, tokens=1, hidden=8, experts=2, top_k=1, **F16)
    layer = weft.MoeLayer.create(exchange, intermediate=8)
    workspace = owner(layer.workspace_bytes, np.uint8)

    def observe(*_: object) -> None:
        assert layer

    def broken(_: object) -> None:
        raise ZeroDivisionError

    watches = weakref.ref(workspace), weakref.ref(observe), weakref.ref(broken)
    run_a_layer(layer, workspace, observe=observe)
    with pytest.raises(ZeroDivisionError):
        run_a_layer(layer, workspace, up=broken)
    del workspace, observe, broken
    gc.collect()  # the exception's traceback has frames
    assert [watch() for watch in watches] == [None, None, None]


def test_a_recording_keeps_its_layers_functions() -> None:
    """Nobody else has them, nor the layer and the workspace. A function that has its recording is no leak."""
    made = weft.Communicator.local(1, CPU)[0]
    exchange = weft.Exchange.create(made.world, tokens=1, hidden=8, experts=2, top_k=1, **F16)
    x, y = np.full((1, 8), 3, np.float16), np.zeros((1, 8), np.float16)
    parts: list[str] = []

    def recorded() -> tuple[weft.Recording, list[weakref.ref[Any]], list[weft.Recording]]:
        held: list[weft.Recording] = []
        layer = weft.MoeLayer.create(exchange, intermediate=8)
        workspace = owner(layer.workspace_bytes, np.uint8)

        def up(gemm: weft.ExpertGemm) -> None:
            rows = array_in(gemm.output)
            rows[..., :8], rows[..., 8:] = 64, array_in(gemm.input)  # silu of 64 is the number itself

        def down(gemm: weft.ExpertGemm) -> None:
            assert held
            array_in(gemm.output)[:] = array_in(gemm.input) / 64

        def shared(expert: weft.SharedExpert) -> None:
            array_in(expert.output)[:] = array_in(expert.input)

        def observe(part: str, *_: object) -> None:
            parts.append(part)

        def calls() -> None:
            ids, weights = np.ones((1, 1), np.int32), np.ones((1, 1), np.float32)
            functions: Any = {"up": up, "down": down, "shared": shared, "observe": observe}
            layer.run(y, x, ids, weights, workspace=workspace, **functions)

        watches = [weakref.ref(thing) for thing in (up, down, shared, observe)]
        return weft.Recording.capture(made, calls), watches, held

    once, watches, held = recorded()
    both = weft.Recording.capture(made, once.replay)
    held.append(both)
    del once
    gc.collect()
    for turn in range(1, 4):
        x[:] = turn
        both.replay()
        assert (y == 2 * turn).all()
    assert len(parts) == 3 * 2 * 6
    assert None not in [watch() for watch in watches]
    del both, held  # the list has the recording, and a function of the recording has the list
    gc.collect()
    assert [watch() for watch in watches] == [None] * 4


def test_an_array_of_a_view_keeps_the_array_alive() -> None:
    array = owner()
    watch = weakref.ref(array)
    other = array_in(weft.Tensor(array))
    array[:] = np.arange(8)
    del array
    assert watch() is not None
    assert other.tolist() == list(range(8))
    del other
    assert watch() is None


def test_a_view_of_read_only_memory_stays_read_only() -> None:
    array = owner()
    array.flags.writeable = False
    with pytest.raises((ValueError, BufferError)):
        array_in(weft.Tensor(array))[0] = 2
    assert array[0] == 1


def test_an_array_in_symmetric_memory_keeps_all_that_it_needs() -> None:
    made = weft.Communicator.local(2, CPU)
    memories = on_each(made, lambda rank: weft.SymmetricMemory.allocate(rank, 4096))
    before = windows()
    arrays = [array_in(memory.tensor([2, 3], "f32", offset=256)) for memory in memories]
    address = memories[0].data_ptr + 256
    peers = [memory.peer(0) + 256 for memory in memories]
    del memories, made
    gc.collect()
    assert windows() == before
    assert (arrays[0].shape, arrays[0].dtype.name, arrays[0].ctypes.data) == ((2, 3), "float32", address)
    arrays[0][:] = np.arange(6).reshape(2, 3)
    for peer in peers:  # both ranks reach it
        assert list((ctypes.c_float * 6).from_address(peer)) == list(range(6))
    del arrays
    assert windows() < before
