#!/usr/bin/env python3
"""The project's rules work: a line that breaks one is refused, and a line that only looks like it is accepted."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import lint  # noqa: E402

ALGORITHM = "src/ops/moves/new.hpp"
LIBRARY = "src/comm/new.cpp"
PTX = "src/team/ptx.cuh"

# File, a line in it, and a part of the rule's message.
BAD = [
    (ALGORITHM, "#if defined(__CUDA_ARCH__)", "architecture"),
    (ALGORITHM, "#ifdef __CUDACC__", "architecture"),
    (ALGORITHM, "#ifdef __NVPTX__", "architecture"),
    (ALGORITHM, "#if WEFT_WITH_CUDA", "architecture"),
    (ALGORITHM, "#ifdef __x86_64__", "architecture"),
    (ALGORITHM, "#if defined(__aarch64__)", "architecture"),
    (ALGORITHM, "#ifdef __AVX2__", "architecture"),
    (ALGORITHM, "if constexpr (std::is_same_v<T, CudaBlock>) return;", "mentions CUDA"),
    (ALGORITHM, "if constexpr (std::is_same_v<T, CpuThread>) return;", "which executor"),
    (ALGORITHM, "if constexpr (std::is_same_v<T, sim::SimTeam>) return;", "which executor"),
    (ALGORITHM, "if (device == Device::cpu) return;", "which executor"),
    (ALGORITHM, '#include "kernel/executor.hpp"', "executor or a fabric"),
    (ALGORITHM, '#include "kernel/blocks.hpp"', "executor or a fabric"),
    (ALGORITHM, '#include "fabric/fabric.hpp"', "executor or a fabric"),
    (ALGORITHM, '#include "sim/memory.hpp"', "executor or a fabric"),
    (ALGORITHM, '#include "team/cpu_thread.hpp"', "a team of one executor"),
    (ALGORITHM, '#include "team/ptx.cuh"', "a team of one executor"),
    ("src/wire/new.hpp", "if (device == Device::cpu) return;", "which executor"),
    ("src/protocol/new.hpp", "#ifdef __CUDACC__", "architecture"),
    ("src/ops/new.hpp", "if (device == Device::cpu) return;", "which executor"),
    ("src/comm/rejection.hpp", "#ifdef __CUDACC__", "architecture"),
    (LIBRARY, 'asm("nop;");', "inline assembly"),
    (LIBRARY, 'asm volatile("nop;");', "inline assembly"),
    (LIBRARY, 'asm("trap;");', "traps"),
    (PTX, 'asm("trap;");', "traps"),
    (PTX, '               "brkpt;"', "traps"),
    (LIBRARY, "__trap();", "traps"),
    (LIBRARY, "__builtin_trap();", "traps"),
    (LIBRARY, '::setenv("A", "b", 1);', "environment"),
    (LIBRARY, 'unsetenv("A");', "environment"),
    (LIBRARY, "exit(-1);", "ends the process"),
    (LIBRARY, "std::exit(1);", "ends the process"),
    (LIBRARY, "::_exit(code);", "ends the process"),
    (LIBRARY, "quick_exit(x + 1);", "ends the process"),
    (LIBRARY, "else abort();", "ends the process"),
    (LIBRARY, "std::terminate();", "ends the process"),
    (LIBRARY, "assert(x);", "ends the process"),
    (LIBRARY, "raise(SIGABRT);", "sends a signal"),
    (LIBRARY, "::kill(pid, SIGKILL);", "sends a signal"),
    (LIBRARY, "std::signal(SIGTERM, SIG_IGN);", "signal handler"),
    (LIBRARY, "sigaction(SIGTERM, &action, nullptr);", "signal handler"),
    ("include/weft/new.hpp", "inline void stop() { exit(0); }", "ends the process"),
    ("src/ops/moves/new_partition.hpp", "team.store(address, pack);", "a partition touches memory"),
    ("src/ops/moves/new_partition.hpp", "return team_->load_acquire(address);", "a partition touches memory"),
]

GOOD = [
    (ALGORITHM, "while (sharers < T::kLanes) sharers *= 2;"),
    (ALGORITHM, "return Line::arrived<T::kAtomicBytes>(line, s.epoch);"),
    (ALGORITHM, "if (known_size <= T::kLeastThreads) break;"),
    (ALGORITHM, '#include "team/team.hpp"'),
    (ALGORITHM, '#include "base/function.hpp"'),
    (ALGORITHM, '#include "kernel/kernel.hpp"'),
    (ALGORITHM, '#include "protocol/session.hpp"'),
    ("src/ops/moves/cpu_new.cpp", '#include "kernel/kernel_table.hpp"'),
    ("src/ops/moves/sim_new.hpp", '#include "sim/run.hpp"'),
    (ALGORITHM, "// On CUDA a CpuThread would exit(1) here."),
    (LIBRARY, "if (device == Device::cpu) return;"),
    (LIBRARY, "state_->abort();"),
    (LIBRARY, "communicator.abort();"),
    (LIBRARY, "void Communicator::abort() noexcept {"),
    (LIBRARY, "  void abort() noexcept override {"),
    (LIBRARY, "static_assert(sizeof(Pack) == 16);"),
    (LIBRARY, "poison_windows(abort, size_);"),
    (LIBRARY, "// as raise(SIGABRT) would"),
    (PTX, 'asm volatile("griddepcontrol.wait;" ::: "memory");'),
    ("apps/weft/new.cpp", "std::exit(1);"),
    ("tests/comm/new_test.cpp", "::_exit(1);"),
    ("src/ops/moves/new_partition.hpp", "team.share(0, word);"),
    (ALGORITHM, "team.store(address, pack);"),
]


# A page's drawing. Below: a file, its include, and a part of the rule's message; none if it is allowed.
DRAWING = """
apps/weft/simulate/  a program
oracle/              what must come out
src/ops/             all of them
src/ops/moe/         one
src/ops/moves/       another
src/comm/            what they need
src/sim/             a simulator
src/base/            what all need
"""
ARROWS = [
    ("src/base/new.hpp", "comm/state.hpp", "draws src/comm above src/base"),
    ("src/comm/new.cpp", "ops/moves/row_partition.hpp", "draws src/ops/moves above src/comm"),
    ("src/ops/moves/new.cpp", "ops/moe/moe_rows.hpp", "draws src/ops/moe above src/ops/moves"),
    ("src/ops/moe/new.cpp", "ops/all.hpp", "draws src/ops above src/ops/moe"),
    ("src/sim/new.cpp", "comm/state.hpp", "draws src/comm above src/sim"),
    ("src/new/new.hpp", "base/pack.hpp", "does not draw src/new"),
    ("src/ops/new/new.hpp", "base/pack.hpp", "does not draw src/ops/new"),
    ("apps/new.cpp", "base/pack.hpp", "does not draw apps"),
    ("src/comm/new.cpp", "new/new.hpp", "does not draw the folder of new/new.hpp"),
    ("src/comm/new.cpp", "../base/pack.hpp", "does not draw the folder of ../base/pack.hpp"),
    ("src/comm/new.cpp", "simulate/new.hpp", "draws apps/weft/simulate above src/comm"),
    ("src/comm/new.cpp", "sim/run.hpp", "includes the simulator"),
    ("src/ops/moe/new.cpp", "ops/moe/sim_kernels.hpp", "includes the simulator"),
    ("src/ops/moe/new.cpp", "ops/moves/sim_kernels.hpp", "includes the simulator"),
    ("include/weft/new.hpp", "base/pack.hpp", "a public header"),
    ("src/comm/new.cpp", "oracle/new.hpp", "draws oracle above src/comm"),
    ("src/comm/new.cpp", "src/base/pack.hpp", "does not draw the folder of src/base/pack.hpp"),
    ("oracle/new.cpp", "base/pack.hpp", "nothing of the project"),
    ("oracle/new.cpp", "src/base/pack.hpp", "nothing of the project"),
    ("oracle/new.cpp", "simulate/new.hpp", "nothing of the project"),
    ("oracle/new.cpp", "weft/types.hpp", "nothing of the project"),
    ("oracle/new.cpp", "new.hpp", "nothing of the project"),
    ("oracle/new.cpp", "../src/base/pack.hpp", "nothing of the project"),
    ("oracle/new.cpp", "oracle/../src/base/pack.hpp", "nothing of the project"),
    ("oracle/new.cpp", "oracle/new.hpp", None),
    ("apps/weft/simulate/new.cpp", "oracle/new.hpp", None),
    ("src/base/new.hpp", "weft/types.hpp", None),
    ("src/base/new.hpp", "base/pack.hpp", None),
    ("src/comm/new.cpp", "base/pack.hpp", None),
    ("src/ops/moe/new.cpp", "ops/moves/row_partition.hpp", None),
    ("src/ops/new.cpp", "ops/moe/moe_rows.hpp", None),
    ("src/ops/moe/sim_new.cpp", "ops/moves/sim_kernels.hpp", None),
    ("src/ops/moe/sim_new.cpp", "sim/run.hpp", None),
    ("apps/weft/simulate/new.cpp", "sim/run.hpp", None),
    ("include/weft/new.hpp", "weft/types.hpp", None),
    ("tests/comm/new_test.cpp", "new/new.hpp", None),
    ("src/comm/new.hpp", "<ops/moves/row_partition.hpp>", "draws src/ops/moves above src/comm"),
    ("src/comm/new.hpp", "<fmt/format.h>", None),
    ("src/comm/new.hpp", "weft/moves.hpp", "weft/moves.hpp belongs to src/ops/moves, above src/comm"),
    ("src/comm/new.hpp", "<weft/moves.hpp>", "weft/moves.hpp belongs to src/ops/moves, above src/comm"),
    ("src/comm/new.hpp", "weft/of_moves.hpp", "weft/of_moves.hpp belongs to src/ops/moves, above src/comm"),
    ("src/comm/new.hpp", "weft/types.hpp", None),
    ("src/ops/moe/new.hpp", "weft/moves.hpp", None),
    ("src/sim/new.hpp", "weft/moves.hpp", None),
    ("include/weft/moves.hpp", "weft/moe.hpp", "weft/moe.hpp belongs to src/ops/moe, above src/ops/moves"),
    ("include/weft/moe.hpp", "weft/moves.hpp", None),
    ("include/weft/moe.hpp", "<fmt/format.h>", None),
    ("python/core/new.cpp", "base/pack.hpp", "public headers only"),
    ("python/core/new.cpp", "<comm/state.hpp>", "public headers only"),
    ("python/core/new.cpp", "weft/moe.hpp", None),
    ("examples/new.cpp", "base/pack.hpp", "public headers only"),
]
# Files with their text, from which follows where public headers belong.
PUBLIC = {
    "include/weft/types.hpp": "",
    "include/weft/moves.hpp": '#include "weft/types.hpp"',
    "include/weft/of_moves.hpp": '#include "weft/moves.hpp"',
    "include/weft/moe.hpp": '#include "weft/moves.hpp"',
    "src/ops/moves/moves.cpp": '// #include "weft/moe.hpp"\n#include "weft/moves.hpp"\n',
    "src/ops/moe/moe.cpp": '#include "weft/moe.hpp"\n#include "weft/types.hpp"\n',
    "src/ops/moe/other.cpp": '#include "weft/moves.hpp"\n',
    "src/base/pack.cpp": '#include "base/pack.hpp"\n#include "weft/moves.hpp"\n',
}

# Files with their text. `{}` is a file that may include an algorithm or not.
ROOM = {
    "src/ops/moves/move.hpp": "template <Team T>\nvoid move(T& team);",
    "src/ops/moves/move_all.hpp": '#include "ops/moves/move.hpp"\nstruct MoveAll {};',
    "src/ops/moves/row_partition.hpp": "template <Team T>\nbool prepare(T& team);",
    "src/ops/moves/move_work.hpp": '#include "ops/moves/row_partition.hpp"\n// template <Team T>\n',
    "src/ops/moves/move_instances.hpp": '#include "ops/moves/move_all.hpp"',
    "src/ops/moves/sim_moves.hpp": "template <Team T>\nvoid run(T& team);",
    "src/comm/rejection.hpp": "void reject(auto& team);",
    "src/comm/rejection_instances.hpp": '#include "comm/rejection.hpp"',
    "src/protocol/session.hpp": "template <Team T>\nvoid begin(T& team);",
}
# Source file, its include, and the algorithm to which that leads; none if it is allowed.
SEEN = [
    ("src/ops/moves/moves.cpp", "ops/moves/move.hpp", "src/ops/moves/move.hpp"),
    ("src/ops/moves/moves.cpp", "ops/moves/move_all.hpp", "src/ops/moves/move.hpp"),
    ("src/ops/moves/moves.cpp", "ops/moves/move_instances.hpp", "src/ops/moves/move.hpp"),
    ("src/ops/moves/moves.cpp", "ops/moves/move_work.hpp", None),
    ("src/ops/moves/moves.cpp", "ops/moves/sim_moves.hpp", None),
    ("src/ops/moves/moves.cpp", "protocol/session.hpp", None),
    ("src/ops/all_kernels.cpp", "ops/moves/move_instances.hpp", "src/ops/moves/move.hpp"),
    ("src/ops/cpu_all.cpp", "ops/moves/move_instances.hpp", "src/ops/moves/move.hpp"),
    ("src/ops/moves/cpu_move.cpp", "ops/moves/move_instances.hpp", None),
    ("src/ops/moves/cuda_move.cu", "ops/moves/move_instances.hpp", None),
    ("src/ops/moves/sim_moves.cpp", "ops/moves/move_instances.hpp", None),
    ("src/ops/moves/move.cu", "ops/moves/move_instances.hpp", "src/ops/moves/move.hpp"),
    ("src/comm/call.cpp", "comm/rejection.hpp", "src/comm/rejection.hpp"),
    ("src/comm/cpu_rejection.cpp", "comm/rejection_instances.hpp", None),
    ("src/fabric/cpu_fabric.cpp", "ops/moves/move_all.hpp", "src/ops/moves/move.hpp"),
    ("src/c/moves.cpp", "ops/moves/move_all.hpp", "src/ops/moves/move.hpp"),
    ("apps/weft/bench/bench.cpp", "ops/moves/move_all.hpp", "src/ops/moves/move.hpp"),
    ("tests/core/move_test.cpp", "ops/moves/move_all.hpp", None),
]


class Rules(unittest.TestCase):
    def rules_broken(self, name, line):
        return [rule for _, rule in lint.breaches(Path(name), "#pragma once\n" + line + "\n")]

    def test_every_breach_is_seen(self):
        for name, line, rule in BAD:
            with self.subTest(name=name, line=line):
                broken = self.rules_broken(name, line)
                self.assertTrue(any(rule in text for text in broken), f"not seen: {broken}")

    def test_nothing_else_is(self):
        for name, line in GOOD:
            with self.subTest(name=name, line=line):
                self.assertEqual(self.rules_broken(name, line), [])

    def test_arrows_point_down(self):
        folders = lint.drawn_folders(DRAWING)
        self.assertEqual([folders[0], folders[-1]], ["src/base", "apps/weft/simulate"])
        public = lint.public_rooms({Path(name): text for name, text in PUBLIC.items()}, folders)
        for name, include, rule in ARROWS:
            with self.subTest(name=name, include=include):
                line = f"#include {include}" if include.startswith("<") else f'#include "{include}"'
                found = list(lint.arrow_breaches(Path(name), f"#pragma once\n{line}\n", folders, public))
                self.assertEqual(len(found), 0 if rule is None else 1)
                self.assertTrue(rule is None or rule in found[0][1], f"says something else: {found}")

    def test_hosts_see_no_algorithm(self):
        for name, include, algorithm in SEEN:
            with self.subTest(name=name, include=include):
                texts = {Path(file): text for file, text in {**ROOM, name: f'\n#include "{include}"\n'}.items()}
                found = [(path.as_posix(), line, rule.split()[0]) for path, line, rule in lint.algorithm_breaches(texts)]
                self.assertEqual(found, [(name, 2, algorithm)] if algorithm else [])

    def test_every_room_has_algorithms(self):
        """Else the rule would not know them any more. Here each list of instances is one that a host includes."""
        root = Path(lint.__file__).parents[1]
        texts = {path.relative_to(root): path.read_text(encoding="utf-8")
                 for path in root.glob("src/**/*") if path.suffix in lint.CPP}
        lists = [path for path in texts if path.name.endswith("_instances.hpp")]
        self.assertGreater(len(lists), 10)
        for path in lists:
            host = Path("src/fabric/new.cpp")
            texts[host] = f'#include "{path.relative_to("src").as_posix()}"\n'
            self.assertTrue(any(broken == host for broken, _, _ in lint.algorithm_breaches(texts)), path)

    def test_a_function_of_a_public_header_has_a_folder(self):
        folders = lint.drawn_folders(DRAWING)
        texts = {Path(name): text for name, text in PUBLIC.items()}
        self.assertEqual(list(lint.undefined_breaches(texts, folders)), [])
        texts[Path("include/weft/moves.hpp")] += "\nvoid move(int);\n"
        texts[Path("include/weft/of_moves.hpp")] += "\nvoid move_all(int);\ninline void f();\n"
        self.assertEqual([(path.name, line) for path, line, _ in lint.undefined_breaches(texts, folders)],
                         [("of_moves.hpp", 2)])

    def test_the_oracle_includes_the_standard_library(self):
        for included, allowed in [("<vector>", True), ("<cmath>", True), ("<weft/types.hpp>", False),
                                  ("<fmt/format.h>", False), ("<cuda_fp16.h>", False), ("HEADER", False)]:
            with self.subTest(included=included):
                found = list(lint.arrow_breaches(Path("oracle/new.hpp"), f"#pragma once\n#include {included}\n", ["oracle"], {}))
                self.assertEqual(found == [], allowed)

    def test_the_page_draws_what_there_is(self):
        root = Path(lint.__file__).parents[1]
        folders = lint.drawn_folders((root / lint.DRAWING).read_text(encoding="utf-8"))
        self.assertEqual(folders[0], "src/base")
        self.assertEqual(len(folders), len(set(folders)))
        for folder in folders:
            self.assertTrue((root / folder).is_dir(), folder)

    def test_long_files_are_seen(self):
        line = "int i;\n"
        self.assertEqual(list(lint.breaches(Path(LIBRARY), line * lint.MAX_LINES)), [])
        self.assertEqual(len(list(lint.breaches(Path(LIBRARY), line * (lint.MAX_LINES + 1)))), 1)

    def test_excerpts_are_what_pages_show(self):
        excerpt = "// begin: README.md\n{}\n// end: README.md"
        first = Path(lint.__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8").splitlines()[0]
        self.assertEqual(self.rules_broken(LIBRARY, excerpt.format(first)), [])
        self.assertEqual(self.rules_broken(LIBRARY, excerpt.format(first + "?")), ["README.md shows something else"])

    def test_a_breach_has_its_line(self):
        self.assertEqual([number for number, _ in lint.breaches(Path(LIBRARY), "\n/* a\nb */\nexit(-1);\n")], [4])


if __name__ == "__main__":
    unittest.main()
