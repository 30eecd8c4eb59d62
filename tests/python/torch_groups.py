"""Communicators of process groups of torch.distributed, in processes."""

from __future__ import annotations

import json
import os
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import weft
import weft.torch
from processes import Outcome, free_port, run_programs
from torch_cases import NAMES, Case, bits

SECONDS = 60.0  # of the groups
NO_DEVICE = "device is 'tpu'; it must be one of automatic, cpu, cuda"
# A group of Gloo has GPUs as well, and its ranks would work there.
on_cpu = {"device": "cpu"} if torch.cuda.is_available() else {}


def run_case(name: str, size: int, meeting: Path) -> list[Any]:
    """The JSON that each rank of a case prints."""
    arguments = [str(Path(__file__).resolve()), name, str(size), f"file://{meeting}"]
    # torch's compiler takes its time, too, when a machine is busy.
    outcomes: list[Outcome] = run_programs(arguments, [{"RANK": str(rank)} for rank in range(size)], seconds=300)
    for outcome in outcomes:
        assert outcome.code == 0, outcome.errors
    return [json.loads(outcome.output.splitlines()[-1]) for outcome in outcomes]


def test_ranks_keep_the_groups_order_and_its_timeout(tmp_path: Path) -> None:
    said = run_case("whole", 3, tmp_path / "meeting")
    options = {"deadline": SECONDS, "rendezvous_deadline": SECONDS, "device": "cpu"}
    assert said == [{"rank": rank, "size": 3, "sum": 6.0, "options": options} for rank in range(3)]


def test_a_part_of_the_ranks(tmp_path: Path) -> None:
    said = run_case("part", 3, tmp_path / "meeting")
    assert said == [None, [0, 2, 5.0], [1, 2, 5.0]]


def test_options_win_over_the_timeout(tmp_path: Path) -> None:
    assert run_case("options", 2, tmp_path / "meeting") == [["timeout", 1], None]


def test_a_host_that_is_none_is_told_to_all(tmp_path: Path) -> None:
    for said in run_case("host", 2, tmp_path / "meeting"):
        assert said.startswith("the group's first rank could not make an id: "), said


def test_a_rank_that_cannot_take_part_is_told_to_all(tmp_path: Path) -> None:
    assert run_case("refuses", 2, tmp_path / "meeting") == ["rank 1 of the group: " + NO_DEVICE] * 2


def test_compiled_equals_eager_between_ranks(tmp_path: Path) -> None:
    """Every operator, in graphs without a break."""
    assert run_case("compiled", 2, tmp_path / "meeting") == [[], []]


def test_torchrun_runs_the_example() -> None:
    """The program itself, as the example says: other tests give ranks the variables that it gives."""
    example = Path(__file__).parents[2] / "examples" / "all_reduce.py"
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "4", "--master-port", str(free_port())]
    [(code, output, errors)] = run_programs([*launcher, str(example)], [{}], seconds=300)
    assert code == 0, errors
    # Ranks share the pipe, and may write the ends of their lines later.
    assert sorted(re.findall("rank . of 4: every sum is 10", output)) == [f"rank {n} of 4: every sum is 10" for n in range(4)]


def whole(rank: int) -> object:
    with mock.patch.object(weft, "Config", wraps=weft.Config) as config:
        made = weft.torch.communicator(**on_cpu)
    x = torch.full((1,), float(rank + 1))
    weft.torch.Group(made.world).all_reduce_(x)
    return {"rank": made.rank, "size": made.size, "sum": x.item(), "options": config.call_args.kwargs}


def part(rank: int) -> object:
    group = dist.new_group([1, 2], timeout=timedelta(seconds=SECONDS))
    if rank == 0:
        return None
    made = weft.torch.communicator(group, small_buffers=True, **on_cpu)
    x = torch.full((1,), float(rank + 1))
    weft.torch.Group(made.world).all_reduce_(x)
    return [made.rank, made.size, x.item()]


def options(rank: int) -> object:
    made = weft.torch.communicator(deadline=0.2, **on_cpu)
    if rank == 1:
        dist.barrier()
        return None
    try:
        made.world.all_reduce(torch.ones(3))
    except weft.Error as late:
        dist.barrier()
        return [late.code.name, late.peer]
    return "it came to an end"


def host(rank: int) -> object:
    try:
        weft.torch.communicator(host="no.such.host.invalid", **on_cpu)
    except RuntimeError as error:
        return str(error)
    return "it was made"


def refuses(rank: int) -> object:
    try:
        weft.torch.communicator(device="tpu" if rank == 1 else "cpu")
    except RuntimeError as error:
        return str(error)
    return "it was made"


def compiled(rank: int) -> object:
    case = Case(weft.torch.Group(weft.torch.communicator(**on_cpu).world))
    case.exchanged()
    different = []
    for name in NAMES:
        call = getattr(case, name)
        eager = [bits(tensor) for tensor in call()]
        for backend in ("aot_eager", "inductor"):
            again = torch.compile(call, fullgraph=True, backend=backend)
            if [bits(tensor) for tensor in again()] != eager:
                different.append(f"{name} by {backend}")
    return different


if __name__ == "__main__":
    case, world, meeting = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    own = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method=meeting, rank=own, world_size=world, timeout=timedelta(seconds=SECONDS))
    result = {"whole": whole, "part": part, "options": options, "host": host, "refuses": refuses, "compiled": compiled}[case](own)
    print(json.dumps(result))
    dist.barrier()
    dist.destroy_process_group()
