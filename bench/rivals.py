#!/usr/bin/env python3
"""Times other libraries' dispatch, combine or whole layers with the tokens and experts of a run of weft bench.

Each rival that is installed runs in processes of its own, one for each GPU of this host:

  deepep-ll      DeepEP's low-latency kernels (module deep_ep), up to 128 tokens a rank
  deepep-normal  its normal kernels
  deepep-v2      its ElasticBuffer, rows by expert
  nccl-ep        NCCL EP's low-latency kernels (modules nccl.core and nccl.ep)
  mega-moe       fp8_mega_moe on Hopper, a whole layer (module deep_gemm of sgl-deep-gemm); for moe-layer alone

Nothing is installed or built here. Settings of a rival go through the environment, and the result keeps them:
EP_DISABLE_GIN=1 for DeepEP without InfiniBand; NVSHMEM_DISABLE_NVLS=1 and NCCL_NVLS_ENABLE=0 without multicast. A call
is timed in a CUDA graph if the rival can be captured, else eagerly: median of the samples of the slowest rank.

Examples:
  weft bench moe --tokens 8,128 --tokens-out tokens.json
  python3 bench/rivals.py tokens.json --json columns.json
  weft bench moe --tokens 8,128 --columns columns.json            the columns beside Weft's
  python3 bench/rivals.py layers.json --only mega-moe --json -    of weft bench moe-layer --tokens-out layers.json

Exit code: 0 success, 1 no rival could be measured or a result is wrong, 2 bad usage.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.metadata
import importlib.util
import json
import multiprocessing
import multiprocessing.connection
import os
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import NamedTuple

TOKENS, COLUMNS = "weft-tokens-1", "weft-columns-1"


class Rival(NamedTuple):
    adapter: str  # the module here and its function
    function: str
    modules: tuple[str, ...]  # of the rival
    packages: tuple[str, ...]  # whose version it has


RIVALS = {
    "deepep-ll": Rival("rival_deepep", "low_latency", ("deep_ep",), ("deep_ep", "deep-ep", "sgl-deep-ep")),
    "deepep-normal": Rival("rival_deepep", "normal", ("deep_ep",), ("deep_ep", "deep-ep", "sgl-deep-ep")),
    "deepep-v2": Rival("rival_deepep", "elastic", ("deep_ep",), ("deep_ep", "deep-ep", "sgl-deep-ep")),
    "nccl-ep": Rival("rival_nccl_ep", "low_latency", ("nccl.core", "nccl.ep"), ("nccl-extensions",)),
    "mega-moe": Rival("rival_mega_moe", "layers", ("deep_gemm",), ("sgl-deep-gemm", "deep-gemm")),
}


class UsageError(Exception):
    pass


def digest_of(layers: list) -> str:
    """FNV-1a over the schema's name and all ids, as weft bench makes it."""
    value = 0xCBF29CE484222325
    for number in [*TOKENS.encode(), *(expert for layer in layers for rank in layer for expert in rank["ids"])]:
        value = ((value ^ (number & 0xFFFFFFFF)) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def read_tokens(file: str) -> dict:
    try:
        whole = json.loads(Path(file).read_text())
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{file}: is no JSON") from error
    if not isinstance(whole, dict) or whole.get("schema") != TOKENS:
        raise UsageError(f"{file}: is not a file of weft bench moe or moe-layer --tokens-out")
    for point in whole["points"]:
        if digest_of(point["layers"]) != point["digest"]:
            raise UsageError(f"{file}: {point['tokens']} tokens: the experts are not those that were written")
    return whole


def missing(rival: Rival) -> str:
    for module in ("torch", *rival.modules):
        try:
            found = importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:  # the package around it
            found = False
        if not found:
            return f"module {module} is not installed"
    return ""


def version_of(rival: Rival) -> str:
    for package in rival.packages:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return getattr(importlib.import_module(rival.modules[-1]), "__version__", "unknown")


class Job(NamedTuple):
    name: str
    whole: dict  # the file of tokens
    samples: int
    sms: int
    port: int


def columns_of(ranks, rival: Rival, job: Job) -> dict:
    """Collective: the columns of a rival, on every rank."""
    every = [ranks.tokens(point) for point in job.whole["points"]]
    columns: dict[str, dict] = {}
    for operation in getattr(importlib.import_module(rival.adapter), rival.function)(ranks, every, job.sms):
        point = ranks.timed(operation)
        column = {"rival": operation.column, "version": version_of(rival), "contains": operation.contains, "points": []}
        columns.setdefault(operation.column, column)["points"].append(point)
        if ranks.rank == 0 and sys.stderr.isatty():
            print(f"{operation.column}, {point['tokens']} tokens: {operation.name} {point['us']:.1f} µs", file=sys.stderr)
    return {"machine": ranks.machine(), "columns": list(columns.values())}


def work(rank: int, job: Job, answer) -> None:
    """A rank's process. It ends without destructors: those of several makers may wait for each other."""
    try:
        sys.path.insert(0, str(Path(__file__).parent))
        from rival_ranks import Ranks

        ranks = Ranks(rank, job.whole["of"]["ranks"], job.port, job.whole["of"], job.samples)
        answer.send(columns_of(ranks, RIVALS[job.name], job))
        code = 0
    except BaseException as error:
        if not isinstance(error, ValueError):  # an adapter says with it what the rival cannot do
            traceback.print_exc()
        answer.send({"why": f"rank {rank}: {type(error).__name__}: {str(error).strip()[:300]}"
                     if not isinstance(error, ValueError) else str(error)})  # fmt: skip
        code = 1
    answer.close()
    sys.stderr.flush()
    os._exit(code)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_rival(name: str, whole: dict, args: argparse.Namespace) -> dict:
    """{"machine", "columns"}, or {"why"} there are none."""
    job = Job(name, whole, args.samples, args.sms, free_port())
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe(duplex=False) for _ in range(whole["of"]["ranks"])]
    processes = [context.Process(target=work, args=(rank, job, pipe[1])) for rank, pipe in enumerate(pipes)]
    for process, pipe in zip(processes, pipes, strict=True):
        process.start()
        pipe[1].close()
    end = time.monotonic() + args.deadline
    waiting = {pipe[0]: rank for rank, pipe in enumerate(pipes)}
    answers: dict[int, dict] = {}
    try:
        while waiting and not any("why" in answer for answer in answers.values()):
            ready = multiprocessing.connection.wait(waiting, timeout=max(0.0, end - time.monotonic()))
            if not ready:
                return {"why": f"not done after {args.deadline} s"}
            for pipe in ready:
                rank = waiting.pop(pipe)
                try:
                    answers[rank] = pipe.recv()
                except EOFError:
                    answers[rank] = {"why": f"rank {rank} has ended without an answer"}
    finally:
        for process in processes:
            process.join(5 if len(answers) == len(processes) else 1)
            if process.is_alive():
                process.kill()
                process.join()
    return next((answer for answer in answers.values() if "why" in answer), answers.get(0, {}))


def table(columns: list[dict]) -> str:
    lines = [("rival", "tokens", "operation", "SMs", "µs (10 %…90 %)")]
    for column in columns:
        for p in column["points"]:
            time_of = "WRONG" if p["verdict"] != "ok" else f"{p['us']:.1f} ({p['p10']:.1f}…{p['p90']:.1f})"
            lines.append((column["rival"], str(p["tokens"]), p["operation"], str(p["sms"] or "-"), time_of))
    widths = [max(len(line[i]) for line in lines) for i in range(5)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)


def measure(whole: dict, args: argparse.Namespace) -> dict:
    columns: list[dict] = []
    skipped: list[dict] = []
    machine: dict = {}
    for name in args.only or RIVALS:
        why = missing(RIVALS[name])
        result = {"why": why} if why else run_rival(name, whole, args)
        if "why" in result:
            skipped.append({"rival": name, "why": result["why"]})
            print(f"rivals: {name} skipped: {result['why']}", file=sys.stderr)
            continue
        machine = result["machine"]
        columns += result["columns"]
    return {
        "schema": COLUMNS,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "arguments": sys.argv[1:],
        "of": whole["of"],
        "model": whole["model"],
        "gpu": machine.get("gpu", ""),
        "machine": machine,
        "columns": columns,
        "skipped": skipped,
    }


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="rivals.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tokens", help="the file of weft bench moe or moe-layer --tokens-out")
    parser.add_argument("--json", help="write the columns, raw samples included, to this file (-: stdout)")
    parser.add_argument("--only", help="rivals to run, with commas (default: all that are installed)")
    parser.add_argument("--sms", type=int, default=0, help="SMs of a rival that has such a knob (0: its own choice)")
    parser.add_argument("--samples", type=int, default=15, help="timed samples of each point")
    parser.add_argument("--deadline", type=float, default=600, help="seconds that a rival may take")
    args = parser.parse_args(arguments)
    if args.only is not None:
        args.only = args.only.split(",")
        for name in args.only:
            if name not in RIVALS:
                parser.error(f'--only: "{name}" must be one of {", ".join(RIVALS)}')
    if args.samples < 1 or args.sms < 0 or args.deadline <= 0:
        parser.error("--samples, --sms and --deadline must be positive")
    return args


def main(arguments: list[str] | None = None) -> int:
    args = parse(arguments)
    try:
        whole = read_tokens(args.tokens)
    except UsageError as error:
        print(f"rivals: {error}", file=sys.stderr)
        return 2
    result = measure(whole, args)
    if not result["columns"]:
        print("rivals: no rival could be measured", file=sys.stderr)
        return 1
    text = json.dumps(result, indent=1) + "\n"
    if args.json == "-":
        print(text, end="")
    else:
        print(table(result["columns"]))
        if args.json:
            Path(args.json).write_text(text)
    right = all(point["verdict"] == "ok" for column in result["columns"] for point in column["points"])
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
