"""Tables of `weft bench --model`: the calls of a forward pass, added up for each way to run the model.

The newest run on GPUs that has such totals counts for each kind of GPU, number of ranks, model and layout.
"""

from result_runs import gpu_of, newest_by, ranks_of, source_of
from result_text import bold, without_empty

COMMAND = "bench"
HEAD = ["tokens", "way", "calls", "Weft, µs", "best peer", "best peer ÷ Weft"]


def title(run):
    layout = ", ".join(f"{name} {number}" for name, number in run["layout"].items())
    return f"Forward pass of {run['model']['name']}, {layout}, {ranks_of(run)}"


def whole(us):
    return "" if us is None else f"{us:.0f}"


def table(run):
    rows = []
    for one in run["passes"]:
        ours, peer = one["us"], one["peer_us"]
        # If threads share cores, a ratio depends on the scheduler.
        over = f"{peer / ours:.2f}" if ours and peer and not run.get("crowded", False) else ""
        calls = ", ".join(f"{call['times']} {call['call']}" for call in one["calls"])
        rows.append([str(one["tokens"]), one["way"], calls, bold(whole(ours)), whole(peer), over])
    return without_empty(HEAD, rows)


def newest_passes(runs):
    with_totals = [run for run in runs.values() if run["command"] == COMMAND and run["device"] == "cuda" and
                   "layout" in run and run.get("passes")]
    return newest_by(with_totals, lambda run: (gpu_of(run), -run["world_size"], title(run)))


def passes(runs, machines):
    """The page's block: a table for each model and layout, or a sentence if none was kept."""
    lines = []
    for run in newest_passes(runs):
        lines += [f"**{title(run)}**", "", *table(run), "", f"{source_of(run, machines)}.", ""]
    return "\n".join(lines) if lines else "No totals of `weft bench --model` are kept in bench/results yet.\n"
