"""A program ends with exit code 0 and without a word, whatever lives, and whatever its threads wait for."""

from __future__ import annotations

import textwrap

import pytest
from processes import run_program

BEGIN = """
import sys, threading, time
import numpy as np
import weft

CPU = weft.Config(device="cpu", deadline=None)
ranks = weft.Communicator.local(2, CPU)
x = np.ones(8, np.int32)

def on_each(work):
    threads = [threading.Thread(target=work, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def expect_silent_end(program: str) -> None:
    assert run_program(["-c", BEGIN + textwrap.dedent(program)]) == (0, "", "")


LIVE = {
    "communicators": "",
    "groups": "world, half = ranks[0].world, []; on_each(lambda rank: half.append(rank.split(0)))",
    "groups alone": "worlds = [rank.world for rank in ranks]; del ranks",
    "memory": "memories = []; on_each(lambda rank: memories.append(weft.SymmetricMemory.allocate(rank, 4096)))",
    "views of memory": """
        views = []
        on_each(lambda rank: views.append(weft.SymmetricMemory.allocate(rank, 4096).tensor([4], "f32")))
    """,
    "exchanges": """
        exchanges = []
        def create(rank):
            exchanges.append(weft.Exchange.create(rank.world, tokens=1, hidden=8, experts=2, top_k=1))
        on_each(create)
    """,
    "layers": """
        layers = []
        def create(rank):
            exchange = weft.Exchange.create(rank.world, tokens=1, hidden=8, experts=2, top_k=1)
            layers.append(weft.MoeLayer.create(exchange, intermediate=8))
        on_each(create)
    """,
    "recordings": """
        kept = []
        def record(rank):
            y = x.copy()
            kept.append((y, weft.Recording.capture(rank, lambda: rank.world.all_reduce(y))))
            kept[-1][1].replay()
        on_each(record)
    """,
    "an error": """
        try:
            ranks[0].world.all_reduce(x, op="mean")
        except weft.Error as error:
            kept = error, error.__traceback__
    """,
    "a failed communicator": "ranks[0].abort()",
    "a cycle": "cycle = [ranks]; cycle.append(cycle); del ranks",
    "a module's object": """
        import types
        other = sys.modules["other"] = types.ModuleType("other")
        other.ranks = ranks
        del ranks
    """,
    "an exit function": """
        import atexit
        one = weft.Communicator.local(1, CPU)[0].world
        atexit.register(lambda: one.all_reduce(x))
    """,
}


@pytest.mark.parametrize("what", LIVE)
def test_with_live_objects(what: str) -> None:
    expect_silent_end(LIVE[what])


# The thread waits for rank 1, which never comes.
CALLS = {
    "all_reduce": "lambda: ranks[0].world.all_reduce(x)",
    "barrier": "ranks[0].world.barrier",
    "replay": "weft.Recording.capture(ranks[0], ranks[0].world.barrier).replay",
    "split": "lambda: ranks[0].split(0)",
    "release": "ranks[0].release",
    "allocate": "lambda: weft.SymmetricMemory.allocate(ranks[0], 16)",
    "from_id": "lambda: weft.Communicator.from_id(weft.Communicator.create_id(), 0, 2, CPU)",
}
WAIT = """
call = {call}
begun = threading.Event()
def wait():
    begun.set()
    call()
threading.Thread(target=wait, daemon=True).start()
begun.wait()
time.sleep(0.05)  # the thread is in its call now, most likely
"""


@pytest.mark.parametrize("call", CALLS)
def test_while_a_daemon_thread_waits_in_a_call(call: str) -> None:
    expect_silent_end(WAIT.format(call=CALLS[call]))


@pytest.mark.parametrize("end", ["rank.abort()", "rank.world.all_reduce(x)"])
def test_while_a_call_of_a_daemon_thread_ends(end: str) -> None:
    """The interpreter lets no other thread in again while it ends. The end of the call must not abort the program."""
    program = """
        while not ranks[0].world.recent_calls():  # it is in its call
            time.sleep(0.001)
        class Last:
            def __init__(self, rank, x, sleep):
                self.rank, self.x, self.sleep = rank, x, sleep
            def __del__(self):
                rank, x = self.rank, self.x
                END
                self.sleep(0.3)  # time for the thread, which wants to go on
        sys.modules["last"] = Last(ranks[1], x.copy(), time.sleep)
    """
    expect_silent_end(WAIT.format(call=CALLS["all_reduce"]) + textwrap.dedent(program).replace("END", end))


def test_an_exit_function_may_stop_a_thread_that_waits() -> None:
    """It was registered before weft was imported, and so it runs after whatever weft has registered."""
    program = """
        import atexit
        stop = []
        atexit.register(lambda: [call() for call in stop])
        import threading, time, weft
        ranks = weft.Communicator.local(2, weft.Config(device="cpu", deadline=None))
        def wait():
            try:
                ranks[0].world.barrier()
            except weft.Error as error:
                print(error.code.name)
        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        while not ranks[0].world.recent_calls():
            time.sleep(0.001)
        def halt():
            ranks[1].abort()
            thread.join(20)
        stop.append(halt)
    """
    assert run_program(["-c", textwrap.dedent(program)]) == (0, "aborted\n", "")
