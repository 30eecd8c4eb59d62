"""weft and weft.torch on GPUs: the bits of CPU ranks, graphs, streams, the allocator, processes, sleep and faults.

`./dev test --gpu` runs this where Python has torch with CUDA. It needs the standard library's unittest alone. Run as a
program with a name, it is one rank of a test of processes.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import unittest
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import processes
import torch
import weft
import weft.torch
from processes import run_programs, torchrun_variables
from ranks import run_ranks
from torch_cases import NAMES, Case, bits

GPUS = torch.cuda.device_count()
RANKS = max(2, GPUS)
CONFIG = weft.Config(device="cuda", deadline=20, rendezvous_deadline=60)
processes.SECONDS = 200.0  # torch takes long to load and to compile


@contextmanager
def on_gpu(made: weft.Communicator) -> Iterator[str]:
    """A stream of this rank's own, since ranks that share a GPU must not wait in one queue."""
    with torch.cuda.device(made.cuda_device), torch.cuda.stream(torch.cuda.Stream()):
        yield f"cuda:{made.cuda_device}"
        torch.cuda.current_stream().synchronize()


def on_ranks(work: Callable[[weft.Communicator, str], Any], config: weft.Config = CONFIG) -> list[Any]:
    """Runs `work` on every rank, as threads, each with its GPU and stream."""

    def run(made: weft.Communicator) -> Any:
        with on_gpu(made) as device:
            return work(made, device)

    return run_ranks(RANKS, run, config)


def expect_equal(tensor: torch.Tensor, value: float) -> None:
    wrong = int((tensor != value).sum())
    assert wrong == 0, f"{wrong} of {tensor.numel()} elements are not {value}: {tensor}"


def sum_of(value: float) -> float:
    """The sum over ranks of value + rank."""
    return RANKS * value + RANKS * (RANKS - 1) / 2


class Threads(unittest.TestCase):
    """Ranks as threads of one process."""

    def test_operators_have_the_bits_of_cpu_ranks(self) -> None:
        for name in NAMES:
            with self.subTest(name):

                def calls(made: weft.Communicator, device: str) -> list[bytes]:
                    return [bits(x) for x in getattr(Case(weft.torch.Group(made.world), device), name)()]

                on_cpus = run_ranks(RANKS, lambda made: calls(made, "cpu"))  # noqa: B023
                self.assertEqual(on_ranks(calls), on_cpus)

    def test_streams_and_tensors_that_a_method_takes(self) -> None:
        """Torch's stream, its address, an object with the protocol of cuda.core; DLPack and CUDA's array interface."""

        class Protocol:
            def __init__(self, stream: torch.cuda.Stream) -> None:
                self.address = stream.cuda_stream

            def __cuda_stream__(self) -> tuple[int, int]:
                return 0, self.address

        class Interface:
            def __init__(self, tensor: torch.Tensor) -> None:
                self.tensor, self.__cuda_array_interface__ = tensor, tensor.__cuda_array_interface__

        def work(made: weft.Communicator, device: str) -> None:
            stream = torch.cuda.current_stream()
            for form in (stream, stream.cuda_stream, Protocol(stream)):
                x = torch.full((1000,), made.rank + 1.0, device=device)
                y = torch.empty(1000, device=device)
                made.world.all_reduce(Interface(y), x, stream=form)
                expect_equal(y, sum_of(1))
                made.world.all_reduce(weft.Tensor.at(y.data_ptr(), [1000], "f32", "cuda"), stream=form)
                expect_equal(y, RANKS * sum_of(1))
            made.check()
            with self.assertRaisesRegex(weft.Error, "on cpu, but the group's ranks work on cuda"):
                made.world.all_reduce(torch.zeros(3))

        on_ranks(work)

    def test_streams_that_events_order(self) -> None:
        """Calls of one group alternate between two streams, each behind the other's."""

        def work(made: weft.Communicator, device: str) -> None:
            group = weft.torch.Group(made.world)
            streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
            x = torch.zeros(4096, device=device)
            for turn in range(200):
                mine, other = streams[turn % 2], streams[1 - turn % 2]
                mine.wait_stream(other)
                with torch.cuda.stream(mine):
                    x.fill_(made.rank + turn)
                    group.all_reduce_(x)
                    x.sub_(sum_of(turn)).abs_()
                    if turn == 0:
                        worst = x.max()
                    worst = torch.maximum(worst, x.max())
            streams[0].wait_stream(streams[1])
            self.assertEqual(float(worst), 0)
            made.check()

        on_ranks(work)

    def test_groups_on_two_streams_at_once(self) -> None:
        def work(made: weft.Communicator, device: str) -> None:
            groups = [weft.torch.Group(made.world), weft.torch.Group(made.split(0))]  # type: ignore[arg-type]
            streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
            xs = [torch.zeros(20000, device=device) for _ in groups]
            wrong = torch.zeros(2, device=device)
            streams[1].wait_stream(streams[0])
            for turn in range(200):
                for index, group in enumerate(groups):
                    with torch.cuda.stream(streams[index]):
                        xs[index].fill_(made.rank + turn + index)
                        group.all_reduce_(xs[index])
                        wrong[index] += (xs[index] != sum_of(turn + index)).sum()
            streams[0].wait_stream(streams[1])
            self.assertEqual(wrong.tolist(), [0, 0])
            made.check()

        on_ranks(work)

    def test_memory_that_the_allocator_uses_again(self) -> None:
        """Tensors die right behind their calls, while the GPU is far behind the host. Others take their memory."""

        def work(made: weft.Communicator, device: str) -> None:
            group = weft.torch.Group(made.world)
            wrong = torch.zeros((), device=device)
            for turn in range(400):
                count = 1000 + turn % 7 * 50000
                sums = group.all_reduce(torch.full((count,), float(made.rank + turn), device=device))
                torch.full((count,), -7.0, device=device)  # where the input was
                gathered = torch.empty(RANKS * count, device=device)
                group.all_gather_into_tensor(gathered, torch.full((count,), float(turn), device=device))
                torch.full((count,), -8.0, device=device)
                wrong += (sums != sum_of(turn)).sum() + (gathered != turn).sum()
            self.assertEqual(float(wrong), 0)
            made.check()

        on_ranks(work)

    def test_symmetric_memory_as_tensors(self) -> None:
        def work(made: weft.Communicator, device: str) -> None:
            group = weft.torch.Group(made.world)
            memory = weft.SymmetricMemory.allocate(made, 32 << 20)
            output = weft.torch.symmetric_tensor(memory, [RANKS * 1024, 1024], torch.bfloat16, 4096)
            self.assertEqual(str(output.device), device)
            for turn in range(3):
                group.all_gather_into_tensor(
                    output, torch.full((1024, 1024), made.rank + turn, dtype=torch.bfloat16, device=device)
                )
                for rank in range(RANKS):
                    expect_equal(output[1024 * rank : 1024 * (rank + 1)], rank + turn)
            torch.cuda.current_stream().synchronize()
            made.world.barrier(stream=torch.cuda.current_stream())
            torch.cuda.current_stream().synchronize()
            del output
            memory.free()

        on_ranks(work)

    def test_sleep_and_wake(self) -> None:
        def work(made: weft.Communicator, device: str) -> None:
            group = weft.torch.Group(made.world)
            x = torch.full((1000,), made.rank + 1.0, device=device)
            expect_equal(group.all_reduce(x), sum_of(1))
            taken = torch.cuda.mem_get_info()[0]
            made.release()
            if GPUS >= RANKS:  # else the other rank's share moves, too
                self.assertGreater(torch.cuda.mem_get_info()[0] - taken, 100 << 20)
            with self.assertRaises(weft.Error) as asleep:
                group.all_reduce_(x)
            self.assertEqual(asleep.exception.code, weft.Errc.released)
            made.acquire()
            expect_equal(group.all_reduce(x), sum_of(1))
            made.check()

        on_ranks(work)


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
    """torch.compile, whole graphs, by two backends; the default one only for a sum between other operators."""
    group = weft.torch.Group(made.world)
    for name in NAMES:
        case = Case(group, device)
        case.exchanged()
        call: Callable[[], list[torch.Tensor]] = getattr(case, name)
        eager = [bits(x) for x in call()]
        assert [bits(x) for x in torch.compile(call, fullgraph=True, backend="aot_eager")()] == eager, name

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
