"""weft.torch with a process for each GPU: graphs, torch.compile, what a process sees, a killed rank, torch's NCCL.

`./dev test --gpu` runs this where Python has torch with CUDA. Run as a program with a name, it is one rank of a test.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import processes
import torch
import weft
import weft.torch
from gpu_ranks import CONFIG, GPUS, RANKS, expect_equal, sum_of
from processes import run_programs, torchrun_variables
from torch_cases import NAMES, Case, bits

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "moe_layer.py"
processes.SECONDS = 200.0  # torch takes long to load and to compile


def captured(body: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """A graph of `body`, which is first made once."""
    body()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    return graph


def program_graphs(made: weft.Communicator, device: str) -> None:
    """Graphs mixed with eager calls of the same group. The program ends while they live."""
    group = weft.torch.Group(made.world)
    case = Case(group, device)
    x, y = torch.zeros(5000, device=device), torch.zeros(RANKS * 5000, device=device)
    made_rows: list[torch.Tensor] = []

    def body() -> None:
        sums = group.all_reduce(x)
        group.all_gather_into_tensor(y, sums)
        made_rows[:] = case.dispatch_and_combine()

    graph = captured(body)
    expected = None
    for turn in range(20):
        x.fill_(made.rank + turn)
        graph.replay()
        expect_equal(y, sum_of(turn))
        eager = [bits(z) for z in case.dispatch_and_combine()]
        assert [bits(z) for z in made_rows] == eager
        assert expected in (None, eager)
        expected = eager
        expect_equal(group.all_reduce(x), sum_of(turn))
    made.check()
    globals()["kept"] = graph, made  # exit with a live graph


def program_compiled(made: weft.Communicator, device: str) -> None:
    """torch.compile, whole graphs, by two backends; a sum between other operators in a graph of CUDA, too."""
    group = weft.torch.Group(made.world)
    first = Case(group, device)
    for name in NAMES:
        case = Case(group, device)
        case.share_exchange_of(first)
        call: Callable[[], list[torch.Tensor]] = getattr(case, name)
        eager = [bits(x) for x in call()]
        for backend in ("aot_eager", "inductor"):
            compiled = torch.compile(call, fullgraph=True, backend=backend)
            assert [bits(x) for x in compiled()] == eager, (name, backend)

    def layer(x: torch.Tensor) -> torch.Tensor:
        return group.all_reduce(x * 2 + 1).relu() * 0.5

    x = torch.arange(4096.0, device=device) - 2000 + made.rank
    inductor = torch.compile(layer, fullgraph=True)
    assert bits(inductor(x)) == bits(layer(x))
    graphed = torch.compile(layer, fullgraph=True, mode="reduce-overhead")
    for _ in range(5):
        assert bits(graphed(x)) == bits(layer(x))
    made.check()


def program_visible(made: weft.Communicator, device: str) -> None:
    """Each process sees its own GPU alone, under number 0."""
    assert torch.cuda.device_count() == 1 and device == "cuda:0"
    x = torch.full((1 << 20,), made.rank + 1.0, device=device)
    weft.torch.Group(made.world).all_reduce_(x)
    expect_equal(x, sum_of(1))


def program_killed(made: weft.Communicator, device: str) -> None:
    """The last rank is killed between two calls. The others learn its name while they wait for it."""
    group = weft.torch.Group(made.world)
    x = torch.ones(1000, device=device)
    group.all_reduce_(x)
    torch.cuda.synchronize()
    if made.rank == RANKS - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        group.all_reduce_(x)  # waits on the GPU, while the host asks who has died
        end = time.monotonic() + 15
        while time.monotonic() < end:
            made.check()
    except weft.Error as error:
        assert error.code is weft.Errc.peer_died, error
        assert error.peer == RANKS - 1, error
        print("named")


def program_from_nccl(_: None, device: str) -> None:
    """Ranks of torch.distributed. The process has one NCCL afterwards."""
    torch.distributed.init_process_group("nccl", device_id=torch.device(device))
    x = torch.full((1000,), torch.distributed.get_rank() + 1.0, device=device)
    torch.distributed.all_reduce(x)
    backend: Any = torch.distributed.group.WORLD._get_backend(torch.device(device))  # type: ignore[union-attr]
    made = weft.Communicator.from_nccl(backend._comm_ptr(), CONFIG)
    group = weft.torch.Group(made.world)
    for turn in range(10):
        mine = torch.full((1000,), float(made.rank + turn), device=device)
        theirs = mine.clone()
        group.all_reduce_(mine)
        torch.distributed.all_reduce(theirs)
        assert bits(mine) == bits(theirs)
        expect_equal(mine, sum_of(turn))
    made.check()
    with open("/proc/self/maps") as maps:
        copies = {line.split()[-1] for line in maps if "libnccl" in line}
    assert len(copies) == 1, copies
    print(made.fabric)
    del group, made
    torch.distributed.destroy_process_group()


PROGRAMS: dict[str, Callable[[Any, str], None]] = {
    name.removeprefix("program_"): program
    for name, program in list(globals().items())
    if name.startswith("program_")
}


@unittest.skipIf(GPUS < 2, "processes take a GPU each")
class Processes(unittest.TestCase):
    """A process for each rank, as under torchrun."""

    def run_ranks(self, name: str, codes: list[int], change: Callable[[int, dict[str, str]], object] | None = None) -> list[str]:
        variables = torchrun_variables(RANKS)
        for rank, own in enumerate(variables):
            if change is not None:
                change(rank, own)
        outcomes = run_programs([__file__, name], variables)
        for rank, (outcome, code) in enumerate(zip(outcomes, codes)):
            self.assertEqual(outcome.code, code, f"rank {rank}: {outcome.output}{outcome.errors}")
        return [outcome.output + outcome.errors for outcome in outcomes]

    def test_graphs_mixed_with_eager_calls(self) -> None:
        for text in self.run_ranks("graphs", [0] * RANKS):
            self.assertEqual(text, "")

    def test_compiled_equals_eager(self) -> None:
        self.run_ranks("compiled", [0] * RANKS)

    def test_each_process_sees_its_own_gpu_alone(self) -> None:
        def alone(rank: int, own: dict[str, str]) -> None:
            own.update(CUDA_VISIBLE_DEVICES=str(rank), LOCAL_RANK="0")

        self.run_ranks("visible", [0] * RANKS, alone)

    def test_a_killed_rank_is_named(self) -> None:
        texts = self.run_ranks("killed", [0] * (RANKS - 1) + [-signal.SIGKILL])
        for text in texts[:-1]:
            self.assertIn("named", text)

    def test_the_example_of_a_whole_layer(self) -> None:
        for words in (["plain"], ["rounds", "--rounds", "2"]):
            arguments = [str(EXAMPLE), "--experts", str(4 * RANKS), "--schedule", *words]
            for rank, outcome in enumerate(run_programs(arguments, torchrun_variables(RANKS))):
                self.assertEqual(outcome.code, 0, f"rank {rank}: {outcome.output}{outcome.errors}")
                self.assertIn("torch's experts differ by 0.", outcome.output)

    def test_ranks_of_torchs_nccl_with_one_copy_of_it(self) -> None:
        self.run_ranks("from_nccl", [0] * RANKS)


def run_program(name: str) -> None:
    if name == "from_nccl":
        device = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(device)
        PROGRAMS[name](None, f"cuda:{device}")
        return
    made = weft.Communicator.from_environment(CONFIG)
    torch.cuda.set_device(made.cuda_device)
    PROGRAMS[name](made, f"cuda:{made.cuda_device}")


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1] in PROGRAMS:
        run_program(sys.argv[1])
    else:
        unittest.main()
