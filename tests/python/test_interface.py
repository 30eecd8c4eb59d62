"""Editors and checkers of types are told all words that calls take. Everything that has a name has a docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest

import weft
from weft import _core

WORDS = {name: words for name, words in _core._words().items() if name != "DispatchOutput"}

# Arguments that are free text, or name one of too many things.
FREE = {"dtype", "file", "host", "name", "tuning_file"}


def public() -> Iterator[tuple[str, Any]]:
    """(dotted name, object) of all that the package offers, members of classes included."""
    for name in weft.__all__:
        value = getattr(weft, name)
        if not callable(value) or name in WORDS or value is weft.Errc:
            continue
        yield name, value
        if inspect.isclass(value):
            for member, inner in vars(value).items():
                if not member.startswith("_") or member == "__init__":
                    yield f"{name}.{member}", inner


def signature_of(value: Any) -> str:
    """Empty for what is no function of the binding."""
    function = getattr(value, "__func__", value)
    return str(function.__nb_signature__[0][0]) if hasattr(function, "__nb_signature__") else ""


SIGNATURES = {name: text for name, value in public() if (text := signature_of(value)).startswith("def ")}


@pytest.mark.parametrize("name", WORDS)
def test_types_of_words_have_those_that_calls_take(name: str) -> None:
    assert list(get_args(getattr(weft, name))) == WORDS[name]
    assert name in weft.__all__
    assert any(re.search(rf"weft\._words\.{name}\b", text) for text in SIGNATURES.values())


def test_no_word_is_any_text() -> None:
    texts = {name: set(re.findall(r"(\w+): str\b", text)) for name, text in SIGNATURES.items()}
    assert texts["Tensor.at"] == {"dtype", "device"}  # a device may have a number there
    del texts["Tensor.at"]
    assert {name: found - FREE for name, found in texts.items() if found - FREE} == {}


@pytest.mark.parametrize("name", ["Exchange.dispatch", "Exchange.dispatch_wait"])
def test_all_outputs_of_a_dispatch_are_named(name: str) -> None:
    named = re.findall(r"(\w+): object = None", SIGNATURES[name])
    outputs = _core._words()["DispatchOutput"]
    assert named[-len(outputs) :] == outputs


def test_everything_has_a_docstring() -> None:
    found = dict(public())
    assert len(found) > 150
    assert [name for name, value in found.items() if not name.endswith("__init__") and not described(value)] == []


def described(value: Any) -> bool:
    """The binding's own docstrings begin with a signature, which alone says too little."""
    return re.sub(r"\A\w*\(.*\) -> .*$", "", inspect.getdoc(value) or "", flags=re.MULTILINE).strip() != ""
