"""The aims of dispatch and combine: even routing to DeepSeek-V3's experts, fp8 rows there and bf16 rows back.

A judge takes a run on one number of blocks. `beside` are all that count.
"""

from result_rivals import DEEPEP, DEEPEP_NORMAL
from result_runs import blocks_of, gpu_of, rows_of, title
from result_text import microseconds
from result_verdicts import Aim, Verdict

COMMAND = "bench moe"
PARTS = ("dispatch", "combine")
PLAIN, SYMMETRIC = ("NCCL AG/RS", "NCCL A2A"), ("NCCL symm. AG/RS", "NCCL symm. A2A")


def is_judged(run):
    whole = not run.get("payload_bytes") and not run.get("apart", False) and not run.get("capacity", 0)
    return whole and (run["model"]["name"], run["routing"], run["dispatched"], run["combined"]) == \
        ("deepseek-v3", "uniform", "fp8", "bf16")


def points_of(run):
    """By operation, tokens and contender."""
    return {(row.operation, row.size, name): point for row in rows_of(run) for name, point in row.points.items()}


def within(limit_of, processors=0):
    """The time is at most `limit_of` the run, its points, the operation and the tokens. From fewer processors than the limit
    allows a time can meet it, and cannot miss it."""
    def judge(run):
        points = points_of(run) if is_judged(run) else {}
        for (operation, tokens, name), ours in points.items():
            limit = limit_of(run, points, operation, tokens) if name == "automatic" else None
            if limit is not None and (ours["us"] <= limit or blocks_of(run) >= processors):
                yield Verdict(f"`{operation}`", f"{tokens} token{'s' * (tokens != 1)}", ours["us"] <= limit,
                              f"{microseconds(ours)} for {limit:.1f}")

    return judge


def at_link_speed(share, least):
    """The time of one token and the bound are such a share of the time."""
    def limit_of(_, points, operation, tokens):
        one, bound = points.get((operation, 1, "automatic")), points[operation, tokens, "automatic"].get("bound_us")
        return (one["us"] + bound) / share if tokens >= least and one and bound else None

    return within(limit_of)


def at_bound(share, least):
    """The bound is such a share of the time."""
    def limit_of(_, points, operation, tokens):
        bound = points[operation, tokens, "automatic"].get("bound_us")
        return bound / share if tokens >= least and bound else None

    return within(limit_of)


def on_two(gpu, limits):
    """µs by operation and tokens."""
    return within(lambda run, _, operation, tokens: limits.get((operation, tokens))
                  if (run["world_size"], gpu_of(run)) == (2, gpu) else None)


def kind_of(run):
    """Runs of one kind differ in their blocks and in those that their exchange was made for."""
    return title(run | {"blocks": 0, "exchange_blocks": 0}), run["machine"], run["build"]["commit"]


def of_all(factor, at):
    """The time is at most `factor` times that from all processors, in the run or in one of the same build and machine."""
    def limit_of(run, _, operation, tokens):
        if operation not in PARTS or tokens != at:
            return None
        for other in run["beside"]:
            if other["command"] == COMMAND and not other.get("exchange_blocks", 0) and kind_of(other) == kind_of(run):
                whole = points_of(other | {"blocks": 0}).get((operation, tokens, "automatic"))
                if whole:
                    return factor * whole["us"]
        return None

    return within(limit_of)


def together(points, tokens, name):
    found = [points[part, tokens, name]["us"] for part in PARTS if (part, tokens, name) in points]
    return sum(found) if len(found) == len(PARTS) else None


def back_to_back(more):
    """Both are at most `more` µs over the sum of their times."""
    def limit_of(_, points, operation, tokens):
        alone = together(points, tokens, "automatic")
        return alone + more if operation == "both" and alone is not None else None

    return within(limit_of)


def ahead(factor, names, wanted):
    """The fastest of these ways takes, for dispatch and combine, more than `factor` times Weft's time."""
    def judge(run):
        points = points_of(run) if is_judged(run) else {}
        for tokens in dict.fromkeys(tokens for _, tokens, _ in points):
            ours = together(points, tokens, "automatic")
            theirs = [us for us in (together(points, tokens, name) for name in names) if us is not None]
            if ours and theirs and wanted(tokens):
                found = min(theirs) / ours
                yield Verdict("", f"{tokens} token{'s' * (tokens != 1)}", found >= factor, f"{found:.2f}")

    return judge


def of_rival(factor, rival):
    """The time is at most `factor` times that of a rival, from as many processors or fewer."""
    def limit_of(run, _, operation, tokens):
        fits = (run["world_size"], gpu_of(run)) == (2, "H100 80GB HBM3") and run["layout"] in rival.layouts and \
            bool(blocks_of(run)) == bool(rival.processors) and blocks_of(run) <= rival.processors
        if not fits or operation not in PARTS or tokens not in rival.times:
            return None
        return factor * rival.times[tokens][PARTS.index(operation)]

    return within(limit_of, rival.processors)


def from_processors(rival):
    return f"DeepEP's {rival.name}" + (f" from {rival.processors} SMs" if rival.processors else "")


AIMS = [
    Aim("MoE from 512 tokens: one token's time and the bound are at least 0.8 of it", COMMAND, at_link_speed(0.8, 512)),
    Aim("MoE of 512 tokens from 16 SMs, µs", COMMAND, on_two("H200", {("dispatch", 512): 30, ("combine", 512): 45}), 16),
    Aim("MoE from 512 tokens from 8 SMs: the bound is at least 0.6 of it", COMMAND, at_bound(0.6, 512), 8),
    Aim("MoE of 128 tokens from 16 SMs: at most 1.6 of all SMs' time", COMMAND, of_all(1.6, 128), 16),
    Aim("MoE back to back: at most 0.5 µs over the sum", COMMAND, back_to_back(0.5)),
    Aim("MoE: NCCL's ways together are slower", COMMAND, ahead(1.0, PLAIN + SYMMETRIC, lambda tokens: True)),
    Aim("MoE to 32 tokens: NCCL's plain ways together take at least 1.3 of it", COMMAND,
        ahead(1.3, PLAIN, lambda tokens: tokens <= 32)),
    Aim("MoE of 128 tokens: NCCL's plain ways together take at least 2 of it", COMMAND,
        ahead(2.0, PLAIN, lambda tokens: tokens == 128)),
    *[Aim(f"MoE: at most {from_processors(rival)}, µs", COMMAND, of_rival(1.0, rival), None) for rival in DEEPEP],
    *[Aim(f"MoE: at most half of {from_processors(rival)}, µs", COMMAND, of_rival(0.5, rival), None)
      for rival in DEEPEP_NORMAL],
]
