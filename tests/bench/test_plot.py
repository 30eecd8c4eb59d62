#!/usr/bin/env python3
"""bench/plot.py: its use of a report, the reports that it refuses, and its picture if matplotlib is installed."""

import contextlib
import importlib.util
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import plot  # noqa: E402


def point(size, who, us, **more):
    return {"bytes": size, "contender": who, "us": us, "gb_per_s": size / us / 1e3 if us else 0, "operation": "all_reduce",
            "method": "graph", "verdict": "ok", **more}


def report(*points):
    return {"schema": "weft-bench-1", "world_size": 2, "device": "cuda", "machine": {"gpus": [{"name": "NVIDIA H200"}]},
            "build": {"commit": "abc", "dirty": True}, "date": "2026-11-21T00:00:00Z", "points": list(points)}


class Panels(unittest.TestCase):
    def test_one_for_each_operation_and_method_with_lines_by_size(self):
        found = plot.panels(report(point(2048, "NCCL", 4.0), point(1024, "NCCL", 3.0), point(1024, "one-shot", 2.0),
                                   point(1024, "one-shot", 2.5, method="producer"),
                                   point(64, "NCCL", 1.0, operation="all_gather", load="busy")))
        self.assertEqual([(title, axis) for title, axis, _ in found],
                         [("all_reduce, graph", "bytes"), ("all_reduce, producer", "bytes"),
                          ("all_gather, busy, graph", "bytes")])
        self.assertEqual(found[0][2], {"NCCL": [(1024, 3.0, 1024 / 3e3), (2048, 4.0, 2048 / 4e3)],
                                       "one-shot": [(1024, 2.0, 1024 / 2e3)]})

    def test_wrong_results_are_left_out_and_of_grids_the_fastest_counts(self):
        found = plot.panels(report(point(1024, "pipelined", 1.0, verdict="wrong"), point(1024, "pipelined", 3.0),
                                   point(1024, "pipelined", 2.0), point(1024, "NCCL", 0, verdict="unavailable")))
        self.assertEqual(list(found[0][2]), ["pipelined"])
        self.assertEqual([x[:2] for x in found[0][2]["pipelined"]], [(1024, 2.0)])

    def test_slots_with_pads_have_lines_of_their_own(self):
        found = plot.panels(report(point(64, "automatic", 2.0, padding="none"), point(64, "automatic", 1.0, padding="max")))
        self.assertEqual([(who, line[0][1]) for who, line in found[0][2].items()],
                         [("automatic", 2.0), ("automatic, max", 1.0)])

    def test_exchanges_are_by_tokens(self):
        moe = {"operation": "dispatch", "contender": "automatic", "verdict": "ok", "tokens": 8, "us": 9.0}
        self.assertEqual(plot.panels(report(moe)), [("dispatch", "tokens per rank", {"automatic": [(8, 9.0, None)]})])

    def test_exchanges_have_the_bandwidth_of_what_crosses_links(self):
        moe = {"operation": "dispatch", "contender": "automatic", "verdict": "ok", "tokens": 8, "us": 9.0}
        found = plot.panels(report({**moe, "wire_bytes": 18000.0}))
        self.assertEqual(found[0][2], {"automatic": [(8, 9.0, 2.0)]})

    def test_labels_are_at_what_was_measured_and_few(self):
        def lines(*sizes):
            return {"NCCL": [(x, 1.0, None) for x in sizes[:1]], "pipelined": [(x, 1.0, None) for x in sizes]}

        self.assertEqual(plot.ticks(lines(1, 3, 17)), [1, 3, 17])
        self.assertEqual(plot.ticks(lines(*range(1, 21))), list(range(2, 21, 2)))
        self.assertEqual(plot.ticks(lines(0)), [])
        self.assertLessEqual(len(plot.ticks(lines(*range(1, 42)))), 10)

    def test_a_models_layers_have_all_their_operations(self):
        whole = report(point(1024, "pipelined", 1.0))
        whole["gathers"] = [point(2048, "automatic", 2.0, operation="all_gather_v", load="busy")]
        whole["exchanges"] = [{"operation": "combine", "contender": "automatic", "verdict": "ok", "tokens": 8, "us": 9.0}]
        self.assertEqual([title for title, _, _ in plot.panels(whole)],
                         ["all_reduce, graph", "all_gather_v, busy, graph", "combine"])

    def test_what_is_no_report_is_refused(self):
        for bad, why in (({"schema": "weft-torch-1"}, "no report"), ([], "no report"), (report(), "no right result"),
                         (report(point(1, "NCCL", 1.0, verdict="wrong")), "no right result"),
                         (report({"verdict": "ok"}), "without"), ({"schema": plot.SCHEMA}, "without 'points'")):
            with self.assertRaisesRegex(plot.BadReport, why):
                plot.panels(bad)

    def test_every_result_in_the_tree_can_be_drawn(self):
        for file in sorted((ROOT / "bench" / "results").glob("*.json")):
            whole = json.loads(file.read_text(encoding="utf-8"))
            if whole.get("schema") == plot.SCHEMA:
                self.assertTrue(plot.panels(whole), file)

    def test_sizes_have_names(self):
        self.assertEqual([plot.size_name(n) for n in (16, 1024, 1536, 1 << 20, 1 << 30)],
                         ["16 B", "1 KB", "1.5 KB", "1 MB", "1 GB"])


class Drawing(unittest.TestCase):
    def draw(self, *points):
        """The mocks of matplotlib, its figure and two axes, after a drawing."""
        library = mock.MagicMock()
        figure, left, right = mock.MagicMock(), mock.MagicMock(), mock.MagicMock()
        library.pyplot.subplots.return_value = (figure, [(left, right)])
        modules = {"matplotlib": library, "matplotlib.pyplot": library.pyplot, "matplotlib.ticker": library.ticker}
        with mock.patch.dict(sys.modules, modules):
            plot.draw(report(*points), "out.svg")
        return library, figure, left, right

    def test_has_time_and_bandwidth_on_log_axes_and_a_line_for_each(self):
        library, figure, left, right = self.draw(point(1024, "NCCL", 4.0), point(2048, "NCCL", 5.0),
                                                 point(1024, "one-shot", 2.0))
        self.assertEqual([(call.args, call.kwargs["label"]) for call in left.plot.call_args_list],
                         [(([1024, 2048], [4.0, 5.0]), "NCCL"), (([1024], [2.0]), "one-shot")])
        self.assertEqual([(call.args, call.kwargs["label"]) for call in right.plot.call_args_list],
                         [(((1024, 2048), (1024 / 4e3, 2048 / 5e3)), "NCCL"), (((1024,), (1024 / 2e3,)), "one-shot")])
        for axes, what in ((left, "µs per operation"), (right, "GB/s")):
            self.assertEqual(axes.set.call_args.kwargs, {"title": "all_reduce, graph", "xlabel": "bytes", "ylabel": what,
                                                         "xscale": "log", "yscale": "log"})
            library.ticker.FixedLocator.assert_called_with([1024, 2048])
            axes.xaxis.set_minor_locator.assert_called_once()
        left.legend.assert_called_once()
        self.assertEqual(len({call.kwargs["marker"] for call in left.plot.call_args_list}), 2)
        figure.savefig.assert_called_once_with("out.svg", dpi=120)


    def test_one_line_alone_is_named_by_the_title(self):
        _, _, left, _ = self.draw(point(1024, "automatic", 4.0))
        self.assertEqual(left.set.call_args.kwargs["title"], "all_reduce, graph: automatic")
        left.legend.assert_not_called()


    def test_layers_have_a_bar_for_each_part_in_the_lane_of_its_stream(self):
        library, figure, panel = mock.MagicMock(), mock.MagicMock(), mock.MagicMock()
        library.pyplot.subplots.return_value = (figure, [(panel,)])
        parts = [{"part": "dispatch send", "lane": "there", "begin_us": 1.0, "end_us": 3.0},
                 {"part": "up 0", "lane": "here", "begin_us": 3.0, "end_us": 103.0},
                 {"part": "up 1", "lane": "here", "begin_us": 103.0, "end_us": 104.0}]
        whole = {**report(), "traces": [{"title": "8 tokens", "ranks": [parts, []]}]}
        self.assertEqual(plot.lanes(whole), [("8 tokens", [("there", "dispatch send", 1.0, 2.0), ("here", "up 0", 3.0, 100.0),
                                                           ("here", "up 1", 103.0, 1.0)])])
        modules = {"matplotlib": library, "matplotlib.pyplot": library.pyplot, "matplotlib.ticker": library.ticker}
        with mock.patch.dict(sys.modules, modules):
            plot.draw(whole, "out.svg")
        self.assertEqual([(call.args, call.kwargs["left"]) for call in panel.barh.call_args_list],
                         [((0, 2.0), 1.0), ((1, 100.0), 3.0), ((1, 1.0), 103.0)])
        self.assertEqual([call.args[2] for call in panel.text.call_args_list], ["up 0"])
        figure.savefig.assert_called_once_with("out.svg", dpi=120)
        with self.assertRaisesRegex(plot.BadReport, "without 'end_us'"):
            plot.lanes({"traces": [{"title": "x", "ranks": [[{"part": "up", "lane": "here", "begin_us": 1}]]}]})


class Program(unittest.TestCase):
    def run_main(self, *arguments):
        said = io.StringIO()
        with mock.patch.object(sys, "argv", ["plot.py", *arguments]), contextlib.redirect_stderr(said):
            return plot.main(), said.getvalue()

    def test_bad_files_are_two(self):
        with tempfile.TemporaryDirectory() as folder:
            bad = Path(folder, "bad.json")
            bad.write_text("{", encoding="utf-8")
            for file in (bad, Path(folder, "none.json")):
                status, said = self.run_main(str(file), str(Path(folder, "x.png")))
                self.assertEqual(status, 2)
                self.assertIn(file.name, said)

    def test_missing_matplotlib_says_what_to_install(self):
        with mock.patch.dict(sys.modules, {"matplotlib": None, "matplotlib.pyplot": None}):
            status, said = self.run_main("--check")
        self.assertEqual(status, 3)
        self.assertIn("apt install python3-matplotlib", said)

    @unittest.skipUnless(importlib.util.find_spec("matplotlib"), "matplotlib is not installed")
    def test_draws(self):
        with tempfile.TemporaryDirectory() as folder:
            source, picture = Path(folder, "report.json"), Path(folder, "out.png")
            source.write_text(json.dumps(report(*(point(1 << n, who, n + len(who)) for n in range(10, 20)
                                                  for who in ("NCCL", "one-shot")))), encoding="utf-8")
            self.assertEqual(self.run_main(str(source), str(picture))[0], 0)
            self.assertEqual(picture.read_bytes()[:4], b"\x89PNG")


if __name__ == "__main__":
    unittest.main()
