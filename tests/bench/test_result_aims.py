#!/usr/bin/env python3
"""tools/result_aims.py: made-up runs that meet the aims and miss them by little."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True

import result_aims  # noqa: E402
import result_runs  # noqa: E402
import results  # noqa: E402

MB = 1 << 20
LINK_SPEED = "MoE from 512 tokens: one token's time and the bound are at least 0.8 of it"
FROM_16, FROM_8 = "MoE of 512 tokens from 16 SMs, µs", "MoE from 512 tokens from 8 SMs: the bound is at least 0.6 of it"
OF_ALL = "MoE of 128 tokens from 16 SMs: at most 1.6 of all SMs' time"
BACK_TO_BACK, NCCL = "MoE back to back: at most 0.5 µs over the sum", "MoE: NCCL's ways together are slower"
PLAIN_32 = "MoE to 32 tokens: NCCL's plain ways together take at least 1.3 of it"
PLAIN_128 = "MoE of 128 tokens: NCCL's plain ways together take at least 2 of it"
H100 = "NVIDIA H100 80GB HBM3"


def report(command, points, gpu="NVIDIA H200", ranks=2, date="2026-01-02T03:04:05Z", commit="0123456789ab", driver="13.0", **more):
    return {"schema": "weft-bench-1", "command": command, "arguments": command.split(), "date": date, "device": "cuda",
            "world_size": ranks, "fabric": "peer memory", "notes": [], "row_bytes": 14336,
            "machine": {"cpu": "a CPU", "cores": 2, "gpus": [{"name": gpu}] * ranks, "driver": driver, "nccl_runtime": "2.28.9"},
            "build": {"commit": commit, "dirty": False}, "points": points} | more


def point(operation, us, contender="automatic", blocks=0, **more):
    return {"operation": operation, "contender": contender, "blocks": blocks, "us": us, "samples_us": [[us]], "verdict": "ok",
            "hidden": 7168, "type": "bf16"} | more


def moe(points, name="deepseek-v3", **more):
    usual = {"model": {"name": name}, "routing": "uniform", "dispatched": "fp8", "layout": "masked", "combined": "bf16"}
    return report("bench moe", points, **(usual | more))


def parts(tokens, dispatch, combine, **more):
    """Times of one contender."""
    return [point("dispatch", dispatch, tokens=tokens, **more), point("combine", combine, tokens=tokens, **more)]


class Aims(unittest.TestCase):
    def aims(self, *reports):
        """(met, missed) by aim and place."""
        with tempfile.TemporaryDirectory() as folder:
            for one in reports:
                results.add(one, "a report", pathlib.Path(folder))
            runs, _ = results.load(pathlib.Path(folder))
        lines = result_aims.aims(result_runs.newest(runs)).splitlines()[2:]
        rows = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in lines]
        return {(text, where): (met, missed) for text, where, met, missed in rows}

    def test_from_512_tokens_the_time_of_one_and_the_bound_make_a_limit(self):
        points = parts(1, 4.0, 4.0) + parts(256, 90.0, 90.0, bound_us=1.0) + parts(512, 29.9, 30.1, bound_us=20.0)
        found = self.aims(moe(points))
        self.assertEqual(found[LINK_SPEED, "2 × H200"], ("`dispatch`: 512 tokens", "`combine`: 512 tokens (30.1 for 30.0)"))
        without_bound = parts(1, 4.0, 4.0) + parts(512, 29.9, 30.1)
        for other in (moe(points, routing="hot"), moe(points, dispatched="bf16"), moe(points, apart=True), moe(points[2:]),
                      moe(points, "another"), moe(points, capacity=9), moe(points, payload_bytes=[4]), moe(without_bound)):
            self.assertNotIn(LINK_SPEED, [text for text, _ in self.aims(other)])

    def test_few_processors_have_limits_of_their_own(self):
        points = parts(512, 30.0, 45.1, blocks=16) + parts(256, 90.0, 90.0, blocks=16, bound_us=1.0)
        points += parts(512, 99.9, 100.1, blocks=8, bound_us=60.0) + parts(256, 99.0, 99.0, blocks=8, bound_us=1.0)
        found = self.aims(moe(points, layout="contiguous"))
        self.assertEqual(found, {
            (FROM_16, "contiguous layout, 16 blocks, 2 × H200"): ("`dispatch`: 512 tokens", "`combine`: 512 tokens (45.1 for 45.0)"),
            (FROM_8, "contiguous layout, 8 blocks, 2 × H200"): ("`dispatch`: 512 tokens", "`combine`: 512 tokens (100.1 for 100.0)")})
        self.assertNotIn(FROM_16, [text for text, _ in self.aims(moe(points, gpu=H100))])

    def test_few_processors_stand_beside_all_of_the_same_build_and_machine(self):
        few, whole = parts(128, 15.9, 16.1, blocks=16) + parts(32, 99.0, 99.0, blocks=16), parts(128, 10.0, 10.0) + parts(32, 9.0, 9.0)
        met = ("`dispatch`: 128 tokens", "`combine`: 128 tokens (16.1 for 16.0)")
        where = "16 blocks, 2 × H200"
        self.assertEqual(self.aims(moe(few + whole))[OF_ALL, where], met)
        later = "2026-01-03T00:00:00Z"
        self.assertEqual(self.aims(moe(few), moe(whole, date=later))[OF_ALL, where], met)
        # An exchange that was made for few processors has another time from all of them.
        slow = [one | {"us": 2 * one["us"]} for one in whole]
        self.assertEqual(self.aims(moe(few + slow, exchange_blocks=16), moe(whole, date=later))[OF_ALL, "made for 16 blocks, " + where], met)
        for other in (moe(whole, date=later, commit="another"), moe(whole, date=later, layout="contiguous"),
                      moe(whole, date=later, exchange_blocks=16), moe(whole, date=later, driver="another")):
            self.assertNotIn(OF_ALL, [text for text, _ in self.aims(moe(few), other)])

    def test_back_to_back_is_the_sum(self):
        points = parts(1, 4.0, 5.0) + parts(8, 4.0, 5.0) + [point("both", 9.4, tokens=1), point("both", 9.6, tokens=8)]
        self.assertEqual(self.aims(moe(points))[BACK_TO_BACK, "2 × H200"], ("`both`: 1 token", "`both`: 8 tokens (9.60 for 9.5)"))

    def test_each_way_of_nccl_is_compared_as_a_whole(self):
        def beside(tokens, plain, symmetric, ours=10.0):
            # The fastest dispatch and the fastest combine are of different ways, and no way has both.
            return parts(tokens, 4.0, ours - 4.0) + \
                parts(tokens, 1.0, plain - 1.0, contender="NCCL AG/RS") + parts(tokens, plain + 4, 1.0, contender="NCCL A2A") + \
                parts(tokens, 1.0, symmetric - 1.0, contender="NCCL symm. AG/RS") + \
                [point("dispatch", 1.0, "NCCL symm. A2A", tokens=tokens)]

        found = self.aims(moe(beside(8, 13.1, 10.1) + beside(32, 12.9, 9.9) + beside(64, 9.8, 11.0) + beside(128, 19.9, 20.0)))
        self.assertEqual(found[NCCL, "2 × H200"], ("8 tokens, 128 tokens", "32 tokens (0.99), 64 tokens (0.98)"))
        self.assertEqual(found[PLAIN_32, "2 × H200"], ("8 tokens", "32 tokens (1.29)"))
        self.assertEqual(found[PLAIN_128, "2 × H200"], ("", "128 tokens (1.99)"))
        self.assertEqual(self.aims(moe(beside(128, 20.1, 20.0)))[PLAIN_128, "2 × H200"], ("128 tokens", ""))

    def test_deepep_is_met_from_as_many_processors_or_fewer_and_missed_from_as_many(self):
        def rows(blocks, layout, *times, gpu=H100, ranks=2):
            return moe([one for each in times for one in parts(*each, blocks=blocks)], gpu=gpu, layout=layout, ranks=ranks)

        def text(name, much="at most"):
            return f"MoE: {much} DeepEP's {name}, µs"

        rank, expand, place = text("V2 rank from 22 SMs"), text("V2 expand from 22 SMs"), f"blocks, 2 × {H100[7:]}"
        self.assertEqual(self.aims(rows(22, "rank-major", (1024, 46.8, 77.5)))[rank, f"rank-major layout, 22 {place}"],
                         ("`dispatch`: 1024 tokens", "`combine`: 1024 tokens (77.5 for 77.4)"))
        self.assertEqual(self.aims(rows(16, "rank-major", (1024, 46.8, 77.5)))[rank, f"rank-major layout, 16 {place}"],
                         ("`dispatch`: 1024 tokens", ""))
        self.assertEqual(self.aims(rows(64, "rank-major", (4096, 151, 258.1))), {
            (text("V2 rank from 64 SMs"), f"rank-major layout, 64 {place}"): ("`dispatch`: 4096 tokens", "`combine`: 4096 tokens (258.1 for 258.0)")})
        self.assertEqual(self.aims(rows(22, "masked", (512, 39.0, 85.4))), {
            (expand, f"22 {place}"): ("`combine`: 512 tokens", "`dispatch`: 512 tokens (39.0 for 38.9)")})
        self.assertEqual(self.aims(rows(8, "rank-compact", (8192, 642, 1105)))[
            text("V1 normal from 8 SMs", "at most half of"), f"rank-compact layout, 8 {place}"],
                         ("`combine`: 8192 tokens", "`dispatch`: 8192 tokens (642.0 for 641.5)"))
        self.assertEqual(self.aims(rows(0, "masked", (8, 15.5, 16.9))), {
            (text("V1 low latency"), f"2 × {H100[7:]}"): ("`dispatch`: 8 tokens", "`combine`: 8 tokens (16.9 for 16.8)")})
        for other in (rows(22, "rank-major", (1024, 46.8, 77.5), gpu="NVIDIA H200"), rows(22, "rank-major", (1024, 40, 70), ranks=4),
                      rows(22, "rank-major", (256, 1, 1)), rows(65, "rank-major", (1024, 1, 1))):
            self.assertFalse([text for text, _ in self.aims(other) if "DeepEP" in text])

    def test_limits_of_decode_ask_nothing_of_few_processors_and_other_layouts(self):
        self.assertEqual(self.aims(moe(parts(8, 5.1, 5.4), ranks=4))["MoE, µs", "4 × H200"],
                         ("`combine`: 8 tokens", "`dispatch`: 8 tokens (5.10 for 5)"))
        for other in (moe(parts(8, 5.1, 5.4, blocks=16), ranks=4), moe(parts(8, 5.1, 5.4), ranks=4, layout="contiguous")):
            self.assertNotIn("MoE, µs", [text for text, _ in self.aims(other)])

    def moves(self, operation, *sizes_and_times, command="bench gather", blocks=0):
        return report(command, [point(operation, us, name, blocks, bytes=int(size * MB), load="balanced")
                                for size, ours, push in sizes_and_times for name, us in (("automatic", ours), ("plain push", push))])

    def test_moves_of_many_bytes_have_a_share_of_the_push(self):
        for operation, least, share in (("all_to_all", 64, 0.93), ("reduce_scatter", 128, 0.85)):
            found = self.aims(self.moves(operation, (least, 100.0, 100 * share + 0.1), (2 * least, 100.0, 100 * share - 0.1),
                                         (least / 2, 100.0, 1.0)))
            self.assertEqual(found, {(f"`{operation}` from {least} MB: the push is at least {share} of it", "2 × H200"): (
                f"`{operation}`, balanced: {least} MB", f"`{operation}`, balanced: {2 * least} MB ({100 / (100 * share - 0.1):.3f})")})

    def test_an_all_reduce_from_few_processors_has_a_share_of_the_push_from_as_many(self):
        aim = "`all_reduce` of 64 MB from 16 SMs: the push from as many is at least 0.85 of it"
        for push, judged in ((85.1, ("`all_reduce`: 64 MB", "")), (84.9, ("", "`all_reduce`: 64 MB (1.178)"))):
            of_16 = self.moves("all_reduce", (64, 100.0, push), (32, 100.0, 1.0), command="bench all-reduce", blocks=16)
            self.assertEqual(self.aims(of_16), {(aim, "16 blocks, 2 × H200"): judged})
        for blocks in (0, 8):
            self.assertFalse(self.aims(self.moves("all_reduce", (64, 100.0, 1.0), command="bench all-reduce", blocks=blocks)))

    def crossings(self, norm, *loads_and_times):
        points = [point("gather_sums", us, name, rows=8, load=load, padding=padding) for load, padding, *times in loads_and_times
                  for name, us in zip(("automatic", "without norm", "NCCL"), times)]
        return report("bench dp-attention", points, layout={"tp": 2, "dp": 2}, norm=norm)

    def test_crossings_are_judged_by_load_and_padding(self):
        found = self.aims(self.crossings("same", ("balanced", "none", 4.9, 4.0, 1.0), ("busy", "none", 5.1, 4.0, 1.0),
                                         ("busy", "max", 4.8, 4.0, 1.0)))
        self.assertEqual(found, {("up to 64 tokens: at most 1.0 µs over the crossing alone", "tp 2, dp 2, norm, 2 × H200"): (
            "`gather_sums`, balanced: 8 tokens; `gather_sums`, busy, slots: max: 8 tokens", "`gather_sums`, busy: 8 tokens (+1.10)")})

    def test_crossings_with_norms_are_not_judged_by_calls_without(self):
        times = (("balanced", "none", 4.9, 9.0, 10.0), ("busy", "none", 5.1, 9.0, 10.0))
        aim = "up to 64 tokens without norm: at most half of NCCL's calls"
        self.assertEqual(self.aims(self.crossings("none", *times))[aim, "tp 2, dp 2, 2 × H200"],
                         ("`gather_sums`, balanced: 8 tokens", "`gather_sums`, busy: 8 tokens (0.510)"))
        for norm in ("same", "fp8"):
            self.assertNotIn(aim, [text for text, _ in self.aims(self.crossings(norm, *times))])


if __name__ == "__main__":
    unittest.main()
