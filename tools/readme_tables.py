#!/usr/bin/env python3
"""Writes the tables of bench/results/*.json into README.md, between its results markers.

  tools/readme_tables.py           rewrites the block
  tools/readme_tables.py --check   exits 1 when the README is not what the results say

Of each command, device and number of ranks the newest file is taken, and those of norms, exchanges and gathers on GPUs
alone; method "graph" on GPUs, "batch" on CPU ranks.
"""

import argparse
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
PEERS = {
    "cuda": ["NCCL", "NCCL symm.", "torch one-shot", "torch two-shot"],
    "cpu": ["Gloo ring", "Gloo bcube"],
}
RATIO_PEERS = {"cuda": PEERS["cuda"] + ["torch NCCL"], "cpu": PEERS["cpu"]}
METHOD = {"cuda": "graph", "cpu": "batch"}


def load(folder):
    """The newest report per (command, device, ranks, what was measured), GPUs first, most ranks first."""
    newest = {}
    for file in sorted(folder.glob("*.json")):
        report = json.loads(file.read_text())
        command = report.get("command")
        if report.get("schema") != "weft-bench-1" or command not in TABLES or not report["points"]:
            continue
        if "--sweep" in report["arguments"] or (command != "bench all-reduce" and report["device"] != "cuda"):
            continue
        wrong = [p for p in report["points"] if p["verdict"] == "wrong"]
        if wrong:
            sys.exit(f"{file}: holds {len(wrong)} wrong results; they do not go into the README")
        key = (command, report["device"], report["world_size"], title(report))
        if key not in newest or report["date"] > newest[key]["date"]:
            newest[key] = report
    order = list(TABLES)
    return [newest[key] for key in sorted(newest, key=lambda k: (order.index(k[0]), k[1] != "cuda", -k[2], k[3]))]


def size_name(size):
    for unit, scale in (("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.2f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{size} B"


def microseconds(point):
    if point is None or point["verdict"] != "ok":
        return ""
    return f"{point['us']:.2f}" if point["us"] < 10 else f"{point['us']:.1f}"


def table(report):
    device = report["device"]
    points = {}
    for point in report["points"]:
        if point["method"] == METHOD[device] and point["blocks"] == 0:
            points[point["bytes"], point["contender"]] = point
    sizes = sorted({size for size, contender in points if contender == "automatic"})
    peers = [p for p in PEERS[device] if any((size, p) in points for size in sizes)]
    lines = ["| size | Weft, µs | algorithm | " + " | ".join(peers) + " | best peer ÷ Weft |"]
    lines.append("|---:|---:|---|" + "---:|" * len(peers) + "---:|")
    for size in sizes:
        ours = points[size, "automatic"]
        rivals = [points[size, p]["us"] for p in RATIO_PEERS[device] if (size, p) in points and points[size, p]["us"] > 0]
        # Where threads share cores, a ratio is the scheduler's.
        compared = rivals and ours["us"] > 0 and not report.get("crowded", False)
        ratio = f"{min(rivals) / ours['us']:.2f}" if compared else ""
        cells = [size_name(size), f"**{microseconds(ours)}**", ours.get("algorithm", "")]
        cells += [microseconds(points.get((size, p))) for p in peers] + [ratio]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def cells_of(report, key, columns):
    """Rows by `key(point)`; a column is what holds of its points."""
    points = [p for p in report["points"] if p.get("method", "graph") == "graph" and p["blocks"] == 0]
    for row in dict.fromkeys(key(p) for p in points):
        mine = [p for p in points if key(p) == row]
        found = [next((p for p in mine if all(p[k] == v for k, v in column.items())), None) for column in columns]
        yield row, found


def grid(head, rows):
    return ["| " + " | ".join(head) + " |", "|---:" * len(head) + "|"] + ["| " + " | ".join(row) + " |" for row in rows]


def norm_table(report):
    columns = [{"operation": "all_reduce_rms_norm", "contender": "automatic"},
               {"operation": "all_reduce", "contender": "automatic"}, {"operation": "all_reduce", "contender": "NCCL"}]
    rows = [[f"{size_name(size)} [{count}]", f"**{microseconds(found[0])}**"] + [microseconds(p) for p in found[1:]]
            for (size, count), found in cells_of(report, lambda p: (p["bytes"], p["rows"]), columns)]
    return grid(["size [rows]", "fused, µs", "all-reduce alone", "NCCL's alone"], rows)


def moe_table(report):
    columns = [{"operation": name} for name in ("dispatch", "combine", "both")]
    rows = [[str(tokens)] + [f"**{microseconds(p)}**" for p in found]
            for tokens, found in cells_of(report, lambda p: p["tokens"], columns)]
    return grid(["tokens per rank", "dispatch, µs", "combine", "both, back to back"], rows)


def gather_table(report):
    names = ["automatic", "symmetric", "NCCL", "NCCL symm."]
    rows = []
    for (operation, how, size), found in cells_of(report, lambda p: (p["operation"], p["load"], p["bytes"]),
                                                  [{"contender": name} for name in names]):
        ours, rivals = ([p["us"] for p in some if p is not None and p["us"] > 0] for some in (found[:2], found[2:]))
        ratio = f"{min(rivals) / min(ours):.2f}" if rivals else ""
        rows.append([f"{operation}, {how}", size_name(size), f"**{microseconds(found[0])}**"] +
                    [microseconds(p) for p in found[1:]] + [ratio])
    return grid(["", "all ranks' rows", "Weft, µs", "to symmetric memory", "NCCL", "NCCL symm.",
                 "best peer ÷ best of Weft"], rows)


def title(report):
    kind = "GPUs" if report["device"] == "cuda" else "CPU ranks"
    where = f"{report['world_size']} {kind}"
    if report["command"] == "bench moe":
        return (f"MoE of {report['model']['name']}: {report['routing']} routing, {report['dispatched']} dispatched, "
                f"{report['layout']} layout, {report['combined']} combined, {where}")
    point = report["points"][0]
    if report["command"] == "bench norm":
        return f"All-reduce with residual and RMSNorm, {point['type']}, hidden {point['hidden']}, {where}"
    if report["command"] == "bench gather":
        return f"Gathers and scatters, rows of {report['row_bytes']} bytes, {where}"
    return f"All-reduce, {point['type']}, {where}"


def source_line(report):
    machine, build = report["machine"], report["build"]
    commit = build["commit"] + (" with uncommitted changes" if build["dirty"] else "")
    if report["device"] == "cuda":
        parts = [f"{report['world_size']} × {machine['gpus'][0]['name']}", f"driver for CUDA {machine['driver']}",
                 f"NCCL {machine['nccl_runtime']}"]
    else:
        parts = [f"{machine['cpu']}, {machine['cores']} cores"]
    return f"{', '.join(parts)}; commit {commit}, {report['date'][:10]}."


TABLES = {"bench all-reduce": table, "bench norm": norm_table, "bench moe": moe_table, "bench gather": gather_table}


def block(reports):
    lines = []
    for report in reports:
        lines += [f"**{title(report)}**", ""] + TABLES[report["command"]](report) + ["", source_line(report), ""]
    return "\n".join(lines)


def rewrite(readme, text):
    head, begin, rest = readme.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        sys.exit(f"README.md has no block between {BEGIN} and {END}")
    return f"{head}{BEGIN}\n" + (f"\n{text}\n" if text else "") + f"{END}{tail}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when README.md is stale")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench" / "results")
    parser.add_argument("--readme", type=pathlib.Path, default=ROOT / "README.md")
    args = parser.parse_args()
    old = args.readme.read_text()
    new = rewrite(old, block(load(args.results)))
    if args.check:
        if new != old:
            sys.exit("README.md is stale: run tools/readme_tables.py")
    elif new != old:
        args.readme.write_text(new)


if __name__ == "__main__":
    main()
