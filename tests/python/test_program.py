"""The program that the package brings along, and a libweft that is not the package's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import weft
from processes import run_program

QUICK = ["--device", "cpu", "--ranks", "2", "--bytes", "1K", "--samples", "1", "--quick"]


def test_programs_print_where_the_process_prints_and_in_order(tmp_path: Path) -> None:
    quick = [*QUICK, "--output", str(tmp_path / "tuning.json")]
    calls = f"weft.tune(*{quick})", "weft.verify('--help')"
    outcome = run_program(["-c", "; ".join(["import weft", "print('before')", *calls, "print('behind')"])])
    assert outcome.code == 0, outcome.errors
    lines = outcome.output.splitlines()
    written = next(i for i, line in enumerate(lines) if line.startswith("Written to "))
    helped = next(i for i, line in enumerate(lines) if line.startswith("Usage: weft verify"))
    assert (lines[0], lines[-1]) == ("before", "behind")
    assert written < helped


def test_the_package_is_the_program() -> None:
    outcome = run_program(["-m", "weft", "--version"])
    assert (outcome.code, outcome.output.strip()) == (0, weft.__version__)


def test_bad_usage_raises_the_programs_exit_code() -> None:
    for call in (weft.verify, weft.tune):
        with pytest.raises(subprocess.CalledProcessError) as raised:
            call("--no-such-option")
        assert raised.value.returncode == 2


def test_a_table_of_tune_is_used(tmp_path: Path) -> None:
    table = tmp_path / "tuning.json"
    weft.tune(*QUICK, "--output", str(table))
    ranks = weft.Communicator.local(2, weft.Config(device="cpu", tuning_file=str(table)))
    assert ranks[0].tuning == "CPU, 2 ranks (measured)"  # the table that is built in is of any number


def test_a_library_of_another_version_is_refused(tmp_path: Path) -> None:
    source, library = tmp_path / "other.c", tmp_path / "other.so"
    source.write_text('const char* weft_version(void) { return "9.9.9"; }\n', encoding="utf-8")
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler makes the other library")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    outcome = run_program(["-c", "import weft"], {"LD_PRELOAD": str(library)})
    assert outcome.code == 1
    assert "9.9.9" in outcome.errors and weft.__version__ in outcome.errors, outcome.errors
