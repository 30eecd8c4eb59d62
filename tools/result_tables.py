#!/usr/bin/env python3
"""Writes the results of bench/results into the pages between their markers. README.md has a table with the best peers,
docs/benchmarks.md all tables, totals of models, the gaps and the aims, and docs/overlap.md layers of experts.

  tools/result_tables.py           rewrites the blocks
  tools/result_tables.py --check   exits 1 if a page differs from the results

tools/result_runs.py says which runs count, by which method, and which times are compared. Times are µs. "6.04 ±2 %" is a
time with the spread of its samples (p10 to p90 of the slowest rank).
"""

import argparse
import itertools
import pathlib
import sys

import results
from result_aims import aims
from result_gaps import gaps
from result_layers import layers, newest_layers
from result_passes import passes
from result_runs import (ANY, BOTH, MIXED, blocks_of, gpu_of, is_usual_exchange, method_of, newest, pairs, points_of, rows_of,
                         source_of, title, without_producer)
from result_text import bold, grid, listed, microseconds, size_name, with_spread, without_empty

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ("<!-- results:begin -->", "<!-- results:end -->")
GAPS = ("<!-- gaps:begin -->", "<!-- gaps:end -->")
AIMS = ("<!-- aims:begin -->", "<!-- aims:end -->")
PASSES = ("<!-- passes:begin -->", "<!-- passes:end -->")
LAYERS = ("<!-- layers:begin -->", "<!-- layers:end -->")
PEERS = ["NCCL", "NCCL symm.", "torch one-shot", "torch two-shot", "Gloo ring", "Gloo bcube"]
MOE_PEERS = ["NCCL AG/RS", "NCCL symm. AG/RS", "NCCL A2A", "NCCL symm. A2A"]
# For the README: the operation, and the bytes of one rank (all-reduces), its rows (gathers) or its tokens (MoE).
SHORT = {"all_reduce": ("bytes", [8 << 10, 1 << 20, 16 << 20, 64 << 20]),
         "all_gather": ("rows", [1, 73, 1170]), "reduce_scatter": ("rows", [1, 1170]), "all_gather_v": ("rows", [1170]),
         "dispatch": ("tokens", [8, 128, 1024]), "combine": ("tokens", [8, 128, 1024])}
SHORT_COMMANDS = {"bench all-reduce": "all-reduces", "bench gather": "gathers", "bench moe": "MoE"}


def cells(row, names):
    return [with_spread(row.points.get(name)) for name in names]


def ratios(run, row):
    """Two columns: peers of any memory over Weft's time to any, and peers of symmetric memory over Weft's to that. A cross
    says that Weft's time to any memory stands in for the other."""
    if run.get("crowded", False):  # If threads share cores, a ratio depends on the scheduler.
        return ["", ""]
    found = {pair.kind: f"{pair.ratio():.2f}" for pair in pairs(row)}
    return [found.get(ANY, ""), found.get(BOTH, "") or (f"{found[MIXED]} †" if MIXED in found else "")]


def best_ratio(run, row):
    found = [] if run.get("crowded", False) else [pair.ratio() for pair in pairs(row)]
    return f"{min(found):.2f}" if found else ""


def table(*runs):
    """Of runs that differ in their number of blocks alone, like `moe_table`."""
    found = [(row.size, run, row) for run in runs for row in rows_of(run) if "automatic" in row.points]
    rows = [[size_name(size), str(blocks_of(run) or ""), bold(with_spread(row.points["automatic"])),
             row.points["automatic"].get("algorithm", "")] + cells(row, ["plain push", *PEERS]) + [best_ratio(run, row)]
            for size, run, row in sorted(found, key=lambda one: one[0])]
    return without_empty(["size", "blocks", "Weft, µs", "algorithm", "plain push", *PEERS, "best peer ÷ Weft"], rows)


def beyond(with_more, alone):
    """µs and ratio of a time over that without a part of the work."""
    if not with_more or not alone:
        return ["", ""]
    return [f"{with_more['us'] - alone['us']:+.2f}".replace("-", "−"), f"{with_more['us'] / alone['us']:.2f}"]


def norm_table(run):
    found = rows_of(run)
    alone = {row.size: row.points.get("automatic") for row in found if row.operation == "all_reduce"}
    rows = []
    for row in found:
        if row.operation != "all_reduce_rms_norm":
            continue
        ours, without = row.points.get("automatic"), alone.get(row.size)
        rows.append([f"{size_name(row.size)} [{ours['rows']}]", bold(with_spread(ours)), with_spread(without)] +
                    beyond(ours, without) + cells(row, PEERS[:2]))
    return without_empty(["size [rows]", "fused, µs", "all-reduce alone", "fused − alone", "fused ÷ alone", "NCCL's alone",
                          "NCCL symm.'s alone"], rows)


def moe_table(*runs):
    found = {(row.size, blocks_of(run), row.operation): row.points for run in runs for row in rows_of(run)}
    rivals = [(name, peer) for name in ("dispatch", "combine") for peer in MOE_PEERS]
    rows = []
    for tokens, blocks in sorted({place[:2] for place in found}):
        mine = {name: found.get((tokens, blocks, name), {}) for name in ("dispatch", "combine", "both")}
        ours = [points.get("automatic") for points in mine.values()]
        rows.append([str(tokens), str(blocks or "")] + [bold(with_spread(point)) for point in ours] +
                    [with_spread(mine[name].get(peer)) for name, peer in rivals] +
                    [f"{point['bound_us']:.1f}" if point and "bound_us" in point else "" for point in ours[:2]])
    head = ["tokens per rank", "blocks", "dispatch, µs", "combine", "both, back to back"]
    return without_empty(head + [f"{name}: {peer}" for name, peer in rivals] + ["dispatch: bound", "combine: bound"], rows)


def gather_table(run):
    rows = [[f"{row.operation}, {row.how}", size_name(row.size), bold(with_spread(row.points.get("automatic")))] +
            cells(row, ["symmetric", "plain push", "NCCL", "NCCL symm."]) + ratios(run, row) for row in rows_of(run)]
    return without_empty(["", "all ranks' rows", "Weft, µs", "to symmetric memory", "plain push", "NCCL", "NCCL symm.", "NCCL ÷ Weft",
                          "symmetric memory: NCCL ÷ Weft"], rows)


def crossing_table(run):
    rows = []
    for row in rows_of(run):
        ours = row.points.get("automatic")
        rows.append([f"{row.operation}, {row.how}", str(row.size), bold(with_spread(ours))] +
                    cells(row, ["symmetric", "without norm"]) + beyond(ours, row.points.get("without norm"))[:1] +
                    cells(row, ["separate", "NCCL", "NCCL grouped", "NCCL symm."]) + ratios(run, row))
    return without_empty(["", "tokens", "Weft, µs", "to symmetric memory", "crossing alone", "beyond it", "calls apart", "NCCL",
                          "NCCL grouped", "NCCL symm.", "NCCL ÷ Weft", "symmetric memory: NCCL ÷ Weft"], rows)


def logits_table(run):
    rows = []
    for row in rows_of(run):
        push = row.points.get("plain push")
        over = [beyond(row.points.get(name), push)[1] for name in ("automatic", "symmetric")]
        rows.append([str(row.size), bold(with_spread(row.points.get("automatic")))] +
                    cells(row, ["symmetric", "plain push", "NCCL", "NCCL symm."]) + over + ratios(run, row))
    return without_empty(["rows", "Weft, µs", "to symmetric memory", "plain push", "NCCL", "NCCL symm.", "Weft ÷ push",
                          "to symmetric memory ÷ push", "NCCL ÷ Weft", "symmetric memory: NCCL ÷ Weft"], rows)


def host_table(run):
    alone = "launch alone" if run["device"] == "cuda" else "kernel alone"
    rows = [[f"`{p['operation']}`", f"{p['call_ns']:.0f}", f"{p['bare_ns']:.0f}",
             f"**{p['ns']:.0f}** ({p['p10']:.0f}…{p['p90']:.0f})"] for p in run["points"]]
    return grid(["", "call, ns", alone, "beyond it (p10…p90)"], rows)


TABLES = {"bench all-reduce": table, "bench norm": norm_table, "bench moe": moe_table, "bench gather": gather_table,
          "bench dp-attention": crossing_table, "bench logits": logits_table, "bench host": host_table}


def method_text(run):
    """The method of a table, and why it is not `producer`."""
    method = method_of(run)
    missing = without_producer(run) if method == "graph" else []
    if not missing:
        return f"method `{method}`"
    if any(p.get("method") == "producer" for p in run["points"]):
        return f"method `graph`, since {listed(missing)} had no producer"
    return "method `graph`, since nothing had a producer"


def slots_text(run):
    """The slots of Weft's crossings. NCCL's have as many rows as the largest, whatever Weft's are."""
    if run["command"] != "bench dp-attention":
        return ""
    kinds = dict.fromkeys(p.get("padding", "none") for p in points_of(run) if p["contender"] == "automatic")
    return f" Padding of Weft's slots: {listed(kinds)}."


def source_line(run, machines):
    method = "" if run["command"] == "bench host" else f"; {method_text(run)}"
    return f"{source_of(run, machines)}{method}.{slots_text(run)}"


def all_tables(runs, machines):
    lines = []
    for name, some in itertools.groupby(runs, title):  # of one title are runs by number of blocks
        group = list(some)
        sources = dict.fromkeys(source_line(run, machines) for run in group)
        lines += [f"**{name}**", ""] + TABLES[group[0]["command"]](*group) + ["", " ".join(sources), ""]
    return "\n".join(lines)


def short_cell(rows, operation, key, size, kinds):
    """Weft's time and the best peer's of these kinds of pairs, for balanced loads."""
    for row in rows:
        if row.operation == operation and row.how in ("", "balanced") and row.points.get("automatic", {}).get(key) == size:
            found = [pair for pair in pairs(row) if pair.kind in kinds]
            if found:
                best = min(found, key=lambda pair: pair.ratio())
                return f"**{microseconds(best.ours)}** / {microseconds(best.rival)} {best.rival['contender']}"
    return ""


def short_rows(rows, operation, key, sizes, kinds):
    """`rows` are those of all runs, by their number of ranks."""
    for size in sizes:
        line = [short_cell(some, operation, key, size, kinds) for some in rows.values()]
        if any(line):
            where = size_name(size) if key == "bytes" else f"{size} {key.removesuffix('s' * (size == 1))} a rank"
            yield [f"`{operation}`" + (", symmetric memory" if BOTH in kinds else ""), where] + line


def short_methods(runs):
    """The kind of GPU, and which rows have which method."""
    said = [f"GPUs: {gpu_of(runs[0])}."]
    for method in ("producer", "graph"):
        parts = []
        for command, name in SHORT_COMMANDS.items():
            ranks = sorted({run["world_size"] for run in runs if run["command"] == command and method_of(run) == method and
                            any(map(pairs, rows_of(run)))} & {2, 4, 8})
            parts += [f"{name} of {listed(map(str, ranks))}"] if ranks else []
        said += [f"By `{method}`: {', '.join(parts)}."] if parts else []
    return " ".join(said)


def short_table(runs):
    """The README's table, of the kind of GPU that the newest run has, on the blocks that Weft chooses."""
    runs = [run for run in runs if run["device"] == "cuda" and run["command"] in SHORT_COMMANDS and not blocks_of(run) and
            (run["command"] != "bench moe" or is_usual_exchange(run))]
    gpu = gpu_of(max(runs, key=lambda run: run["date"])) if runs else ""
    runs = [run for run in runs if gpu_of(run) == gpu]
    measured = {ranks: [row for run in runs if run["world_size"] == ranks for row in rows_of(run)]
                for ranks in sorted({run["world_size"] for run in runs} & {2, 4, 8})}
    rows = []
    for operation, (key, sizes) in SHORT.items():
        for kinds in ((ANY, MIXED), (BOTH,)):
            rows += short_rows(measured, operation, key, sizes, kinds)
    head = ["", ""] + [f"{ranks} GPUs" for ranks in measured]
    return "\n".join([short_methods(runs), "", *grid(head, rows)]) if rows else ""


def rewrite(page, text, name, markers=RESULTS):
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
    parser.add_argument("--overlap", type=pathlib.Path, default=ROOT / "docs" / "overlap.md")
    args = parser.parse_args()
    kept, machines = results.load(args.results)
    runs = newest(kept)
    blocks = {args.readme: [(RESULTS, short_table(runs))],
              args.page: [(RESULTS, all_tables(runs, machines)), (GAPS, gaps(runs)), (AIMS, aims(runs + newest_layers(kept))),
                          (PASSES, passes(kept, machines))],
              args.overlap: [(LAYERS, layers(kept, machines))]}
    stale = []
    for page, texts in blocks.items():
        old = new = page.read_text(encoding="utf-8")
        for markers, text in texts:
            new = rewrite(new, text, page, markers)
        if new == old:
            continue
        stale.append(page.name)
        if not args.check:
            page.write_text(new, encoding="utf-8")
    if args.check and stale:
        sys.exit(f"{', '.join(stale)}: stale; run tools/result_tables.py")


if __name__ == "__main__":
    main()
