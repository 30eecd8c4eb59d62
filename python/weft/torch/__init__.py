"""Weft's operations as operators of torch: eager, under torch.compile and under CUDA graphs.

    import torch
    import weft.torch

    group = weft.torch.Group(weft.torch.communicator().world)  # of torch.distributed's default group
    group.all_reduce_(x)                     # in place
    y = group.all_reduce(x)                  # a new tensor

Operators are torch.ops.weft.…, defined through torch's stable C interface (torch 2.10 and later), for tensors on CPUs
and GPUs. On GPUs a call is on torch's current stream, so nothing has to be kept or recorded for the allocator: memory
that a call uses is reused behind it. Fakes tell shapes, so torch.compile(fullgraph=True) traces them.

Weft has no gradients: a tensor that requires one is refused while gradients are enabled.
"""

from weft.torch._communicator import communicator
from weft.torch.exchange import Exchange, symmetric_tensor
from weft.torch._counts import Counts
from weft.torch.group import Group
from weft.torch.layer import ExpertGemm, MoeLayer, SharedExpert

__all__ = [
    "Counts",
    "Exchange",
    "ExpertGemm",
    "Group",
    "MoeLayer",
    "SharedExpert",
    "communicator",
    "symmetric_tensor",
]
