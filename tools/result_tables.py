#!/usr/bin/env python3
"""Writes the results of bench/results into the pages between their markers: a table with the best peers into README.md,
and all tables into docs/benchmarks.md.

  tools/result_tables.py           rewrites the blocks
  tools/result_tables.py --check   exits 1 if a page differs from the results

The newest run counts for each command, device and number of ranks. Norms, exchanges and gathers only count on GPUs, and
the host's time everywhere. The method is "graph" on GPUs, and "batch" on CPU ranks. Times are µs. "6.04 ±2 %" is a time with the spread of its samples
(p10 to p90 of the slowest rank).
"""

import argparse
import pathlib
import sys

import results

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
PEERS = {
    "cuda": ["NCCL", "NCCL symm.", "torch one-shot", "torch two-shot"],
    "cpu": ["Gloo ring", "Gloo bcube"],
}
MOE_PEERS = ["NCCL AG/RS", "NCCL symm. AG/RS", "NCCL A2A", "NCCL symm. A2A"]
RATIO_PEERS = {"cuda": PEERS["cuda"] + ["torch NCCL"], "cpu": PEERS["cpu"]}
METHOD = {"cuda": "graph", "cpu": "batch"}
# For the README: the operation, and the bytes of one rank (all-reduces), its rows (gathers) or its tokens (MoE).
SHORT = {"all_reduce": ("bytes", [8 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]),
         "all_gather": ("rows", [1, 73, 1170]), "reduce_scatter": ("rows", [1, 73, 1170]),
         "all_gather_v": ("rows", [1, 73, 1170]),
         "dispatch": ("tokens", [8, 128, 1024]), "combine": ("tokens", [8, 128, 1024])}
SHORT_COMMANDS = ("bench all-reduce", "bench gather", "bench moe")


def newest(runs):
    """The newest run per (command, device, ranks, measured operation), GPUs first, most ranks first."""
    found = {}
    for run in runs.values():
        command = run["command"]
        if command not in TABLES or "--sweep" in run["arguments"] or not points_of(run):
            continue
        if command not in ("bench all-reduce", "bench host") and run["device"] != "cuda":
            continue
        key = (command, run["device"], run["world_size"], title(run))
        if key not in found or run["date"] > found[key]["date"]:
            found[key] = run
    order = list(TABLES)
    return [found[key] for key in sorted(found, key=lambda k: (order.index(k[0]), k[1] != "cuda", -k[2], k[3]))]


def size_name(size):
    for unit, scale in (("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.2f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{size} B"


def microseconds(point):
    if point is None:
        return ""
    return f"{point['us']:.2f}" if point["us"] < 10 else f"{point['us']:.1f}"


def with_spread(point):
    if point is None or "p10" not in point or point["us"] <= 0:
        return microseconds(point)
    apart = max(point["p90"] - point["us"], point["us"] - point["p10"]) / point["us"]
    return f"{microseconds(point)} ±{max(1, round(100 * apart))} %"


def points_of(run):
    if run["command"] == "bench host":
        return run["points"]
    return [p for p in run["points"] if p.get("method", "graph") == METHOD[run["device"]] and p["blocks"] == 0]


def ratio(ours, rivals):
    ours, rivals = ([p["us"] for p in points if p is not None and p["us"] > 0] for points in (ours, rivals))
    return f"{min(rivals) / min(ours):.2f}" if ours and rivals else ""


def grid(head, rows):
    return ["| " + " | ".join(head) + " |", "|---:" * len(head) + "|"] + ["| " + " | ".join(row) + " |" for row in rows]


def table(run):
    device = run["device"]
    points = {(p["bytes"], p["contender"]): p for p in points_of(run)}
    sizes = sorted({size for size, contender in points if contender == "automatic"})
    peers = [p for p in PEERS[device] if any((size, p) in points for size in sizes)]
    rows = []
    for size in sizes:
        ours = points[size, "automatic"]
        rivals = [points.get((size, p)) for p in RATIO_PEERS[device]]
        # If threads share cores, a ratio depends on the scheduler.
        compared = "" if run.get("crowded", False) else ratio([ours], rivals)
        rows.append([size_name(size), f"**{with_spread(ours)}**", ours.get("algorithm", "")] +
                    [with_spread(points.get((size, p))) for p in peers] + [compared])
    return grid(["size", "Weft, µs", "algorithm", *peers, "best peer ÷ Weft"], rows)


def cells_of(run, key, columns):
    """Rows by `key(point)`; a column is a condition on points."""
    points = points_of(run)
    for row in dict.fromkeys(key(p) for p in points):
        mine = [p for p in points if key(p) == row]
        yield row, [next((p for p in mine if all(p[k] == v for k, v in column.items())), None) for column in columns]


def norm_table(run):
    columns = [{"operation": "all_reduce_rms_norm", "contender": "automatic"},
               {"operation": "all_reduce", "contender": "automatic"}, {"operation": "all_reduce", "contender": "NCCL"}]
    rows = [[f"{size_name(size)} [{count}]", f"**{with_spread(found[0])}**"] + [with_spread(p) for p in found[1:]]
            for (size, count), found in cells_of(run, lambda p: (p["bytes"], p["rows"]), columns)]
    return grid(["size [rows]", "fused, µs", "all-reduce alone", "NCCL's alone"], rows)


def moe_table(run):
    ours = [{"operation": name, "contender": "automatic"} for name in ("dispatch", "combine", "both")]
    contenders = {p["contender"] for p in points_of(run)}
    rivals = [(name, peer) for name in ("dispatch", "combine") for peer in MOE_PEERS if peer in contenders]
    columns = ours + [{"operation": name, "contender": peer} for name, peer in rivals]
    rows, bounds = [], any("bound_us" in p for p in points_of(run))
    for tokens, found in cells_of(run, lambda p: p["tokens"], columns):
        limits = [f"{p['bound_us']:.1f}" if p and "bound_us" in p else "" for p in found[:2]] if bounds else []
        rows.append([str(tokens)] + [f"**{with_spread(p)}**" for p in found[:3]] +
                    [with_spread(p) for p in found[3:]] + limits)
    head = ["tokens per rank", "dispatch, µs", "combine", "both, back to back"]
    head += [f"{name}: {peer}" for name, peer in rivals]
    return grid(head + (["dispatch: bound", "combine: bound"] if bounds else []), rows)


def gather_table(run):
    names = ["automatic", "symmetric", "NCCL", "NCCL symm."]
    rows = [[f"{operation}, {how}", size_name(size), f"**{with_spread(found[0])}**"] +
            [with_spread(p) for p in found[1:]] + [ratio(found[:2], found[2:])]
            for (operation, how, size), found in cells_of(run, lambda p: (p["operation"], p["load"], p["bytes"]),
                                                          [{"contender": name} for name in names])]
    return grid(["", "all ranks' rows", "Weft, µs", "to symmetric memory", "NCCL", "NCCL symm.",
                 "best peer ÷ best of Weft"], rows)


def host_table(run):
    alone = "launch alone" if run["device"] == "cuda" else "kernel alone"
    rows = [[f"`{p['operation']}`", f"{p['call_ns']:.0f}", f"{p['bare_ns']:.0f}",
             f"**{p['ns']:.0f}** ({p['p10']:.0f}…{p['p90']:.0f})"] for p in run["points"]]
    return grid(["", "call, ns", alone, "beyond it (p10…p90)"], rows)


def title(run):
    if run["command"] == "bench host":
        return f"Host time of a call, one {'GPU' if run['device'] == 'cuda' else 'CPU rank'}"
    where = f"{run['world_size']} {'GPUs' if run['device'] == 'cuda' else 'CPU ranks'}"
    if run["command"] == "bench moe":
        return (f"MoE of {run['model']['name']}: {run['routing']} routing, {run['dispatched']} dispatched, "
                f"{run['layout']} layout, {run['combined']} combined, {where}")
    point = run["points"][0]
    if run["command"] == "bench norm":
        return f"All-reduce with residual and RMSNorm, {point['type']}, hidden {point['hidden']}, {where}"
    if run["command"] == "bench gather":
        return f"Gathers and scatters, rows of {run['row_bytes']} bytes, {where}"
    return f"All-reduce, {point['type']}, {where}"


def source_line(run, machines):
    machine, build = machines[run["machine"]], run["build"]
    commit = build["commit"] + (" with uncommitted changes" if build["dirty"] else "")
    if run["device"] == "cuda":
        parts = [f"{run['world_size']} × {machine['gpus'][0]['name']}", f"driver for CUDA {machine['driver']}",
                 f"NCCL {machine['nccl_runtime']}"]
    else:
        parts = [f"{machine['cpu']}, {machine['cores']} cores"]
    return f"{', '.join(parts)}; commit {commit}, {run['date'][:10]}."


TABLES = {"bench all-reduce": table, "bench norm": norm_table, "bench moe": moe_table, "bench gather": gather_table,
          "bench host": host_table}


def all_tables(runs, machines):
    lines = []
    for run in runs:
        lines += [f"**{title(run)}**", ""] + TABLES[run["command"]](run) + ["", source_line(run, machines), ""]
    return "\n".join(lines)


def short_cell(run, operation, key, size):
    """Weft's best time and the best peer's, for balanced loads."""
    points = [p for p in points_of(run) if p["operation"] == operation and p[key] == size]
    points = [p for p in points if p.get("load", "balanced") == "balanced" and p["us"] > 0]
    ours = [p for p in points if p["contender"] in ("automatic", "symmetric")]
    rivals = [p for p in points if p["contender"] in RATIO_PEERS["cuda"] + MOE_PEERS]
    if not ours or not rivals:
        return ""
    best, rival = (min(some, key=lambda p: p["us"]) for some in (ours, rivals))
    return f"**{microseconds(best)}** / {microseconds(rival)} {rival['contender']}"


def short_table(runs):
    runs = [run for run in runs if run["device"] == "cuda" and run["command"] in SHORT_COMMANDS]
    counts = sorted({run["world_size"] for run in runs} & {2, 4, 8})
    rows = []
    for operation, (key, sizes) in SHORT.items():
        for size in sizes:
            cells = [next((cell for run in runs if run["world_size"] == ranks
                           for cell in [short_cell(run, operation, key, size)] if cell), "") for ranks in counts]
            if any(cells):
                where = size_name(size) if key == "bytes" else f"{size} {key.removesuffix('s' * (size == 1))} a rank"
                rows.append([f"`{operation}`", where] + cells)
    return "\n".join(grid(["", ""] + [f"{ranks} GPUs" for ranks in counts], rows)) + "\n" if rows else ""


def rewrite(page, text, name, markers=(BEGIN, END)):
    head, begin, rest = page.partition(markers[0])
    _, end, tail = rest.partition(markers[1])
    if not begin or not end:
        sys.exit(f"{name} has no block between {markers[0]} and {markers[1]}")
    return f"{head}{begin}\n" + (f"\n{text}\n" if text else "") + f"{end}{tail}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a page is stale")
    parser.add_argument("--results", type=pathlib.Path, default=results.FOLDER)
    parser.add_argument("--readme", type=pathlib.Path, default=ROOT / "README.md")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs" / "benchmarks.md")
    args = parser.parse_args()
    runs, machines = results.load(args.results)
    runs = newest(runs)
    stale = []
    for page, text in ((args.readme, short_table(runs)), (args.page, all_tables(runs, machines))):
        old = page.read_text(encoding="utf-8")
        new = rewrite(old, text, page)
        if new == old:
            continue
        stale.append(page.name)
        if not args.check:
            page.write_text(new, encoding="utf-8")
    if args.check and stale:
        sys.exit(f"{', '.join(stale)}: stale; run tools/result_tables.py")


if __name__ == "__main__":
    main()
