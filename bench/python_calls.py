"""What a call from Python costs the host: an all_reduce of 8 f32, a world of one, and what else a call could be made of.

    python3 bench/python_calls.py [--device cuda]

For each way to call: the best of 400 batches, in µs a call from entry to return. On GPUs kernels are only enqueued, 100
at a time, so that the queue does not fill up. The first row is the library's own call, through ctypes and the C
interface; ctypes with two arguments alone is a row of its own. torch's rows need torch.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import weft

if TYPE_CHECKING:
    import torch

Calls = dict[str, Callable[[], object]]


def best_of(call: Callable[[], object], wait: Callable[[], object]) -> float:
    best = 1e9
    for _ in range(400):
        begin = time.perf_counter()
        for _ in range(100):
            call()
        best = min(best, (time.perf_counter() - begin) / 100 * 1e6)
        wait()
    return best


class Config(ctypes.Structure):  # weft_config, as short as it may be
    _fields_ = (
        ("size", ctypes.c_size_t),
        *((name, ctypes.c_int32) for name in ("device", "cuda_device")),
        *((name, ctypes.c_int64) for name in ("deadline_ns", "rendezvous_deadline_ns")),
    )


class AllReduceArgs(ctypes.Structure):  # weft_all_reduce_args
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("count", ctypes.c_size_t),
        *((name, ctypes.c_int32) for name in ("type", "op", "algorithm", "tag")),
        ("stream", ctypes.c_void_p),
        *((name, ctypes.c_int32) for name in ("blocks", "threads")),
    )


def of_c(device: str, memory: int, stream: int) -> Calls:
    """A world of its own, as Python's objects give no handle of C."""
    library = ctypes.CDLL(str(Path(weft.__file__).parent / "libweft.so"))

    def done(code: int) -> None:
        if code:
            raise RuntimeError(f"code {code} of weft/c/error.h")

    config, args = Config(), AllReduceArgs()
    done(library.weft_config_init(ctypes.byref(config), ctypes.c_size_t(ctypes.sizeof(config))))
    config.device = ("automatic", "cpu", "cuda").index(device)
    communicator, world = ctypes.c_void_p(), ctypes.c_void_p()
    done(library.weft_communicator_local(1, ctypes.byref(config), ctypes.byref(communicator)))
    done(library.weft_communicator_world(communicator, ctypes.byref(world)))
    done(library.weft_all_reduce_args_init(ctypes.byref(args), ctypes.c_size_t(ctypes.sizeof(args))))
    args.input = args.output = memory
    args.count, args.type, args.stream = 8, 2, stream  # WEFT_F32
    call, reference, two = library.weft_all_reduce, ctypes.byref(args), library.weft_data_type_name
    done(call(world, reference))
    return {"weft_all_reduce, by ctypes": lambda: call(world, reference), "ctypes, two arguments": lambda: two(world, reference)}


def of_numpy(world: weft.Group) -> Calls:
    import numpy as np

    array = np.zeros(8, np.float32)
    return {"weft.Group.all_reduce, NumPy": lambda: world.all_reduce(array)}


def of_torch(world: weft.Group, x: torch.Tensor) -> Calls:
    import torch
    from weft.torch import Group

    group = Group(world)
    operator = torch.ops.weft.all_reduce_.default
    stream = torch.cuda.current_stream() if x.is_cuda else None
    view = weft.Tensor(x)
    calls: Calls = {
        "weft.Group.all_reduce, a weft.Tensor": lambda: world.all_reduce(view, stream=stream),
        "weft.Group.all_reduce, torch's tensor": lambda: world.all_reduce(x, stream=stream),
        "weft.torch.Group.all_reduce_": lambda: group.all_reduce_(x),
        "weft.torch.Group.all_reduce_ with a tag": lambda: group.all_reduce_(x, tag=1),
        "torch.ops.weft.all_reduce_": lambda: operator(x, group.number, 0),
    }
    if stream is not None:
        address = stream.cuda_stream
        calls["weft.Group.all_reduce, a weft.Tensor, the stream's address"] = lambda: world.all_reduce(
            view, stream=address
        )
    return calls


def parts(x: torch.Tensor) -> Calls:
    """Calls of which a binding of torch's tensors may be made."""
    import torch

    process = ctypes.CDLL(None)
    one, three = process.abs, process.memcmp
    three.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
    address = x.data_ptr() if not x.is_cuda else id(x)
    same = torch.ops.aten.is_same_size.default
    return {
        "torch's is_same_size, an operator of C++": lambda: same(x, x),
        "torch's zero_, as a method": x.zero_,
        "torch's empty_like": lambda: torch.empty_like(x),
        "data_ptr()": x.data_ptr,
        "numel()": x.numel,
        "dtype": lambda: x.dtype,
        "__dlpack__()": x.__dlpack__,
        "_to_dlpack()": lambda: torch._C._to_dlpack(x),  # type: ignore[attr-defined]
        "ctypes, one argument": lambda: one(1),
        "ctypes, three arguments": lambda: three(address, address, 0),
    }


def operators_of_python(x: torch.Tensor) -> Calls:
    """Operators that do nothing."""
    import torch

    def nothing(x: torch.Tensor, group: int, options: int) -> None:
        return None

    schema = "(Tensor(a!) x, int group, int options) -> ()"
    library = torch.library.Library("weft_bench", "DEF")  # its operators live as long as it does
    library.define(f"nothing{schema}")
    library.impl("nothing", nothing, "CompositeExplicitAutograd")
    custom = torch.library.custom_op("weft_bench::custom", nothing, mutates_args=["x"], schema=schema)
    defined = torch.ops.weft_bench.nothing.default
    return {
        "Library.define and impl, a kernel of Python": lambda keeps=library: defined(x, 0, 0),
        "torch.library.custom_op": lambda: custom(x, 0, 0),
    }


def collectives_of_torch(x: torch.Tensor) -> Calls:
    """Of a process group of Python that does nothing."""
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional

    class Done(dist._Work):
        def wait(self, timeout: Any = None) -> bool:
            return True

    class Nothing(dist.ProcessGroup):
        def allreduce(self, tensors: Any, options: Any) -> dist._Work:
            return Done()

        def _set_group_name(self, name: str) -> None:  # of its backends, and it has none
            self.own_name = name

        @property
        def group_name(self) -> str:
            return self.own_name

    dist.Backend.register_backend(
        "nothing", lambda store, rank, size, timeout: Nothing(rank, size), devices=["cpu", "cuda"]
    )
    dist.init_process_group("nothing", store=dist.HashStore(), rank=0, world_size=1)
    group = dist.group.WORLD
    return {
        "dist.all_reduce, a process group of Python": lambda: dist.all_reduce(x),
        "a functional all_reduce and its wait": lambda: functional.wait_tensor(functional.all_reduce(x, "sum", group)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures what a call from Python costs the host.")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    device = parser.parse_args().device
    world = weft.Communicator.local(1, weft.Config(device=device))[0].world
    calls: Calls = {}
    wait: Callable[[], object] = lambda: None  # noqa: E731
    if device == "cpu":
        memory = (ctypes.c_float * 8)()
        calls |= of_c(device, ctypes.addressof(memory), 0) | of_numpy(world)
    if importlib.util.find_spec("torch") is not None:
        import torch

        x = torch.zeros(8, device=device)
        if device == "cuda":
            wait = torch.cuda.synchronize
            calls |= of_c(device, x.data_ptr(), torch.cuda.current_stream().cuda_stream)
        for more in (of_torch(world, x), parts(x), operators_of_python(x), collectives_of_torch(x)):
            calls |= more
    for name, call in calls.items():
        call()
        print(f"{best_of(call, wait):6.2f} µs  {name}")


if __name__ == "__main__":
    main()
