"""Recorded calls: what is kept, what a replay makes, and what an exception leaves behind."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import weft
from processes import expect_sums, on_each
from ranks import run_ranks

CPU = weft.Config(device="cpu", deadline=20)


def one() -> weft.Communicator:
    return weft.Communicator.local(1, CPU)[0]


def test_replays_see_new_contents() -> None:
    def work(made: weft.Communicator) -> None:
        x, y, z = np.full(8, 9, np.int32), np.zeros(8, np.int32), np.zeros(24, np.int32)

        def calls() -> None:
            made.world.all_reduce(y, x)
            made.world.all_gather_into_tensor(z, x)

        recording = weft.Recording.capture(made, calls)
        assert len(recording) == 2
        assert not y.any() and not z.any()  # nothing was made
        for turn in range(5):
            x[:] = turn * 10 + made.rank
            y[:] = z[:] = -1
            recording.replay()
            assert (y == turn * 30 + 3).all()
            assert (z == np.repeat(turn * 10 + np.arange(3), 8)).all()
            expect_sums(made.world)

    run_ranks(3, work, CPU)


def test_capturing_tells_no_rank() -> None:
    """Rank 0 records a call. The next call of the others must not find it."""

    def work(made: weft.Communicator) -> None:
        x = np.ones(8, np.int32)
        if made.rank == 0:
            weft.Recording.capture(made, lambda: made.world.all_reduce(x, tag=5))
        expect_sums(made.world)

    run_ranks(2, work, CPU)


def test_one_rank_replays_what_another_calls() -> None:
    def work(made: weft.Communicator) -> None:
        x = np.zeros(8, np.int32)
        call: Callable[[], object] = lambda: made.world.all_reduce(x, tag=3)  # noqa: E731
        if made.rank == 0:
            call = weft.Recording.capture(made, call).replay
        for turn in range(5):
            x[:] = turn
            call()
            assert (x == 2 * turn).all()

    run_ranks(2, work, CPU)


def test_a_recording_outlives_all_names() -> None:
    made = weft.Communicator.local(2, CPU)
    arrays = [np.full(8, rank + 1, np.int32) for rank in range(2)]
    watches: list[weakref.ref[Callable[[], None]]] = []

    def record(rank: weft.Communicator) -> weft.Recording:
        world, x = rank.world, arrays[rank.rank]

        def call() -> None:
            world.all_reduce(x)

        watches.append(weakref.ref(call))
        return weft.Recording.capture(rank, call)

    recordings = on_each(made, record)
    del made
    assert [watch() for watch in watches] == [None, None]  # the calls are planned, so their function is not kept
    on_each(recordings, weft.Recording.replay)
    assert all((x == 3).all() for x in arrays)
    recordings.reverse()
    recordings.pop()  # the end of one rank harms no other
    assert len(recordings[0]) == 1


class Mine(Exception):
    pass


@pytest.mark.parametrize("thrown", [Mine("mine"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_an_exception_is_passed_on_and_nothing_is_kept(thrown: BaseException) -> None:
    made = one()
    x = np.full(4, 5, np.int32)
    y = np.zeros(4, np.int32)

    def calls() -> None:
        made.world.all_reduce(y, x)
        raise thrown

    with pytest.raises(type(thrown)) as caught:
        weft.Recording.capture(made, calls)
    assert caught.value is thrown
    assert [entry.name for entry in caught.traceback][-1] == "calls"
    made.world.all_reduce(y, x)  # the thread no longer captures
    assert (y == 5).all()
    assert len(weft.Recording.capture(made, lambda: None)) == 0
    assert made.status() is None


def test_what_cannot_be_recorded_raises_inside_of_the_capture() -> None:
    made, other = one(), one()
    x = np.ones(4, np.float32)
    bad: dict[str, Callable[[], object]] = {
        "op is 'mean'": lambda: made.world.all_reduce(x, op="mean"),  # type: ignore[arg-type]
        "capturing already": lambda: weft.Recording.capture(made, lambda: None),
        "not of the communicator": other.world.barrier,
    }
    for says, call in bad.items():
        errors: list[weft.Error] = []

        def calls() -> None:
            with pytest.raises(weft.Error, match=says) as caught:
                call()
            errors.append(caught.value)
            made.world.barrier()  # the capture goes on

        assert len(weft.Recording.capture(made, calls)) == 1
        assert errors[0].code is weft.Errc.invalid_argument
        with pytest.raises(weft.Error, match=says):
            weft.Recording.capture(made, call)
    expect_sums(made.world)
    expect_sums(other.world)


def test_a_replay_in_a_capture_becomes_part_of_it() -> None:
    def work(made: weft.Communicator) -> None:
        x = np.ones(4, np.int32)
        once = weft.Recording.capture(made, lambda: made.world.all_reduce(x))

        def twice() -> None:
            once.replay()
            once.replay()

        both = weft.Recording.capture(made, twice)
        assert len(both) == 2
        del once
        both.replay()
        assert (x == 4).all()  # each of two sums has doubled it

    run_ranks(2, work, CPU)


def test_calls_of_other_threads_are_made_as_ever() -> None:
    made = one()

    def calls() -> None:
        thread = threading.Thread(target=expect_sums, args=(made.world,))
        thread.start()
        thread.join(20)

    assert len(weft.Recording.capture(made, calls)) == 0
    assert len(made.world.recent_calls()) == 1
