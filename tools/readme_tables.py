#!/usr/bin/env python3
"""Writes the tables of bench/results/*.json into README.md, between its results markers.

  tools/readme_tables.py           rewrites the block
  tools/readme_tables.py --check   exits 1 when the README is not what the results say

Per device and number of ranks the newest file is taken; method "graph" on GPUs, "batch" on CPU ranks.
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
    """The newest all-reduce report per (device, ranks, element type), GPUs first, most ranks first."""
    newest = {}
    for file in sorted(folder.glob("*.json")):
        report = json.loads(file.read_text())
        if report.get("schema") != "weft-bench-1" or report.get("command") != "bench all-reduce":
            continue
        if "--sweep" in report["arguments"] or not report["points"]:
            continue
        wrong = [p for p in report["points"] if p["verdict"] == "wrong"]
        if wrong:
            sys.exit(f"{file}: holds {len(wrong)} wrong results; they do not go into the README")
        key = (report["device"], report["world_size"], report["points"][0]["type"])
        if key not in newest or report["date"] > newest[key]["date"]:
            newest[key] = report
    return [newest[key] for key in sorted(newest, key=lambda k: (k[0] != "cuda", -k[1], k[2]))]


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
        ratio = f"{min(rivals) / ours['us']:.2f}" if rivals and ours["us"] > 0 else ""
        cells = [size_name(size), f"**{microseconds(ours)}**", ours.get("algorithm", "")]
        cells += [microseconds(points.get((size, p))) for p in peers] + [ratio]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def source_line(report):
    machine, build = report["machine"], report["build"]
    commit = build["commit"] + (" with uncommitted changes" if build["dirty"] else "")
    if report["device"] == "cuda":
        parts = [f"{report['world_size']} × {machine['gpus'][0]['name']}", f"driver for CUDA {machine['driver']}",
                 f"NCCL {machine['nccl_runtime']}"]
    else:
        parts = [f"{machine['cpu']}, {machine['cores']} cores"]
    return f"{', '.join(parts)}; commit {commit}, {report['date'][:10]}."


def block(reports):
    lines = []
    for report in reports:
        kind = "GPUs" if report["device"] == "cuda" else "CPU ranks"
        lines += [f"**All-reduce, {report['points'][0]['type']}, {report['world_size']} {kind}**", ""]
        lines += table(report) + ["", source_line(report), ""]
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
