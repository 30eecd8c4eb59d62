#!/usr/bin/env python3
"""Exports of libweft.so: every function of the C headers and of the C++ interface, with a version, and nothing else."""

import argparse
import re
import subprocess
import sys
import unittest
from pathlib import Path

# Classes are exported whole, with what compilers make of their inline members.
CPP = re.compile(r"(?:typeinfo (?:name )?for |vtable for )?weft::(?!detail::|c::|\(anonymous)")
DECLARED = re.compile(r"^(?!typedef)[\w *]*?\b(weft_\w+)\(", re.MULTILINE)
VERSION = "WEFT_0"
# Of the Python package's executable, if the library has the program's code. No program of others may use them.
PRIVATE_VERSION = "WEFT_PRIVATE"
PRIVATE = re.compile(r"weft::cli::run_program\(")


def symbols(*arguments):
    """(kind, name) of each symbol that nm lists."""
    out = subprocess.run(["nm", "-C", "--defined-only", *arguments], capture_output=True, text=True, check=True).stdout
    return [tuple(line[17:].split(" ", 1)) for line in out.splitlines() if re.match(r"[0-9a-f]{16} ", line)]


def split_version(name):
    found = re.search(r"@@?(\w+)$", name)
    return (name[: found.start()], found.group(1)) if found else (name, None)


def breaches(exported, c_functions, cpp_functions):
    """Faults of exported names, each with its version."""
    found, names = [], set()
    for name, version in map(split_version, exported):
        if name in (VERSION, PRIVATE_VERSION) or version == PRIVATE_VERSION and PRIVATE.match(name):
            continue
        names.add(name)
        if version != VERSION:
            found.append(f"without the version {VERSION}: {name}")
        if name not in c_functions and (not CPP.match(name) or PRIVATE.match(name)):
            found.append(f"foreign: {name}")
    return found + [f"missing: {name}" for name in sorted((c_functions | cpp_functions) - names)]


class Exports(unittest.TestCase):
    def test_breaches_are_found(self):
        def found(*exported):
            return breaches(exported, {"weft_a"}, {"weft::b(int)"})

        good = ("WEFT_0", "weft_a@@WEFT_0", "weft::b(int)@@WEFT_0", "typeinfo for weft::Error@@WEFT_0", "WEFT_PRIVATE",
                "weft::cli::run_program(int)@@WEFT_PRIVATE")
        self.assertEqual(found(*good), [])
        for foreign in ("fmt::v9::detail::f()", "spdlog::info()", "std::vector<int>::~vector()", "cudaMalloc", "weft_b",
                        "weft::detail::f()", "weft::c::keep()", "guard variable for weft::x",
                        "weft::cli::run_program(int)"):
            self.assertEqual(found(*good, f"{foreign}@@WEFT_0"), [f"foreign: {foreign}"])
        self.assertEqual(found(*good[1:3], "weft::c()"), ["without the version WEFT_0: weft::c()"])
        self.assertEqual(found(*good, "weft::cli::f()@@WEFT_PRIVATE"),
                         ["without the version WEFT_0: weft::cli::f()"])
        self.assertEqual(found(*good[:2]), ["missing: weft::b(int)"])
        self.assertEqual(found(good[2]), ["missing: weft_a"])

    def test_the_library_has_its_own_names_alone(self):
        headers = [path.read_text(encoding="utf-8") for path in ARGUMENTS.headers.glob("*.h")]
        c_functions = {name for text in headers for name in DECLARED.findall(re.sub(r"//.*", "", text))}
        self.assertGreater(len(c_functions), 90)
        cpp_functions = {name for kind, name in symbols(str(ARGUMENTS.archive)) if kind == "T" and CPP.match(name)}
        self.assertGreater(len(cpp_functions), 60)
        exported = [name for _, name in symbols("-D", str(ARGUMENTS.library))]
        self.assertEqual(breaches(exported, c_functions, cpp_functions), [])

    def test_the_library_needs_no_gpu(self):
        out = subprocess.run(["readelf", "-d", str(ARGUMENTS.library)], capture_output=True, text=True, check=True)
        needed = re.findall(r"NEEDED.*\[(\w+)", out.stdout)
        self.assertIn("libc", needed)
        self.assertEqual({"libnccl", "libcuda", "libfmt", "libspdlog"} & set(needed), set())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--archive", type=Path, required=True)
    parser.add_argument("--headers", type=Path, required=True)
    ARGUMENTS = parser.parse_args()
    unittest.main(argv=sys.argv[:1])
