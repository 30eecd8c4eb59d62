"""weft and weft.torch on GPUs: the bits of CPU ranks, streams, the allocator, counts on the host, sleep.

`./dev test --gpu` runs this where Python has torch with CUDA. It needs the standard library's unittest alone.
"""

from __future__ import annotations

import unittest

import torch
import weft
import weft.torch
from gpu_ranks import GPUS, RANKS, expect_equal, on_ranks, sum_of
from ranks import run_ranks
from torch_cases import NAMES, Case, bits
from torch_checks import ALONE, DEFINED, HALVES, MESSAGES, check_half, check_message, check_whole_calls, checked
from torch_layer_cases import SCHEDULES, Layer


class Operators(unittest.TestCase):
    """torch.library.opcheck on every operator."""

    def test_opcheck(self) -> None:
        for check, names in ((check_whole_calls, ALONE), (check_half, HALVES), (check_message, MESSAGES)):
            for name in names:
                with self.subTest(name):
                    check(name, "cuda")
        self.assertEqual(checked, DEFINED)


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

    def test_streams_that_weft_orders(self) -> None:
        """The caller orders nothing: tensors are of one stream each, calls of the group are on both."""

        def work(made: weft.Communicator, device: str) -> None:
            group = weft.torch.Group(made.world)
            streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
            xs = [torch.zeros(count, device=device) for count in (1000, 300000)]
            wrong = [torch.zeros((), device=device) for _ in xs]
            streams[1].wait_stream(streams[0])
            for turn in range(200):
                with torch.cuda.stream(streams[turn % 2]):
                    x = xs[turn % 2]
                    x.fill_(made.rank + turn)
                    group.all_reduce_(x)
                    wrong[turn % 2] += (x != sum_of(turn)).sum()
            torch.cuda.synchronize()
            self.assertEqual([float(each) for each in wrong], [0, 0])
            made.check()

        on_ranks(work, weft.Config(device="cuda", deadline=20, order_streams=True, small_buffers=True, max_groups=0))

    @unittest.skipIf(GPUS < 2, "torch captures one graph at a time on a GPU")
    def test_counts_as_lists(self) -> None:
        """Calls are enqueued far ahead of the GPU, each with another list. A graph keeps the lists of its capture."""

        def work(made: weft.Communicator, device: str) -> None:
            group = weft.torch.Group(made.world)
            capacity, turns = 64, 40
            rows = [[(turn * 7 + rank * 5) % capacity for rank in range(RANKS)] for turn in range(turns)]
            inputs = [torch.full((capacity, 16), float(made.rank + turn), device=device) for turn in range(turns)]
            expected = torch.full((turns, RANKS * capacity, 16), -1.0)
            for turn, counts in enumerate(rows):
                ends = [sum(counts[: rank + 1]) for rank in range(RANKS)]
                for rank, (n, end) in enumerate(zip(counts, ends)):
                    expected[turn, end - n : end] = rank + turn
            expected = expected.to(device)
            outputs = torch.empty_like(expected)

            def gather_all() -> None:
                outputs.fill_(-1)
                for turn, counts in enumerate(rows):
                    group.all_gather_v(outputs[turn], inputs[turn], weft.torch.Counts(counts))

            gather_all()
            self.assertTrue(torch.equal(outputs, expected))
            graph = torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, stream=torch.cuda.Stream(), capture_error_mode="thread_local"):
                gather_all()
            for _ in range(3):
                group.all_gather_v(outputs[0], inputs[0], weft.torch.Counts([1] * RANKS))
                graph.replay()
                self.assertTrue(torch.equal(outputs, expected))

            on_device = torch.tensor([3] * RANKS, dtype=torch.int32, device=device)
            for counts in ([3] * RANKS, on_device, on_device.cpu()):
                output = torch.empty(3, 16, device=device)
                many = torch.full((3 * RANKS, 16), made.rank + 1.0, device=device)
                group.reduce_scatter_v(output, many, weft.torch.Counts(counts))
                expect_equal(output, sum_of(1))
            made.check()

        on_ranks(work)

    @unittest.skipIf(GPUS < 2, "ranks that share a GPU have no room for two groups at once")
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

    def test_layers(self) -> None:
        """Every schedule has the bits of dispatch and combine, eager and in a graph whose rows change."""

        def work(made: weft.Communicator, device: str) -> None:
            layer = Layer(weft.torch.Group(made.world), device)
            # Ranks that share a GPU must not have several streams, which may wait in one queue.
            apart = GPUS >= RANKS
            ways = [(*way, shared) for way in SCHEDULES for shared in (False, True)] if apart else [(*SCHEDULES[0], False)]
            for schedule, rounds, shared in ways:
                expected = layer.expected()
                self.assertTrue(torch.equal(layer.run(schedule, rounds, shared=shared), expected), schedule)
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, stream=torch.cuda.Stream(), capture_error_mode="thread_local"):
                    result = layer.run(schedule, rounds, shared=shared)
                for _ in range(3):
                    layer.case.tokens.add_(1)
                    expected = layer.expected()
                    graph.replay()
                    self.assertTrue(torch.equal(result, expected), schedule)
            made.check()

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


if __name__ == "__main__":
    unittest.main()
