#!/usr/bin/env python3
"""tools/results.py and tools/result_tables.py: the kept part of a report, refused reports, and the tables."""

import copy
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True

import result_aims  # noqa: E402
import result_gaps  # noqa: E402
import result_runs  # noqa: E402
import result_tables  # noqa: E402
import results  # noqa: E402

GPUS = [{"name": "GPU of tests"}] * 2


def point(contender, us, samples, size=8192):
    return {"operation": "all_reduce", "contender": contender, "method": "graph", "bytes": size, "count": size // 2,
            "rows": 0, "blocks": 0, "threads": 0, "type": "bf16", "op": "sum", "us": us, "samples_us": samples, "verdict": "ok"}


def report(points=None, date="2026-01-02T03:04:05Z", ranks=2, command="bench all-reduce"):
    # The median is 2 on rank 0 and 5 on rank 1, so rank 1's samples count.
    usual = [point("automatic", 5.0, [[1, 2, 9], [4, 5, 6, 5, 5, 5, 5, 5, 5, 8]]), point("NCCL", 10.0, [[10, 10, 11]])]
    return {"schema": "weft-bench-1", "command": command, "arguments": ["bench", "all-reduce"], "date": date,
            "device": "cuda", "world_size": ranks, "fabric": "peer memory", "notes": [],
            "machine": {"cpu": "a CPU", "cores": 2, "gpus": GPUS, "driver": "13.0", "nccl_runtime": "2.28.9"},
            "build": {"commit": "0123456789ab", "dirty": False}, "points": usual if points is None else points}


class Results(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)

    def add(self, one, name="a report"):
        return results.add(one, name, self.folder)

    def lines(self, file="all_reduce.jsonl"):
        return [json.loads(line) for line in (self.folder / file).read_text(encoding="utf-8").splitlines()]

    def test_a_line_has_the_slowest_ranks_median_and_spread_and_no_samples(self):
        self.add(report())
        ours = self.lines()[0]
        self.assertEqual((ours["us"], ours["p10"], ours["p90"], ours["samples"]), (5.0, 4.0, 6.0, 10))
        self.assertNotIn("samples_us", ours)
        self.assertEqual((ours["operation"], ours["bytes"], ours["ranks"], ours["contender"], ours["commit"]),
                         ("all_reduce", 8192, 2, "automatic", "0123456789ab"))
        self.assertIn(ours["machine"], json.loads((self.folder / "machines.json").read_text(encoding="utf-8")))

    def test_a_producers_own_time_is_in_no_figure(self):
        # Rank 0 is slower with its producer, and rank 1 without.
        one = point("automatic", 4.0, [[9, 10, 11], [6, 7, 8]]) | {"method": "producer", "baseline_us": [[7, 8, 9], [2, 3, 4]]}
        self.add(report([one]))
        ours = self.lines()[0]
        self.assertEqual((ours["us"], ours["p10"], ours["p90"]), (4.0, 3, 5))
        self.assertNotIn("baseline_us", ours)

    def test_folders_of_the_machine_that_measured_are_not_kept(self):
        self.add(report() | {"arguments": ["bench", "all-reduce", "--json", "/somewhere/out/a.json"]})
        self.assertEqual(self.lines("runs.jsonl")[0]["arguments"], ["bench", "all-reduce", "--json", "a.json"])

    def test_the_quantiles_are_samples(self):
        self.assertEqual([results.quantile([3, 1, 2], share) for share in (0.1, 0.5, 0.9)], [1, 2, 3])
        self.assertEqual(results.quantile([7], 0.1), 7)

    def test_a_run_that_is_there_is_replaced_and_others_stay(self):
        self.add(report())
        self.add(report(ranks=4))
        again = report()
        again["points"] = again["points"][:1]
        self.add(again)
        self.assertEqual([(line["ranks"], line["contender"]) for line in self.lines()],
                         [(2, "automatic"), (4, "automatic"), (4, "NCCL")])
        self.assertEqual(len(self.lines("runs.jsonl")), 2)

    def test_wrong_and_foreign_reports_are_refused_and_change_nothing(self):
        self.add(report())
        before = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        wrong = copy.deepcopy(report(date="2026-02-02T00:00:00Z"))
        wrong["points"][1] |= {"verdict": "wrong", "detail": "element 7 is 3, wanted 4"}
        for bad, says in ((wrong, "element 7 is 3"), (report([]), "holds no result"), ({"schema": "another"}, "is no report"),
                          ([], "is no report")):
            with self.assertRaisesRegex(ValueError, f"the file: .*{says}"):
                self.add(bad, "the file")
        self.assertEqual(before, {path.name: path.read_bytes() for path in self.folder.iterdir()})

    def test_what_was_not_to_be_had_has_no_line(self):
        self.add(report([point("automatic", 5.0, [[5]]), point("NCCL", 0, []) | {"verdict": "unavailable"}]))
        self.assertEqual([line["contender"] for line in self.lines()], ["automatic"])

    def test_columns_of_other_runs_have_no_line(self):
        self.add(report([point("automatic", 5.0, [[5]]), point("deepep-ll (other run)", 3.0, [[3]]) | {"other_run": True}]))
        self.assertEqual([line["contender"] for line in self.lines()], ["automatic"])

    def test_a_run_becomes_a_report_again(self):
        name, _ = self.add(report())
        runs, machines = results.load(self.folder)
        made = results.report_of(runs[name], machines)
        self.assertEqual((made["schema"], made["machine"], made["date"]), ("weft-bench-1", report()["machine"], report()["date"]))
        self.assertEqual([(p["contender"], p["us"], p["verdict"]) for p in made["points"]],
                         [("automatic", 5.0, "ok"), ("NCCL", 10.0, "ok")])

    def test_a_point_without_its_run_is_an_error(self):
        self.add(report())
        (self.folder / "runs.jsonl").write_text("", encoding="utf-8")
        with self.assertRaisesRegex(ValueError, r"all_reduce.jsonl:1: its run is not in runs.jsonl"):
            results.load(self.folder)

    def tables(self):
        runs, machines = results.load(self.folder)
        runs = result_runs.newest(runs)
        return result_tables.all_tables(runs, machines), result_tables.short_table(runs)

    def test_tables_have_the_newest_run_its_spread_and_the_best_peer(self):
        self.add(report([point("automatic", 50.0, [[50]]), point("NCCL", 1.0, [[1]])], date="2025-01-01T00:00:00Z"))
        self.add(report())
        page, short = self.tables()
        self.assertIn("| 8 KB | **5.00 ±20 %** | 10.0 ±10 % | 2.00 |", page)
        self.assertIn("2 × GPU of tests, driver for CUDA 13.0, NCCL 2.28.9; commit 0123456789ab, 2026-01-02; method `graph`, "
                      "since nothing had a producer.", page)
        self.assertNotIn("50.0", page)
        self.assertIn("| `all_reduce` | 8 KB | **5.00** / 10.0 NCCL |", short)

    def test_only_results_of_the_usual_method_and_grid_are_in_tables(self):
        self.add(report([point("automatic", 5.0, [[5]]), point("NCCL", 4.0, [[4]]) | {"method": "vllm"},
                         point("NCCL", 3.0, [[3]]) | {"blocks": 8}, point("NCCL", 20.0, [[20]])]))
        page, short = self.tables()
        self.assertIn("| 20.0 ±1 % | 4.00 |", page)
        self.assertIn("**5.00** / 20.0 NCCL", short)

    def moe(self, points, date="2026-01-02T03:04:05Z"):
        return report(points, date=date, command="bench moe") | {
            "model": {"name": "small"}, "routing": "uniform", "dispatched": "fp8", "layout": "masked", "combined": "bf16"}

    def test_exchanges_stand_beside_their_peers_and_their_bound(self):
        def one(operation, contender, us, **more):
            return {"operation": operation, "contender": contender, "tokens": 8, "blocks": 0, "us": us,
                    "samples_us": [[us]], "verdict": "ok"} | more

        weft = [one("dispatch", "automatic", 5.0, bound_us=4.0), one("combine", "automatic", 6.0, bound_us=3.0),
                one("both", "automatic", 11.0)]
        self.add(self.moe(weft + [one("dispatch", "NCCL A2A", 9.0), one("combine", "NCCL A2A", 8.0),
                                  one("dispatch", "plain push", 1.0), one("dispatch", "automatic", 2.0, blocks=4)]))
        # A run of other grids alone is no newer run of the usual grid.
        self.add(self.moe([one("dispatch", "automatic", 7.0, blocks=4)], date="2027-01-01T00:00:00Z"))
        page, short = self.tables()
        self.assertIn("| `dispatch` | 8 tokens a rank | **5.00** / 9.00 NCCL A2A |", short)
        self.assertIn("| `combine` | 8 tokens a rank | **6.00** / 8.00 NCCL A2A |", short)
        self.assertIn("| dispatch: NCCL A2A | combine: NCCL A2A | dispatch: bound | combine: bound |", page)
        self.assertIn("| 8 | **5.00 ±1 %** | **6.00 ±1 %** | **11.0 ±1 %** | 9.00 ±1 % | 8.00 ±1 % | 4.0 | 3.0 |", page)

    def exchange(self, date, layout, times, **more):
        """A run with (tokens, blocks) and their times, and a peer that chooses its own blocks."""
        points = [{"operation": "dispatch", "contender": name, "tokens": tokens, "blocks": blocks, "us": us,
                   "samples_us": [[us]], "verdict": "ok"}
                  for (tokens, grid), time in times.items() for name, blocks, us in (("automatic", grid, time), ("NCCL A2A", 0, 90.0))]
        self.add(self.moe(points, date) | {"layout": layout} | more)

    def test_exchanges_by_blocks_have_tables_for_each_layout(self):
        few = {(tokens, blocks): 10.0 + tokens / 1000 + blocks for tokens in (8, 4096) for blocks in (8, 4)}
        self.exchange("2026-01-01T00:00:00Z", "masked", {(8, 0): 5.0})
        self.exchange("2026-01-02T00:00:00Z", "masked", {(8, 4): 6.0})
        self.exchange("2026-01-03T00:00:00Z", "rank-major", few | {(8, 0): 7.0, (4096, 0): 21.0})
        # Newer runs of other blocks and of other ways of the exchange take no place of the ones above.
        self.exchange("2026-01-04T00:00:00Z", "rank-major", {(8, 4): 11.0, (4096, 4): 33.0})
        self.exchange("2026-01-05T00:00:00Z", "masked", {(8, 0): 55.0}, apart=True)
        self.exchange("2026-01-06T00:00:00Z", "masked", {(8, 0): 66.0}, exchange_blocks=16)
        page, short = self.tables()
        tables = dict(part.split("**\n\n", 1) for part in page.split("**MoE of small: uniform routing, fp8 dispatched, ")[1:])
        gpus = "2 × GPU of tests"
        self.assertEqual({name: [line for line in table.splitlines() if line.startswith("| ")] for name, table in tables.items()}, {
            f"masked layout, bf16 combined, {gpus}": [
                "| tokens per rank | dispatch, µs | dispatch: NCCL A2A |", "| 8 | **5.00 ±1 %** | 90.0 ±1 % |"],
            f"masked layout, bf16 combined, by number of blocks, {gpus}": [
                "| tokens per rank | blocks | dispatch, µs |", "| 8 | 4 | **6.00 ±1 %** |"],
            f"masked layout, bf16 combined, made for 16 blocks, {gpus}": [
                "| tokens per rank | dispatch, µs | dispatch: NCCL A2A |", "| 8 | **66.0 ±1 %** | 90.0 ±1 % |"],
            f"masked layout, bf16 combined, sends and waits apart, {gpus}": [
                "| tokens per rank | dispatch, µs | dispatch: NCCL A2A |", "| 8 | **55.0 ±1 %** | 90.0 ±1 % |"],
            f"rank-major layout, bf16 combined, {gpus}": [
                "| tokens per rank | dispatch, µs | dispatch: NCCL A2A |", "| 8 | **7.00 ±1 %** | 90.0 ±1 % |",
                "| 4096 | **21.0 ±1 %** | 90.0 ±1 % |"],
            f"rank-major layout, bf16 combined, by number of blocks, {gpus}": [
                "| tokens per rank | blocks | dispatch, µs |", "| 8 | 4 | **11.0 ±1 %** |", "| 8 | 8 | **18.0 ±1 %** |",
                "| 4096 | 4 | **33.0 ±1 %** |", "| 4096 | 8 | **22.1 ±1 %** |"]})
        # Blocks of 4 and of 8 were measured by two runs.
        sources = tables[f"rank-major layout, bf16 combined, by number of blocks, {gpus}"]
        self.assertIn("2026-01-04", sources)
        self.assertIn("2026-01-03", sources)
        self.assertIn("| `dispatch` | 8 tokens a rank | **5.00** / 90.0 NCCL A2A |", short)
        self.assertEqual(short.count("`dispatch`"), 1)
        self.assertIn("| `weft bench moe`, peers do less | 5 | 0 |", self.gaps())

    def test_the_readme_has_no_kind_of_gpus_with_given_blocks_alone(self):
        self.add(self.run_of("bench all-reduce", [point("automatic", 5.0, [[5]]), point("NCCL", 9.0, [[9]])]))
        self.add(self.run_of("bench all-reduce", [point("automatic", 7.0, [[7]]) | {"blocks": 16}], "NVIDIA H100 80GB HBM3",
                             date="2027-01-01T00:00:00Z"))
        page, short = self.tables()
        self.assertIn("**All-reduce, bf16, by number of blocks, 2 × H100 80GB HBM3**", page)
        self.assertIn("| 8 KB | 16 | **7.00 ±1 %** |", page)
        self.assertIn("GPUs: H200.", short)

    def test_runs_of_peers_alone_are_no_newer_runs(self):
        self.add(report())
        self.add(report([point("NCCL", 3.0, [[3]])], date="2027-01-01T00:00:00Z"))
        self.assertIn("| 8 KB | **5.00 ±20 %** | 10.0 ±10 % | 2.00 |", self.tables()[0])

    def test_a_run_with_payloads_is_no_newer_run_of_rows_alone(self):
        def both(us):
            one = {"operation": "dispatch", "tokens": 8, "blocks": 0, "verdict": "ok"}
            return [one | {"contender": "automatic", "us": us, "samples_us": [[us]]},
                    one | {"contender": "NCCL A2A", "us": 9.0, "samples_us": [[9.0]]}]

        self.add(self.moe(both(5.0)) | {"payload_bytes": []})
        self.add(self.moe(both(7.0), "2027-01-01T00:00:00Z") | {"payload_bytes": [896, 4], "dispatched": "bf16"})
        page, short = self.tables()
        self.assertIn("| `dispatch` | 8 tokens a rank | **5.00** / 9.00 NCCL A2A |", short)
        self.assertIn("uniform routing, fp8 dispatched, masked layout", page)
        self.assertIn("uniform routing, bf16 dispatched with payloads of 896 + 4 bytes, masked layout", page)
        self.assertIn("**5.00 ±1 %**", page)
        self.assertIn("**7.00 ±1 %**", page)

    def test_the_hosts_time_is_kept_in_nanoseconds(self):
        def spread(median, low, high):
            return {"median": median, "p10": low, "p90": high}

        one = {"operation": "barrier", "call_ns": spread(170.5, 170, 171), "bare_ns": spread(43, 42, 44),
               "beyond_ns": spread(127.5, 126, 129), "samples": 200}
        one_rank = report([one], ranks=1, command="bench host") | {"device": "cpu"}
        self.add(one_rank)
        line = self.lines("host.jsonl")[0]
        self.assertEqual((line["operation"], line["call_ns"], line["bare_ns"], line["ns"], line["p10"], line["p90"],
                          line["samples"], line["commit"]), ("barrier", 170.5, 43, 127.5, 126, 129, 200, "0123456789ab"))
        page, short = self.tables()
        self.assertIn("**Host time of a call, one CPU rank**", page)
        self.assertIn("| `barrier` | 170 | 43 | **128** (126…129) |", page)
        self.assertEqual(short, "")

    def test_no_ratio_where_threads_share_cores(self):
        self.add(report() | {"crowded": True})
        page = self.tables()[0]
        self.assertIn("| size | Weft, µs | NCCL |\n", page)
        self.assertIn("| 10.0 ±10 % |\n", page)
        self.assertNotIn("weft bench all-reduce", self.gaps())

    def test_a_page_without_its_markers_is_refused(self):
        begin, end = result_tables.RESULTS
        with self.assertRaisesRegex(SystemExit, "PAGE has no block"):
            result_tables.rewrite("text", "tables", "PAGE")
        self.assertEqual(result_tables.rewrite(f"a {begin} old {end} b", "new", "PAGE"), f"a {begin}\n\nnew\n{end} b")

    # Of each point a time by `graph`, and one with a producer, which is twice as long.
    def both_methods(self, points, without=()):
        return points + [p | {"method": "producer", "us": 2 * p["us"], "samples_us": [[2 * p["us"]]]} for p in points
                         if p["contender"] not in without]

    def gaps(self):
        runs, _ = results.load(self.folder)
        return result_gaps.gaps(result_runs.newest(runs))

    def aims(self):
        runs, _ = results.load(self.folder)
        return result_aims.aims(result_runs.newest(runs))

    def one(self, operation, contender, us, size=28 << 10, **more):
        return point(contender, us, [[us]], size) | {"operation": operation, "load": "balanced", "hidden": 7168} | more

    def run_of(self, command, points, gpu="NVIDIA H200", ranks=2, **more):
        made = report(points, ranks=ranks, command=command) | {"row_bytes": 14336} | more
        return made | {"machine": made["machine"] | {"gpus": [{"name": gpu}] * ranks}}

    def test_figures_have_a_producer_if_every_contender_had_one(self):
        weft, nccl = point("automatic", 5.0, [[5]]), point("NCCL", 10.0, [[10]])
        self.add(report(self.both_methods([weft, nccl])))
        page, short = self.tables()
        self.assertIn("| 8 KB | **10.0 ±1 %** | 20.0 ±1 % | 2.00 |", page)
        self.assertIn("2026-01-02; method `producer`.", page)
        self.assertIn("GPUs: GPU of tests. By `producer`: all-reduces of 2.", short)
        self.assertIn("**10.0** / 20.0 NCCL", short)

    def test_a_peer_without_a_producer_is_named_and_compared_by_graph(self):
        points = [point("automatic", 5.0, [[5]]), point("NCCL", 10.0, [[10]]), point("torch one-shot", 8.0, [[8]])]
        self.add(report(self.both_methods(points, without=["torch one-shot"])))
        page, short = self.tables()
        self.assertIn("| 8 KB | **5.00 ±1 %** | 10.0 ±1 % | 8.00 ±1 % | 1.60 |", page)
        self.assertIn("method `graph`, since torch one-shot had no producer.", page)
        self.assertIn("By `graph`: all-reduces of 2.", short)

    def test_memory_of_either_kind_is_compared_with_its_own(self):
        self.add(self.run_of("bench gather", [
            self.one("all_gather", "automatic", 10.0, rows=1), self.one("all_gather", "symmetric", 5.0, rows=1),
            self.one("all_gather", "NCCL", 13.0, rows=1), self.one("all_gather", "NCCL symm.", 8.0, rows=1),
            self.one("reduce_scatter", "automatic", 4.0, rows=1), self.one("reduce_scatter", "NCCL", 9.0, rows=1),
            self.one("reduce_scatter", "NCCL symm.", 6.0, rows=1)]))
        page, short = self.tables()
        self.assertIn("| **10.0 ±1 %** | 5.00 ±1 % | 13.0 ±1 % | 8.00 ±1 % | 1.30 | 1.60 |", page)
        self.assertIn("| **4.00 ±1 %** |  | 9.00 ±1 % | 6.00 ±1 % | 2.25 | 1.50 † |", page)
        self.assertIn("| `all_gather` | 1 row a rank | **10.0** / 13.0 NCCL |", short)
        self.assertIn("| `all_gather`, symmetric memory | 1 row a rank | **5.00** / 8.00 NCCL symm. |", short)
        self.assertIn("| `reduce_scatter` | 1 row a rank | **4.00** / 6.00 NCCL symm. |", short)
        self.assertNotIn("`reduce_scatter`, symmetric memory", short)

    def test_each_layout_norm_and_padding_has_a_place(self):
        def crossing(ours, **more):
            return self.one("gather_sums", "automatic", ours, rows=8, **more)

        peers = [self.one("gather_sums", "NCCL", 12.0, rows=8, padding="max"),
                 self.one("gather_sums", "NCCL grouped", 9.0, rows=8, padding="none"),
                 self.one("gather_sums", "NCCL symm.", 7.0, rows=8, padding="max")]
        self.add(self.run_of("bench dp-attention", [crossing(3.0, padding="none"), crossing(4.0, padding="max"), *peers],
                             layout={"tp": 2, "dp": 2}, norm="none"))
        # An older report says its layout in arguments alone.
        self.add(self.run_of("bench dp-attention", [
            crossing(6.0), self.one("gather_sums", "without norm", 3.5, rows=8)],
            arguments=["bench", "dp-attention", "--tp", "2", "--norm", "fp8"], date="2026-01-02T03:04:06Z"))
        page, _ = self.tables()
        self.assertIn("**DP attention, tp 2, dp 2: crossings, bf16, hidden 7168, 2 × H200**", page)
        self.assertIn("| gather_sums, balanced | 8 | **3.00 ±1 %** | 12.0 ±1 % | 9.00 ±1 % | 7.00 ±1 % | 3.00 | 2.33 † |", page)
        self.assertIn("| gather_sums, balanced, slots: max | 8 | **4.00 ±1 %** | 12.0 ±1 % | 9.00 ±1 % | 7.00 ±1 % | 2.25 | 1.75 † |",
                      page)
        self.assertIn("Padding of Weft's slots: none and max.", page)
        self.assertIn("**DP attention, tp 2, dp 1: crossings with residual, norm and fp8, bf16, hidden 7168, 2 × H200**", page)
        self.assertIn("| tokens | Weft, µs | crossing alone | beyond it |\n", page)
        self.assertIn("| gather_sums, balanced | 8 | **6.00 ±1 %** | 3.50 ±1 % | +2.50 |", page)

    def test_logits_stand_beside_the_push(self):
        self.add(self.run_of("bench logits", [
            self.one("all_gather_columns", name, us, rows=8) for name, us in
            (("automatic", 9.0), ("symmetric", 6.0), ("plain push", 4.0), ("NCCL", 18.0), ("NCCL symm.", 15.0))]))
        self.assertIn("| 8 | **9.00 ±1 %** | 6.00 ±1 % | 4.00 ±1 % | 18.0 ±1 % | 15.0 ±1 % | 2.25 | 1.50 | 2.00 | 2.50 |",
                      self.tables()[0])
        aims = self.aims()
        self.assertIn("at most 1.1 of push and 3.5 µs | 2 × H200 | `all_gather_columns`: 8 rows |  |", aims)
        self.assertIn("any memory: at most half of NCCL | 2 × H200 | `all_gather_columns`: 8 rows |  |", aims)

    def test_kinds_of_gpus_stand_beside_each_other_and_the_newest_in_the_readme(self):
        for gpu, us, date in (("NVIDIA H200", 5.0, "2026-01-01T00:00:00Z"), ("NVIDIA H100 80GB HBM3", 7.0, "2026-01-02T00:00:00Z")):
            self.add(self.run_of("bench all-reduce", [point("automatic", us, [[us]]), point("NCCL", 9.0, [[9]])], gpu, date=date))
        page, short = self.tables()
        self.assertLess(page.index("**All-reduce, bf16, 2 × H200**"), page.index("**All-reduce, bf16, 2 × H100 80GB HBM3**"))
        self.assertIn("GPUs: H100 80GB HBM3.", short)
        self.assertIn("| **7.00** / 9.00 NCCL |", short)

    def test_a_gap_is_a_peer_that_is_more_than_two_per_cent_faster(self):
        sizes = {8 << 10: 9.81, 16 << 10: 9.79}  # 1.9 and 2.1 % less than Weft's 10
        self.add(self.run_of("bench all-reduce", [point("automatic", 10.0, [[10]], size) for size in sizes] +
                             [point("NCCL", us, [[us]], size) for size, us in sizes.items()]))
        self.add(self.run_of("bench gather", [
            self.one("all_gather", "automatic", 10.0), self.one("all_gather", "symmetric", 5.0),
            self.one("all_gather", "NCCL", 11.0), self.one("all_gather", "NCCL symm.", 4.0)]))
        gaps = self.gaps()
        self.assertIn("| `weft bench all-reduce` | 2 | 1 |", gaps)
        self.assertIn("| `all_reduce` | 2 × H200 | 16 KB | **10.0** / 9.79 NCCL, 0.98 |  |", gaps)
        self.assertNotIn("| 8 KB |", gaps)
        self.assertIn("| `weft bench gather` | 2 | 1 |", gaps)
        self.assertIn("| `all_gather`, balanced | 2 × H200 | 28 KB |  | **5.00** / 4.00 NCCL symm., 0.80 |", gaps)
        self.assertNotIn("Peers that do less", gaps)

    def test_gaps_of_norms_and_exchanges_are_apart_since_their_peers_do_less(self):
        self.add(self.run_of("bench norm", [
            self.one("all_reduce", "automatic", 5.0, rows=2), self.one("all_reduce", "NCCL", 5.5, rows=2),
            self.one("all_reduce_rms_norm", "automatic", 6.0, rows=2)]))
        gaps = self.gaps()
        self.assertIn("| `weft bench norm` | 1 | 0 |", gaps)
        self.assertIn("| `weft bench norm`, peers do less | 1 | 1 |", gaps)
        self.assertIn("| `all_reduce_rms_norm` | hidden 7168, 2 × H200 | 28 KB | **6.00** / 5.50 NCCL, 0.92 |  |",
                      gaps.split("**Peers that do less**")[1])
        self.assertNotIn("**Peers that do the same**", gaps)
        self.assertIn("| 28 KB [2] | **6.00 ±1 %** | 5.00 ±1 % | +1.00 | 1.20 | 5.50 ±1 % |", self.tables()[0])

    def test_aims_name_the_sizes_that_meet_and_miss_them(self):
        def norm(size, alone, fused):
            return [self.one("all_reduce", "automatic", alone, size, rows=1),
                    self.one("all_reduce_rms_norm", "automatic", fused, size, rows=1)]

        points = norm(8 << 10, 2.0, 2.5) + norm(1 << 20, 5.0, 6.25) + norm(4 << 20, 20.0, 22.0)
        self.add(self.run_of("bench norm", self.both_methods(points)))
        self.add(self.run_of("bench all-reduce", [point("automatic", us, [[us]], size)
                                                  for size, us in ((512 << 10, 5.5), (1 << 20, 7.5))], ranks=4))
        aims = self.aims()
        self.assertIn("norm up to 1 MB: at most 1.0 µs over its all-reduce | hidden 7168, 2 × H200 | 8 KB | 1 MB (+2.50) |",
                      aims)
        self.assertIn("norm from 4 MB: at most 1.15 of its all-reduce | hidden 7168, 2 × H200 | 4 MB |  |", aims)
        self.assertIn("| hidden 7168, 2 × H200 |  | `all_reduce` (+2.00 for 0.25), `all_reduce_rms_norm` (+2.50 for 0.4) |", aims)
        self.assertIn("| all-reduces, µs | 4 × H200 | `all_reduce`: 1 MB | `all_reduce`: 512 KB (5.50 for 5.4) |", aims)
        self.assertNotIn("2 MB", aims)


if __name__ == "__main__":
    unittest.main()
