"""Views of memory: what they show, how long the memory stays, and what is refused before a call touches it."""

from __future__ import annotations

import array
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import weft
from ranks import run_ranks

Array = npt.NDArray[Any]


def alone(work: Any) -> None:
    run_ranks(1, lambda rank: work(rank.world))


def test_a_view_shows_its_array() -> None:
    x = np.arange(12, dtype=np.uint16).reshape(3, 4)
    view = weft.Tensor(x, "bf16")
    assert (view.shape, view.dtype, view.device) == ((3, 4), "bf16", "cpu")
    assert view.data_ptr == x.ctypes.data
    back = np.from_dlpack(weft.Tensor(x))
    back[0, 0] = 77
    assert x[0, 0] == 77
    assert np.from_dlpack(weft.Tensor(x[:, ::2])).tolist() == x[:, ::2].tolist()
    at = weft.Tensor.at(x.ctypes.data, [12], "u16")
    assert np.from_dlpack(at).tolist() == x.ravel().tolist()


def test_read_only_memory_stays_so() -> None:
    x = np.zeros(4, np.float32)
    x.flags.writeable = False
    view = weft.Tensor(x)
    assert not np.from_dlpack(view).flags.writeable
    alone(lambda world: pytest.raises(weft.Error, world.all_reduce, view).match("output: read-only"))


def test_memory_cannot_go_while_a_view_shows_it() -> None:
    buffer = bytearray(64)
    view = weft.Tensor(buffer)
    with pytest.raises(BufferError):
        buffer.extend(bytes(1000))
    del view
    buffer.extend(bytes(1000))
    numbers = array.array("f", [1, 2])
    alone(lambda world: world.all_reduce(numbers))
    numbers.append(3)  # the call holds nothing afterwards


def test_a_call_holds_what_only_it_was_given() -> None:
    class Copies:
        """Exports a copy, which nobody else holds."""

        def __dlpack__(self, **options: Any) -> Any:
            return np.ones(1 << 20, np.float32).__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    def work(world: weft.Group) -> None:
        out = np.zeros(1 << 20, np.float32)
        world.all_reduce(out, Copies())
        assert (out == 1).all()
        out[:] = 0
        world.all_reduce(out, np.ones(1 << 20, np.float32).__dlpack__())
        assert (out == 1).all()

    alone(work)


def test_a_recording_keeps_its_tensors() -> None:
    recordings = []

    def work(rank: weft.Communicator) -> None:
        def calls() -> None:
            counts = weft.Counts(np.full(1, 2, np.int32))
            rank.world.all_gather_v(output, np.full((2, 3), 5, np.float32), counts)

        output = np.zeros((2, 3), np.float32)
        recordings.append(weft.Recording.capture(rank, calls))
        assert not output.any()
        gc.collect()
        for size in (1, 2, 6):  # takes the freed memory, if there is any
            np.full(size, 99, np.int32)
        recordings[0].replay()
        assert (output == 5).all()

    run_ranks(1, work)


def test_rows_that_overlap_are_refused() -> None:
    row = np.ones(4, np.float32)
    same = np.broadcast_to(row, (4, 4))
    out = np.zeros((4, 4), np.float32)
    shared = np.lib.stride_tricks.as_strided(row, (4, 4), (0, 4))
    counts = weft.Counts(np.full(1, 4, np.int32))

    def work(world: weft.Group) -> None:
        calls: list[Callable[[], None]] = [
            lambda: world.all_gather_into_tensor(out, same),
            lambda: world.all_gather_into_tensor(shared, out),
            lambda: world.reduce_scatter_tensor(shared, out),
            lambda: world.all_gather_v(shared, out, counts),
            lambda: world.take_rows(shared, out, counts, slots=1, slot=0),
        ]
        for call in calls:
            with pytest.raises(weft.Error, match="rows of 16 bytes begin 0 bytes apart, so they overlap"):
                call()
        assert (row == 1).all()

    alone(work)


def test_tensors_of_another_size_or_type_are_refused() -> None:
    f32, i32 = np.zeros(8, np.float32), np.zeros(8, np.int32)

    def work(world: weft.Group) -> None:
        with pytest.raises(weft.Error, match="output: 10 elements; the input has 8"):
            world.all_reduce(np.zeros(10, np.float32), f32)
        with pytest.raises(weft.Error, match="output: elements are i32; the input's are f32"):
            world.all_gather_into_tensor(i32, f32)
        with pytest.raises(weft.Error, match="gamma: 32 elements; hidden is 16"):
            halves = np.zeros((1, 16), np.float16)
            world.all_reduce_rms_norm(halves, halves, halves, np.zeros(32, np.float16))
        with pytest.raises(weft.Error, match=r"2\^46 bytes"):
            world.all_reduce(weft.Tensor.at(4096, [2**62, 4], "f32"))

    alone(work)


@pytest.mark.parametrize("shape", [(0,), (0, 8), (4, 0)])
def test_nothing_at_all_is_a_tensor(shape: tuple[int, ...]) -> None:
    def work(world: weft.Group) -> None:
        x, y = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        world.all_reduce(y, x)
        world.reduce(y, x)
        world.all_gather_into_tensor(y, x)
        world.all_to_all(y, x)
        world.reduce_scatter_tensor(y, x)
        world.broadcast(y, x)
        world.gather(y, x)
        world.scatter(y, x)
        world.send_receive([(x, 0)], [(y, 0)])
        world.all_reduce(np.zeros((0, 16), np.float32)[:, ::2])

    alone(work)


def test_a_view_kept_on_its_owner_is_collected() -> None:
    class Owner(np.ndarray):
        kept: weft.Tensor

    owner = np.zeros(4, np.float32).view(Owner)
    owner.kept = weft.Tensor(owner)
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("device", ["cuda:", "cuda:x", "cuda:-1", "cuda:99999999999", "rocm", ""])
def test_a_device_that_is_none_is_named(device: str) -> None:
    with pytest.raises(weft.Error, match=f"device is '{device}'; it must be cpu, cuda or cuda:N"):
        weft.Tensor.at(4096, [1], "f32", device)


def test_other_devices_are_refused() -> None:
    class OfAnotherMaker:
        def __dlpack__(self, **options: Any) -> Any:
            return np.ones(4, np.float32).__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

    class OnTheGpu:
        __cuda_array_interface__ = {"data": (4096, False), "shape": (64,), "typestr": "<i4", "version": 3}

    def work(world: weft.Group) -> None:
        counts, out = np.zeros(1, np.int32), np.zeros(weft.GatheredCounts(1).words, np.int32)
        with pytest.raises(weft.Error, match="host_output: on cuda, but the group's ranks work on cpu"):
            world.all_gather_counts(out, counts, host_output=OnTheGpu())
        with pytest.raises(weft.Error, match="input: on cuda, but"):
            world.all_reduce(np.zeros(64, np.int32), OnTheGpu())
        with pytest.raises(BufferError, match="did not say which GPU"):
            np.from_dlpack(weft.Tensor(OnTheGpu()))

    alone(work)


def test_a_refused_call_is_told_to_those_who_wait() -> None:
    def work(rank: weft.Communicator) -> str:
        x: Any = np.zeros(4, np.float64 if rank.rank == 1 else np.float32)
        try:
            rank.world.all_reduce([1.0] if rank.rank == 2 else x)
        except weft.Error as error:
            return error.fault.theirs or error.code.name
        except TypeError:
            return "TypeError"
        raise AssertionError("the call went through")

    for ranks in (2, 3):
        config = weft.Config(device="cpu", deadline=None)  # a rank that is not told waits for ever
        said = run_ranks(ranks, work, config)
        assert said[1] in ("invalid_argument", "peer_failed")
        if ranks == 2:
            assert said[0].startswith("a call that it rejected (output: elements are f64;")


def test_numbers_that_count_are_checked() -> None:
    wrong = (((4, 1, 0), "group_ranks is 0"), ((4, 1, 3), "must divide 4"), ((0, 1, 1), "ranks is 0"))
    for arguments, message in wrong:
        with pytest.raises(weft.Error, match=message):
            weft.GatheredCounts(*arguments)
    with pytest.raises(weft.Error, match="columns is 65; it must be 1 … 64"):
        weft.GatheredCounts(4, 65)


def test_listed_counts_are_numbers() -> None:
    for wrong, error in (([1, "x"], TypeError), ([1.5], TypeError), ([1 << 31], OverflowError)):
        with pytest.raises(error):
            weft.Counts(wrong)
    rows = [1]
    counts = weft.Counts(rows)
    rows[0] = 99  # it was read when the object was made
    x = np.ones((1, 4), np.float32)

    def work(world: weft.Group) -> None:
        y = np.zeros((1, 4), np.float32)
        world.all_gather_v(y, x, counts)
        assert (y == 1).all()
        y[:] = 0
        world.take_rows(y, x, counts, slots=1, slot=0)
        assert (y == 1).all()

    alone(work)
