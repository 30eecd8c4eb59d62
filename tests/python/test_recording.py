"""Recorded calls: what is kept, what a replay makes, and what an exception leaves behind."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

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


class Layer:
    """A rank's layer with eight columns. Expert e gives back its rows times e + 1."""

    def __init__(self, made: weft.Communicator) -> None:
        self.exchange = weft.Exchange.create(
            made.world, tokens=3, hidden=8, experts=4, top_k=1, type="f16", combine_type="f16"
        )
        self.layer = weft.MoeLayer.create(self.exchange, intermediate=8)
        self.workspace = np.zeros(self.layer.workspace_bytes, np.uint8)
        self.first = self.exchange.experts[0]
        self.x, self.y = np.zeros((3, 8), np.float16), np.zeros((3, 8), np.float16)
        self.ids, self.weights = np.zeros((3, 1), np.int32), np.ones((3, 1), np.float32)
        self.asked: list[tuple[str, int]] = []

    def up(self, gemm: weft.ExpertGemm) -> None:
        self.asked.append((gemm.which, gemm.round))
        experts = slice(gemm.first_expert, gemm.first_expert + gemm.experts)
        made, given = np.from_dlpack(gemm.output)[experts], np.from_dlpack(gemm.input)[experts]
        made[..., :8] = 64  # silu of it is the number itself
        made[..., 8:] = given

    def down(self, gemm: weft.ExpertGemm) -> None:
        self.asked.append((gemm.which, gemm.round))
        made, given = np.from_dlpack(gemm.output), np.from_dlpack(gemm.input)
        for expert in range(gemm.first_expert, gemm.first_expert + gemm.experts):
            made[expert] = given[expert] / 64 * (self.first + expert + 1)

    def run(self, **more: Any) -> None:
        functions = {"up": self.up, "down": self.down, **more}
        self.layer.run(self.y, self.x, self.ids, self.weights, workspace=self.workspace, **functions)


@pytest.mark.parametrize("schedule", ["plain", "rounds", "combine_rounds"])
def test_replays_of_a_layer_call_its_functions(schedule: str) -> None:
    def work(made: weft.Communicator) -> None:
        of = Layer(made)
        rounds = 1 if schedule == "plain" else 2
        recording = weft.Recording.capture(made, lambda: of.run(schedule=schedule, rounds=rounds))
        assert of.asked == []
        for turn in range(4):
            of.x[:] = made.rank + turn + np.arange(3)[:, None]
            of.ids[:] = (np.arange(3)[:, None] + made.rank * turn) % 4
            of.ids[3 - turn % 3 :] = -1  # fewer tokens
            of.y[:] = 99
            recording.replay()
            assert (of.y == np.where(of.ids < 0, 0, of.x * (of.ids + 1))).all()
        ups = [("up", n) for n in range(rounds)] if schedule == "rounds" else [("up", 0)]
        assert sorted(of.asked) == sorted((ups + [("down", n) for n in range(rounds)]) * 4)

    run_ranks(2, work, CPU)


def test_an_exception_of_a_layers_function_leaves_the_replay() -> None:
    """The other rank learns of it at once, although it has no deadline."""
    thrown = Mine("mine\nin the second line")
    told: list[str] = []

    def broken(_: object) -> None:
        raise thrown

    def work(made: weft.Communicator) -> None:
        of = Layer(made)
        recording = weft.Recording.capture(made, lambda: of.run(down=broken if made.rank == 1 else of.down))
        with pytest.raises(Mine if made.rank == 1 else weft.Error) as caught:
            recording.replay()
        if made.rank == 1:
            assert caught.value is thrown
        else:
            told.append(str(caught.value))

    run_ranks(2, work, weft.Config(device="cpu", deadline=0))
    assert "layer: down: Mine: mine" in told[0]


def test_calls_of_other_threads_are_made_as_ever() -> None:
    made = one()

    def calls() -> None:
        thread = threading.Thread(target=expect_sums, args=(made.world,))
        thread.start()
        thread.join(20)

    assert len(weft.Recording.capture(made, calls)) == 0
    assert len(made.world.recent_calls()) == 1
