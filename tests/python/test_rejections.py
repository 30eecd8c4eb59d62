"""Calls with bad arguments raise, say what is wrong, and leave no trace: the next call works."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
import weft
from processes import expect_sums, run_program
from ranks import run_ranks

Array = npt.NDArray[Any]

CPU = weft.Config(device="cpu", deadline=20)
TYPES = "bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool, e4m3"


from_id: Any = weft.Communicator.from_id
nobody: Any = None  # for calls of no group


class OnGpu:
    """Memory on a GPU as CuPy and Numba show it."""

    def __init__(self, **changes: Any) -> None:
        usual = {"data": (4096, False), "shape": (4,), "typestr": "<f4", "version": 3}
        self.__cuda_array_interface__ = {**usual, **changes}


class Stream:
    def __init__(self, cuda_stream: Any) -> None:
        self.cuda_stream = cuda_stream


class Protocol:
    """A stream of cuda.core."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __cuda_stream__(self) -> Any:
        return self.answer


def f32(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def read_only() -> Array:
    array = f32(4)
    array.flags.writeable = False
    return array


def counts(*numbers: int) -> weft.Counts:
    return weft.Counts(np.array(numbers, np.int32))


class Bad(NamedTuple):
    """A call that is rejected, and words of the message."""

    call: Callable[[weft.Group], object]
    says: str
    raises: type[Exception] | tuple[type[Exception], ...] = weft.Error


TENSOR = "must be a tensor: a weft.Tensor, or an object with __dlpack__, __cuda_array_interface__ or the buffer"
STREAM = "stream must be None, an address, or an object with __cuda_stream__ or cuda_stream"

CALLS = {
    "f64": Bad(lambda g: g.all_reduce(np.ones(4)), "elements are f64; sums are of bf16, f16, f32, i32, i64 and u8"),
    "bf16 as u16": Bad(lambda g: g.all_reduce(np.ones(4, np.uint16)), "elements are u16; sums are of bf16"),
    "two types": Bad(lambda g: g.all_reduce(f32(4), np.ones(4, np.int32)), "output: elements are f32"),
    "candidates of other shapes": Bad(
        lambda g: g.top_k_columns(f32(4, 2), np.zeros((2, 4), np.int32), f32(2, 8)), "values: shape [4, 2]; the indices' is"
    ),
    "candidates of other rows": Bad(
        lambda g: g.top_k_columns(None, np.zeros((3, 4), np.int32), f32(2, 8)), "indices: 3 rows; the input has 2"
    ),
    "candidates as floats": Bad(lambda g: g.top_k_columns(None, f32(2, 4), f32(2, 8)), "indices"),
    "more candidates than columns": Bad(
        lambda g: g.top_k_columns(None, np.zeros((2, 60), np.int32), f32(2, 8)), "k: 60 is not between 1 and"
    ),
    "columns of one dimension": Bad(lambda g: g.all_gather_columns(f32(4), f32(4)), "it must be [rows, columns]"),
    "columns of other rows": Bad(lambda g: g.all_gather_columns(f32(3, 4), f32(2, 4)), "output: 3 rows; the input has 2"),
    "groups of columns": Bad(
        lambda g: g.all_to_all_columns(f32(2, 8), f32(2, 4), weft.Counts(np.ones(1, np.int32)), group_ranks=3),
        "group_ranks: 3 is no divisor of the group's 2",
    ),
    "no columns": Bad(lambda g: g.all_gather_columns(f32(2, 0), f32(2, 4)), "output: shape [2, 0]; it must have columns"),
    "too many columns": Bad(lambda g: g.all_gather_columns(f32(2, 64), f32(2, 4)), "columns"),
    "columns of two types": Bad(
        lambda g: g.all_gather_columns(np.ones((2, 4), np.int32), f32(2, 4)), "output: elements are i32; the input's are f32"
    ),
    "a soft cap of integers": Bad(
        lambda g: g.all_gather_columns(*2 * [np.ones((2, 4), np.int32)], soft_cap=1.0), "soft_cap"
    ),
    "short output": Bad(lambda g: g.all_reduce(f32(4), f32(5)), "output: "),
    "short input": Bad(lambda g: g.all_reduce(f32(5), f32(4)), "elements"),
    "gaps": Bad(lambda g: g.all_reduce(f32(4, 4)[:, ::2]), "elements of shape [4, 2] do not lie side by side"),
    "reversed": Bad(lambda g: g.all_reduce(f32(4)[::-1]), "elements of shape [4] do not lie side by side"),
    "gathered rows": Bad(lambda g: g.all_gather_into_tensor(f32(3, 2), f32(2, 2)), "output: 3 rows of 8 bytes"),
    "scattered rows": Bad(lambda g: g.reduce_scatter_tensor(f32(2, 2), f32(3, 2)), "input: 3 rows of 8 bytes"),
    "scattered types": Bad(lambda g: g.reduce_scatter_tensor(f32(2), np.ones(4, np.int32)), "elements are f32"),
    "odd exchange": Bad(lambda g: g.all_to_all(f32(3, 2), f32(3, 2)), "3 rows are no multiple of 2 ranks"),
    "no such root": Bad(lambda g: g.broadcast(f32(4), root=2), "root: 2 is not a rank of the group"),
    "no root to reduce to": Bad(lambda g: g.reduce(f32(4), root=2), "root: 2 is not a rank of the group"),
    "reduced to nothing": Bad(lambda g: g.reduce(None, f32(4), root=g.rank), "output: none; the root must have one"),
    "reduced length": Bad(lambda g: g.reduce(f32(3), f32(4), root=g.rank), "output: 3 elements; the input has 4"),
    "reduced types": Bad(lambda g: g.reduce(np.ones(4, np.int64), f32(4), root=g.rank), "output: elements are i64"),
    "no input": Bad(lambda g: g.reduce(None, root=1 - g.rank), f"output is a NoneType; it {TENSOR}", TypeError),
    "scatter's op": Bad(
        lambda g: g.reduce_scatter_tensor(f32(2), f32(4), op="mean"),  # type: ignore[arg-type]
        "op is 'mean'; it must be one of",
    ),
    "no root to gather to": Bad(lambda g: g.gather(None, f32(4), root=-1), "root: -1 is not a rank of the group"),
    "no root to scatter from": Bad(lambda g: g.scatter(f32(4), root=2), "root: 2 is not a rank of the group"),
    "gathered to nothing": Bad(lambda g: g.gather(None, f32(4), root=g.rank), "output: none; the root must have one"),
    "scattered nothing": Bad(lambda g: g.scatter(f32(4), root=g.rank), "input: none; the root must have one"),
    "gathered length": Bad(lambda g: g.gather(f32(7), f32(4), root=g.rank), "output: 7 elements; it must have 8, 4 of"),
    "scattered length": Bad(lambda g: g.scatter(f32(4), f32(9), root=g.rank), "input: 9 elements; it must have 8, 4 of"),
    "gathered types": Bad(lambda g: g.gather(np.ones(8, np.int32), f32(4), root=g.rank), "output: elements are i32"),
    "no such peer": Bad(lambda g: g.send(f32(4), 2), "peer: 2 is not a rank of the group, 0 … 1"),
    "no such sender": Bad(lambda g: g.receive(f32(4), -1), "peer: -1 is not a rank of the group, 0 … 1"),
    "to itself alone": Bad(lambda g: g.send(f32(4), g.rank), "messages to this rank itself"),
    "sent gaps": Bad(lambda g: g.send(f32(4, 4)[:, ::2], 0), "tensor: elements of shape [4, 2] do not lie side by side"),
    "received read-only": Bad(lambda g: g.receive(read_only(), 0), "tensor: read-only memory"),
    "sent object": Bad(lambda g: g.send_receive([(object(), 0)]), f"sends[0] is a object; it {TENSOR}", TypeError),
    "no tuple": Bad(
        lambda g: g.send_receive(receives=[f32(4)]),  # type: ignore[list-item]
        "it must be (tensor, peer) or (tensor, peer, tag)",
        TypeError,
    ),
    "a message's peer": Bad(
        lambda g: g.send_receive([(f32(4), "1")]),  # type: ignore[list-item]
        "sends[0]: peer is '1'; it must be an integer of",
        TypeError,
    ),
    "a message's tag": Bad(
        lambda g: g.send_receive(receives=[(f32(4), 1, -1)]),
        "receives[0]: tag is -1; it must be an integer of 0 … 4294967295",
        TypeError,
    ),
    "many messages": Bad(lambda g: g.send_receive([(f32(0), 0)] * 257), "sends: 257 is not between 0 and 256"),
    "read-only": Bad(lambda g: g.all_reduce(read_only()), "output: read-only memory"),
    "read-only view": Bad(lambda g: g.all_reduce(weft.Tensor(read_only())), "output: read-only memory"),
    "bytes": Bad(lambda g: g.all_reduce(bytes(16)), "output: read-only memory"),
    "an object": Bad(lambda g: g.all_reduce(object()), f"output is a object; it {TENSOR}", TypeError),
    "a list": Bad(lambda g: g.all_reduce(f32(2), [1.0, 2.0]), f"input is a list; it {TENSOR}", TypeError),
    "None": Bad(lambda g: g.all_reduce(None), "incompatible function arguments", TypeError),
    "text": Bad(lambda g: g.all_reduce(np.array(["a"])), "output is a ndarray of dtype('<U1')", TypeError),
    "op": Bad(
        lambda g: g.all_reduce(f32(4), op="mean"),  # type: ignore[arg-type]
        "op is 'mean'; it must be one of sum, max, min, avg",
    ),
    "NCCL's op": Bad(
        lambda g: g.all_reduce(f32(4), op="prod"),  # type: ignore[arg-type]
        "op is 'prod'; it must be one of sum, max, min, avg",
    ),
    "algorithm": Bad(
        lambda g: g.all_reduce(f32(4), algorithm="ring"),  # type: ignore[arg-type]
        "algorithm is 'ring'; it must be one of automatic, one_shot, two_shot, pipelined, nccl, multimem_one_shot, "
        "multimem_two_shot",
    ),
    "blocks": Bad(lambda g: g.all_reduce(f32(4), blocks=99), "launch.blocks: 99"),
    "cluster": Bad(lambda g: g.all_reduce(f32(4), cluster=3), "launch.cluster: 3 is not between 0 and 2"),
    "pairs": Bad(lambda g: g.all_reduce(f32(4), blocks=3, cluster=2), "launch.blocks: 3 is odd, and launch.cluster is 2"),
    "tag": Bad(lambda g: g.all_reduce(f32(4), tag=-1), "tag", TypeError),
    "lists": Bad(lambda g: g.all_gather_v([f32(2), f32(2)], [f32(1)], counts(1, 1)), "output: 2 tensors, but 1 input"),
    "no tensors": Bad(lambda g: g.all_gather_v([], [], counts(1, 1)), "tensors: 0 is not between 1 and 8"),
    "in a list": Bad(lambda g: g.all_gather_v([f32(2)], [object()], counts(1, 1)), "input is a object", TypeError),
    "few counts": Bad(lambda g: g.all_gather_v(f32(2), f32(1), counts(1)), "counts.rows: shape [1] has 1 elements; 2"),
    "i64 counts": Bad(
        lambda g: g.all_gather_v(f32(2), f32(1), weft.Counts(np.ones(2, np.int64))), "are i64; they must be i32"
    ),
    "few listed counts": Bad(
        lambda g: g.all_gather_v(f32(2), f32(1), weft.Counts([1])), "counts.rows: shape [1] has 1 elements; 2"
    ),
    "stream": Bad(lambda g: g.all_reduce(f32(4), stream=object()), STREAM, TypeError),
    "stream's name": Bad(lambda g: g.all_reduce(f32(4), stream="0"), STREAM, TypeError),
    "an odd stream": Bad(lambda g: g.all_reduce(f32(4), stream=Stream("x")), "stream", TypeError),
    "an odd protocol": Bad(lambda g: g.all_reduce(f32(4), stream=Protocol("x")), "stream", TypeError),
    "a negative stream": Bad(lambda g: g.all_reduce(f32(4), stream=-1), "stream", (TypeError, weft.Error)),
    "a GPU's stream": Bad(lambda g: g.all_reduce(f32(4), stream=Stream(4096)), "stream: must be null on CPU ranks"),
    "a barrier's stream": Bad(lambda g: g.barrier(stream=Protocol((0, 4096))), "stream: must be null on CPU ranks"),
    "GPU output": Bad(lambda g: g.all_reduce(OnGpu()), "output: on cuda"),
    "GPU input": Bad(lambda g: g.all_reduce(f32(4), OnGpu()), "input: on cuda"),
    "GPU view": Bad(lambda g: g.all_reduce(weft.Tensor(OnGpu())), "output: on cuda"),
    "GPU address": Bad(lambda g: g.all_reduce(weft.Tensor.at(4096, [4], "f32", "cuda")), "output: on cuda"),
    "GPU read-only": Bad(lambda g: g.all_reduce(OnGpu(data=(4096, True))), "output: read-only memory"),
    "GPU type": Bad(lambda g: g.all_reduce(OnGpu(typestr=">f4")), "element type '>f4' of the CUDA array interface"),
    "layout": Bad(
        lambda g: weft.Exchange.create(g, tokens=1, hidden=8, experts=2, top_k=1, layout="masked"),  # type: ignore[arg-type]
        "layout is 'masked'; it must be one of expert_masked, expert_contiguous, rank_major, rank_compact",
    ),
    "experts' ranks": Bad(
        lambda g: weft.Exchange.create(g, tokens=1, hidden=8, experts=2, top_k=1, rank_of_expert=[0]), "1 is not 0 or 2"
    ),
}


def expect_rejected(bad: Bad, group: weft.Group) -> None:
    with pytest.raises(bad.raises, match=re.escape(bad.says)) as caught:
        bad.call(group)
    if isinstance(caught.value, weft.Error):
        nothing = (weft.Errc.invalid_argument, -1, -1, "")
        assert (caught.value.code, caught.value.rank, caught.value.peer, caught.value.operation) == nothing


@pytest.mark.parametrize("name", CALLS)
def test_a_rejected_call_leaves_the_group_usable(name: str) -> None:
    def work(made: weft.Communicator) -> None:
        world = made.world
        for _ in range(2):
            expect_rejected(CALLS[name], world)
            expect_sums(world)
        assert made.status() is None
        assert [call.operation for call in world.recent_calls()] == ["all_reduce sum i32[100] one-shot tag 0"] * 2

    run_ranks(2, work, CPU)


def test_a_rejected_message_concerns_its_rank_alone() -> None:
    def work(made: weft.Communicator) -> None:
        if made.rank == 0:
            for name in ("no such peer", "sent object", "gathered length"):
                expect_rejected(CALLS[name], made.world)
        expect_sums(made.world)

    run_ranks(2, work, CPU)


VALUES = {
    "dtype": Bad(lambda _: weft.Tensor.at(4096, [4], "float32"), f"dtype is 'float32'; it must be one of {TYPES}"),
    "view's dtype": Bad(lambda _: weft.Tensor(f32(4), "fp32"), f"dtype is 'fp32'; it must be one of {TYPES}"),
    "other bits": Bad(lambda _: weft.Tensor(f32(4), "bf16"), "dtype is 'bf16' of 16 bits; the tensor's"),
    "length": Bad(lambda _: weft.Tensor.at(4096, [2, -4], "f32"), "shape [2, -4]; every length must be 0 or more"),
    "dimensions": Bad(lambda _: weft.Tensor.at(4096, [1] * 9, "f32"), "9 dimensions; at most 8"),
    "device": Bad(lambda _: weft.Tensor.at(4096, [4], "f32", "cuda:x"), "'cuda:x'; it must be cpu, cuda or cuda:N"),
    "padding": Bad(
        lambda _: weft.Counts(f32(1), padding="q"),  # type: ignore[arg-type]
        "padding is 'q'; it must be one of none, aligned, max,",
    ),
    "short id": Bad(lambda _: from_id(bytes(127), 0, 1, CPU), "id: 127 bytes; create_id() gives 128"),
    "long id": Bad(lambda _: from_id(bytes(129), 0, 1, CPU), "id: 129 bytes; create_id() gives 128"),
    "id's type": Bad(lambda _: from_id("x" * 128, 0, 1, CPU), "incompatible function arguments", TypeError),
    "rank": Bad(lambda _: from_id(bytes(128), 2, 2, CPU), "rank: 2 is not between 0 and 1"),
    "no ranks": Bad(lambda _: weft.Communicator.local(0, CPU), "world_size: 0 is not between 1 and 72"),
    "many ranks": Bad(lambda _: weft.Communicator.local(73, CPU), "world_size: 73 is not between 1 and 72"),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_bad_value_is_rejected(name: str) -> None:
    expect_rejected(VALUES[name], nobody)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"device": "gpu"}, "device is 'gpu'; it must be one of automatic, cpu, cuda"),
        ({"deadline": -1}, "deadline is -1 s; it must be 0 …"),
        ({"deadline": float("nan")}, "deadline is nan s; it must be 0 …"),
        ({"rendezvous_deadline": float("inf")}, "rendezvous_deadline is inf s; it must be 0 …"),
        ({"max_groups": 64}, "max_groups: 64 is not between 0 and 63"),
        ({"one_shot_bytes": 2**41}, "one_shot_bytes: 2199023255552 is not between 0 and 2^40"),
        ({"group_two_shot_bytes": 2**41}, "group_two_shot_bytes: 2199023255552 is not between 0 and 2^40"),
        ({"name": "a" * 65}, "of 65 bytes is not of at most 64 bytes"),
        ({"tuning_file": "/no/such/file"}, "/no/such/file: cannot be read"),
    ],
)
def test_options_outside_their_range_are_rejected(options: dict[str, Any], says: str) -> None:
    options = {"device": "cpu", **options}
    expect_rejected(Bad(lambda _: weft.Communicator.local(1, weft.Config(**options)), says), nobody)


@pytest.mark.parametrize("options", [{"deadlines": 1}, {"deadline": "1"}, {"one_shot_bytes": -1}, {"device": 3}])
def test_options_that_do_not_exist_or_have_another_type_are_type_errors(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="incompatible function arguments"):
        weft.Config(**options)


def test_no_deadline_is_none_or_zero() -> None:
    """Ranks compare their options: None and 0 are the same, and another number is not."""

    def create(deadlines: tuple[float | None, float | None]) -> list[weft.Error | None]:
        id = weft.Communicator.create_id()

        def run(rank: int) -> weft.Error | None:
            config = weft.Config(device="cpu", deadline=deadlines[rank], rendezvous_deadline=20)
            try:
                expect_sums(weft.Communicator.from_id(id, rank, 2, config).world)
            except weft.Error as error:
                return error
            return None

        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(run, range(2)))

    assert create((None, 0)) == [None, None]
    for error in create((None, 5)):
        assert error is not None
        assert error.code is weft.Errc.rendezvous
        assert "deadline" in str(error)


def test_groups_of_no_ranks_end_no_program() -> None:
    """In a child, as a division by zero would end the test."""
    program = """
import weft
try:
    print(weft.GatheredCounts(4, 1, 0).groups)
except weft.Error as error:
    print(error.code.name)
"""
    assert run_program(["-c", program]) == (0, "invalid_argument\n", "")
