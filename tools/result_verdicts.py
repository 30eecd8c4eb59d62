"""Aims, and what a run says of them."""

from typing import Callable, NamedTuple


class Verdict(NamedTuple):
    operation: str  # in words, empty if the aim has one only
    size: str
    met: bool
    measured: str


class Aim(NamedTuple):
    text: str
    command: str
    judge: Callable  # of a run: its verdicts
    blocks: int | None = 0  # of the runs that are judged; 0: those that Weft chooses, None: any


def said(verdicts, with_figures):
    """The sizes, behind the name of their operation."""
    by = {}
    for verdict in verdicts:
        by.setdefault(verdict.operation, []).append(verdict)
    parts = []
    for operation, found in by.items():
        sizes = ", ".join(f"{v.size} ({v.measured})" if with_figures else v.size for v in found)
        parts.append(": ".join([operation] * bool(operation) + [sizes]))
    return "; ".join(parts)
