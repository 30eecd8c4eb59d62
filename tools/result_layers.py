"""Tables of `weft bench moe-layer`: the fastest way of each schedule, by tokens.

The newest run on GPUs counts for each kind of GPU, number of ranks and layer. The baseline is the fastest plain layer.
Older reports assumed how long first and last rounds take, and timed no such part. Their ideals are left out.
"""

from result_runs import gpu_of, newest_by, ranks_of, source_of
from result_text import bold, grid, listed, microseconds, with_spread, without_empty

COMMAND = "bench moe-layer"
LEAST = 1.02  # a smaller gain of an ideal over plain is none, and no share of it is given
HEAD = ["tokens", "best of", "how", "layer, µs", "ideal", "of its gain", "plain ÷ it", "peo ÷ it", "combine-rounds ÷ it",
        "dispatch + combine", "experts", "shared expert", "over them"]


def type_of(run):
    """The numbers of rows and weights. Older reports are all of fp8."""
    return run.get("gemm", "fp8")


def title(run):
    emulated, shared = run.get("emulated_ep", 0), run.get("shared_intermediate", 0)
    return ", ".join([f"Layer of {run['model']['name']}",
                      f"{run['local_experts']} experts of {run['intermediate']} columns on each rank"] +
                     [f"a shared expert of {shared} columns"] * (shared != 0) +
                     [f"as a rank among {emulated} would see it"] * (emulated != 0) +
                     [f"{type_of(run)} GEMMs"] * (type_of(run) != "fp8") + [ranks_of(run)])


def how(point):
    """The knobs of a way, in words."""
    rounds = ":".join(map(str, point["experts"])) + " experts" if "experts" in point else f"{point['rounds']} rounds"
    words = [f"method {point['overlap_method']}"] if "overlap_method" in point else []
    words += [rounds] if point["schedule"] not in ("plain", "automatic") else []
    words += ["shared expert first"] if point.get("shared_first") else []
    words += [point["chosen"]] if "chosen" in point else []
    words += [f"{point['sms']} SMs"] if point["sms"] else []
    return ", ".join([*words, f"by {point['path']}"])


def part(run, tokens, operation, path=None):
    """A part that was timed alone, undivided and on all processors."""
    for point in run["points"]:
        whole = point["schedule"] == "plain" and point["sms"] == 0 and path in (None, point["path"])
        if (point["operation"], point["tokens"]) == (operation, tokens) and whole:
            return point
    return None


def best_of(run, tokens):
    """The fastest layer of each schedule, in the report's order."""
    best = {}
    for point in run["points"]:
        if (point["operation"], point["tokens"]) != ("layer", tokens):
            continue
        held = best.setdefault(point["schedule"], point)
        if point["us"] < held["us"]:
            best[point["schedule"]] = point
    return best


def ideal_of(run, point):
    """The ideal's point, if its terms were timed."""
    timed = any(other["operation"] == "dispatch of the first round" for other in run["points"])
    return {"us": point["ideal_us"]} if timed and "ideal_us" in point else None


def share_of_gain(ideal, point, plain):
    return (plain["us"] - point["us"]) / (plain["us"] - ideal["us"])


def gain(ideal, point, plain):
    if ideal is None or plain["us"] < LEAST * ideal["us"]:
        return ""
    return f"{100 * share_of_gain(ideal, point, plain):.0f} %".replace("-", "−")


def table(run):
    rows = []
    for tokens in dict.fromkeys(point["tokens"] for point in run["points"]):
        best = best_of(run, tokens)
        for schedule, point in best.items():
            ideal = ideal_of(run, point)
            over = [f"{best[other]['us'] / point['us']:.2f}" if other in best else ""
                    for other in ("plain", "peo", "combine-rounds")]
            alone = [part(run, tokens, "dispatch + combine", point["path"]), part(run, tokens, "experts"),
                     part(run, tokens, "shared expert")] if schedule == "plain" else [None] * 3
            beyond = point.get("over_parts_us")
            rows.append([str(tokens), schedule, how(point), bold(with_spread(point)), microseconds(ideal),
                         gain(ideal, point, best["plain"]), *over, *map(with_spread, alone),
                         "" if beyond is None else f"{beyond:+.1f}".replace("-", "−")])
    return without_empty(HEAD, rows)


def newest_layers(runs):
    layers_on_gpus = [run for run in runs.values() if run["command"] == COMMAND and run["device"] == "cuda"]
    return newest_by(layers_on_gpus,
                     lambda run: (gpu_of(run), -run["world_size"], run.get("emulated_ep", 0), title(run)))


def layers(runs, machines):
    """The page's block: a table for each layer, or a sentence if none was kept."""
    lines = []
    for run in newest_layers(runs):
        tiles = listed(dict.fromkeys(point["gemm_tile"] for point in run["points"] if "gemm_tile" in point))
        gemms = f"; GEMMs with tiles of {tiles} rows" if tiles else ""
        lines += [f"**{title(run)}**", "", *table(run), "", f"{source_of(run, machines)}{gemms}.", ""]
    return "\n".join(lines) if lines else "No result of `weft bench moe-layer` is kept in bench/results yet.\n"
