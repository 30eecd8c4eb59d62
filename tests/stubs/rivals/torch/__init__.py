"""As much of torch as bench/rivals.py asks for, on lists of numbers, so that it runs without torch and GPUs.

A captured graph does nothing when it is replayed. FAKE_GPUS says how many GPUs there are."""

import contextlib
import math
import os
import random
import time
from types import SimpleNamespace

__version__ = "0.0-fake"
version = SimpleNamespace(cuda="0.0")
float32, bfloat16, float8_e4m3fn, int32, int64 = "float32", "bfloat16", "float8_e4m3fn", "int32", "int64"
dtype = str
capturing = False


def device(kind, index):
    return f"{kind}:{index}"


class Tensor:
    def __init__(self, data, shape, dtype):
        self.data, self.shape, self.dtype = data, tuple(shape), dtype
        assert len(data) == math.prod(self.shape), (len(data), shape)

    def like(self, data, shape=None):
        return Tensor(data, self.shape if shape is None else shape, self.dtype)

    def to(self, dtype):
        return Tensor(list(self.data), self.shape, dtype)

    def float(self):
        return self.to(float32)

    def rows(self):
        width = math.prod(self.shape[1:])
        return [self.data[i : i + width] for i in range(0, len(self.data), width)]

    def __getitem__(self, at):
        rows, width = self.rows(), self.shape[1:]
        if isinstance(at, int):
            return self.like(rows[at], width)
        return self.like(sum(rows[at], []), (len(rows[at]), *width))

    def paired(self, other):
        if not isinstance(other, Tensor):
            return [other] * len(self.data)
        if other.shape == self.shape:
            return other.data
        assert other.shape == (self.shape[0], 1), (self.shape, other.shape)
        return [value for value in other.data for _ in range(self.shape[1])]

    def __add__(self, other):
        return self.like([a + b for a, b in zip(self.data, self.paired(other), strict=True)])

    def __sub__(self, other):
        return self.like([a - b for a, b in zip(self.data, self.paired(other), strict=True)])

    def __mul__(self, other):
        return self.like([a * b for a, b in zip(self.data, self.paired(other), strict=True)])

    def __truediv__(self, other):
        return self.like([a / b for a, b in zip(self.data, self.paired(other), strict=True)])

    def __neg__(self):
        return self * -1

    def __matmul__(self, vector):
        return self.like([sum(a * b for a, b in zip(row, vector.data, strict=True)) for row in self.rows()], self.shape[:1])

    def exp(self):
        return self.like([math.exp(a) for a in self.data])

    def norm(self):
        return math.sqrt(sum(a * a for a in self.data))

    def sum(self, dim, keepdim):
        assert dim == 1 and keepdim and len(self.shape) == 2
        return self.like([sum(row) for row in self.rows()], (self.shape[0], 1))

    def tolist(self):
        return self.data if len(self.shape) == 1 else [list(row) for row in self.rows()]


def tensor(values, dtype, device):
    flat = [number for row in values for number in row]
    return Tensor(flat, (len(values), len(values[0])), dtype)


def full(shape, value, dtype, device):
    return Tensor([value] * math.prod(shape), shape, dtype)


def empty(shape, dtype, device):
    return full(shape, math.nan, dtype, device)


def ones(shape, dtype, device):
    return full(shape, 1.0, dtype, device)


def stack(tensors):
    return tensors[0].like(sum((one.data for one in tensors), []), (len(tensors), *tensors[0].shape))


def manual_seed(seed):
    random.seed(seed)


def randn(shape, dtype, device):
    return Tensor([random.gauss(0, 1) for _ in range(math.prod(shape))], shape, dtype)


class Event:
    def __init__(self, enable_timing):
        self.at = 0.0

    def record(self):
        self.at = time.perf_counter()

    def elapsed_time(self, end):
        return (end.at - self.at) * 1e3


class CUDAGraph:
    def replay(self):
        pass


@contextlib.contextmanager
def captured(graph, stream, capture_error_mode):
    global capturing
    if "FAKE_NO_GRAPH" in os.environ:
        raise RuntimeError("no capture")
    capturing = True
    try:
        yield
    finally:
        capturing = False


cuda = SimpleNamespace(
    set_device=lambda rank: None,
    device_count=lambda: int(os.environ.get("FAKE_GPUS", "2")),
    synchronize=lambda: None,
    Stream=lambda: None,
    stream=lambda stream: contextlib.nullcontext(),
    current_stream=lambda: SimpleNamespace(cuda_stream=7),
    Event=Event,
    CUDAGraph=CUDAGraph,
    graph=captured,
    get_device_name=lambda rank: "",
    get_device_properties=lambda rank: SimpleNamespace(multi_processor_count=4),
    nccl=SimpleNamespace(version=lambda: (0, 0, 1)),
)
