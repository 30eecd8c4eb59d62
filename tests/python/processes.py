"""Programs of Python as children of the test, and what tests of several files do."""

from __future__ import annotations

import multiprocessing.process
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
import weft

T = TypeVar("T")
U = TypeVar("U")

# Deadlines lie far away: only a test that fails waits for them.
CONFIG = weft.Config(device="cpu", deadline=25, rendezvous_deadline=25)
SECONDS = 60.0

LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "WEFT_")


class Outcome(NamedTuple):
    """The end of a program; a signal has a negative code."""

    code: int
    output: str
    errors: str


def free_port() -> int:
    """A port of the loopback address that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def without_launcher() -> dict[str, str]:
    """This process's variables without those of any launcher."""
    return {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}


def torchrun_variables(size: int) -> list[dict[str, str]]:
    """The variables by which torchrun tells each rank its place. Ranks meet a thousand ports past MASTER_PORT, so that port is the free one."""
    port = str(free_port() - 1000)
    shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [{"RANK": str(rank), "LOCAL_RANK": str(rank), **shared} for rank in range(size)]


def run_programs(
    arguments: Sequence[str], variables: Sequence[Mapping[str, str]], seconds: float = SECONDS
) -> list[Outcome]:
    """Runs `python arguments` once for each set of variables, side by side. Kills all if one takes too long."""
    programs = [
        subprocess.Popen(
            [sys.executable, "-B", *arguments],
            env={**without_launcher(), **own},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for own in variables
    ]
    outcomes = []
    try:
        for program in programs:
            output, errors = program.communicate(timeout=seconds)
            outcomes.append(Outcome(program.returncode, output, errors))
    finally:
        for program in programs:
            program.kill()
            program.wait()
            for pipe in (program.stdout, program.stderr):
                if pipe is not None:
                    pipe.close()
    return outcomes


def run_program(arguments: Sequence[str], variables: Mapping[str, str] | None = None) -> Outcome:
    """Runs `python arguments` alone."""
    return run_programs(arguments, [variables or {}])[0]


def end(process: multiprocessing.process.BaseProcess, code: int = 0) -> None:
    """Waits for a child of multiprocessing. A child that hangs is killed, and fails the test."""
    process.join(SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
    assert process.exitcode == code


def expect_sums(group: weft.Group, count: int = 100) -> None:
    """Makes a call, which must give the right sums."""
    x = np.arange(count, dtype=np.int32) + group.rank
    group.all_reduce(x)
    assert (x == group.size * np.arange(count) + sum(range(group.size))).all()


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits until another thread or process has done something, but not for ever."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.001)


def on_each(items: list[T], work: Callable[[T], U]) -> list[U]:
    """The results of `work` for each item, in a thread of its own."""
    with ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(work, items))
