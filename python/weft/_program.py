"""The program `weft`, which the package brings along."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent / "bin" / "weft"


def nccl_of_environment() -> str:
    """The file of the environment's package nvidia-nccl; empty without one."""
    found = importlib.util.find_spec("nvidia")
    for folder in found.submodule_search_locations or [] if found else []:
        library = Path(folder) / "nccl" / "lib" / "libnccl.so.2"
        if library.exists():
            return str(library)
    return ""


def environment() -> dict[str, str]:
    """This process's variables. Unless WEFT_NCCL names an NCCL, it is that of the environment's package, if any."""
    variables = dict(os.environ)
    if "WEFT_NCCL" not in variables and (library := nccl_of_environment()):
        variables["WEFT_NCCL"] = library
    return variables


def run(*arguments: str) -> None:
    """Runs `weft ARGUMENTS` as a child, whose output goes where this process's goes.

    Raises subprocess.CalledProcessError: 1 means wrong results or a failure, 2 bad usage.
    """
    sys.stdout.flush()
    subprocess.run([PROGRAM, *arguments], env=environment(), check=True)


def tune(*arguments: str) -> None:
    """Measures the best algorithm and grid for each size on this machine, and writes tuning.json: `weft tune`.

    Pass its options: tune("--quick", "--output", "two.json"). Config.tuning_file reads the table.
    """
    run("tune", *arguments)


def verify(*arguments: str) -> None:
    """Checks a machine, every pair, algorithm, size and type: `weft verify`. Raises if it prints FAIL.

    Pass its options: verify("--device", "cpu", "--ranks", "4").
    """
    run("verify", *arguments)


def main() -> None:
    """The script `weft`, and `python -m weft`: becomes the program."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(PROGRAM, ["weft", *sys.argv[1:]], environment())
