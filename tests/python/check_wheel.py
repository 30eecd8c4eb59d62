#!/usr/bin/env python3
"""Makes a wheel of the installed package, and uses it in a new environment of every Python from 3.10 on that is here.

There is no compiler in it: the machine is checked by `python -m weft verify`, and threads add up. Needs pip's index.
"""

import argparse
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
OLDEST, NEWEST = 10, 14

USE = """
import sys, weft
assert "numpy" not in sys.modules and "torch" not in sys.modules
for rank in weft.Communicator.local(1, weft.Config(device="cpu")):
    values = bytearray(16)
    rank.world.all_gather_into_tensor(values, b"0123456789abcdef")
    assert values == b"0123456789abcdef"
print(weft.__version__)
"""


def pythons():
    """A program of each version, from PATH or pyenv."""
    for minor in range(OLDEST, NEWEST + 1):
        name = f"python3.{minor}"
        candidates = [shutil.which(name), *map(str, Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/{name}"))]
        for candidate in filter(None, candidates):
            # A shim of pyenv may stand for a version that is not there.
            usable = subprocess.run([candidate, "-c", "import venv, ensurepip"], check=False, capture_output=True)
            if usable.returncode == 0:
                yield name, candidate
                break


def run(command, **options):
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, **options)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} fails:\n{result.stdout}{result.stderr}")
    return result.stdout


def wheel_tool():
    specification = importlib.util.spec_from_file_location("weft_wheel", ROOT / "tools/wheel.py")
    tool = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(tool)
    return tool


def check_headers(tool):
    """A wheel must not refuse the oldest NCCL that the documents name."""
    information = "weft 0.1.0\nCUDA: built with 13.0\nNCCL: built with {}, found 2.30.7: /usr/lib/libnccl.so.2\n"
    assert tool.why_not_for_all(information.format(tool.oldest_nccl())) == ""
    assert "headers of NCCL 2.29.7, so it refuses 2.28.9" in tool.why_not_for_all(information.format("2.29.7"))
    assert tool.why_not_for_all(information.format("none")) == ""


def check_names(tool):
    """A system must not take a wheel whose libstdc++ it lacks."""
    for symbols, glibc in (("GLIBC_2.2.5", (2, 17)), ("GLIBC_2.34 GLIBC_2.14", (2, 34)), ("GLIBCXX_3.4.21", (2, 17)),
                           ("GLIBC_2.34 GLIBCXX_3.4.30 GLIBCXX_3.4.9", (2, 35)), ("GLIBCXX_3.4.31", (2, 38))):
        listed = "\n".join(f"  0x0020:   Name: {symbol}  Flags: none  Version: 4" for symbol in symbols.split())
        assert tool.glibc_for(listed) == glibc, symbols


def audit(wheel):
    """The module names functions of Python 3.10's stable interface alone, as the wheel's tag says."""
    report = json.loads(run([sys.executable, "-m", "abi3audit", "--strict", "--report", wheel]))
    found = report["specs"][str(wheel)]["wheel"]
    assert "_core.abi3.so" in [library["name"] for library in found], report
    assert all(library["result"]["is_abi3_baseline_compatible"] for library in found), report


def use(wheel, python, folder, version, verifies):
    run([python, "-m", "venv", folder])
    own = folder / "bin/python"
    # An interpreter sees nothing of this test's environment, and finds no compiler.
    environment = {"PATH": str(folder / "bin"), "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8"}
    run([own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel])
    assert run([own, "-c", USE], env=environment, cwd=folder).strip() == version
    assert version in run([folder / "bin/weft", "--version"], env=environment, cwd=folder)
    if not verifies:
        return
    verified = run([own, "-m", "weft", "verify", "--device", "cpu", "--ranks", "4", "--most-bytes", "8K"],
                   env=environment, cwd=folder)
    assert verified.rstrip().splitlines()[-1].startswith("PASS"), verified


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--installed", type=Path, required=True)
    args = parser.parse_args()
    tool = wheel_tool()
    check_names(tool)
    check_headers(tool)
    project = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    version = re.search(r"project\(weft VERSION ([\d.]+)", project).group(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        made = run([sys.executable, ROOT / "tools/wheel.py", "--installed", args.installed,
                    "--output", folder / "wheels"])
        wheel = Path(made.strip())
        assert re.fullmatch(rf"weft-{version}-cp310-abi3-manylinux_2_\d+_x86_64\.whl", wheel.name), wheel.name
        audit(wheel)
        used = []
        for name, python in pythons():
            use(wheel, python, folder / name, version, verifies=not used)
            used.append(name)
    if not used:
        sys.exit("no Python from 3.10 on with venv is here")
    print(f"{wheel.name} works under {', '.join(used)}")


if __name__ == "__main__":
    main()
