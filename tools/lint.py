#!/usr/bin/env python3
"""Rules of this project that no other tool checks. Prints file:line: rule for each breach; exit status 1 if any."""

import json
import re
import subprocess
import sys
from pathlib import Path

MAX_LINES = 400
CPP = {".hpp", ".cpp", ".cu", ".cuh", ".h", ".c"}
SOURCES = {*CPP, ".py", ".sh", ".cmake"}

# One algorithm source for all executors: these folders do not know which executor they run on. They may ask a team for
# its constants (docs/architecture.md).
NEUTRAL = re.compile(r"src/(wire|protocol)/|src/ops/(.*/)?(?!sim_)[^/]*\.hpp$|src/comm/rejection\.hpp$")
NEUTRAL_RULES = [
    (re.compile(r"__CUDA_ARCH__|__CUDACC__|__NVCC__|__NVPTX__|WEFT_WITH_CUDA"), "asks for an architecture"),
    (re.compile(r"\b__(x86_64|i386|amd64|aarch64|arm)__|\b__(AVX|SSE)"), "asks for an architecture"),
    (re.compile(r"cuda", re.IGNORECASE), "mentions CUDA"),
    (re.compile(r"\b(CpuThread|SimTeam)\b|\bDevice::"), "asks which executor it runs on"),
    (
        re.compile(r"#\s*include\s*[<\"](fabric|sim|kernel/(?!(kernel|instances|most_threads)\.hpp))"),
        "includes an executor or a fabric",
    ),
    (re.compile(r"#\s*include\s*[<\"]team/(?!team\.hpp)"), "includes a team of one executor"),
]

# All inline assembly is in one file, so that every memory order of the GPU stands on one page.
ASM_HOME = "src/team/ptx.cuh"
ASM = re.compile(r"\b(asm|__asm__|__asm)\b\s*(volatile|__volatile__)?\s*\(")
# Nothing traps there, either. (An instruction's text may stand in another line than the word asm.)
ASM_TRAP = re.compile(r"\"[^\"]*\b(trap|brkpt|exit)\s*;")

# The library belongs to its host program: it does not end it, trap it or change its environment.
HOST_RULES = [
    (re.compile(r"\b(setenv|putenv|unsetenv)\s*\("), "changes the environment"),
    # Not a member of that name, and not a declaration.
    (
        re.compile(r"(?<!void )(?<![\w.>&*:])(std::|::)?(exit|_exit|_Exit|quick_exit|abort|terminate)\s*\("),
        "ends the process",
    ),
    (re.compile(r"(?<![\w.>])(std::|::)?(raise|kill|pthread_kill|tgkill)\s*\("), "sends a signal"),
    (re.compile(r"(?<![\w.>])assert\s*\("), "ends the process"),
    (re.compile(r"\b(__trap|__builtin_trap|__builtin_debugtrap)\s*\("), "traps"),
    (re.compile(r"(?<![\w.>])(std::)?(signal|sigaction)\s*\("), "changes a signal handler"),
]

# The page's drawing of folders. A file may only include files of its own folder and of folders below it.
DRAWING = Path("docs/architecture.md")
DRAWN_FOLDER = re.compile(r"^((?:src|apps)(?:/\w+)+|oracle)/ ", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]*/[^">]*)[">]')
PUBLIC = "include/"
FUNCTION = re.compile(r"^(?!inline|constexpr|using|template|static_assert)[a-z][^=\n]*\)( noexcept)?;$", re.MULTILINE)
# Programs of outside: the headers of an installation serve them.
OUTSIDE = re.compile(r"(python|examples)/")
# The library does not know the simulator, whose files in the folders of operations are named `sim_*`.
OF_SIMULATOR = re.compile(r"(src|apps/weft)/(sim(ulate)?/|(.*/)?sim_[^/]*$)")

# The oracle shares no mistake of the project if it shares no file: of other headers it includes the standard library's,
# whose names have neither a folder nor an ending.
ORACLE = "oracle/"
ORACLE_INCLUDE = re.compile(r'^\s*#\s*include\b(?!\s*("oracle/\w+\.hpp"|<\w+>)\s*$)')

# An algorithm is a header of a room that takes a team. Only source files of an executor see one, in a room: a
# folder with a list of instances. A partition says whose rows lie where, which hosts ask, too: its team shares a table.
ALGORITHM_HOME = re.compile(r"src/(ops/.*|comm)/(?!sim_)[^/]*\.hpp$")
TAKES_TEAM = re.compile(r"\bauto& team\b|\bT& team\b|<[^<>]*\bTeam \w+")
PARTITION = re.compile(r"_partition\.hpp$")
OTHER_RANKS = re.compile(r"\bteam_?(\.|->)(store|load|put|get|exchange|fence|await|commit)\w*[(<]")
OF_EXECUTOR = re.compile(r"(.*/)?(cpu|cuda|sim)_[^/]*$")

# Code that a page shows is code that is compiled.
EXCERPT = re.compile(r"^// begin: (\S+)\n(.*?)^// end: \1$", re.MULTILINE | re.DOTALL)


def project_files():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted(p for p in map(Path, set(listed)) if p.suffix in SOURCES and p.is_file())


def without_comments(text):
    """Comments and string literals become blanks; line numbers stay."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"'

    def blank(match):
        token = match.group()
        # Includes keep their name, since a rule reads it.
        return token if token.startswith('"') else re.sub(r"[^\n]", " ", token)

    return re.sub(pattern, blank, text, flags=re.DOTALL)


def breaches(path, text):
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        yield len(lines), f"has {len(lines)} lines; more than {MAX_LINES} is two files"
    if path.suffix not in CPP:
        return
    for excerpt in EXCERPT.finditer(text):
        page = Path(__file__).resolve().parents[1] / excerpt.group(1)
        if excerpt.group(2) not in page.read_text(encoding="utf-8"):
            yield text.count("\n", 0, excerpt.start()) + 1, f"{excerpt.group(1)} shows something else"
    name = path.as_posix()
    rules = []
    if NEUTRAL.match(name):
        rules += NEUTRAL_RULES
    if PARTITION.search(name):
        rules.append((OTHER_RANKS, "a partition touches memory that other ranks reach"))
    if name != ASM_HOME:
        rules.append((ASM, f"inline assembly outside {ASM_HOME}"))
    if name.startswith(("src/", "include/")):
        rules += HOST_RULES
        rules.append((ASM_TRAP, "traps"))
    for number, line in enumerate(without_comments(text).splitlines(), 1):
        for pattern, rule in rules:
            if pattern.search(line):
                yield number, rule


def drawn_folders(page):
    """The folders of the drawing, from the bottom up."""
    return DRAWN_FOLDER.findall(page)[::-1]


def included(text):
    """(line, name, whether in quotes) of each include that has a folder."""
    for number, line in enumerate(without_comments(text).splitlines(), 1):
        include = INCLUDE.match(line)
        if include:
            yield number, include.group(2), include.group(1) == '"'


def defined_in(texts, folders):
    """{public header: the lowest folder with a source file that includes it first, before everything else}"""
    rooms = {}
    for path, text in texts.items():
        first = re.search(r'^\s*#\s*include\s*"([^"]*)"', without_comments(text), re.MULTILINE)
        own = path.parent.as_posix()
        if path.suffix in {".cpp", ".cu"} and own in folders and first and first.group(1).startswith("weft/"):
            header = PUBLIC + first.group(1)
            rooms[header] = min(rooms.get(header, own), own, key=folders.index)
    return rooms


def public_rooms(texts, folders):
    """{public header: its folder}. One that no folder defines lies as high as those that it includes, or at the bottom."""
    rooms = defined_in(texts, folders)
    headers = {path.as_posix(): [PUBLIC + name for _, name, _ in included(text) if name.startswith("weft/")]
               for path, text in texts.items() if path.as_posix().startswith(PUBLIC)}

    def room_of(header):
        if header not in rooms:
            rooms[header] = max(map(room_of, headers.get(header, [])), key=folders.index, default=folders[0])
        return rooms[header]

    return {header: room_of(header) for header in headers}


def undefined_breaches(texts, folders):
    """(path, line, rule) for functions of public headers that no source file includes first."""
    defined = defined_in(texts, folders)
    for path, text in texts.items():
        declared = FUNCTION.search(without_comments(text)) if path.as_posix().startswith(PUBLIC) else None
        if declared and path.suffix == ".hpp" and path.as_posix() not in defined:
            yield path, text.count("\n", 0, declared.start()) + 1, "no source file of a folder includes this header first"


def oracle_breaches(text):
    for number, line in enumerate(without_comments(text).splitlines(), 1):
        if ORACLE_INCLUDE.match(line):
            yield number, "the oracle includes the standard library and nothing of the project"


def arrow_breaches(path, text, folders, public):
    """(line, rule) for includes that the drawing does not allow. `public`: public_rooms()."""
    name, own = path.as_posix(), path.parent.as_posix()
    if path.suffix not in CPP:
        return
    if name.startswith(ORACLE):
        yield from oracle_breaches(text)
    elif name.startswith(PUBLIC):
        for number, include, quoted in included(text):
            if not include.startswith("weft/"):
                if quoted:
                    yield number, "a public header includes another one only"
            elif folders.index(public.get(PUBLIC + include, folders[0])) > folders.index(public.get(name, folders[-1])):
                yield number, f"{include} belongs to {public[PUBLIC + include]}, above {public[name]}"
    elif OUTSIDE.match(name):
        for number, include, _ in included(text):
            if folder_of(include, folders) is not None:
                yield number, "a program of outside includes public headers only"
    elif name.startswith(("src/", "apps/")):
        if own not in folders:
            yield 1, f"{DRAWING} does not draw {own}"
            return
        for number, include, quoted in included(text):
            yield from ((number, rule) for rule in arrow_rules(name, own, include, quoted, folders, public))


def folder_of(include, folders):
    """The drawn folder of an included file; none for a public header, or if none is drawn."""
    places = [f"{root}/{include}" for root in ("src", "apps/weft")]
    if include.startswith(ORACLE):
        places = [include]
    return next((place.rpartition("/")[0] for place in places if place.rpartition("/")[0] in folders), None)


def arrow_rules(name, own, include, quoted, folders, public):
    if include.startswith("weft/"):
        # The simulator's set-ups name the operations as a program does.
        room = public.get(PUBLIC + include, folders[0])
        if not OF_SIMULATOR.match(name) and folders.index(room) > folders.index(own):
            yield f"{include} belongs to {room}, above {own}"
        return
    place = folder_of(include, folders)
    if place is None:
        if quoted:  # else of another library
            yield f"{DRAWING} does not draw the folder of {include}"
    elif folders.index(place) > folders.index(own):
        yield f"{DRAWING} draws {place} above {own}"
    elif OF_SIMULATOR.match(f"{place}/{include.rpartition('/')[2]}") and not OF_SIMULATOR.match(name):
        yield "includes the simulator"


def include_graph(texts):
    """{file: [(line, file that it includes)]} of the project's files."""
    files = {path.as_posix() for path in texts}
    graph = {}
    for path, text in texts.items():
        graph[path.as_posix()] = [
            (number, place) for number, include, _ in (included(text) if path.suffix in CPP else [])
            for place in (f"src/{include}", f"apps/weft/{include}", PUBLIC + include) if place in files]
    return graph


def algorithm_breaches(texts):
    """(path, line, rule) for source files from which includes lead to an algorithm, though no executor compiles them."""
    graph = include_graph(texts)
    algorithms = {path.as_posix() for path, text in texts.items()
                  if ALGORITHM_HOME.match(path.as_posix()) and not PARTITION.search(path.as_posix())
                  and TAKES_TEAM.search(without_comments(text))}
    rooms = {path.parent for path in texts if path.name.endswith("_instances.hpp")}
    nearest = {name: name for name in algorithms}  # an algorithm that includes lead to

    def leads_to(name):
        if name not in nearest:
            nearest[name] = None  # of a circle
            nearest[name] = next(filter(None, (leads_to(place) for _, place in graph[name])), None)
        return nearest[name]

    for path in texts:
        sees = OF_EXECUTOR.match(path.as_posix()) and path.parent in rooms
        if path.suffix in {".cpp", ".cu"} and path.as_posix().startswith(("src/", "apps/")) and not sees:
            for number, place in graph[path.as_posix()]:
                if leads_to(place):
                    yield path, number, f"{leads_to(place)} is an algorithm: only an executor's files in rooms see it"


# Every seeded bug is named, in italics, by the rule of a protocol that it breaks. It stands for a kind of bugs that
# RELIABILITY lists; a kind without a bug has a reason there.
MUTANTS = Path("tests/sim/mutants.json")
DEEP_MUTANTS = Path("tests/sim/mutants_deep.json")  # few executions show them
PROTOCOLS = (Path("docs/protocol.md"), Path("docs/moe.md"))
RELIABILITY = Path("docs/reliability.md")
KINDS = [str(kind) for kind in range(1, 20)]
ITALICS = re.compile(r"(?<!\*)\*(?!\*)([^*|]+)\*")
# The places of mutants' names in protocols: a list, a table's last column, parentheses with nothing else inside.
NAMING = re.compile(r"^Mutants[^:\n]*: .*?(?=\n\n)|^\|[^\n]*mutants \|\n.*?(?=\n\n)|\(\*[^()]*\*\)", re.MULTILINE | re.DOTALL)


def italics(text, begin=0, end=None):
    """{name in italics: its first line} of a part of a page."""
    found = {}
    for match in ITALICS.finditer(text, begin, len(text) if end is None else end):
        found.setdefault(" ".join(match.group(1).split()), text.count("\n", 0, match.start()) + 1)
    return found


def rows(text, heading):
    """(line, cells) of the first table below a heading, without its head."""
    begin = text.find(heading)
    table = re.compile(r"^\|.*?(?=\n\n)", re.MULTILINE | re.DOTALL).search(text, begin) if begin >= 0 else None
    first = text.count("\n", 0, table.start()) + 1 if table else 0
    lines = table.group().splitlines() if table else []
    return [(first + i, [cell.strip() for cell in line.split("|")[1:-1]]) for i, line in enumerate(lines) if i > 1]


def mutant_breaches(mutants, protocols, reliability):
    """(path, line, rule) for differences between the table of mutants and the pages about them."""
    kind_of = {mutant["name"]: mutant["kind"] for mutant in mutants}
    for name in kind_of.keys() - {name for text in protocols.values() for name in italics(text)}:
        yield MUTANTS, 1, f"no rule of a protocol ({PROTOCOLS[0]}) names the mutant \"{name}\""
    named = [(page, line, name) for page, text in protocols.items() for place in NAMING.finditer(text)
             for name, line in italics(text, *place.span()).items()]
    named += [(RELIABILITY, line, cells[0].split(" — ")[0])
              for heading in ("### Seeded bugs", "### Seeded bugs that few") for line, cells in rows(reliability, heading)]
    for page, line, name in named:
        if name not in kind_of:
            yield page, line, f"there is no mutant \"{name}\""
    listed = rows(reliability, "## Kinds of bugs")
    for line, (kind, _, reason) in listed:
        if (kind in kind_of.values()) == bool(reason):
            yield RELIABILITY, line, f"kind {kind} needs a mutant, or else a reason why it has none"
    if [cells[0] for _, cells in listed] != KINDS:
        yield RELIABILITY, 1, f"lists other kinds of bugs than {KINDS[0]} to {KINDS[-1]}"
    for name, kind in kind_of.items():
        if kind not in KINDS:
            yield MUTANTS, 1, f"mutant \"{name}\" is of no kind: \"{kind}\""


def main():
    texts = {path: path.read_text(encoding="utf-8") for path in project_files()}
    found = [(path, *breach) for path, text in texts.items() for breach in breaches(path, text)]
    folders = drawn_folders(DRAWING.read_text(encoding="utf-8"))
    public = public_rooms(texts, folders)
    found += undefined_breaches(texts, folders)
    found += [(path, *breach) for path, text in texts.items() for breach in arrow_breaches(path, text, folders, public)]
    found += algorithm_breaches(texts)
    found += mutant_breaches([mutant for table in (MUTANTS, DEEP_MUTANTS)
                              for mutant in json.loads(table.read_text(encoding="utf-8"))],
                             {page: page.read_text(encoding="utf-8") for page in PROTOCOLS},
                             RELIABILITY.read_text(encoding="utf-8"))
    for path, number, rule in found:
        print(f"{path}:{number}: {rule}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
