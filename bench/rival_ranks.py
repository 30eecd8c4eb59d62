"""One rank of a rival's run: its process group, its tensors, and the time of an operation. For bench/rivals.py."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

OPERATIONS = 20  # of a graph, as weft bench has


@dataclass
class Tokens:
    """A number of tokens of this rank: rows, and the choices of each layer, [tokens, top_k] each."""

    count: int
    digest: str
    layers: list  # of every rank: [layer][rank] {"ids", "weights"}
    x: torch.Tensor
    ids: list[torch.Tensor]
    weights: list[torch.Tensor]


@dataclass
class Operation:
    """A rival's work on some tokens. `calls` take turns, one of each layer."""

    column: str
    contains: str  # what the column contains and what it leaves out
    tokens: Tokens
    name: str  # dispatch, combine, both or layer
    calls: list[Callable[[], object]]
    wrong: str = ""  # how its result differs
    sms: int = 0  # 0: the rival's affair


def blocks_of(ids: list[int], top_k: int) -> list[list[int]]:
    return [ids[i : i + top_k] for i in range(0, len(ids), top_k)]


class Ranks:
    def __init__(self, rank: int, size: int, port: int, of: dict, samples: int) -> None:
        self.rank, self.size, self.of, self.samples = rank, size, of, samples
        if torch.cuda.device_count() < size:
            raise ValueError(f"the tokens are of {size} ranks, and here are {torch.cuda.device_count()} GPUs")
        torch.cuda.set_device(rank)
        self.device = torch.device("cuda", rank)
        dist.init_process_group(
            "nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size, device_id=self.device
        )
        self.group = dist.group.WORLD
        self.stream = torch.cuda.Stream()

    @property
    def local_experts(self) -> int:
        return self.of["experts"] // self.size

    @property
    def fp8(self) -> bool:
        return self.of["dispatched"].startswith("fp8")

    def tokens(self, point: dict) -> Tokens:
        count, top_k = point["tokens"], self.of["top_k"]
        mine = [layer[self.rank] for layer in point["layers"]]
        torch.manual_seed(1000 * count + self.rank)
        return Tokens(
            count=count,
            digest=point["digest"],
            layers=point["layers"],
            x=torch.randn((count, self.of["hidden"]), dtype=torch.bfloat16, device=self.device),
            ids=[self.tensor(blocks_of(layer["ids"], top_k), torch.int64) for layer in mine],
            weights=[self.tensor(blocks_of(layer["weights"], top_k), torch.float32) for layer in mine],
        )

    def tensor(self, values: list, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=self.device)

    def ready_rows(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Rows for a rival that casts none: e4m3 with scales of 1, or as they are."""
        if not self.fp8:
            return x
        shape = (x.shape[0], x.shape[1] // 128)
        return x.to(torch.float8_e4m3fn), torch.ones(shape, dtype=torch.float32, device=self.device)

    def rows_of_experts(self, tokens: Tokens, layer: int) -> list[int]:
        """The number of rows of each expert of this rank."""
        first = self.rank * self.local_experts
        every = [expert for rank in tokens.layers[layer] for expert in rank["ids"]]
        return [every.count(first + expert) for expert in range(self.local_experts)]

    def copies(self, tokens: Tokens, layer: int) -> torch.Tensor:
        """The number of ranks to which each token goes, [tokens, 1]."""
        chosen = blocks_of(tokens.layers[layer][self.rank]["ids"], self.of["top_k"])
        return self.tensor([[len({expert // self.local_experts for expert in one})] for one in chosen], torch.float32)

    def gathered(self, value: object) -> list:
        values = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def meet(self) -> None:
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()

    def agreed(self, why: str) -> str:
        """The first rank's reason; empty if no rank has one."""
        return next((f"rank {rank}: {text}" for rank, text in enumerate(self.gathered(why)) if text), "")

    def repeated(self, calls: list) -> Callable[[], None]:
        count = -(-OPERATIONS // len(calls)) * len(calls)

        def run() -> None:
            for i in range(count):
                calls[i % len(calls)]()

        run.count = count
        return run

    def captured(self, run: Callable[[], None]) -> Callable[[], None] | None:
        """Replays a graph of the calls; None if any rank could not capture them."""
        graph, why = torch.cuda.CUDAGraph(), ""
        try:
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                run()
        except Exception as error:  # what a rival throws is its own affair
            why = str(error)[:200] or type(error).__name__
        return None if self.agreed(why) else graph.replay

    def timed(self, operation: Operation) -> dict:
        """A point of a column: µs of a call, [rank][sample]. The second of two rounds counts, as in weft bench."""
        run = self.repeated(operation.calls)
        with torch.cuda.stream(self.stream):
            for call in operation.calls:
                call()
            self.meet()
            replay = self.captured(run)
            again = replay or run
            samples = []
            for _ in range(self.samples):
                self.meet()
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                again()
                begin.record()
                again()
                end.record()
                torch.cuda.synchronize()
                samples.append(begin.elapsed_time(end) * 1e3 / run.count)
            self.meet()
        wrong = self.agreed(operation.wrong)
        return {
            "tokens": operation.tokens.count,
            "digest": operation.tokens.digest,
            "operation": operation.name,
            "method": "graph" if replay else "batch",
            "sms": operation.sms,
            "verdict": "wrong" if wrong else "ok",
            **({"detail": wrong} if wrong else {}),
            **figures(self.gathered(samples)),
        }

    def machine(self) -> dict:
        properties = torch.cuda.get_device_properties(self.rank)
        return {
            "gpu": torch.cuda.get_device_name(self.rank),
            "sms": properties.multi_processor_count,
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            "settings": {k: v for k, v in sorted(os.environ.items()) if k.startswith(("NCCL_", "NVSHMEM_", "EP_"))},
        }


def figures(samples: list[list[float]]) -> dict:
    """Median, and the 10th and 90th percentiles, of the rank whose median is greatest."""
    slowest = sorted(max(samples, key=statistics.median))
    at = [slowest[round(part * (len(slowest) - 1))] for part in (0.1, 0.9)]
    return {"us": statistics.median(slowest), "p10": at[0], "p90": at[1], "samples_us": samples}


def difference(got: torch.Tensor, want: torch.Tensor, most: float) -> str:
    """Empty if two tensors differ by no more than such a part of their size."""
    off = float((got.float() - want.float()).norm() / want.float().norm())
    return "" if off <= most else f"differs from the expected sum by {off:.3g} of its size, more than {most}"
