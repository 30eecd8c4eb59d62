"""Options of communicators: what they say, and how they reach other processes."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import weft
from processes import on_each
from ranks import run_ranks

# Each option with a value that is not its default.
OPTIONS: dict[str, Any] = {
    "device": "cpu",
    "cuda_device": 3,
    "deadline": 7.5,
    "rendezvous_deadline": 4.0,
    "one_shot_bytes": 4096,
    "two_shot_bytes": 8192,
    "max_groups": 2,
    "group_one_shot_bytes": 1024,
    "group_two_shot_bytes": 2048,
    "small_buffers": True,
    "order_streams": True,
    "multicast": True,
    "tuning_file": "a.json",
    "name": "a",
}


def test_every_option_is_kept() -> None:
    config = weft.Config(**OPTIONS)
    assert config.options == OPTIONS
    assert not OPTIONS.items() & weft.Config().options.items()
    assert OPTIONS.keys() == weft.Config().options.keys()


@pytest.mark.parametrize("name", OPTIONS)
def test_copies_are_equal_and_others_are_not(name: str) -> None:
    config = weft.Config(**{name: OPTIONS[name]})
    for other in (pickle.loads(pickle.dumps(config)), copy.copy(config), eval(repr(config), {"weft": weft})):
        assert other == config and other.options == config.options
    assert config != weft.Config()
    assert config != 3


def test_a_copy_serves() -> None:
    def work(made: weft.Communicator) -> str:
        x = np.ones(4, np.int32)
        made.world.all_reduce(x)
        assert (x == 2).all()
        return made.tuning

    config = pickle.loads(pickle.dumps(weft.Config(device="cpu", small_buffers=True, order_streams=True)))
    assert run_ranks(2, work, config) == ["CPU (measured)"] * 2


def test_ranks_must_agree_on_small_buffers() -> None:
    id = weft.Communicator.create_id()

    def create(rank: int) -> str:
        config = weft.Config(device="cpu", small_buffers=rank == 1, rendezvous_deadline=20)
        with pytest.raises(weft.Error) as error:
            weft.Communicator.from_id(id, rank, 2, config)
        return str(error.value)

    for said in on_each([0, 1], create):
        assert "small_buffers true" in said and "small_buffers false" in said


def test_slot_rows() -> None:
    assert weft.slot_rows_of(5, "aligned", 4) == 8
    assert weft.slot_rows_of(5) == 5
    with pytest.raises(weft.Error):
        weft.slot_rows_of(5, "fixed", 4)
