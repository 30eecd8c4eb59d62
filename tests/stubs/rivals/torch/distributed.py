"""Ranks that meet through files in the temporary folder."""

import os
import pickle
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

group = SimpleNamespace(WORLD="world")


def init_process_group(backend, init_method, rank, world_size, device_id):
    global _folder, _rank, _size, _meetings
    _folder, _rank, _size, _meetings = Path(tempfile.gettempdir()) / init_method.split(":")[-1], rank, world_size, 0
    _folder.mkdir(exist_ok=True)


def get_rank():
    return _rank


def all_gather_object(values, value):
    global _meetings
    _meetings += 1
    part = _folder / f"{_rank}.part"
    part.write_bytes(pickle.dumps(value))
    part.rename(_folder / f"{_meetings}-{_rank}")
    for rank in range(_size):
        file = _folder / f"{_meetings}-{rank}"
        while not file.exists():
            if os.getppid() == 1:
                raise RuntimeError("the parent has ended")
            time.sleep(0.0005)
        values[rank] = pickle.loads(file.read_bytes())


def barrier():
    all_gather_object([None] * _size, None)


def gathered(value):
    values = [None] * _size
    all_gather_object(values, value)
    return values
