"""The cells of the tables in which a peer is faster."""

from result_runs import ANY, COMMANDS, MIXED, name_of, norm_of, pairs, rows_of, size_of, where_of
from result_text import grid, microseconds

FASTER = 1.02  # differences up to this factor count as none
HEAD = ["operation", "where", "size", "any memory: Weft / peer", "symmetric memory: Weft / peer"]


def does_less(run, row):
    """Whether the peers of a row leave a part of the work out: norms, or the casts, places and weights of MoE."""
    return run["command"] == "bench moe" or row.operation == "all_reduce_rms_norm" or \
        run["command"] == "bench dp-attention" and norm_of(run) != "none"


def compared(run):
    """(row, its pairs) of each row that has peers. If threads share cores, nothing is compared."""
    if run["command"] == "bench host" or run.get("crowded", False):
        return []
    return [(row, found) for row in rows_of(run) for found in [pairs(row)] if found]


def lost(pair):
    return pair.ours["us"] > FASTER * pair.rival["us"]


def cell(pair):
    mark = " †" if pair.kind == MIXED else ""
    return f"**{microseconds(pair.ours)}**{mark} / {microseconds(pair.rival)} {pair.rival['contender']}, {pair.ratio():.2f}"


def lines_of(run, less):
    for row, found in compared(run):
        found = [pair for pair in found if lost(pair)]
        if found and does_less(run, row) == less:
            columns = [" ".join(cell(pair) for pair in found if (pair.kind == ANY) == anywhere) for anywhere in (True, False)]
            yield [name_of(row), where_of(run), size_of(run, row), *columns]


def counts(runs):
    """The number of pairs of each command, and of those in which a peer is faster."""
    rows = []
    for command in COMMANDS:
        for less in (False, True):
            mine = [run for run in runs if run["command"] == command]
            found = [pair for run in mine for row, some in compared(run) if does_less(run, row) == less for pair in some]
            if found:
                rows.append([f"`weft {command}`" + (", peers do less" if less else ""), str(len(found)),
                             str(sum(map(lost, found)))])
    return grid(["", "compared", "a peer is faster by more than 2 %"], rows)


def gaps(runs):
    text = counts(runs)
    for less, says in ((False, "**Peers that do the same**"), (True, "**Peers that do less**")):
        lines = [line for run in runs for line in lines_of(run, less)]
        if lines:
            text += ["", says, "", *grid(HEAD, lines)]
    return "\n".join(text) + "\n"
