#!/usr/bin/env python3
"""Makes the wheel of the Python package, and names it after the oldest systems that can load it.

    tools/wheel.py                              builds everything, with nvcc if it is there, into build/wheels
    tools/wheel.py --installed build/dev/site   of what `cmake --install build/dev --component python` has put there

Prints the wheel's path. Exit status 1 if it is larger than engines' users would download, or was built with the headers
of an NCCL that is not the oldest one: without ncclGetLsaDevicePointer an NCCL must be that of the headers.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_BYTES = 60 * 10**6
# The glibc of the first systems whose libstdc++ has these symbols (the policies of auditwheel).
GLIBC_OF_GLIBCXX = {(3, 4, 28): (2, 31), (3, 4, 29): (2, 34), (3, 4, 30): (2, 35), (3, 4, 32): (2, 38),
                    (3, 4, 33): (2, 39)}


def pip_wheel(installed, folder):
    # scikit-build-core and nanobind are those of this interpreter's environment (tools/python.txt).
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
               "--disable-pip-version-check", "--wheel-dir", folder, str(ROOT)]
    if installed:
        command += ["--config-settings", f"cmake.define.WEFT_PYTHON_FROM={Path(installed).resolve()}"]
    subprocess.run(command, check=True)
    (wheel,) = Path(folder).glob("*.whl")
    return wheel


def versions_of(library, text):
    return [tuple(map(int, version.split("."))) for version in re.findall(rf"Name: {library}_([\d.]+)", text)]


def glibc_for(versions):
    """The oldest glibc of a system that has all symbols that `readelf --version-info` lists."""
    newest = max([(2, 17), *versions_of("GLIBC", versions)])
    for version in versions_of("GLIBCXX", versions):
        if version <= min(GLIBC_OF_GLIBCXX):
            continue
        later = [known for known in GLIBC_OF_GLIBCXX if known >= version]
        if not later:
            sys.exit(f"GLIBCXX_{'.'.join(map(str, version))} is newer than any that tools/wheel.py knows")
        newest = max(newest, GLIBC_OF_GLIBCXX[min(later)])
    return newest


def needed_glibc(wheel):
    """The newest glibc that the wheel's binaries need."""
    newest = (2, 17)
    with zipfile.ZipFile(wheel) as package, tempfile.TemporaryDirectory() as folder:
        package.extractall(folder)
        for path in Path(folder).rglob("*"):
            if not path.is_file() or path.open("rb").read(4) != b"\x7fELF":
                continue
            versions = subprocess.run(["readelf", "--version-info", "--wide", path], check=True, capture_output=True,
                                      text=True).stdout
            newest = max(newest, glibc_for(versions))
    return newest


def oldest_nccl():
    return re.search(r"find_package\(NCCL ([\d.]+)", (ROOT / "cmake/cuda.cmake").read_text(encoding="utf-8")).group(1)


def why_not_for_all(information):
    """Empty, or why a wheel of which `weft info` says so does not serve every NCCL."""
    headers = re.search(r"^NCCL: built with ([\d.]+)", information, re.MULTILINE)
    if not headers or headers.group(1) == oldest_nccl():  # or only for CPU ranks
        return ""
    return (f"it was built with the headers of NCCL {headers.group(1)}, so it refuses {oldest_nccl()}, which torch "
            f"2.11 has: set NCCL_ROOT to a folder with the headers of {oldest_nccl()}")


def information_of(wheel):
    with zipfile.ZipFile(wheel) as package, tempfile.TemporaryDirectory() as folder:
        package.extractall(folder)
        program = Path(folder, "weft/bin/weft")
        program.chmod(0o755)
        return subprocess.run([program, "info"], check=True, capture_output=True, text=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--installed", help="folder of an installed package, instead of building one")
    parser.add_argument("--output", type=Path, default=ROOT / "build/wheels")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        wheel = pip_wheel(args.installed, folder)
        platform = "manylinux_{}_{}_x86_64".format(*needed_glibc(wheel))
        named = subprocess.run([sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", platform, wheel],
                               check=True, capture_output=True, text=True).stdout.strip()
        path = args.output / named
        path.write_bytes((wheel.parent / named).read_bytes())
    size = path.stat().st_size
    print(path)
    if problem := why_not_for_all(information_of(path)):
        sys.exit(f"{path.name}: {problem}")
    if size > MOST_BYTES:
        sys.exit(f"{path.name} has {size / 1e6:.1f} MB: at most {MOST_BYTES / 1e6:.0f} MB are allowed")


if __name__ == "__main__":
    main()
