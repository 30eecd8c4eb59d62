#!/usr/bin/env python3
"""Draws what `weft bench … --json` wrote: time and bandwidth over size, a line for every algorithm and peer. A report of
layers shows what ran when on rank 0.

  weft bench all-reduce --plot all_reduce.png      runs this script by itself
  plot.py result.json out.png                      draws a file of --json; .svg and .pdf work as well
  plot.py --check                                  tells whether matplotlib is installed

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
    """GB/s; for an exchange, of the bytes that cross the links. None if the bytes are unknown."""
    if "gb_per_s" not in point and point.get("wire_bytes"):
        return point["wire_bytes"] / point["us"] / 1e3
    return point.get("gb_per_s")


def ticks(lines, most=10):
    """The labels of an x axis: measured sizes, at most `most`, so that labels do not overlap."""
    sizes = sorted({x for line in lines.values() for x, _, _ in line if x > 0})
    step = (len(sizes) + most - 1) // most
    return sizes[::-1][::step][::-1] if sizes else []


def panels(report):
    """[(title, x axis, {contender: [(x, us, GB/s or None)]})], in the report's order: one for each operation and method.
    A model's report has panels for all operations of its layers.

    Slots with pads have lines of their own. Wrong and unavailable results are left out. If a size has several grids (a sweep), the fastest counts.
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
            padding = point.get("padding", "none")
            line = lines.setdefault(point["contender"] + ("" if padding == "none" else f", {padding}"), {})
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


def lanes(report):
    """[(title, [(lane, part, begin, duration)])] of rank 0, in µs: a layer each. Nothing if the report has no layers."""
    if not isinstance(report, dict):
        return []
    try:
        return [(trace["title"], [(part["lane"], part["part"], part["begin_us"], part["end_us"] - part["begin_us"])
                                  for part in trace["ranks"][0]]) for trace in report.get("traces", [])]
    except (KeyError, TypeError, IndexError) as error:
        raise BadReport(f"has a trace without {error}") from error


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

    if layers := lanes(report):
        draw_lanes(pyplot, report, layers, output)
        return
    rows = panels(report)
    # A contender has the same colour and marker in all panels.
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
            # A legend of one line would only hide the line.
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


def draw_lanes(pyplot, report, layers, output):
    longest = max((begin + took for _, parts in layers for _, _, begin, took in parts), default=0)
    kinds = list(dict.fromkeys(part.rstrip("0123456789 ") for _, parts in layers for _, part, _, _ in parts))
    colours = pyplot.get_cmap("tab10")
    figure, axes = pyplot.subplots(len(layers), 1, figsize=(13, 1 + 1.3 * len(layers)), squeeze=False,
                                   layout="constrained", sharex=True)
    figure.suptitle(headline(report) + "; rank 0")
    for (title, parts), (panel,) in zip(layers, axes):
        names = list(dict.fromkeys(lane for lane, _, _, _ in parts))
        for lane, part, begin, took in parts:
            panel.barh(names.index(lane), took, left=begin, color=colours(kinds.index(part.rstrip("0123456789 "))),
                       edgecolor="white")
            if took > longest / 40:  # narrower bars have no room for a name
                panel.text(begin + took / 2, names.index(lane), part, ha="center", va="center", fontsize=6)
        panel.set(title=title, yticks=range(len(names)), yticklabels=names)
        panel.invert_yaxis()
    axes[-1][0].set(xlabel="µs")
    figure.savefig(output, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only tell whether matplotlib is installed")
    parser.add_argument("report", nargs="?", help="JSON of weft bench")
    parser.add_argument("output", nargs="?", help="picture: .png, .svg, .pdf")
    args = parser.parse_args()
    if not args.check and args.output is None:
        parser.error("a report and a picture, or --check")
    try:
        if not args.check:
            with open(args.report, encoding="utf-8") as file:
                report = json.load(file)
            if not lanes(report):  # both report a bad file before matplotlib is needed
                panels(report)
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
