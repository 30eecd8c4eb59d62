"""Ranks as processes: how they meet, how errors travel between them, and how the others see a death."""

from __future__ import annotations

import multiprocessing
import re
import shutil
import signal
import textwrap
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
import weft
from processes import CONFIG, SECONDS, end, expect_sums, run_program, run_programs, torchrun_variables

SPAWN = multiprocessing.get_context("spawn")


# ---------------------------------------------------------------------------------------------------------- launchers

WORKER = """
    import numpy as np, os, weft
    made = weft.Communicator.from_environment(weft.Config(device="cpu", rendezvous_deadline=25))
    for count in (1, 700, 50_000):
        x = np.full(count, made.rank + 1, np.float32)
        made.world.all_reduce(x)
        assert (x == made.size * (made.size + 1) / 2).all()
    half = made.split(made.rank % 2)
    y = np.zeros(half.size, np.int32)
    half.all_gather_into_tensor(y, np.array([made.rank], np.int32))
    assert y.tolist() == half.members == list(range(made.rank % 2, made.size, 2))
    print(os.environ.get("RANK"), made.rank, made.size)
"""


@pytest.mark.parametrize("size", [1, 2, 5])
def test_ranks_of_torchrun_meet(size: int) -> None:
    outcomes = run_programs(["-c", textwrap.dedent(WORKER)], torchrun_variables(size))
    assert outcomes == [(0, f"{rank} {rank} {size}\n", "") for rank in range(size)]


def test_no_launcher_is_a_world_of_one() -> None:
    assert run_program(["-c", textwrap.dedent(WORKER)]) == (0, "None 0 1\n", "")


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
def test_a_missing_variable_is_named(name: str) -> None:
    variables = torchrun_variables(2)[1]
    del variables[name]
    program = f"""
        import weft
        try:
            weft.Communicator.from_environment(weft.Config(device="cpu"))
        except weft.Error as error:
            assert error.code == weft.Errc.rendezvous and "{name}" in str(error), repr(error)
        else:
            raise AssertionError("the ranks met")
    """
    assert run_program(["-c", textwrap.dedent(program)], variables) == (0, "", "")


# ---------------------------------------------------------------------------------------------------------- spawn


class Spawned:
    """Ranks as processes that multiprocessing spawns. Rank 0 makes the id, and the test passes it on."""

    def __init__(self, size: int, work: Callable[[weft.Communicator, Connection], None]) -> None:
        self.processes, self.pipes = [], []
        for rank in range(size):
            mine, its = SPAWN.Pipe()
            self.processes.append(SPAWN.Process(target=live_as_a_rank, args=(rank, size, work, its), daemon=True))
            self.pipes.append(mine)
            self.processes[rank].start()
            its.close()  # the end of the process shall end the test's wait
        id = self.told_by(0)
        for pipe in self.pipes[1:]:
            pipe.send(id)

    def told_by(self, rank: int) -> object:
        assert self.pipes[rank].poll(SECONDS), f"rank {rank} says nothing"
        return self.pipes[rank].recv()


def live_as_a_rank(
    rank: int, size: int, work: Callable[[weft.Communicator, Connection], None], parent: Connection
) -> None:
    id = weft.Communicator.create_id() if rank == 0 else parent.recv()
    if rank == 0:
        parent.send(id)
    work(weft.Communicator.from_id(id, rank, size, CONFIG), parent)


def tell_sums(made: weft.Communicator, parent: Connection) -> None:
    for _ in range(20):
        expect_sums(made.world)
    parent.send((made.rank, made.size))


def test_spawned_ranks_meet_by_an_id_while_their_parent_has_ranks_of_its_own() -> None:
    own = weft.Communicator.local(1, CONFIG)[0]
    ranks = Spawned(3, tell_sums)
    assert [ranks.told_by(rank) for rank in range(3)] == [(0, 3), (1, 3), (2, 3)]
    for process in ranks.processes:
        end(process)
    expect_sums(own.world)


def fail_and_tell(made: weft.Communicator, parent: Connection) -> None:
    try:
        made.world.all_reduce(np.zeros(8, np.float32), op="max" if made.rank == 1 else "sum", tag=3)
    except weft.Error as error:
        parent.send((error, str(error)))
    parent.recv()  # so that no rank can die before the other has told


def test_an_error_travels_to_another_process() -> None:
    ranks = Spawned(2, fail_and_tell)
    told = [ranks.told_by(rank) for rank in range(2)]
    codes = set()
    for rank, error_and_text in enumerate(told):
        assert isinstance(error_and_text, tuple)
        error, text = error_and_text
        calls = [f"all_reduce {op} f32[8] one-shot tag 3" for op in ("sum", "max")]
        assert type(error) is weft.Error
        assert type(error.fault) is weft.Fault
        assert str(error) == text
        assert error.rank == error.fault.rank == rank
        assert error.operation == calls[rank]
        assert error.operation in text
        codes.add(error.code)
        if error.code is weft.Errc.mismatch:
            assert error.peer == 1 - rank
            assert error.fault.theirs == calls[1 - rank]
    assert weft.Errc.mismatch in codes
    for pipe, process in zip(ranks.pipes, ranks.processes):
        pipe.send("end")
        end(process)


# ---------------------------------------------------------------------------------------------------------- import


def test_importing_loads_no_module_that_takes_long() -> None:
    """An import takes 0.2 s at most. Each of these would take a tenth of it or more on a slow disk."""
    heavy = {
        "torch", "cupy", "jax", "numpy", "multiprocessing", "asyncio", "concurrent.futures", "ctypes", "dataclasses",
        "email", "http", "importlib.metadata", "inspect", "json", "logging", "socket", "ssl", "tempfile", "unittest",
    }  # fmt: skip
    program = f"""
        import sys
        before = set(sys.modules)  # what the interpreter's own start has loaded
        import weft
        assert not {heavy} & (sys.modules.keys() - before), {heavy} & (sys.modules.keys() - before)
    """
    assert run_program(["-c", textwrap.dedent(program)]) == (0, "", "")


def test_importing_loads_no_driver_and_no_framework(tmp_path: Path) -> None:
    """Libraries with the drivers' names are in reach, so that looking for them succeeds on any machine."""
    [library] = set(re.findall(r"/\S+/libm[.-]\S+", Path("/proc/self/maps").read_text()))
    for name in ("libcuda.so.1", "libcuda.so", "libnccl.so.2", "libnccl.so", "libnvidia-ml.so.1"):
        shutil.copy(library, tmp_path / name)
    program = """
        import ctypes, re
        def foreign():
            return set(re.findall(r"lib(?:cuda|nccl|nvidia|torch)", open("/proc/self/maps").read()))
        import weft
        assert not foreign(), foreign()
        ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnccl.so.2")
        assert foreign() == {"libcuda", "libnccl"}  # they could have been found
    """
    variables = {"LD_LIBRARY_PATH": str(tmp_path)}
    assert run_program(["-c", textwrap.dedent(program)], variables) == (0, "", "")


# ---------------------------------------------------------------------------------------------------------- deaths


def work_until_a_fault(made: weft.Communicator, parent: Connection) -> None:
    expect_sums(made.world)
    parent.send("working")
    with pytest.raises(weft.Error) as caught:
        while True:
            expect_sums(made.world, 3000)
    with pytest.raises(weft.Error) as again:  # a failed communicator stays failed
        made.world.barrier()
    assert again.value.fault == caught.value.fault == made.status()
    parent.send(caught.value)


@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_rank_is_named_by_the_others(victim: int) -> None:
    ranks = Spawned(3, work_until_a_fault)
    assert [ranks.told_by(rank) for rank in range(3)] == ["working"] * 3
    ranks.processes[victim].kill()
    errors = [ranks.told_by(rank) for rank in range(3) if rank != victim]
    for rank, process in enumerate(ranks.processes):
        end(process, -signal.SIGKILL if rank == victim else 0)
    codes = set()
    for error in errors:
        assert isinstance(error, weft.Error)
        assert error.peer == victim
        assert "all_reduce sum i32[3000]" in error.operation
        if error.code is weft.Errc.peer_failed:  # another survivor has found it, and told
            assert error.fault.reported is weft.Errc.peer_died
            assert error.fault.reporter not in (victim, error.rank)
        codes.add(error.code)
    assert weft.Errc.peer_died in codes
    assert codes <= {weft.Errc.peer_died, weft.Errc.peer_failed}
