"""Ranks are late, call something else, or give up: every rank gets an error that names the rank and the cause."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import weft
from processes import wait_until
from ranks import run_ranks

Work = Callable[[weft.Communicator], object]

# Only a test that fails waits for this deadline.
FAR = weft.Config(device="cpu", deadline=20)
NEAR = weft.Config(device="cpu", deadline=0.5)


def error_of(call: Callable[[], object]) -> weft.Error:
    with pytest.raises(weft.Error) as caught:
        call()
    return caught.value


def endings(count: int, work: Work, config: weft.Config) -> list[weft.Error | None]:
    """The error that ends each rank, which must stay with it; None for a rank that ends well."""

    def run(made: weft.Communicator) -> weft.Error | None:
        try:
            work(made)
        except weft.Error as error:
            expect_stays(made, error)
            return error
        return None

    return run_ranks(count, run, config)


def expect_stays(made: weft.Communicator, error: weft.Error) -> None:
    """A fault ends the communicator: every later call, status() and check() tell the same one."""
    assert error.rank == made.rank
    assert made.status() == made.world.status() == error.fault
    for call in (made.world.barrier, lambda: made.world.all_reduce(np.zeros(3, np.float32)), made.check):
        again = error_of(call)
        assert again.fault == error.fault
        assert "last calls of this rank" in str(again)
        assert error.operation in str(again)


# ---------------------------------------------------------------------------------------------------------- late ranks


@pytest.mark.parametrize("algorithm", ["one_shot", "two_shot", "pipelined"])
def test_a_late_rank_is_named_by_the_others_and_learns_it(algorithm: weft.Algorithm) -> None:
    late = 1
    begun = threading.Barrier(3)
    others = threading.Semaphore(0)

    def work(made: weft.Communicator) -> None:
        begun.wait(20)
        if made.rank == late:
            assert others.acquire(timeout=20) and others.acquire(timeout=20)
        try:
            made.world.all_reduce(np.zeros(200, np.float32), algorithm=algorithm, tag=42)
        finally:
            others.release()

    found = set()
    for rank, error in enumerate(endings(3, work, NEAR)):
        assert error is not None
        found.add(error.code)
        assert error.peer == late  # also on ranks that were told by another one
        assert error.operation.startswith("all_reduce sum f32[200]")
        assert error.operation.endswith("tag 42")
        assert error.fault.epoch_wanted == 1
        if error.code is weft.Errc.timeout:
            assert rank != late
            assert error.fault.epoch_seen == 0
            assert "deadline 500 ms" in str(error)
        else:
            assert error.code is weft.Errc.peer_failed
            assert error.fault.reported is weft.Errc.timeout
            assert error.fault.reporter not in (-1, rank, late)
    assert weft.Errc.timeout in found


# ---------------------------------------------------------------------------------------------------------- mismatches


def reduce(made: weft.Communicator, count: int = 200, dtype: Any = np.float32, **options: Any) -> None:
    made.world.all_reduce(np.zeros(count, dtype), **options)


DIFFERENT: dict[str, tuple[Work, str]] = {
    "op": (lambda made: reduce(made, op="max"), "all_reduce max f32[200] one-shot tag 0"),
    "count": (lambda made: reduce(made, 201), "all_reduce sum f32[201] one-shot tag 0"),
    "dtype": (lambda made: reduce(made, dtype=np.int32), "all_reduce sum i32[200] one-shot tag 0"),
    "tag": (lambda made: reduce(made, tag=7), "all_reduce sum f32[200] one-shot tag 7"),
    "algorithm": (lambda made: reduce(made, algorithm="two_shot"), "all_reduce sum f32[200] two-shot tag 0"),
    "operation": (lambda made: made.world.barrier(tag=5), "barrier tag 5"),
}


@pytest.mark.parametrize("kind", DIFFERENT)
def test_a_different_call_is_found_and_told_in_words(kind: str) -> None:
    odd = 2
    call, words = DIFFERENT[kind]

    def work(made: weft.Communicator) -> None:
        reduce(made)
        (call if made.rank == odd else reduce)(made)

    found = []
    for rank, error in enumerate(endings(3, work, FAR)):
        assert error is not None
        usual = "all_reduce sum f32[200] one-shot tag 0"
        assert error.operation == (words if rank == odd else usual)
        if error.code is weft.Errc.mismatch:
            found.append(error)
            assert rank == odd or error.peer == odd
            assert error.fault.theirs == (usual if rank == odd else words)
            assert error.fault.theirs in str(error)
        else:
            assert error.code is weft.Errc.peer_failed
            assert error.fault.reported is weft.Errc.mismatch
            assert error.fault.reporter not in (-1, rank)
    assert found


REJECTED: dict[str, tuple[Work, str]] = {
    "grid": (lambda made: reduce(made, blocks=99), "launch.blocks: 99"),
    "op": (lambda made: reduce(made, op="mean"), "op is 'mean'"),
    "dtype": (lambda made: reduce(made, dtype=np.float64), "elements are f64"),
}


@pytest.mark.parametrize("kind", REJECTED)
def test_a_call_that_one_rank_rejects_is_told_to_those_that_wait(kind: str) -> None:
    """As weft/error.hpp says. Else these learn nothing but a timeout, much later."""
    call, reason = REJECTED[kind]

    def work(made: weft.Communicator) -> None:
        if made.rank == 1:
            error = error_of(lambda: call(made))
            assert error.code is weft.Errc.invalid_argument
            assert reason in str(error)
        else:
            reduce(made)

    first, second = endings(2, work, weft.Config(device="cpu", deadline=2))
    assert second is None
    assert first is not None
    assert first.code is weft.Errc.mismatch
    assert first.peer == 1
    assert reason in first.fault.theirs


# ---------------------------------------------------------------------------------------------------------- abort


@pytest.mark.parametrize("by", [0, 1])
def test_abort_from_another_thread_ends_ranks_that_wait(by: int) -> None:
    begun = threading.Semaphore(0)
    aborting = []

    def abort(made: weft.Communicator) -> None:
        for _ in range(2):
            assert begun.acquire(timeout=20)
        made.abort()

    def work(made: weft.Communicator) -> None:
        reduce(made)
        if made.rank == by:
            aborting.append(threading.Thread(target=abort, args=(made,)))
            aborting[0].start()
        if made.rank == 2:  # makes its call when all is over
            wait_until(lambda: made.status() is not None)
        else:
            begun.release()
        reduce(made)

    for error in endings(3, work, FAR):
        assert error is not None
        assert error.code is weft.Errc.aborted
        assert error.peer == by
    aborting[0].join(20)


# ---------------------------------------------------------------------------------------------------------- overlap


def test_two_threads_in_calls_of_one_group_are_found() -> None:
    ended = threading.Event()

    def work(made: weft.Communicator) -> None:
        if made.rank == 1:
            assert ended.wait(20)
            reduce(made)
            return
        errors: list[weft.Error] = []
        threads = [threading.Thread(target=lambda: errors.append(error_of(lambda: reduce(made)))) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        ended.set()
        assert [error.code for error in errors] == [weft.Errc.overlap] * 2
        made.check()

    first, second = endings(2, work, FAR)
    assert first is not None and first.code is weft.Errc.overlap
    assert second is not None and second.code is weft.Errc.peer_failed
    assert second.fault.reported is weft.Errc.overlap
