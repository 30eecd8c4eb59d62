#!/usr/bin/env python3
"""tools/prose.py refuses sentences that a stranger reads twice, and nothing that only looks like them."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import prose  # noqa: E402

ENOUGH = "A rank sends" + " packs" * 22 + "."
LONG = "A rank sends" + " packs" * 23 + "."
PAGE, SOURCE, SCRIPT, CODE = "docs/new.md", "src/comm/new.hpp", "tools/new.py", "src/comm/new.cpp"
BEHIND_A_PRONOUN = "are were have had need take mean that of in on from with for behind without".split()
# References in parentheses, which do not count.
REFERENCES = [
    "*one bank*",
    "*one bank*, *two banks* and `three`",
    "docs/moe.md",
    "ring.hpp, flow.hpp",
    "3.9 ms",
    "N = 4",
    "N = 4, 16 KB, 362 GB/s",
    "64 KB 4.22 → 4.05, 512 KB 5.67 → 5.52",
    "16 bytes",
    "[note 12](0012-a-note.md)",
    "issue 12",
    "A · D − 1",
    "R. A. van de Geijn, On global combine operations, 1994",
]

# File, text, and the lines and rules that must be told.
CASES = [
    (PAGE, LONG, [(1, "26 words")]),
    (PAGE, "Short.\n\n* Short.\n* " + LONG, [(4, "26 words")]),
    (PAGE, "[A link](there.md) begins\na line. " + LONG, [(1, "26 words")]),
    (PAGE, "Before.\n[A link](there.md) begins a line: " + LONG, [(1, "26 words")]),
    (PAGE, "Who waits ends.", [(1, "a pronoun as subject")]),
    (PAGE, "It ends. What is left\nstays.", [(1, "a pronoun as subject")]),
    (PAGE, "Where ranks differ, they end.", [(1, "a pronoun as subject")]),
    (PAGE, "**What is left** stays.", [(1, "a pronoun as subject")]),
    (PAGE, "That is a rule.", [(1, "a pronoun as subject")]),
    (SOURCE, "// Short.\n//\n// " + LONG + "\n", [(3, "26 words")]),
    (SOURCE, "int x;  // Who asks waits.\n", [(1, "a pronoun as subject")]),
    (SCRIPT, "# Whoever asks waits.\n", [(1, "a pronoun as subject")]),
    (SCRIPT, 'x = 1\ndef f():\n    """Short.\n\n    ' + LONG + '\n    """\n', [(5, "26 words")]),
    (SCRIPT, 'class A:\n    """What it is."""\n', [(2, "a pronoun as subject")]),
    (CODE, 'throw Error(code, "A rank sends" "' + LONG[12:] + '");\n', [(1, "26 words")]),
    (CODE, 'f("Short.\\n"\n  "Where it ends.");\n', [(1, "a pronoun as subject")]),
    (CODE, 'm.def("f", R"doc(\nShort.\n\nx: ' + LONG + ')doc");\n', [(4, "26 words")]),
    # Text in parentheses is a part of its sentence, unless it ends as one.
    (PAGE, ENOUGH[:-1] + " (in turns).", [(1, "27 words")]),
    (PAGE, "A rank (of two: in turns; or of four) " + ENOUGH[7:], [(1, "32 words")]),
    (PAGE, "A rank (of (two): in turns; or of four) " + ENOUGH[7:], [(1, "32 words")]),
    (PAGE, ENOUGH[:-1] + " (`a` says so).", [(1, "28 words")]),
    (PAGE, ENOUGH[:-1] + " ([of a link](there.md)).", [(1, "28 words")]),
    (PAGE, ENOUGH[:-1] + " (16 KB in turns).", [(1, "29 words")]),
    (PAGE, "It ends. (Who waits ends.)", [(1, "a pronoun as subject")]),
    (PAGE, "It ends. (" + LONG + ") It begins.", [(1, "26 words")]),
    *((PAGE, f"Those {word} there.", [(1, "a pronoun as subject")]) for word in BEHIND_A_PRONOUN),
    *((PAGE, f"It ends. These {word} there.", [(1, "a pronoun as subject")]) for word in BEHIND_A_PRONOUN),
    *((PAGE, f"It ends. {word} ranks begin.", [(1, "a pronoun as subject")]) for word in ("Which", "Whose", "How many")),
    # Sentences that are allowed.
    *((PAGE, f"{ENOUGH[:-1]} ({reference}).", []) for reference in REFERENCES),
    (PAGE, ENOUGH + " (" + ENOUGH + ") " + ENOUGH, []),
    (PAGE, "A call f(a, b, c, d) of a rank" + " sends" * 19 + ".", []),
    (PAGE, "Those ranks end, and these rows of theirs, too. These three are late. How do they end? Which are late?", []),
    (CODE, '{"a", "(Tensor x, int group, ' + "int options, " * 20 + 'int rows) -> ()"}\n', []),
    (PAGE, "That rank is late. What is missing?", []),
    (PAGE, "Nobody knows what is left, or where.", []),
    (PAGE, ENOUGH + " " + ENOUGH, []),
    (PAGE, "```\n" + LONG + "\n```", []),
    (PAGE, "| " + LONG + " |", []),
    (PAGE, "# What it is", []),
    (PAGE, "[1]: " + LONG, []),
    (PAGE, "<!-- " + LONG + " -->", []),
    (PAGE, "Mutants: *" + "*, *".join(["one bank of two"] * 9) + "*.", []),
    (PAGE, "It needs " + ", ".join(["`a b`"] * 30) + ".", []),
    (PAGE, "See [What it is](there.md) and e.g. that page.", []),
    (SOURCE, "int who = 1;\nint x = f(who);\n", []),
    (SOURCE, '#include "who.hpp"\n', []),
    (SCRIPT, 'x = """' + LONG + '"""\n', []),
    (SCRIPT, 'def f():\n    """Short.\n\n    Code:\n        f ' + LONG + '\n    """\n', []),
    (CODE, '// "' + ENOUGH + '"\nf("' + ENOUGH + '");\n', []),
    (CODE, 'f("' + ", ".join(["tokens {}"] * 30) + '");\n', []),
    (CODE, 'R"(weft bench --model a --tokens ' + "1 " * 30 + ')";\n', []),
    ("tests/comm/new_test.cpp", 'f("' + LONG + '");\n', []),
]


class Prose(unittest.TestCase):
    def test_sentences(self):
        for name, text, wanted in CASES:
            with self.subTest(name=name, text=text):
                found = [(line, rule) for line, rule, _ in prose.breaches(Path(name), text)]
                self.assertEqual(found, wanted)


if __name__ == "__main__":
    unittest.main()
