"""Communicators of the ranks of a process group of torch.distributed."""

from __future__ import annotations

import socket
from typing import Any

import torch
import torch.distributed as dist

import weft


def _device_of(process_group: dist.ProcessGroup) -> torch.device:
    """Where the group works: a GPU if this process has one, and the group has a backend for it."""
    on_gpu = torch.cuda.is_available() and any(device.type == "cuda" for device in process_group._device_types)
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


def timeout_of(process_group: dist.ProcessGroup) -> float:
    """Seconds after which torch gives up a call of the group. 0: it has none that is known."""
    options = getattr(process_group._get_backend(_device_of(process_group)), "options", None)
    timeout = getattr(options, "_timeout", None)
    return float(timeout.total_seconds()) if timeout is not None else 0.0


def communicator(
    process_group: dist.ProcessGroup | None = None, *, host: str | None = None, **options: Any
) -> weft.Communicator:
    """A communicator of the ranks of a process group, whose order they keep. All of them call it.

    process_group: as torch.distributed takes it; None: the default one. It is used for the meeting alone, and may be
        destroyed afterwards.
    host: the name or address of the group's first rank that all others reach. None: 127.0.0.1 if all ranks are on one
        machine, otherwise the name of that rank's machine.
    options: those of weft.Config. Without `deadline` and `rendezvous_deadline` they are the group's timeout, so that
        Weft waits as long as torch does. Without `device` and `cuda_device` the ranks work where the group does: on
        the current GPU if there is one and the group has a backend for it, else on the CPU.
    """
    group = dist.group.WORLD if process_group is None else process_group
    if group is None:
        raise RuntimeError("torch.distributed has no default group: call init_process_group() first, or pass a group")
    timeout, device = timeout_of(group), _device_of(group)
    options = {"deadline": timeout, "rendezvous_deadline": timeout, "device": device.type, **options}
    if options["device"] == "cuda" and device.index is not None:
        options.setdefault("cuda_device", device.index)
    rank, size = group.rank(), group.size()
    machines: list[Any] = [None] * size
    dist.all_gather_object(machines, socket.gethostname(), group=group)
    made: list[Any] = [None, None]  # the id, or why there is none: nobody waits for a rank that gave up
    if rank == 0:
        try:
            made[0] = weft.Communicator.create_id(host or ("127.0.0.1" if len(set(machines)) == 1 else machines[0]))
        except Exception as error:  # noqa: BLE001
            made[1] = str(error)
    dist.broadcast_object_list(made, src=dist.get_global_rank(group, 0), group=group)
    if made[1] is not None:
        raise RuntimeError(f"the group's first rank could not make an id: {made[1]}")
    return weft.Communicator.from_id(made[0], rank, size, weft.Config(**options))
