"""What a communicator tells of itself: faults, its last calls, its memory, and that it is released."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
import weft
from processes import expect_sums, wait_until
from ranks import run_ranks

CPU = weft.Config(device="cpu", deadline=20)


def expect_code(code: weft.Errc, call: Callable[[], object]) -> weft.Error:
    with pytest.raises(weft.Error) as caught:
        call()
    assert caught.value.code is code
    return caught.value


def test_all_is_well_until_a_fault() -> None:
    def work(made: weft.Communicator) -> None:
        for group in (made.world, made.split(0)):
            assert group is not None
            expect_sums(group)
            assert group.status() is None
            group.check()
        assert made.status() is None
        made.check()

    run_ranks(2, work, CPU)


def test_a_fault_in_a_group_ends_the_world_and_its_other_groups() -> None:
    def work(made: weft.Communicator) -> None:
        group = made.split(made.rank // 2)
        assert group is not None
        if made.rank < 2:
            with pytest.raises(weft.Error):
                group.barrier(tag=made.rank)  # ranks differ
        wait_until(lambda: made.status() is not None)
        fault = made.status()
        assert fault is not None
        assert fault == group.status() == made.world.status()
        assert fault.rank == made.rank
        assert weft.Errc.mismatch in (fault.code, fault.reported)
        for ended in (group, made.world):
            for call in (ended.barrier, ended.check):
                again = expect_code(fault.code, call).fault
                assert again[:5] == fault[:5]  # without the call that found it

    run_ranks(4, work, CPU)


def test_the_flight_recorder_keeps_the_last_calls_of_each_group() -> None:
    def work(made: weft.Communicator) -> None:
        group = made.split(0)
        assert group is not None
        begin = time.time()
        for number in range(40):
            made.world.all_reduce(np.zeros(8, np.float32), tag=number)
        group.barrier(tag=3)
        end = time.time()
        calls = made.world.recent_calls()
        assert [call.number for call in calls] == list(range(8, 40))
        assert [call.operation for call in calls] == [
            f"all_reduce sum f32[8] one-shot tag {number}" for number in range(8, 40)
        ]
        times = [call.time for call in calls]
        assert times == sorted(times)
        assert begin - 1 <= times[0] and times[-1] <= end + 1  # seconds since the epoch, and no other unit
        assert [(call.number, call.operation) for call in group.recent_calls()] == [(0, "barrier tag 3")]
        assert isinstance(calls[0], weft.CallRecord)

    run_ranks(2, work, CPU)


def test_calls_between_release_and_acquire_are_rejected() -> None:
    def work(made: weft.Communicator) -> None:
        world, group = made.world, made.split(0)
        assert group is not None
        memory = weft.SymmetricMemory.allocate(made, 4096)
        exchange = weft.Exchange.create(world, tokens=1, hidden=8, experts=2, top_k=1)
        x = np.ones(4, np.int32)
        recording = weft.Recording.capture(made, lambda: world.all_reduce(x))
        recording.replay()
        taken = made.memory
        assert taken.window > 4096 and taken.control > 0

        made.release()
        assert made.memory == (0, taken.control)
        calls: list[Callable[[], object]] = [
            world.barrier,
            group.barrier,
            lambda: world.all_reduce(x),
            lambda: made.split(0),
            lambda: memory.data_ptr,
            lambda: memory.tensor([4], "i32"),
            lambda: weft.SymmetricMemory.allocate(made, 16),
            lambda: weft.Exchange.create(world, tokens=1, hidden=8, experts=2, top_k=1),
            exchange.free,
            memory.free,
            made.release,
        ]
        for call in calls:
            expect_code(weft.Errc.released, call)
        assert made.status() is None  # these were rejected: nothing has failed
        error = expect_code(weft.Errc.released, recording.replay)
        status = made.status()
        assert status is not None and status.code is weft.Errc.released
        expect_code(weft.Errc.released, made.check)
        assert "released" in str(error)

        made.acquire()
        assert made.status() is None
        assert made.memory == taken
        expect_code(weft.Errc.invalid_argument, made.acquire)
        expect_sums(world)
        expect_sums(group)
        memory.free()
        exchange.free()
        expect_code(weft.Errc.released, lambda: memory.tensor([4], "i32"))
        expect_code(weft.Errc.released, exchange.free)
        assert (x == 2).all()

    run_ranks(2, work, CPU)


def test_colors_form_groups_and_none_is_for_no_group() -> None:
    def work(made: weft.Communicator) -> None:
        group = made.split(-1 if made.rank == 1 else 5)
        if made.rank == 1:
            assert group is None
        else:
            assert group is not None
            assert group.members == [0, 2]
            assert (group.rank, group.size) == (made.rank // 2, 2)
            expect_sums(group)
        expect_code(weft.Errc.invalid_argument, lambda: made.split(-2))
        expect_sums(made.world)

    run_ranks(3, work, CPU)
