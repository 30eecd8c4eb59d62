#!/usr/bin/env python3
"""English that a stranger reads once: sentences of at most 25 words, with a noun as subject. Documents, comments,
docstrings, and what the library and the program say: help texts and errors.

Prints file:line: rule: sentence for each breach; exit status 1 if any. Arguments: files or folders; none: CHECKED.
Code and tables are left out. Text in parentheses is a part of its sentence, except for references: names, paths,
figures with units, citations. A name in `backquotes` or *italics* counts as one word, and so does a list of them.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

CHECKED = ["README.md", "docs", "include", "src", "apps", "examples", "oracle", "python", "tests", "tools", "cmake", "bench"]
MAX_WORDS = 25
C_LIKE = {".hpp", ".cpp", ".cu", ".cuh", ".h", ".c"}
HASH_LIKE = {".py", ".sh", ".cmake"}
SUBJECT = re.compile(
    r"^((Who|Whoever|Whose|What|Whatever|Where|Wherever|Which|Whichever|How)\b"
    r"|That (is|are|was|were|has|needs|takes|means)\b"
    r"|(Those|These) (are|were|have|had|need|take|mean|that|of|in|on|from|with|for|behind|without)\b)"
)
# The end of a sentence; a point inside a number, a name or an abbreviation is none.
END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\bvs)(?<!\bcf)[.!?:;](?=\s|$)")
# Names: in `backquotes`, or in italics that are no sentence of their own.
NAME = re.compile(r"`[^`]*`|(?<!\*)\*(?!\*)[^*]*[^*.:?!]\*(?!\*)")
# The innermost text in parentheses; behind a name it is a call's arguments.
ASIDE = re.compile(r"(\w?)\(([^()]*)\)")
# References, which no reader of a sentence needs: names, paths, figures with units, products, citations.
FIGURE = r"(\w = )?[\d.…%≥≤→=+×^/−-]+( ([KMG]i?B(/s)?|[mnµu]?s|bytes|tokens|ranks|rows|packs)\b)?"
REFERENCE = re.compile(
    r"X([,;]? (and |or )?X)*"
    r"|[\w*-]*[./][\w./*#:-]*(, [\w*-]*[./][\w./*#:-]*)*"
    rf"|{FIGURE}(,? (and |to )?{FIGURE})*"
    r"|(see |note |notes |section |issue |promise |arXiv )+[\w./:-]+(, [\w./:-]+)*"
    r"|[A-Z]( [·+/−] (\w|\d+))+"
    r"|.*\b(19|20)\d\d"
)
# Lines of a document that are no prose: tables, headings, comments, pictures, addresses of links.
APART = re.compile(r"\||#|<!--|!\[|\[[^\]]*\]:")
WORD = re.compile(r"[A-Za-z0-9][\w’'./%µ×·+-]*")


# A list of names and their meanings, in columns.
ENTRY = re.compile(r"^  \S.*?\s{2,}(?=\S)")


def comment_paragraphs(path, lines):
    """(line number, text) of each run of comment lines; a comment behind code is one of its own."""
    marker = "//" if path.suffix in C_LIKE else "#"
    alone = re.compile(rf"^\s*{marker}(?!!)\s?(.*)$")
    run, start = [], 0
    for number, line in enumerate([*lines, ""], 1):
        found = alone.match(line)
        text = found.group(1) if found else None
        if text is None or not text.strip():
            if run:
                yield start, " ".join(run)
            run = []
        elif text.startswith("    ") or ENTRY.match(text) or text.lstrip().startswith(("|", "- ", "* ")):
            if run:
                yield start, " ".join(run)
            entry = ENTRY.match(text)
            item = text[entry.end() :] if entry else text.strip().lstrip("-* ")
            run, start = ([item], number) if entry or not text.startswith("    ") else ([], number)
        else:
            if not run:
                start = number
            run.append(text.strip())
        if text is None and marker == "//":
            behind = re.search(r"[;{},)]\s+// (.*)$", line)
            if behind and '"' not in line[behind.start() :]:
                yield number, behind.group(1)


def document_paragraphs(lines):
    run, start, code = [], 0, False
    for number, line in enumerate([*lines, ""], 1):
        text = line.strip()
        if text.startswith("```"):
            code = not code
            text = ""
        item = re.match(r"([-*]|\d+\.) ", text)
        if code or not text or APART.match(text) or item:
            if run:
                yield start, " ".join(run)
            run = []
            if item and not code:
                run, start = [text[item.end() :]], number
            continue
        if not run:
            start = number
        run.append(text)


def docstring_paragraphs(text):
    """(line number, text) of each paragraph of a Python file's docstrings."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            string = node.body[0].value
            yield from text_paragraphs(string.value.splitlines(), string.lineno)


def text_paragraphs(lines, first):
    """(line number, text) of paragraphs in plain text: further indented lines are code, and "name: text" lists names."""
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), default=0)
    run, start = [], 0
    for number, line in enumerate([*lines, ""], first):
        text = line.strip() if number == first else line[margin:]
        item = re.match(r"([-*]|\d+\.|[\w`*, ]{1,40}:) ", text)
        if not text.strip() or item or COMMAND.match(text) or ENTRY.match(text) or APART.match(text.strip()):
            if run:
                yield start, " ".join(run)
            run, start = ([text[item.end() :]], number) if item else ([], number)
        else:
            start = start if run else number
            run.append(text.strip())


# Code, and commands in examples of help texts.
COMMAND = re.compile(r"    |\s*(weft|python3) .*( -|weft )|.*\bweft bench [\w-]+ --")
# A call's arguments in an error are a list: "tokens X, hidden X".
VALUES = re.compile(r"\b\w+ X(, \w+ X)+\b")
# Literals behind each other are one. An operator's schema, with its arrow, is code.
LITERALS = re.compile(r'"(?:\\.|[^"\\\n])*"(?:\s*"(?:\\.|[^"\\\n])*")*')
RAW = re.compile(r'R"(\w*)\((.*?)\)\1"', re.DOTALL)
SAYS = re.compile(r"(src|apps|python|include)/")


def string_paragraphs(text):
    """(line number, text) of what a C++ file says: literals, and raw literals with documentation."""
    for raw in RAW.finditer(text):
        yield from text_paragraphs(raw.group(2).splitlines(), text.count("\n", 0, raw.start()) + 1)
    text = RAW.sub(lambda raw: re.sub(r"[^\n]", " ", raw.group()), text)
    text = re.sub(r"^\s*(//|#\s*include).*$", "", text, flags=re.MULTILINE)
    for literal in LITERALS.finditer(text):
        parts = re.findall(r'"((?:\\.|[^"\\\n])*)"', literal.group())
        said = "".join(parts).replace("\\n", "\n").replace('\\"', "").replace("{{", "").replace("}}", "")
        if ") -> " in said:
            continue
        said = VALUES.sub("X", re.sub(r"\{[^{}]*\}", "X", said))
        yield from text_paragraphs(said.split("\n"), text.count("\n", 0, literal.start()) + 1)


def within(text):
    """The text without references in parentheses. Others stay: as sentences if they end as one, else as a part of one."""
    before = None
    while before != text:
        before, text = text, ASIDE.sub(opened, text)
    return before


def opened(aside):
    name, held = aside.groups()
    if name or REFERENCE.fullmatch(held):
        return name
    return held if re.search(r"[.!?]$", held) else re.sub(r"[.!?:;](?=\s|$)", ",", held)


def sentences(text):
    text = NAME.sub("X", re.sub(r"</?a\b[^>]*>", "", text))
    text = re.sub(r"\bX(, X)+\b", "X", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = within(text.replace("*", ""))
    begin = 0
    for end in [*END.finditer(text), None]:
        yield text[begin : end.end() if end else None].strip()
        begin = end.end() if end else begin


def breaches(path, text):
    lines = text.splitlines()
    paragraphs = list(document_paragraphs(lines) if path.suffix == ".md" else comment_paragraphs(path, lines))
    if path.suffix == ".py":
        paragraphs += docstring_paragraphs(text)
    if path.suffix in C_LIKE and SAYS.match(path.as_posix()):
        paragraphs += string_paragraphs(text)
    for number, text in paragraphs:
        for sentence in sentences(text):
            if SUBJECT.match(sentence) and not sentence.endswith("?"):
                yield number, "a pronoun as subject", sentence
            words = len(WORD.findall(sentence))
            if words > MAX_WORDS:
                yield number, f"{words} words", sentence


def files(arguments):
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *arguments]
    listed = map(Path, subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines())
    return sorted(p for p in set(listed) if p.suffix in {*C_LIKE, *HASH_LIKE, ".md"} and p.is_file())


def main(arguments):
    count = 0
    for path in files(arguments or CHECKED):
        for number, rule, sentence in breaches(path, path.read_text(encoding="utf-8")):
            print(f"{path}:{number}: {rule}: {sentence}")
            count += 1
    print(f"prose: {count} sentences to rewrite" if count else "prose: ok", file=sys.stderr)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
