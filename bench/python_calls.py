"""What a call from Python costs the host: an all_reduce of 8 f32, a world of one.

    python3 bench/python_calls.py [--device cuda]

For each way to call: the best of seven times, in µs, of many calls from entry to return. On GPUs kernels are only
enqueued, 500 at a time, so that the queue does not fill up. `weft bench host` measures the same from C++.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable

import weft


def best_of(call: Callable[[], object], wait: Callable[[], object]) -> float:
    best = 1e9
    for _ in range(7):
        seconds = 0.0
        for _ in range(20):
            begin = time.perf_counter()
            for _ in range(500):
                call()
            seconds += time.perf_counter() - begin
            wait()
        best = min(best, seconds / 20 / 500 * 1e6)
    return best


def ways(device: str) -> tuple[dict[str, Callable[[], object]], Callable[[], object]]:
    world = weft.Communicator.local(1, weft.Config(device=device))[0].world
    calls: dict[str, Callable[[], object]] = {}
    stream = None
    wait: Callable[[], object] = lambda: None  # noqa: E731
    if importlib.util.find_spec("torch") is not None:
        import torch
        from weft.torch import Group

        x = torch.zeros(8, device=device)
        group = Group(world)
        if device == "cuda":
            stream, wait = torch.cuda.current_stream(), torch.cuda.synchronize
        operator = torch.ops.weft.all_reduce_.default
        calls["torch: zero_, an operator of its own"] = x.zero_
        calls["torch.ops.weft.all_reduce_"] = lambda: operator(x, group.number, 0)
        calls["weft.torch.Group.all_reduce_"] = lambda: group.all_reduce_(x)
        calls["weft.Group.all_reduce, torch's tensor"] = lambda: world.all_reduce(x, stream=stream)
        view = weft.Tensor(x)
        calls["weft.Group.all_reduce, a weft.Tensor"] = lambda: world.all_reduce(view, stream=stream)
        if stream is not None:
            address = stream.cuda_stream
            calls["weft.Group.all_reduce, a weft.Tensor, the stream's address"] = lambda: world.all_reduce(
                view, stream=address
            )
    if device == "cpu":
        import numpy as np

        array = np.zeros(8, np.float32)
        calls["weft.Group.all_reduce, NumPy"] = lambda: world.all_reduce(array)
    return calls, wait


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures what a call from Python costs the host.")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    device = parser.parse_args().device
    calls, wait = ways(device)
    for name, call in calls.items():
        call()
        print(f"{best_of(call, wait):6.2f} µs  {name}")


if __name__ == "__main__":
    main()
