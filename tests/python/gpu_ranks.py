"""What the tests of torch on GPUs share: ranks as threads, each with its GPU and stream, and what sums must be."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import weft
from ranks import run_ranks

# Streams of ranks that share a GPU must not wait for each other in one hardware queue. CUDA reads the variable when it
# starts. A value from outside wins. Nor must a kernel be loaded at its first launch, which waits for those that run.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")

GPUS = torch.cuda.device_count()
RANKS = max(2, GPUS)
CONFIG = weft.Config(device="cuda", deadline=20, rendezvous_deadline=60)


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
