"""The kept runs and points that stand in tables, with their methods, and the pairs that are compared.

The newest run counts for each command, kind of GPU, number of ranks and measured thing. Norms, exchanges, gathers,
crossings and logits only count on GPUs, and the host's time everywhere. A run that gives numbers of blocks to Weft counts
once for each. So its times from few processors stand beside the newest times from all of them.
"""

import re
from typing import NamedTuple

from result_text import size_name

COMMANDS = ("bench all-reduce", "bench norm", "bench moe", "bench gather", "bench dp-attention", "bench logits", "bench host")
ANYWHERE = ("bench all-reduce", "bench host")  # commands that count on CPU ranks, too
# Peers by the memory that they take: any, or memory that peers reach.
PLAIN = ("NCCL", "NCCL grouped", "torch NCCL", "NCCL AG/RS", "NCCL A2A", "Gloo ring", "Gloo bcube")
SYMMETRIC = ("NCCL symm.", "NCCL symm. AG/RS", "NCCL symm. A2A", "torch one-shot", "torch two-shot")
# The second has no time of Weft to symmetric memory, so its time to any memory counts.
ANY, MIXED, BOTH = "any memory", "peer's symmetric, Weft's any", "symmetric memory"
NORMS = {"none": "crossings", "same": "crossings with residual and norm", "fp8": "crossings with residual, norm and fp8"}


class Row(NamedTuple):
    """The contenders of one line of a table."""

    operation: str
    how: str  # load, padding; empty if there is one way only
    size: int  # in the unit of its command: bytes, or tokens
    points: dict  # by contender


class Pair(NamedTuple):
    """Weft's point beside the fastest peer that takes such memory."""

    kind: str
    ours: dict
    rival: dict

    def ratio(self):
        return self.rival["us"] / self.ours["us"]


def gpu_of(run):
    """The GPU's name without its maker's, or nothing for CPU ranks."""
    found = re.match(r"\d+ x (.+) \(", run["machine"]) if run["device"] == "cuda" else None
    return found.group(1).removeprefix("NVIDIA ") if found else ""


def blocks_of(run):
    """The blocks that were given to Weft, or 0 if it chose them."""
    return run.get("blocks", 0)


def usual(run):
    """The points on the run's blocks, by any method. Peers are given none, so they stand beside Weft's choice alone."""
    return run["points"] if run["command"] == "bench host" else [p for p in run["points"] if p["blocks"] == blocks_of(run)]


def by_blocks(run):
    """The run, once for each number of blocks that Weft has points of."""
    if run["command"] == "bench host":
        return [run]
    return [run | {"blocks": blocks} for blocks in sorted({p["blocks"] for p in run["points"] if p["contender"] == "automatic"})]


def without_producer(run):
    """The contenders of a run that were measured by `graph`, and not with a producer."""
    by = {method: {p["contender"] for p in usual(run) if p.get("method", "graph") == method}
          for method in ("graph", "producer")}
    return sorted(by["graph"] - by["producer"])


def method_of(run):
    """`producer`, if it was taken of every contender: a ratio has one method on both sides."""
    if run["device"] != "cuda":
        return "batch"
    return "graph" if without_producer(run) else "producer"


def points_of(run):
    if run["command"] == "bench host":
        return run["points"]
    method = method_of(run)
    return [p for p in usual(run) if p.get("method", "graph") == method]


def layout_of(run):
    """(tp, dp) of `weft bench dp-attention`; older reports have them among their arguments alone."""
    if "layout" in run:
        return run["layout"]["tp"], run["layout"]["dp"]
    return run["world_size"], int(option(run, "--dp", "1"))


def norm_of(run):
    return run.get("norm", option(run, "--norm", "none"))


def exchange_words(run):
    """The ways in which an exchange differs from one with weights at dispatch, in one piece, for all processors."""
    rounds = run.get("rounds", 1)
    words = ["scales in columns"] * (run.get("scale_order", "rows") != "rows")
    words += ["unweighted"] if not run.get("weighted", True) else []
    words += ["weights at combine"] if run.get("weights_at_combine", False) else []
    words += [f"{run['capacity']} rows kept"] if run.get("capacity", 0) else []
    words += [f"in {rounds} rounds"] if rounds != 1 else ["sends and waits apart"] if run.get("apart", False) else []
    words += [f"by {run['path']}"] if run.get("path", "automatic") != "automatic" else []
    return words + ([f"made for {run['exchange_blocks']} blocks"] if run.get("exchange_blocks", 0) else [])


def is_usual_exchange(run):
    """Whether an exchange is that of the README: fp8 rows alone to expert slots, bf16 back, and tokens that choose evenly."""
    return (run["routing"], run["dispatched"], run["combined"], run["layout"]) == ("uniform", "fp8", "bf16", "masked") and \
        not run.get("payload_bytes") and not exchange_words(run)


def option(run, name, otherwise):
    given = run["arguments"]
    return given[given.index(name) + 1] if name in given else otherwise


def ranks_of(run):
    ranks = run["world_size"]
    return f"{ranks} × {gpu_of(run)}" if run["device"] == "cuda" else f"{ranks} CPU rank{'s' * (ranks != 1)}"


def source_of(run, machines):
    """The machine, the commit and the day."""
    machine, build = machines[run["machine"]], run["build"]
    commit = build["commit"] + (" with uncommitted changes" if build["dirty"] else "")
    if run["device"] == "cuda":
        parts = [f"{run['world_size']} × {machine['gpus'][0]['name']}", f"driver for CUDA {machine['driver']}",
                 f"NCCL {machine['nccl_runtime']}"]
    else:
        parts = [f"{machine['cpu']}, {machine['cores']} cores"]
    return f"{', '.join(parts)}; commit {commit}, {run['date'][:10]}"


def where_of(run):
    """A few words that tell one run of a command from another."""
    where = (f"{blocks_of(run)} blocks, " if blocks_of(run) else "") + ranks_of(run)
    if run["command"] == "bench moe":
        routing = [f"{run['routing']} routing"] * (run["routing"] != "uniform")
        layout = [f"{run['layout']} layout"] * (run["layout"] != "masked")
        return ", ".join([*routing, *layout, *exchange_words(run), where])
    if run["command"] == "bench moe-layer":
        return f"{run['model']['name']}, a rank of {run['emulated_ep'] or run['world_size']}, {where}"
    if run["command"] == "bench norm":
        return f"hidden {run['points'][0]['hidden']}, {where}"
    if run["command"] == "bench dp-attention":
        tp, dp = layout_of(run)
        more = {"none": "", "same": "norm, ", "fp8": "norm and fp8, "}[norm_of(run)]
        return f"tp {tp}, dp {dp}, {more}{where}"
    return where


def title(run):
    if run["command"] == "bench host":
        return f"Host time of a call, {'one GPU' if run['device'] == 'cuda' else 'one CPU rank'}"
    where = ("by number of blocks, " if blocks_of(run) else "") + ranks_of(run)
    if run["command"] == "bench moe":
        payloads = " + ".join(map(str, run.get("payload_bytes", [])))
        beside = f" with payloads of {payloads} bytes" if payloads else ""
        words = [f"{run['routing']} routing", f"{run['dispatched']} dispatched{beside}", f"{run['layout']} layout",
                 f"{run['combined']} combined", *exchange_words(run), where]
        return f"MoE of {run['model']['name']}: {', '.join(words)}"
    point = run["points"][0]
    if run["command"] == "bench norm":
        return f"All-reduce with residual and RMSNorm, {point['type']}, hidden {point['hidden']}, {where}"
    if run["command"] == "bench gather":
        return f"Gathers and scatters, rows of {run['row_bytes']} bytes, {where}"
    if run["command"] == "bench dp-attention":
        tp, dp = layout_of(run)
        return (f"DP attention, tp {tp}, dp {dp}: {NORMS[norm_of(run)]}, {point['type']}, hidden {point['hidden']}, "
                f"{where}")
    if run["command"] == "bench logits":
        return f"Logits, {point['type']}, {point['hidden']} columns, {where}"
    return f"All-reduce, {point['type']}, {where}"


def newest_by(runs, key):
    """The newest of the runs with each key, by ascending keys."""
    found = {}
    for run in runs:
        if key(run) not in found or run["date"] > found[key(run)]["date"]:
            found[key(run)] = run
    return [found[each] for each in sorted(found)]


def newest(runs):
    """The newest run of each kind and number of blocks: GPUs first, most ranks first."""
    def key(run):
        return (COMMANDS.index(run["command"]), run["device"] != "cuda", -run["world_size"], gpu_of(run), title(run),
                blocks_of(run))

    counted = [run for run in runs.values() if run["command"] in COMMANDS and "--sweep" not in run["arguments"] and
               (run["command"] in ANYWHERE or run["device"] == "cuda")]
    found = newest_by([each for run in counted for each in by_blocks(run) if points_of(each)], key)
    found.sort(key=gpu_of, reverse=True)  # the newer GPU has the larger number
    return sorted(found, key=lambda run: key(run)[:3])


def place_of(run, point):
    """(operation, how, size) of a point. Peers have no padding of their own, so they stand beside each of Weft's."""
    operation = point["operation"]
    if run["command"] == "bench gather":
        return operation, point["load"], point["bytes"]
    if run["command"] == "bench dp-attention":
        return operation, point["load"], point["rows"]
    if run["command"] == "bench moe":
        return operation, "", point["tokens"]
    return operation, "", point["rows"] if run["command"] == "bench logits" else point["bytes"]


def rows_of(run):
    """The rows of a run's tables, in its order."""
    rows = {}
    for point in points_of(run):
        rows.setdefault(place_of(run, point), []).append(point)
    # Peers make no norm, so their all-reduce stands beside it.
    for (operation, how, size), points in rows.items():
        if operation == "all_reduce_rms_norm":
            points += [p for p in rows.get(("all_reduce", how, size), []) if p["contender"] in PLAIN + SYMMETRIC]
    made = []
    for (operation, how, size), points in rows.items():
        paddings = dict.fromkeys(p.get("padding", "none") for p in points if p["contender"] == "automatic")
        for padding in paddings or ["none"]:
            mine = [p for p in points if p["contender"] in PLAIN + SYMMETRIC or p.get("padding", "none") == padding]
            text = how if padding == "none" else f"{how}, slots: {padding}"
            made.append(Row(operation, text, size, {p["contender"]: p for p in reversed(mine)}))
    return made


def name_of(row):
    return f"`{row.operation}`" + (f", {row.how}" if row.how else "")


def size_of(run, row):
    """The size of a row with its unit."""
    unit = {"bench moe": "token", "bench dp-attention": "token", "bench logits": "row"}.get(run["command"])
    return f"{row.size} {unit}{'s' * (row.size != 1)}" if unit else size_name(row.size)


def pairs(row):
    """The times that are compared. Peers of any memory stand beside Weft's time to any. Peers of symmetric memory stand
    beside Weft's time to symmetric memory, if there is one."""
    anywhere, symmetric = row.points.get("automatic"), row.points.get("symmetric")
    asked = ((ANY, anywhere, PLAIN), (BOTH if symmetric else MIXED, symmetric or anywhere, SYMMETRIC))
    made = []
    for kind, ours, names in asked:
        rivals = [row.points[name] for name in names if name in row.points and row.points[name]["us"] > 0]
        if ours and ours["us"] > 0 and rivals:
            made.append(Pair(kind, ours, min(rivals, key=lambda point: point["us"])))
    return made
