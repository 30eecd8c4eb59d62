#!/usr/bin/env python3
"""bench/rivals.py with modules that stand for torch and the rivals: whole runs by processes, without torch and GPUs.

With the program `weft` as an argument also the way round: its tokens, their columns, and the columns beside its own.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
sys.dont_write_bytecode = True
import rivals  # noqa: E402

STUBS = ROOT / "tests" / "stubs" / "rivals"
WEFT = sys.argv.pop() if len(sys.argv) > 1 and Path(sys.argv[-1]).is_file() else ""
ALL = ["DeepEP LL", "DeepEP normal", "DeepEP V2", "NCCL EP"]


def made_up(tokens=(1, 3), layers=1, ranks=2, **of):
    shape = {"command": "bench moe", "routing": "uniform", "dispatched": "fp8", "hidden": 128, "intermediate": 0,
             "experts": 4, "top_k": 2, "ranks": ranks} | of  # fmt: skip
    numbers = random.Random(5)
    points = []
    for count in tokens:
        choices = [
            [
                {
                    "ids": [e for _ in range(count) for e in numbers.sample(range(shape["experts"]), shape["top_k"])],
                    "weights": [numbers.random() for _ in range(count * shape["top_k"])],
                }
                for _ in range(ranks)
            ]
            for _ in range(layers)
        ]
        points.append({"tokens": count, "digest": rivals.digest_of(choices), "layers": choices})
    return {"schema": "weft-tokens-1", "of": shape, "model": "made up", "points": points}


class Rivals(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def write(self, whole):
        file = self.folder / "tokens.json"
        file.write_text(whole if isinstance(whole, str) else json.dumps(whole))
        return str(file)

    def run_script(self, *arguments, stubs=STUBS, **environment):
        command = [sys.executable, "-B", str(ROOT / "bench" / "rivals.py"), *arguments]
        clean = {key: value for key, value in os.environ.items() if not key.startswith("FAKE_")}
        environment = clean | {"PYTHONPATH": str(stubs), "TMPDIR": str(self.folder)} | environment
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)

    def columns(self, whole, *arguments, **environment):
        done = self.run_script(self.write(whole), "--samples", "2", "--json", "-", *arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout), done.stderr

    def test_every_rival_moves_the_tokens(self):
        whole = made_up()
        found, err = self.columns(whole)
        self.assertEqual([one["rival"] for one in found["columns"]], ALL)
        self.assertEqual(found["of"], whole["of"])
        self.assertEqual((found["schema"], found["gpu"], found["machine"]["sms"]), ("weft-columns-1", "", 4))
        self.assertEqual([one["version"] for one in found["columns"]], ["1.0-fake"] * 3 + ["0.1-fake"])
        for column in found["columns"]:
            of = {"NCCL EP": {"both", "dispatch"}}.get(column["rival"], {"dispatch", "combine"})
            self.assertEqual({(p["tokens"], p["operation"]) for p in column["points"]}, {(t, o) for t in (1, 3) for o in of})
            for point in column["points"]:
                self.assertEqual((point["verdict"], point["method"]), ("ok", "graph"), column["rival"])
                self.assertEqual(point["digest"], whole["points"][point["tokens"] // 3]["digest"])
                self.assertEqual([len(of_rank) for of_rank in point["samples_us"]], [2, 2])
                self.assertLessEqual(point["p10"], point["us"])
                self.assertLessEqual(point["us"], point["p90"])
        self.assertEqual([p["sms"] for p in found["columns"][1]["points"]], [20] * 4)
        self.assertEqual(
            err, "rivals: mega-moe skipped: it is a whole layer, and this file has tokens of dispatch and combine alone\n"
        )

    def test_bf16_rows_are_not_cast_and_no_fp8_layer_stands_beside_them(self):
        whole = made_up(tokens=(2,), layers=3, intermediate=128, dispatched="bf16", command="bench moe-layer")
        found, err = self.columns(whole)
        self.assertEqual([one["rival"] for one in found["columns"]], ALL)
        self.assertEqual({p["verdict"] for one in found["columns"] for p in one["points"]}, {"ok"})
        self.assertEqual(err, "rivals: mega-moe skipped: its GEMMs are in fp8, and this file's are in bf16\n")

    def test_layers_take_turns(self):
        whole = made_up(tokens=(2,), layers=3, intermediate=128, command="bench moe-layer")
        found, err = self.columns(whole)
        self.assertEqual([one["rival"] for one in found["columns"]], [*ALL, "mega MoE"])
        self.assertEqual({p["verdict"] for one in found["columns"] for p in one["points"]}, {"ok"})
        self.assertEqual([p["operation"] for p in found["columns"][-1]["points"]], ["layer"])
        self.assertEqual(err, "")

    def test_a_wrong_result_of_any_rank_is_told(self):
        for name in rivals.RIVALS:
            whole = made_up(tokens=(4,), layers=1, intermediate=128)
            done = self.run_script(self.write(whole), "--samples", "1", "--only", name, FAKE_WRONG="1")
            self.assertEqual(done.returncode, 1, name)
            self.assertIn("WRONG", done.stdout, name + done.stderr)

    def test_what_cannot_be_captured_is_called(self):
        found, _ = self.columns(made_up(tokens=(1,)), "--only", "deepep-ll", FAKE_NO_GRAPH="1")
        self.assertEqual({p["method"] for p in found["columns"][0]["points"]}, {"batch"})

    def test_the_number_of_sms_is_asked_of_those_that_take_one(self):
        found, _ = self.columns(made_up(tokens=(1,)), "--only", "deepep-normal,deepep-v2", "--sms", "8")
        self.assertEqual({p["sms"] for one in found["columns"] for p in one["points"]}, {8})

    def test_absent_rivals_are_skipped_with_the_module(self):
        only_torch = self.folder / "only_torch"
        only_torch.mkdir()
        (only_torch / "torch").symlink_to(STUBS / "torch")
        done = self.run_script(self.write(made_up()), stubs=only_torch)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        of = {"deepep-ll": "deep_ep", "deepep-normal": "deep_ep", "deepep-v2": "deep_ep", "nccl-ep": "nccl.core", "mega-moe": "deep_gemm"}
        wanted = "".join(f"rivals: {name} skipped: module {module} is not installed\n" for name, module in of.items())
        self.assertEqual(done.stderr, wanted + "rivals: no rival could be measured\n")

    def test_too_few_gpus_are_counted(self):
        done = self.run_script(self.write(made_up()), "--only", "nccl-ep", FAKE_GPUS="1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the tokens are of 2 ranks, and here are 1 GPUs", done.stderr)

    def test_the_deadline_ends_a_rival(self):
        done = self.run_script(self.write(made_up()), "--only", "nccl-ep", "--deadline", "0.001")
        self.assertEqual(done.returncode, 1)
        self.assertIn("nccl-ep skipped: not done after 0.001 s", done.stderr)

    def test_other_files_and_words_are_refused(self):
        changed = made_up()
        changed["points"][0]["layers"][0][1]["ids"].reverse()
        for content, why in (("[]", "is not a file of weft bench"), ("{", "is no JSON"), (changed, "1 tokens: the experts")):
            done = self.run_script(self.write(content))
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(why, done.stderr)
        done = self.run_script("/nonexistent")
        self.assertEqual((done.returncode, done.stderr), (2, "rivals: /nonexistent: cannot be read: No such file or directory\n"))
        done = self.run_script("x", "--only", "deepep")
        self.assertEqual(done.returncode, 2)
        self.assertIn('--only: "deepep" must be one of deepep-ll, ', done.stderr)
        usage = self.run_script("--help")
        self.assertEqual(usage.returncode, 0)
        for word in (*rivals.RIVALS, "--tokens-out", "--columns", "Exit code"):
            self.assertIn(word, usage.stdout)

    @unittest.skipUnless(WEFT, "no program")
    def test_columns_of_its_tokens_stand_beside_wefts(self):
        config = self.folder / "config.json"
        config.write_text('{"hidden_size": 128, "num_hidden_layers": 1, "num_experts": 4, "num_experts_per_tok": 2, '
                          '"moe_intermediate_size": 128}')  # fmt: skip
        tokens, columns, report = (str(self.folder / name) for name in ("t.json", "c.json", "r.json"))
        common = ["--config", str(config), "--device", "cpu", "--ranks", "2", "--tokens", "1,3", "--samples", "1"]
        for command, operations in (("moe", {"dispatch", "combine", "both"}), ("moe-layer", {"dispatch", "combine", "both", "layer"})):
            def weft(*more, command=command):
                done = subprocess.run([WEFT, "bench", command, *common, *more], capture_output=True, text=True, timeout=300)
                self.assertEqual(done.returncode, 0, done.stderr)
                return done.stdout

            weft("--tokens-out", tokens)
            done = self.run_script(tokens, "--samples", "1", "--json", columns)
            self.assertEqual(done.returncode, 0, done.stderr)
            out = weft("--columns", columns, "--json", report)
            points = [p for p in json.loads(Path(report).read_text())["points"] if p.get("other_run")]
            self.assertEqual({p["operation"] for p in points}, operations)
            for column in json.loads(Path(columns).read_text())["columns"]:
                self.assertIn(column["rival"] + " (other run)", out)
                mine = [p for p in points if p["contender"] == column["rival"] + " (other run)"]
                theirs = sorted(column["points"], key=lambda p: p["tokens"])
                self.assertEqual([p["samples_us"] for p in mine], [p["samples_us"] for p in theirs])


if __name__ == "__main__":
    unittest.main()
