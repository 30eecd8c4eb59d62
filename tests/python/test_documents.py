"""Documents for integrators are true: their Python runs, and the names that they give to Weft's things exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from test_interface import SIGNATURES, WORDS, public

import weft

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ["docs/integration.md", "docs/python.md"]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks_of(name: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text_of(name), re.MULTILINE | re.DOTALL)


def test_python_runs() -> None:
    blocks = [block for name in DOCUMENTS for block in blocks_of(name) if "weft.torch" not in block]
    plain = [block for block in blocks if block.startswith("import")]
    assert len(plain) == 1  # the others need torch, or what they do not define
    for block in plain:
        names: dict[str, Any] = {}
        exec(block, names)
        assert (names["x"] == 1).all()


def names_of_python() -> set[str]:
    names = {part for name, _ in public() for part in name.split(".")}
    for text in SIGNATURES.values():
        names |= set(re.findall(r"(\w+):", text))
    for words in WORDS.values():
        names |= set(words)
    for record in (weft.Fault, weft.CallRecord, weft.MemoryUse, weft.ExchangeMemory, weft.HostCount):
        names |= set(record._fields)
    names |= {f"Errc::{code.name}" for code in weft.Errc}
    return names


# Names of weft.torch alone.
OF_TORCH = {"broadcast_", "fp8_rows", "fp8_scale"}
# Values that calls are given.
VALUES = {"x", "sizes", "dst", "src", "fp8", "None"}


def tables_of(name: str) -> list[tuple[str, str]]:
    """(their function, Weft's) of each row below "What each engine's function becomes"."""
    text = text_of(name).split("## What each engine's function becomes")[1]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [(row[0], row[1]) for row in rows if len(row) == 2]


def named_in(cell: str) -> set[str]:
    """The names in a cell's code: of functions, arguments and words."""
    code = " ".join(re.findall(r"`([^`]+)`", cell))
    return set(re.findall(r"[A-Za-z_][\w:]*", code))


def test_names_of_tables_exist() -> None:
    known = names_of_python() | OF_TORCH | VALUES
    rows = tables_of("docs/integration.md")
    assert len(rows) > 60
    missing = {(theirs, name) for theirs, ours in rows for name in named_in(ours) - known}
    assert missing == set()


@pytest.mark.parametrize("cell", ["`all_reduced(x)`", '`all_reduce(x, opp="max")`', '`padding="per_row"`'])
def test_a_wrong_name_is_found(cell: str) -> None:
    assert named_in(cell) - names_of_python() - VALUES
