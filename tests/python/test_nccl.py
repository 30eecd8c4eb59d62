"""The NCCL that a process takes, with stand-ins (tests/stubs). It keeps its copy, so each case has a process of its own."""

from __future__ import annotations

from pathlib import Path

import weft
from processes import run_program

# The package is installed into the build folder, beside the stand-ins.
STUBS = (Path(weft.__file__).parents[2] / "bin" / "stubs").resolve()
STUB, OTHER = (str(STUBS / version / "libnccl.so.2") for version in ("23007", "22907"))

# A stand-in has no communicator, and refuses the first question about one.
ASK = """
import ctypes, sys, weft
for file in sys.argv[1:]:
    weft.use_nccl(file)
nothing = ctypes.c_int()
try:
    weft.Communicator.from_nccl(ctypes.addressof(nothing))
except weft.Error as error:
    print(error.code.name, error)
with open("/proc/self/maps") as maps:
    print(*{line.split()[-1] for line in maps if "libnccl" in line})
"""
ASKED = "system ncclCommUserRank: the stub says no: its last word"


def answer(*named: str, **variables: str) -> list[str]:
    """The words of a process that has named these files, and the copy that it has."""
    outcome = run_program(["-c", ASK, *named], variables)
    assert (outcome.code, outcome.errors) == (0, "")
    return outcome.output.splitlines()


def test_a_named_file_is_taken() -> None:
    assert answer(STUB) == [ASKED, STUB]
    assert answer("/nowhere/libnccl.so.2", STUB) == [ASKED, STUB]


def test_a_missing_file_is_an_error_that_names_it() -> None:
    [said, taken] = answer("/nowhere/libnccl.so.2")
    assert said.startswith("unsupported no NCCL: use_nccl() names /nowhere/libnccl.so.2: "), said
    assert taken == ""


def test_what_a_process_has_or_its_user_names_comes_first() -> None:
    assert answer(STUB, LD_PRELOAD=OTHER) == [ASKED, OTHER]
    assert answer(STUB, WEFT_NCCL=OTHER) == [ASKED, OTHER]


def test_an_import_names_that_of_the_environment(tmp_path: Path) -> None:
    folder = tmp_path / "nvidia" / "nccl" / "lib"
    folder.mkdir(parents=True)
    (folder / "libnccl.so.2").symlink_to(STUB)
    path = f"{Path(weft.__file__).parents[1]}:{tmp_path}"
    assert answer(PYTHONPATH=path) == [ASKED, STUB]
    assert answer(OTHER, PYTHONPATH=path) == [ASKED, OTHER]
