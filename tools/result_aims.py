"""The aims of the project, and the sizes at which the newest runs meet and miss them."""

import result_moe_aims
from result_layers import COMMAND as LAYERS
from result_layers import best_of, ideal_of, share_of_gain, type_of
from result_rivals import MEGA_KERNEL
from result_runs import blocks_of, gpu_of, is_usual_exchange, name_of, norm_of, rows_of, size_of, usual, where_of
from result_text import grid, microseconds
from result_verdicts import Aim, Verdict, said

KB, MB = 1 << 10, 1 << 20
# µs on H200s: by ranks, operation and size.
ALL_REDUCES = {4: {"all_reduce": {512 * KB: 5.4, MB: 7.5, 4 * MB: 21, 16 * MB: 78}},
               8: {"all_reduce": {16 * KB: 3.0, 512 * KB: 6.5, MB: 9.3, 4 * MB: 25}}}
EXCHANGES = {4: {"dispatch": {1: 5, 8: 5, 128: 15}, "combine": {8: 5.5}, "both": {8: 10.5, 128: 37}},
             8: {"dispatch": {1: 6, 8: 6, 32: 10, 128: 20}, "combine": {1: 6, 8: 6, 32: 12, 128: 32}}}
GATHERS = {2: {"four_tensors": {34220160: 80.5}}}  # 1,170 rows of each rank


def times(limits, wanted=lambda run: True):
    def judge(run):
        mine = limits.get(run["world_size"], {}) if gpu_of(run) == "H200" and wanted(run) else {}
        for row in rows_of(run):
            limit, ours = mine.get(row.operation, {}).get(row.size), row.points.get("automatic")
            if limit and ours:
                yield Verdict(name_of(row), size_of(run, row), ours["us"] <= limit, f"{microseconds(ours)} for {limit}")

    return judge


def beside(ours, other, wanted, judged):
    """The rows that have both contenders: `judged` of the two times is whether the aim is met, and what was measured."""
    def judge(run):
        for row in rows_of(run):
            mine, theirs = row.points.get(ours), row.points.get(other)
            if mine and theirs and wanted(row):
                yield Verdict(name_of(row), size_of(run, row), *judged(mine["us"], theirs["us"]))

    return judge


def at_most(factor, ours, other, wanted=lambda row: True, more=0.0):
    """The time of `ours` is at most `factor` times that of `other` and `more` µs."""
    return beside(ours, other, wanted,
                  lambda mine, theirs: (mine <= factor * (theirs + more), f"{mine / (theirs + more):.3f}"))


def over(most, ours, other, wanted):
    """The time of `ours` is at most `most` µs over that of `other`."""
    return beside(ours, other, wanted, lambda mine, theirs: (mine - theirs <= most, f"{mine - theirs:+.2f}"))


def norms(kind, limit, smallest, largest):
    """A norm over its all-reduce: `kind` is "more" (µs) or "times"."""
    def judge(run):
        rows = {(row.operation, row.size): row.points.get("automatic") for row in rows_of(run)}
        for row in rows_of(run):
            ours, alone = row.points.get("automatic"), rows.get(("all_reduce", row.size))
            if row.operation != "all_reduce_rms_norm" or not ours or not alone or not smallest <= row.size <= largest:
                continue
            found = ours["us"] - alone["us"] if kind == "more" else ours["us"] / alone["us"]
            yield Verdict("", size_of(run, row), found <= limit, f"{found:+.2f}" if kind == "more" else f"{found:.3f}")

    return judge


def producers(limits):
    """What a producer costs: by operation, the size and µs over the time without one."""
    def judge(run):
        for operation, (size, most) in limits.items():
            found = {p.get("method"): p for p in usual(run) if p["operation"] == operation and p["bytes"] == size and
                     p["contender"] == "automatic" and p.get("load", "balanced") == "balanced"}
            if "producer" in found and "graph" in found:
                more = found["producer"]["us"] - found["graph"]["us"]
                yield Verdict("", f"`{operation}`", more <= most, f"{more:+.2f} for {most}")

    return judge


def host_times(run):
    most = 1000 if run["device"] == "cuda" else 200
    return [Verdict("", f"`{p['operation']}`", p["ns"] <= most, f"{p['ns']:.0f}") for p in run["points"]]


def of_layers(judge_best):
    """For each number of tokens, a verdict on the fastest layer of each schedule: (met, what was measured), or None."""
    def judge(run):
        for tokens in dict.fromkeys(point["tokens"] for point in run["points"]):
            found = judge_best(run, tokens, best_of(run, tokens))
            if found:
                yield Verdict("", f"{tokens} token{'s' * (tokens != 1)}", *found)

    return judge


def over_parts(most):
    """µs of a plain layer over its parts."""
    def judge(_, __, best):
        more = best["plain"].get("over_parts_us")
        return None if more is None else (more <= most, f"{more:+.1f}")

    return of_layers(judge)


def layer_at_most(factor, ours, rivals, emulated=False, tokens_of=None):
    """The time of a schedule over that of the faster rival; for some number of tokens, or for emulated layers, alone."""
    def judge(run, tokens, best):
        found = [best[rival]["us"] for rival in rivals if rival in best]
        if ours not in best or not found or tokens_of not in (None, tokens) or emulated and not run["emulated_ep"]:
            return None
        ratio = best[ours]["us"] / min(found)
        return ratio <= factor, f"{ratio:.3f}"

    return of_layers(judge)


def of_ideal_gain(least, from_ideal):
    """The share of their ideal's gain that rounds have, where the ideal is so many times as fast as plain."""
    def judge(run, _, best):
        ideal = ideal_of(run, best["rounds"]) if "rounds" in best else None
        if ideal is None or best["plain"]["us"] < from_ideal * ideal["us"]:
            return None
        share = share_of_gain(ideal, best["rounds"], best["plain"])
        return share >= least, f"{share:.2f}"

    return of_layers(judge)


def ahead_of_mega_kernel(least, wanted):
    """The mega-kernel takes at least so many times a plain layer's time, with as many tokens and experts that exist."""
    def judge(run, tokens, best):
        experts = run["local_experts"] * run["world_size"]
        shape = run["model"]["name"], run["intermediate"]
        published = MEGA_KERNEL.get(gpu_of(run), {}).get(shape, {}).get(experts, {}).get(tokens)
        same = (run["world_size"] == 2 and not run["emulated_ep"] and not run.get("shared_intermediate", 0) and
                type_of(run) == "fp8")
        if not published or not same or not wanted(experts, tokens):
            return None
        found = published / best["plain"]["us"]
        return found >= least, f"{found:.2f}"

    return of_layers(judge)


def few_experts(experts, tokens):
    return experts <= 64 and 8 <= tokens <= 128


def few(row):
    return row.size <= 64


def of(operation, least):
    return lambda row: row.operation == operation and row.size >= least


def without_norm(judge):
    """NCCL has no norm, so its calls are no measure of a crossing with one."""
    return lambda run: judge(run) if norm_of(run) == "none" else []


AIMS = [
    Aim("all-reduces, µs", "bench all-reduce", times(ALL_REDUCES)),
    Aim("four ragged tensors, µs", "bench gather", times(GATHERS)),
    Aim("MoE, µs", "bench moe", times(EXCHANGES, is_usual_exchange)),
    *result_moe_aims.AIMS,
    Aim("norm up to 1 MB: at most 1.0 µs over its all-reduce", "bench norm", norms("more", 1.0, 0, MB)),
    Aim("norm of 2 MB: at most 1.2 of its all-reduce", "bench norm", norms("times", 1.2, MB + 1, 2 * MB)),
    Aim("norm from 4 MB: at most 1.15 of its all-reduce", "bench norm", norms("times", 1.15, 2 * MB + 1, 1 << 62)),
    Aim("up to 64 tokens: at most 1.0 µs over the crossing alone", "bench dp-attention",
        over(1.0, "automatic", "without norm", few)),
    Aim("up to 64 tokens without norm: at most half of NCCL's calls", "bench dp-attention",
        without_norm(at_most(0.5, "automatic", "NCCL", few))),
    Aim("to symmetric memory: at most 1.1 of push and 3.5 µs", "bench logits",
        at_most(1.1, "symmetric", "plain push", more=3.5)),
    Aim("to any memory: at most 1.35 of the push from 32 MB", "bench logits",
        at_most(1.35, "automatic", "plain push", lambda row: row.points["automatic"]["bytes"] >= 31 * MB)),
    Aim("to any memory: at most half of NCCL", "bench logits", at_most(0.5, "automatic", "NCCL")),
    Aim("to symmetric memory: at most half of NCCL", "bench logits", at_most(0.5, "symmetric", "NCCL symm.")),
    Aim("`all_gather` to symmetric memory from 64 MB: the push is at least 0.93 of it", "bench gather",
        at_most(1 / 0.93, "symmetric", "plain push", of("all_gather", 63 * MB))),
    Aim("`all_gather` to any memory from 128 MB: the push is at least 0.85 of it", "bench gather",
        at_most(1 / 0.85, "automatic", "plain push", of("all_gather", 127 * MB))),
    Aim("`all_to_all` from 64 MB: the push is at least 0.93 of it", "bench gather",
        at_most(1 / 0.93, "automatic", "plain push", of("all_to_all", 63 * MB))),
    Aim("`reduce_scatter` from 128 MB: the push is at least 0.85 of it", "bench gather",
        at_most(1 / 0.85, "automatic", "plain push", of("reduce_scatter", 127 * MB))),
    Aim("`all_reduce` of 64 MB from 16 SMs: the push from as many is at least 0.85 of it", "bench all-reduce",
        at_most(1 / 0.85, "automatic", "plain push", lambda row: row.size == 64 * MB), 16),
    Aim("a producer costs at most, µs", "bench gather", producers({"all_gather": (28 * KB, 0.5)})),
    Aim("a producer costs at most, µs", "bench norm",
        producers({"all_reduce": (8 * KB, 0.25), "all_reduce_rms_norm": (8 * KB, 0.4)})),
    Aim("a plain layer: at most 6 µs over its parts", LAYERS, over_parts(6)),
    Aim("a plain layer of few experts, 8 to 128 tokens: the mega-kernel takes at least 1.10 of it", LAYERS,
        ahead_of_mega_kernel(1.10, few_experts)),
    Aim("a plain layer else: the mega-kernel is no faster", LAYERS,
        ahead_of_mega_kernel(1.0, lambda *layer: not few_experts(*layer))),
    Aim("rounds: at least 0.6 of their ideal's gain, where it is 1.08 and more", LAYERS, of_ideal_gain(0.6, 1.08)),
    Aim("rounds of emulated layers, 128 tokens: peo is at least 1.05 of them", LAYERS,
        layer_at_most(1 / 1.05, "rounds", ["peo"], True, 128)),
    Aim("rounds of emulated layers, 256 tokens: peo is at least 1.10 of them", LAYERS,
        layer_at_most(1 / 1.10, "rounds", ["peo"], True, 256)),
    Aim("rounds: at most 1.02 of peo and combine-rounds", LAYERS, layer_at_most(1.02, "rounds", ["peo", "combine-rounds"])),
    Aim("automatic: plain is at least 0.99 of it", LAYERS, layer_at_most(1 / 0.99, "automatic", ["plain"])),
    Aim("the host's time of a call: at most 1,000 ns on GPUs, 200 on CPU ranks", "bench host", host_times),
]


def aims(runs):
    rows = []
    for aim in AIMS:
        for run in runs:
            fits = run["command"] == aim.command and aim.blocks in (None, blocks_of(run))
            verdicts = list(aim.judge(run | {"beside": runs})) if fits else []
            if verdicts:
                rows.append([aim.text, where_of(run), said([v for v in verdicts if v.met], False),
                             said([v for v in verdicts if not v.met], True)])
    return "\n".join(grid(["aim", "where", "met", "missed (measured)"], rows)) + "\n"
