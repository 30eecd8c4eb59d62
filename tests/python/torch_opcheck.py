"""torch.library.opcheck on every operator: its schema, its fake, and what a compiler makes of it."""

from __future__ import annotations

import pytest
from torch_checks import ALONE, DEFINED, HALVES, MESSAGES, check_half, check_message, check_whole_calls, checked


@pytest.mark.parametrize("name", ALONE)
def test_whole_calls(name: str) -> None:
    check_whole_calls(name)


@pytest.mark.parametrize("half", HALVES)
def test_halves_of_an_exchange(half: str) -> None:
    check_half(half)


@pytest.mark.parametrize("name", MESSAGES)
def test_single_messages(name: str) -> None:
    check_message(name)


def test_no_operator_was_left_out() -> None:
    """Of a whole run of this file."""
    assert checked == DEFINED
