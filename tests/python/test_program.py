"""The program that the package brings along, and a libweft that is not the package's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import weft
from processes import run_program

QUICK = ["--device", "cpu", "--ranks", "2", "--most-bytes", "8K"]


def test_verify_prints_what_the_program_prints() -> None:
    for arguments in (["-c", f"import weft; weft.verify(*{QUICK})"], ["-m", "weft", "verify", *QUICK]):
        outcome = run_program(arguments)
        assert outcome.code == 0, outcome.errors
        assert "\nPASS" in outcome.output
        assert "Traceback" not in outcome.errors


def test_what_was_printed_before_comes_first() -> None:
    outcome = run_program(["-c", f"import weft; print('before'); weft.verify(*{QUICK}); print('behind')"])
    lines = outcome.output.splitlines()
    assert (lines[0], lines[-1]) == ("before", "behind")


def test_bad_usage_raises_the_programs_exit_code() -> None:
    for call in (weft.verify, weft.tune):
        with pytest.raises(subprocess.CalledProcessError) as raised:
            call("--no-such-option")
        assert raised.value.returncode == 2


def test_a_table_of_tune_is_used(tmp_path: Path) -> None:
    table = tmp_path / "tuning.json"
    weft.tune("--device", "cpu", "--ranks", "2", "--bytes", "1K", "--samples", "1", "--quick", "--output", str(table))
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
