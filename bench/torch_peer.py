#!/usr/bin/env python3
"""Times PyTorch's all-reduce: NCCL through torch.distributed, and symmetric memory's one-shot and two-shot kernels.

The method is `weft bench`'s method "graph": a CUDA graph of 20 operations, the second of two back-to-back replays between
CUDA events, the median of the samples, the maximum over ranks. The result of the last timed replay is verified.

  python3 bench/torch_peer.py --json torch.json                   all GPUs, vLLM's sizes
  python3 bench/torch_peer.py --world-size 2 --bytes 16K,64K,1M --json torch.json
  weft bench all-reduce --torch-json torch.json                   shows the times as columns beside Weft's
"""

import argparse
import datetime
import json
import os
import socket
import statistics
import sys

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import torch.multiprocessing as mp

OPERATIONS = 20  # per graph
HIDDEN = 8192
ROWS = [1, 4, 8, 16, 32, 64, 96, 128, 192, 256, 512, 1024, 2048, 3062, 4096]
CONTENDERS = ["torch NCCL", "torch one-shot", "torch two-shot"]


def parse_bytes(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    scale = units.get(text[-1:].upper(), 1)
    return int(float(text[:-1] if scale > 1 else text) * scale)


def pattern(count, rank, device):
    """-1, 0 or 1, a function of the element and the rank: sums of eight such numbers, and sums of these sums, are exact in bf16."""
    index = torch.arange(count, dtype=torch.int64, device=device)
    return ((index * 2654435761 + rank * 40503) >> 7) % 3 - 1


class Contender:
    """One way to all-reduce `count` elements. If it works in place, every operation of a replay sums the sums again."""

    def __init__(self, name, count, symmetric, device):
        self.name = name
        self.in_place = name != "torch one-shot"
        if name == "torch NCCL":
            self.input = torch.empty(count, dtype=torch.bfloat16, device=device)
        else:
            self.input = symmetric[:count]
        self.output = self.input
        self.group_name = dist.group.WORLD.group_name

    def __call__(self):
        if self.name == "torch NCCL":
            dist.all_reduce(self.input)
        elif self.name == "torch one-shot":
            self.output = torch.ops.symm_mem.one_shot_all_reduce(self.input, "sum", self.group_name)
        else:
            torch.ops.symm_mem.two_shot_all_reduce_(self.input, "sum", self.group_name)


def meet():
    dist.barrier()
    torch.cuda.synchronize()


def is_correct(contender, world_size, device):
    """Whether the output is right after two replays on a fresh input."""
    count = contender.input.numel()
    total = sum(pattern(count, rank, device) for rank in range(world_size)).double()
    if contender.in_place:
        total *= float(world_size) ** (2 * OPERATIONS - 1)
    exact = not contender.in_place or world_size & (world_size - 1) == 0
    tolerance = 0.0 if exact else 2 * OPERATIONS * 2**-8
    difference = (contender.output.double() - total).abs()
    return bool((difference <= tolerance * total.abs()).all())


def measure(contender, rank, world_size, samples, device):
    stream = torch.cuda.Stream()
    contender.input.copy_(pattern(contender.input.numel(), rank, device))
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(3):
            contender()
    torch.cuda.synchronize()
    meet()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(OPERATIONS):
            contender()
    meet()
    times = []
    for _ in range(samples):
        contender.input.copy_(pattern(contender.input.numel(), rank, device))
        if not contender.in_place:
            contender.output.fill_(float("nan"))
        torch.cuda.synchronize()
        meet()
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        graph.replay()
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / OPERATIONS)
    correct = is_correct(contender, world_size, device)
    meet()
    return times, correct


def gather(value, world_size):
    values = [None] * world_size
    dist.all_gather_object(values, value)
    return values


def worker(rank, world_size, port, sizes, args):
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    dist.init_process_group(
        "nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size, device_id=device
    )
    symmetric = symm_mem.empty(max(sizes) // 2, dtype=torch.bfloat16, device=device)
    symm_mem.rendezvous(symmetric, dist.group.WORLD.group_name)
    points = []
    for size in sizes:
        for name in CONTENDERS:
            if name == "torch one-shot" and size > args.one_shot_limit:
                continue
            try:
                times, correct = measure(Contender(name, size // 2, symmetric, device), rank, world_size, args.samples, device)
            except RuntimeError as error:  # all ranks reject a size that a kernel does not take
                if rank == 0:
                    print(f"{name}, {size} bytes: {str(error).splitlines()[0]}", file=sys.stderr)
                continue
            gathered = gather((times, correct), world_size)
            point = {
                "bytes": size,
                "contender": name,
                "us": max(statistics.median(t) for t, _ in gathered),
                "correct": all(c for _, c in gathered),
                "samples_us": [t for t, _ in gathered],
            }
            points.append(point)
            if rank == 0:
                verdict = "" if point["correct"] else "  WRONG"
                print(f"{size:>10}  {name:<15}  {point['us']:8.2f} us{verdict}", file=sys.stderr, flush=True)
    if rank == 0:
        report = {
            "schema": "weft-torch-1",
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "arguments": sys.argv[1:],
            "world_size": world_size,
            "gpu": torch.cuda.get_device_name(0),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            "multicast_disabled": os.environ.get("TORCH_SYMM_MEM_DISABLE_MULTICAST", ""),
            "method": "graph",
            "points": points,
        }
        with open(args.json, "w") as file:
            json.dump(report, file, indent=1)
            file.write("\n")
    wrong = not all(p["correct"] for p in points)
    dist.destroy_process_group()
    if wrong:
        sys.exit(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world-size", type=int, default=0, help="GPUs to use (default: all)")
    parser.add_argument("--bytes", default="", help="sizes, \"16K,64K,1.5M\" (default: vLLM's rows of 8192)")
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--one-shot-limit", type=parse_bytes, default=16 << 20, help="largest size of one-shot")
    parser.add_argument("--json", required=True, help="file to write")
    args = parser.parse_args()
    world_size = args.world_size or torch.cuda.device_count()
    if not 2 <= world_size <= min(8, torch.cuda.device_count()):
        parser.error(f"needs 2 to 8 GPUs of the {torch.cuda.device_count()} here, got {world_size}")
    sizes = [parse_bytes(s) for s in args.bytes.split(",")] if args.bytes else [r * HIDDEN * 2 for r in ROWS]
    with socket.socket() as probe:  # a free port for the ranks to meet at
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(worker, args=(world_size, port, sizes, args), nprocs=world_size)


if __name__ == "__main__":
    main()
