#!/usr/bin/env python3
"""Compares the kernels of two builds: their machine code for one architecture, instruction by instruction. A change
that moves or renames code must leave every kernel unchanged.

  tools/compare_kernels.py OLD NEW                    executables, libraries or objects
  tools/compare_kernels.py OLD NEW --rename OLD=NEW   kernels whose types have new names

Needs cuobjdump (CUDA's toolkit, or nvidia-cuda-cuobjdump from PyPI), and no GPU. Exit status 1 if a kernel differs, or if
only one build has it."""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/ptx"))
from gpu_code import disassembly  # noqa: E402


def kernels(path, arch):
    """{demangled name: [instruction]}"""
    found = disassembly(path, ["-arch", arch])
    names = subprocess.run(["c++filt"], input="\n".join(found), capture_output=True, text=True, check=True).stdout
    return dict(zip(names.splitlines(), found.values()))


def differences(old, new):
    """One line for each kernel that differs between the two."""
    for name in sorted(old.keys() | new.keys()):
        if name not in new or name not in old:
            yield f"only {'old' if name in old else 'new'}: {name}"
        elif old[name] != new[name]:
            first = next((i for i, (a, b) in enumerate(zip(old[name], new[name])) if a != b), min(len(old[name]), len(new[name])))
            yield f"differs from instruction {first} on, of {len(old[name])} and {len(new[name])}: {name}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--arch", default="sm_90", help="default: %(default)s")
    parser.add_argument("--rename", action="append", default=[], metavar="OLD=NEW",
                        help="text in the old build's names, and its replacement in the new one's; may be repeated")
    args = parser.parse_args()
    if shutil.which("cuobjdump") is None:
        sys.exit("no cuobjdump on the PATH")
    old, new = (kernels(path, args.arch) for path in (args.old, args.new))
    for rename in args.rename:
        before, equals, after = rename.partition("=")
        if not before or not equals:
            sys.exit(f"--rename {rename}: wanted OLD=NEW")
        old = {name.replace(before, after): code for name, code in old.items()}
    if not old or not new:
        sys.exit(f"no kernel for {args.arch} in {args.old if not old else args.new}")
    wrong = list(differences(old, new))
    print("\n".join(wrong + [f"{len(old.keys() & new.keys()) - sum(w.startswith('differs') for w in wrong)} kernels are "
                             f"the same, {len(wrong)} are not"]))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
