"""Weft: communication for LLM inference, on GPUs and CPUs.

Ranks are processes of torchrun, mpirun or srun, or threads of one process:

    import numpy as np
    import weft

    world = weft.Communicator.from_environment(weft.Config(device="cpu")).world
    x = np.full(8192, world.rank + 1, np.float32)
    world.all_reduce(x)

Tensors are anything with DLPack, the CUDA array interface or the buffer protocol: NumPy on CPU ranks, torch or CuPy on
GPUs. Errors are weft.Error, with code, rank, peer and operation. Importing touches no GPU.
"""

from weft._core import (
    Communicator,
    Config,
    Counts,
    DispatchHandle,
    Errc,
    Exchange,
    ExpertGemm,
    Fp8Output,
    GatheredCounts,
    Group,
    MoeLayer,
    ParallelLayout,
    Recording,
    SharedExpert,
    SymmetricMemory,
    Tensor,
    read_host_counts,
    shard_counts,
    shard_of,
    slot_rows_of,
    slots_of,
    use_nccl,
    version,
)
from weft._program import nccl_of_environment, run, tune, verify
from weft._records import CallRecord, Error, ExchangeMemory, Fault, HostCount, MemoryUse, RowRange
from weft._words import (
    Algorithm,
    DataType,
    Device,
    Fp8Scaling,
    LayerSchedule,
    Overflow,
    Padding,
    ReduceOp,
    RowCast,
    RowLayout,
    RowPath,
    RowType,
    ScaleOrder,
    ScaleType,
    Sharding,
)

__version__ = version()

__all__ = [
    "Algorithm",
    "CallRecord",
    "Communicator",
    "Config",
    "Counts",
    "DataType",
    "Device",
    "DispatchHandle",
    "Errc",
    "Error",
    "Exchange",
    "ExchangeMemory",
    "ExpertGemm",
    "Fault",
    "Fp8Output",
    "Fp8Scaling",
    "GatheredCounts",
    "Group",
    "HostCount",
    "LayerSchedule",
    "MemoryUse",
    "MoeLayer",
    "Overflow",
    "Padding",
    "ParallelLayout",
    "Recording",
    "ReduceOp",
    "RowCast",
    "RowLayout",
    "RowPath",
    "RowRange",
    "RowType",
    "ScaleOrder",
    "ScaleType",
    "Sharding",
    "SharedExpert",
    "SymmetricMemory",
    "Tensor",
    "__version__",
    "read_host_counts",
    "run",
    "shard_counts",
    "shard_of",
    "slot_rows_of",
    "slots_of",
    "tune",
    "use_nccl",
    "verify",
    "version",
]

if library := nccl_of_environment():
    use_nccl(library)  # a copy that the process has is still preferred
del library, nccl_of_environment
