"""Ranks as threads of the test."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import weft

T = TypeVar("T")


def run_ranks(count: int, work: Callable[[weft.Communicator], T], config: weft.Config | None = None) -> list[T]:
    """Runs `work` on every rank of a new communicator.

    Returns what the ranks return, or raises the error of a rank that did not just wait for another one.
    """
    ranks = weft.Communicator.local(count, config or weft.Config(device="cpu", deadline=10))
    results: list[T | None] = [None] * count
    errors: list[BaseException | None] = [None] * count

    def run(rank: int) -> None:
        try:
            results[rank] = work(ranks[rank])
        except BaseException as error:  # the thread would swallow it
            errors[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A rank that raises leaves the others waiting: theirs is the consequence.
    consequences = (weft.Errc.timeout, weft.Errc.peer_failed, weft.Errc.mismatch)
    found = [error for error in errors if error is not None]
    found.sort(key=lambda error: isinstance(error, weft.Error) and error.code in consequences)
    if found:
        raise found[0]
    return results  # type: ignore[return-value]
