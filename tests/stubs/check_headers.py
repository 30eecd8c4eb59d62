#!/usr/bin/env python3
"""Compiles the callers of NCCL with the headers of other versions than the build's.

NCCL is bound at run time, so types and declarations must be the same in all versions that the documents name.

    tests/stubs/check_headers.py --commands build/dev/compile_commands.json FOLDER...

Each folder has nccl.h. Nothing is linked. The stub (nccl.cpp) is among the files: it compares all declarations.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FABRIC = ROOT / "src/fabric"
INCLUDES = re.compile(r'^#include (<nccl(_device)?\.h>|"fabric/nccl_(api|table)\.hpp")', re.MULTILINE)


def version_of(folder):
    text = (folder / "nccl.h").read_text(encoding="utf-8")
    return [int(re.search(rf"^#define NCCL_{part} (\d+)", text, re.MULTILINE).group(1))
            for part in ("MAJOR", "MINOR", "PATCH")]


def flags_by_suffix(path):
    """Flags of the library's files. A unity build lists few, so those of one file of each language serve all."""
    found = {}
    for entry in json.loads(path.read_text(encoding="utf-8")):
        if Path(entry["file"]) in (FABRIC / "cpu_fabric.cpp", FABRIC / "cuda_window.cu"):
            found.setdefault(Path(entry["file"]).suffix, flags_of(shlex.split(entry["command"])))
    return found


def callers():
    """Files that include NCCL's headers, headers of our own aside."""
    files = [*(ROOT / "src").rglob("*.c*"), *(ROOT / "apps").rglob("*.c*"), ROOT / "tests/stubs/nccl.cpp"]
    return [file for file in files if INCLUDES.search(file.read_text(encoding="utf-8"))]


def flags_of(words):
    """Without the file, its output and precompiled headers."""
    kept, skips = [], 0
    for word in words:
        if skips:
            skips -= 1
        elif word in ("-c", "-o", "-x"):
            skips = 1
        elif word.startswith("--generate-code"):
            kept.append("-arch=compute_90")
        else:
            kept.append(word)
    start = next(i for i, word in enumerate(kept) if re.search(r"(\+\+|nvcc)(-\d+)?$", word))  # behind a launcher
    return kept[start:]


def compile_file(file, flags, folder, output):
    """The compiler's errors; empty if all is well. The folder stands before the build's."""
    only = ["-x", "cu", "-ptx", "-o", str(output)] if file.suffix == ".cu" else ["-x", "c++", "-fsyntax-only"]
    command = [flags[0], "-isystem", str(folder), *flags[1:], *only, str(file)]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    return "" if result.returncode == 0 else f"{file.relative_to(ROOT)}:\n{result.stderr}"


def check(folder, flags):
    """Compiles everything with the folder's headers. Returns whether that works."""
    major, minor, patch = version_of(folder)
    code = major * 10000 + minor * 100 + patch
    more = [f"-DNCCL_EXPECTED={code}", f"-DWEFT_STUB_VERSION={code}", f"-I{ROOT / 'apps/weft'}"]
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(compile_file, file, [*flags[file.suffix], *more], folder, Path(temporary, f"{file.stem}.ptx"))
                for file in callers()]
        errors = [job.result() for job in jobs if job.result()]
    print("\n".join([*errors, f"NCCL {major}.{minor}.{patch}: {len(jobs) - len(errors)} of {len(jobs)} files compile"]),
          flush=True)
    return not errors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commands", type=Path, required=True)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    args = parser.parse_args()
    flags = flags_by_suffix(args.commands)
    if ".cu" not in flags:
        sys.exit(f"{args.commands} is of a build without CUDA")
    if not all([check(folder, flags) for folder in args.folders]):
        sys.exit(1)


if __name__ == "__main__":
    main()
