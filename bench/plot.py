#!/usr/bin/env python3
"""Draws what `weft bench … --json` wrote: time and bandwidth over size, a line for every algorithm and peer.

  weft bench all-reduce --plot all_reduce.png      runs this script by itself
  plot.py result.json out.png                      from a file that --json wrote; .svg and .pdf work as well
  plot.py --check                                  whether matplotlib is there

Exit status: 0 drawn, 1 the picture cannot be written, 2 the file is no such report or has nothing to draw, 3 matplotlib is
missing.
"""

import argparse
import json
import sys

SCHEMA = "weft-bench-1"
MATPLOTLIB = "matplotlib is missing: apt install python3-matplotlib, or pip install matplotlib"


class BadReport(Exception):
    pass


def rate_of(point):
    """GB/s; of an exchange, of what crosses the links. None where nothing says how much is moved."""
    if "gb_per_s" not in point and point.get("wire_bytes"):
        return point["wire_bytes"] / point["us"] / 1e3
    return point.get("gb_per_s")


def ticks(lines, most=10):
    """Where an x axis has labels: at sizes that were measured, and so few that they do not lie over each other."""
    sizes = sorted({x for line in lines.values() for x, _, _ in line if x > 0})
    step = (len(sizes) + most - 1) // most
    return sizes[::-1][::step][::-1] if sizes else []


def panels(report):
    """[(title, x axis, {contender: [(x, us, GB/s or None)]})], in the report's order: one for each operation and method,
    of a model's layers all of them.

    Wrong and unavailable results are left out. Of several grids for one size (a sweep) the fastest counts.
    """
    if not isinstance(report, dict) or report.get("schema") != SCHEMA:
        raise BadReport(f"is no report of weft bench (schema {SCHEMA})")
    found = {}
    try:
        for point in [*report["points"], *report.get("gathers", []), *report.get("exchanges", [])]:
            if point["verdict"] != "ok":
                continue
            words = [point[key] for key in ("operation", "load", "method") if key in point]
            by_tokens = "bytes" not in point
            lines = found.setdefault((", ".join(words), "tokens per rank" if by_tokens else "bytes"), {})
            line = lines.setdefault(point["contender"], {})
            x, us = point["tokens"] if by_tokens else point["bytes"], point["us"]
            if us > 0 and (x not in line or us < line[x][0]):
                line[x] = (us, rate_of(point))
    except (KeyError, TypeError) as error:
        raise BadReport(f"has a point without {error}") from error
    result = [(title, axis, {who: [(x, *line[x]) for x in sorted(line)] for who, line in lines.items() if line})
              for (title, axis), lines in found.items()]
    result = [panel for panel in result if panel[2]]
    if not result:
        raise BadReport("has no right result to draw")
    return result


def headline(report):
    gpus = report.get("machine", {}).get("gpus", [])
    where = gpus[0]["name"] if report.get("device") == "cuda" and gpus else report.get("machine", {}).get("cpu", "")
    build = report.get("build", {})
    dirty = " with uncommitted changes" if build.get("dirty") else ""
    return (f"weft {report.get('command', 'bench')}: {report.get('world_size', '?')} ranks, {where}; "
            f"{build.get('commit', '')}{dirty}, {report.get('date', '')[:10]}")


def size_name(size):
    for unit, scale in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:g} {unit}"
    return f"{size:g} B"


def draw(report, output):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    rows = panels(report)
    # A contender has one colour and marker in all panels.
    everybody = list(dict.fromkeys(who for _, _, lines in rows for who in lines))
    colours = pyplot.get_cmap("tab20" if len(everybody) > 10 else "tab10")
    figure, axes = pyplot.subplots(len(rows), 2, figsize=(13, 4.4 * len(rows)), squeeze=False, layout="constrained")
    figure.suptitle(headline(report))
    for (title, axis, lines), (left, right) in zip(rows, axes):
        for who, line in lines.items():
            place = everybody.index(who)
            style = {"label": who, "color": colours(place), "marker": "os^Dv<>PX*"[place % 10], "markersize": 4}
            left.plot([x for x, _, _ in line], [us for _, us, _ in line], **style)
            rated = [(x, rate) for x, _, rate in line if rate]
            if rated:
                right.plot(*zip(*rated), **style)
        for panel, what in ((left, "µs per operation"), (right, "GB/s")):
            # A legend of one line would only hide it.
            panel.set(title=title if len(lines) > 1 else f"{title}: {next(iter(lines))}", xlabel=axis, ylabel=what, xscale="log", yscale="log")
            panel.grid(True, which="major", alpha=0.4)
            panel.grid(True, which="minor", axis="y", alpha=0.15)
            panel.xaxis.set_major_locator(FixedLocator(ticks(lines)))
            panel.xaxis.set_minor_locator(NullLocator())
            panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: size_name(x)) if axis == "bytes"
                                            else FuncFormatter(lambda x, _: f"{x:g}"))
            panel.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
            panel.tick_params(axis="x", labelrotation=45)
        if not right.has_data():
            right.set_visible(False)
        if len(lines) > 1:
            left.legend(fontsize="small")
    figure.savefig(output, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say whether matplotlib is there")
    parser.add_argument("report", nargs="?", help="JSON of weft bench")
    parser.add_argument("output", nargs="?", help="picture: .png, .svg, .pdf")
    args = parser.parse_args()
    if not args.check and args.output is None:
        parser.error("a report and a picture, or --check")
    try:
        if not args.check:
            with open(args.report, encoding="utf-8") as file:
                report = json.load(file)
            panels(report)  # complains before matplotlib is needed
    except (OSError, ValueError, BadReport) as error:
        print(f"plot.py: {args.report}: {error}", file=sys.stderr)
        return 2
    try:
        import matplotlib.pyplot  # noqa: F401
    except ImportError:
        print(f"plot.py: {MATPLOTLIB}", file=sys.stderr)
        return 3
    if args.check:
        return 0
    try:
        draw(report, args.output)
    except (OSError, ValueError) as error:
        print(f"plot.py: {args.output}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
