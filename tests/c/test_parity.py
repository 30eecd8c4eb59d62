#!/usr/bin/env python3
"""C, Python and torch's operators have every operation and choice of the C++ interface, and C has every field.

Headers and sources are read as text: nothing has to be built.
"""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# A field of C++ that has other names in C. A span or vector has its length beside it.
IN_C = {"launch": {"blocks", "threads", "cluster"}, "deadline": {"deadline_ns"},
        "rendezvous_deadline": {"rendezvous_deadline_ns"}, "time": {"time_ns"},
        "rounds": {"rounds", "rounds_experts"},
        "DispatchHandle.most_tokens": {"slot"}}  # the upper half
STRUCTS_IN_C = {"Send": "weft_outgoing_message", "Receive": "weft_incoming_message"}
PART_OF_OTHERS = {"Launch", "ExpertRounds"}  # its fields are fields of each call
ARGUMENTS_IN_C = {"GatheredCounts": "weft_gathered_counts_of"}  # its fields are what the function is given
COUNTED = ("std::span", "std::vector")


MEMBER = r"(?P<type>(?:const )?[\w:]+(?:<.*>)?(?: const)?)[ *&]+(?P<names>\w+(?:,\s*\**\w+)*)(?:\[\w+\])?"


def text_of(*patterns):
    """The files' text without comments."""
    files = sorted(path for pattern in patterns for path in ROOT.glob(pattern))
    assert files, patterns
    return "\n".join(re.sub(r"//.*", "", path.read_text(encoding="utf-8")) for path in files)


def fields_of(body):
    """(type, name) of the data members in the text between a struct's braces."""
    found = []
    for statement in re.sub(r"\{[^{}]*\}(?!\s*;)", ";", body).split(";"):
        words = statement.split("=")[0].split("{")[0].strip()
        first = re.fullmatch(MEMBER, words)
        if first and not re.match(r"(static|using|friend|bool operator)\b", words):
            found += [(first["type"], name.strip(" *")) for name in first["names"].split(",")]
        # "std::size_t a = 0, b = 0": more names behind the first value
        if first:
            found += [(first["type"], name) for name in re.findall(r",\s*(\w+)\s*=", statement)]
    return found


def structs_of(text):
    return {found[1]: fields_of(re.sub(r"\{[^{}]*\}", ";", re.sub(r"= \{[^{}]*\}", "", found[2])))
            for found in re.finditer(r"^struct (\w+) \{(.*?)^\};", text, re.MULTILINE | re.DOTALL)}


def c_structs_of(text):
    return {found[1]: set(re.findall(r"(\w+)(?:\[\w+\])?\s*[;,]", found[2]))
            for found in re.finditer(r"typedef struct (weft_\w+) \{(.*?)\} \w+;", text, re.DOTALL)}


def arguments_of(text):
    calls = re.finditer(r"\b(weft_\w+)(\([^()]*\));", text)
    return {found[1]: set(re.findall(r"(\w+)[,)]", found[2])) for found in calls}


def name_in_c(struct):
    return STRUCTS_IN_C.get(struct, "weft_" + re.sub(r"(?<!^)([A-Z])", r"_\1", struct).lower())


def missing_in_c(structs, c_structs, arguments):
    found = []
    for struct, fields in structs.items():
        mirror = c_structs.get(name_in_c(struct))
        if mirror is None:
            found += [] if struct in PART_OF_OTHERS else [struct]
            continue
        if struct in ARGUMENTS_IN_C:
            mirror = mirror | arguments.get(ARGUMENTS_IN_C[struct], set())
        for kind, field in fields:
            wanted = IN_C.get(f"{struct}.{field}", IN_C.get(field, {field}))
            found += [f"{struct}.{name}" for name in sorted(wanted - mirror)]
            counted = kind.startswith(COUNTED) and not {f"{field}_count", f"{field.rstrip('s')}_count"} & mirror
            found += [f"{struct}.{field}_count"] if counted else []
    return found


def operations_of(text):
    """Functions that are called with a group and arguments."""
    return set(re.findall(r"^(?:inline )?void (\w+)\(const Group& \w+, const \w+& \w+", text, re.MULTILINE))


# Fields that are choices, and no tensor, length or stream. A few follow from the tensors.
CHOICES = {"ReduceOp", "Algorithm", "Sharding", "Padding", "float", "bool", "int", "std::uint32_t", "Launch"}
OF_TENSORS = {"output_f32", "gamma_f32"}


def choices_of(cpp):
    """{operation: words that its call takes beside tensors}"""
    structs, found = structs_of(cpp), {}
    for name, struct in re.findall(r"^void (\w+)\(const Group& \w+, const (\w+Args)& \w+\);", cpp, re.MULTILINE):
        fields = {field for kind, field in structs[struct] if kind in CHOICES} - OF_TENSORS
        found[name] = fields - {"launch"} | (IN_C["launch"] if "launch" in fields else set())
    return found


def parameters_in_python(text):
    parts = re.split(r'\.def\(\s*"(\w+)"', text)
    return {name: set(re.findall(r'nb::arg\("(\w+)"\)', body)) for name, body in zip(parts[1::2], parts[2::2])}


def parameters_in_torch(text):
    methods = re.finditer(r"^    def (\w+?)_?\(\s*self,(.*?)\) ->", text, re.MULTILINE | re.DOTALL)
    return {found[1]: set(re.findall(r"(\w+):", found[2])) for found in methods}


class Parity(unittest.TestCase):
    def setUp(self):
        self.cpp = text_of("include/weft/*.hpp")
        self.c = text_of("include/weft/c/*.h")
        self.operations = operations_of(self.cpp)

    def test_what_is_missing_is_found(self):
        members = "int a = 0, b = 1;", "std::span<const int> c = {};", "Launch launch = {};"
        structs = structs_of("\n  ".join(["struct AArgs {", *members]) + "\n};\n")
        self.assertEqual([name for _, name in structs["AArgs"]], ["a", "b", "c", "launch"])
        whole = {"weft_a_args": {"size", "a", "b", "c", "c_count", "blocks", "threads", "cluster"}}
        self.assertEqual(missing_in_c(structs, whole, {}), [])
        for lost, said in (("b", "AArgs.b"), ("c_count", "AArgs.c_count"), ("cluster", "AArgs.cluster")):
            self.assertEqual(missing_in_c(structs, {"weft_a_args": whole["weft_a_args"] - {lost}}, {}), [said])
        self.assertEqual(missing_in_c(structs, {}, {}), ["AArgs"])
        self.assertEqual(operations_of("void take(const Group& group, const TakeArgs& args);\nint f(const Group& g);"),
                         {"take"})

    def test_every_operation_is_in_c(self):
        self.assertGreater(len(self.operations), 16)
        self.assertEqual({name for name in self.operations if not re.search(rf"\bweft_{name}\(", self.c)}, set())

    def test_every_operation_has_a_small_call(self):
        """`weft bench host` measures its cost, and a test counts its memory (tests/cli/host_cost_test.cpp)."""
        calls = set(re.findall(r'"(\w+)"', text_of("apps/weft/bench/every_operation.cpp")))
        self.assertEqual(self.operations - calls, {"send", "receive"})  # send_receive of one message

    def test_every_field_is_in_c(self):
        structs = structs_of(self.cpp)
        self.assertGreater(len(structs), 30)
        self.assertGreater(sum(map(len, structs.values())), 250)
        self.assertEqual(missing_in_c(structs, c_structs_of(self.c), arguments_of(self.c)), [])

    def test_every_operation_is_in_python(self):
        methods = set(re.findall(r'\.def\(\s*"(\w+)"', text_of("python/core/*.cpp")))
        self.assertEqual(self.operations - methods, set())

    def test_every_operation_is_in_torch(self):
        operators = {name.rstrip("_") for name in re.findall(r'^ +\{"(\w+)",', text_of("python/core/torch_*.cpp"),
                                                             re.MULTILINE)}
        methods = {name.rstrip("_") for name in re.findall(r"^    def (\w+)\(", text_of("python/weft/torch/*.py"),
                                                           re.MULTILINE)}
        self.assertEqual(self.operations - operators, set())
        self.assertEqual(self.operations - methods, set())

    def test_every_choice_of_an_operation_is_in_python_and_torch(self):
        choices = choices_of(self.cpp)
        self.assertLessEqual({"scale", "soft_cap", "tag", "blocks", "threads"}, choices["all_gather_columns"])
        self.assertLessEqual({"op", "algorithm"}, choices["all_reduce"])
        parts = (f"python/weft/torch/{part}.py" for part in ("group", "_columns", "_norms"))
        for parameters in (parameters_in_python(text_of("python/core/*.cpp")), parameters_in_torch(text_of(*parts))):
            missing = {name: words - parameters[name] for name, words in choices.items()}
            self.assertEqual({name: words for name, words in missing.items() if words}, {})

    def test_every_word_of_config_is_in_python(self):
        fields = {name for _, name in structs_of(self.cpp)["Config"]}
        self.assertGreater(len(fields), 12)
        named = set(re.findall(r'nb::arg\("(\w+)"\)', text_of("python/core/communicator.cpp")))
        self.assertEqual(fields - named, set())

    def test_every_word_of_an_exchange_is_in_python(self):
        structs, python = structs_of(self.cpp), text_of("python/core/exchange*.cpp", "python/core/dispatch.cpp")
        for struct in ("MoeExchangeArgs", "DispatchArgs", "CombineArgs"):
            fields = {name for _, name in structs[struct]} - {"launch"}
            missing = {name for name in fields if not re.search(rf'"{name}"|\bargs\.{name}\b', python)}
            self.assertEqual(missing, set(), struct)

    def test_every_word_of_a_layer_is_in_python_and_torch(self):
        structs, python = structs_of(self.cpp), text_of("python/core/layer.cpp", "python/core/binding.hpp")
        torch = text_of("python/weft/torch/layer.py")
        of_tensors = {"topk_ids_are_i64", "tokens", "input_columns", "output_columns"}
        for struct in ("MoeLayerArgs", "MoeLayerCall", "ExpertGemm", "SharedExpert"):
            fields = {name for _, name in structs[struct]} - of_tensors
            self.assertGreater(len(fields), 1)
            self.assertEqual({name for name in fields if f'"{name}"' not in python}, set(), struct)
            # On torch's current stream; numbers of processors are passed on.
            fields = {name for name in fields if name != "stream" and not name.endswith("num_sms")}
            self.assertEqual({name for name in fields if not re.search(rf"\b{name}: ", torch)}, set(), struct)


if __name__ == "__main__":
    unittest.main()
