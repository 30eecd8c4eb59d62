"""Reads the output of nvcc, ptxas and the disassemblers for the checks of this folder."""

import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The library's own flags (cmake/internal.cmake).
FLAGS = ["-std=c++20", "-O3", "--fmad=false", f"-I{ROOT / 'src'}", f"-I{ROOT / 'include'}"]


def run(command):
    """Standard output and error of a command, which must succeed."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{result.stdout}")
    return result.stdout


def nvcc_version(nvcc):
    return re.search(r"V(\d+\.\d+\.\d+)", run([nvcc, "--version"])).group(1)


def entries(ptx):
    """{name of kernel: its instructions without comments and directives}"""
    ptx = re.sub(r"//[^\n]*", "", ptx)
    bodies = re.findall(r"^(?:\.visible |\.weak )?\.entry (\w+)\(.*?^\{(.*?)^\}", ptx, re.MULTILINE | re.DOTALL)
    return {name: instructions(body) for name, body in bodies}


def instructions(body):
    body = re.sub(r"^\s*(\$\w+:|\.loc\b.*)", "", body, flags=re.MULTILINE)
    # Braces of a scope stand at the beginning or end of a statement. Braces of a vector operand stand inside it.
    statements = (re.sub(r"\s+", " ", part).strip().lstrip("{} ") for part in body.split(";"))
    return [statement for statement in statements if statement and not statement.startswith(".")]


def opcode(instruction):
    return re.sub(r"^@!?%\w+ ", "", instruction).split()[0]


def disassembly(cubin, options=()):
    """{name of kernel: its SASS instructions without padding}, or None if no disassembler is installed. `options`: of
    cuobjdump, which also reads executables and objects."""
    if shutil.which("cuobjdump"):
        listing = run(["cuobjdump", "-sass", *options, cubin])
    elif shutil.which("nvdisasm"):
        listing = run(["nvdisasm", "-c", cubin])
    else:
        return None
    found, name = {}, None
    for line in listing.splitlines():
        start = re.match(r"\s*Function : (\w+)|\.text\.(\w+):", line)
        if start:
            name = start.group(1) or start.group(2)
            found[name] = []
        code = re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line)
        if code and name and not code.group(1).startswith("NOP"):
            found[name].append(code.group(1))
    # An unreachable branch to itself follows a kernel's code.
    return {kernel: code[:-1] if code and code[-1].startswith("BRA") else code for kernel, code in found.items()}


def resources(ptxas):
    """{name of kernel: (registers, bytes of stack, bytes of spills)} from `ptxas -v`."""
    pattern = (r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
               r"(\d+) bytes spill loads.*?Used (\d+) registers")
    return {name: (int(registers), int(stack), int(stores) + int(loads))
            for name, stack, stores, loads, registers in re.findall(pattern, ptxas, re.DOTALL)}
