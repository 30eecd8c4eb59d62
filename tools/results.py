#!/usr/bin/env python3
"""Keeps measured results in bench/results, in lines that people can read and compare.

  tools/results.py add FILE ...       adds the report that `weft bench … --json FILE` wrote
  tools/results.py list               lists the kept runs
  tools/results.py report RUN FILE    writes a run like `weft bench --json`, without samples, for bench/plot.py

  bench/results/machines.json         the machines, by their id
  bench/results/runs.jsonl            a line for each run: command, date, commit, machine
  bench/results/COMMAND.jsonl         a line for each point: operation, size, ranks, variant, median, spread, commit

A time is the median of the samples of the rank with the largest median. p10 and p90 are that rank's, too. Samples are not
kept. Points of `weft bench host` have nanoseconds: `ns`, `p10` and `p90` of what a call takes beyond its kernels. A run with a wrong result is refused. `add` replaces a run that exists already.
"""

import argparse
import hashlib
import json
import math
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "bench" / "results"
SCHEMA = "weft-bench-1"
# The keys of a report's points, not of its run; and those of what follows from the points, or is too long to keep.
POINTS = ("points", "gathers", "exchanges")
NOT_KEPT = ("best", "traces")


def quantile(samples, share):
    """The quantile `share` of the samples, by the nearest rank."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def slowest(samples_of_ranks, baseline_of_ranks=()):
    """The samples of the rank whose median is largest, computed as in the program: the upper of two middle samples. A
    rank's baseline is taken off before: what method "producer" has measured of the kernel that rewrites the input."""
    off = [statistics.median_high(baseline) for baseline in baseline_of_ranks] or [0] * len(samples_of_ranks)
    times = [[sample - less for sample in samples] for samples, less in zip(samples_of_ranks, off) if samples]
    return max(times, key=statistics.median_high, default=[])


def short(number):
    """Enough digits for a clock of nanoseconds."""
    return float(f"{number:.6g}")


def machine_id(machine, device):
    gpus = machine.get("gpus", [])
    name = f"{len(gpus)} x {gpus[0]['name']}" if device == "cuda" and gpus else f"{machine['cpu']}, {machine['cores']} cores"
    digest = hashlib.sha256(json.dumps(machine, sort_keys=True).encode()).hexdigest()[:6]
    return f"{name} ({digest})"


def run_of(report):
    """The common properties of all points of a report."""
    run = {"run": f"{report['date']} {report['command']} {report['device']} x{report['world_size']}"}
    run |= {key: value for key, value in report.items() if key not in (*POINTS, *NOT_KEPT, "machine", "schema")}
    # Files are kept by their names alone: folders belong to the machine that measured.
    run["arguments"] = [argument.rsplit("/", 1)[-1] for argument in report["arguments"]]
    run["machine"] = machine_id(report["machine"], report["device"])
    return run


def point_of(point, run, kind):
    """The line of a point: operation, place and result."""
    line = {"operation": point.get("operation", "all_reduce"), "ranks": run["world_size"], "device": run["device"]}
    left_out = {"operation", "samples_us", "baseline_us", "us", "us_min", "us_max", "verdict", "gb_per_s", "detail"}
    line |= {key: value for key, value in point.items() if key not in left_out}
    if kind != "points":
        line["of"] = kind
    samples = slowest(point.get("samples_us", []), point.get("baseline_us", []))
    line["us"] = short(point["us"])
    if samples:
        line |= {"p10": short(quantile(samples, 0.1)), "p90": short(quantile(samples, 0.9)), "samples": len(samples)}
    return line | {"commit": run["build"]["commit"], "machine": run["machine"], "run": run["run"]}


def host_point_of(point, run):
    """The line of a point of `weft bench host`, whose program has made the medians."""
    beyond = point["beyond_ns"]
    line = {"operation": point["operation"], "ranks": run["world_size"], "device": run["device"],
            "call_ns": short(point["call_ns"]["median"]), "bare_ns": short(point["bare_ns"]["median"]),
            "ns": short(beyond["median"]), "p10": short(beyond["p10"]), "p90": short(beyond["p90"])}
    line |= {key: point[key] for key in ("samples",) if key in point}
    return line | {"commit": run["build"]["commit"], "machine": run["machine"], "run": run["run"]}


def lines_of(report, name):
    if not isinstance(report, dict) or report.get("schema") != SCHEMA:
        raise ValueError(f"{name}: is no report of weft bench ({SCHEMA})")
    run = run_of(report)
    points = []
    for kind in POINTS:
        for point in report.get(kind, []):
            if report["command"] == "bench host":
                points.append(host_point_of(point, run))
                continue
            if point["verdict"] == "wrong":
                raise ValueError(f"{name}: holds a wrong result, {point.get('detail', 'without a reason')}")
            # Columns of other libraries (bench/rivals.py) are of other runs, and stand beside no peer.
            if point["verdict"] == "ok" and not point.get("other_run"):
                points.append(point_of(point, run, kind))
    if not points:
        raise ValueError(f"{name}: holds no result")
    return run, points


def file_of(run):
    """The file of a run: all_reduce.jsonl for bench all-reduce, model.jsonl for bench of a model."""
    return (run["command"].removeprefix("bench").strip().replace("-", "_") or "model") + ".jsonl"


def read_lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


def load(folder=FOLDER):
    """(runs by name, each with its points; machines)"""
    machines = json.loads((folder / "machines.json").read_text(encoding="utf-8"))
    runs = {run["run"]: run | {"points": []} for run in read_lines(folder / "runs.jsonl")}
    for path in sorted(folder.glob("*.jsonl")):
        if path.name == "runs.jsonl":
            continue
        for number, point in enumerate(read_lines(path), 1):
            if point["run"] not in runs:
                raise ValueError(f"{path}:{number}: its run is not in runs.jsonl: {point['run']}")
            runs[point["run"]]["points"].append(point)
    return runs, machines


def add(report, name, folder):
    run, points = lines_of(report, name)
    machines_file = folder / "machines.json"
    machines = json.loads(machines_file.read_text(encoding="utf-8")) if machines_file.exists() else {}
    machines[run["machine"]] = report["machine"]
    machines_file.write_text(json.dumps(machines, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
    for path, lines in ((folder / "runs.jsonl", [run]), (folder / file_of(run), points)):
        kept = [line for line in read_lines(path) if line["run"] != run["run"]]
        write_lines(path, sorted(kept + lines, key=lambda line: line["run"]))  # stable: points keep their order
    return run["run"], len(points)


def report_of(run, machines):
    common = {key: value for key, value in run.items() if key not in ("run", "points", "machine")}
    report = common | {"schema": SCHEMA, "machine": machines[run["machine"]]}
    for point in run["points"]:
        report.setdefault(point.get("of", "points"), []).append(point | {"verdict": "ok"})
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=pathlib.Path, default=FOLDER, help="default: bench/results")
    verbs = parser.add_subparsers(dest="verb", required=True)
    adding = verbs.add_parser("add", help="add reports of weft bench")
    adding.add_argument("files", nargs="+", type=pathlib.Path)
    verbs.add_parser("list", help="list the runs")
    reporting = verbs.add_parser("report", help="write a run as a report")
    reporting.add_argument("run")
    reporting.add_argument("file", type=pathlib.Path)
    args = parser.parse_args()
    try:
        if args.verb == "add":
            for file in args.files:
                name, count = add(json.loads(file.read_text(encoding="utf-8")), file, args.results)
                print(f"{name}: {count} points")
            return
        runs, machines = load(args.results)
        if args.verb == "list":
            for name, run in runs.items():
                print(f"{name}: {len(run['points'])} points, commit {run['build']['commit']}, {run['machine']}")
        elif args.run not in runs:
            sys.exit(f"{args.run}: no such run; `list` says which there are")
        else:
            args.file.write_text(json.dumps(report_of(runs[args.run], machines), ensure_ascii=False), encoding="utf-8")
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"results.py: {error!r}" if isinstance(error, KeyError) else f"results.py: {error}")


if __name__ == "__main__":
    main()
