"""Communicators of the ranks of a process group of torch.distributed."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import weft


def timeout_of(process_group: dist.ProcessGroup) -> float:
    """Seconds after which torch gives up a call of the group. 0: it has none that is known."""
    device = process_group._device_types[0]
    timeout = getattr(getattr(process_group._get_backend(device), "options", None), "_timeout", None)
    return float(timeout.total_seconds()) if timeout is not None else 0.0


def _config_of(process_group: dist.ProcessGroup, options: dict[str, Any]) -> weft.Config:
    timeout = timeout_of(process_group)
    on_gpu = torch.cuda.is_available() and any(device.type == "cuda" for device in process_group._device_types)
    chosen = {"deadline": timeout, "rendezvous_deadline": timeout, "device": "cuda" if on_gpu else "cpu", **options}
    if chosen["device"] == "cuda" and on_gpu:
        chosen.setdefault("cuda_device", torch.cuda.current_device())
    return weft.Config(**chosen)


def _network() -> tuple[str, int]:
    """Equal for processes that reach each other at 127.0.0.1. Names of containers may be equal on different hosts."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return boot, os.stat("/proc/self/ns/net").st_ino


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

    Raises RuntimeError on every rank, with the reason, if one of them cannot take part.
    """
    group = dist.group.WORLD if process_group is None else process_group
    if group is None:
        raise RuntimeError("torch.distributed has no default group: call init_process_group() first, or pass a group")
    rank, size = group.rank(), group.size()
    # Nobody waits for a rank that gave up: each says so before the others begin.
    config, mine, refused = None, None, None
    try:
        config, mine = _config_of(group, options), (_network(), socket.gethostname())
    except Exception as error:  # noqa: BLE001
        refused = f"rank {rank} of the group: {error}"
    said: list[Any] = [None] * size
    dist.all_gather_object(said, (mine, refused), group=group)
    made: list[Any] = [None, next((reason for _, reason in said if reason is not None), None)]
    if rank == 0 and made[1] is None:
        one_machine = len({where[0] for where, _ in said}) == 1
        try:
            made[0] = weft.Communicator.create_id(host or ("127.0.0.1" if one_machine else said[0][0][1]))
        except Exception as error:  # noqa: BLE001
            made[1] = f"the group's first rank could not make an id: {error}"
    dist.broadcast_object_list(made, src=dist.get_global_rank(group, 0), group=group)
    if made[1] is not None or config is None:
        raise RuntimeError(made[1])
    return weft.Communicator.from_id(made[0], rank, size, config)
