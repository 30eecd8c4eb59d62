"""torch's operators: the same bits as weft.Group's methods, compiled or not."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
import torch
import weft
import weft.torch
from ranks import run_ranks
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch_cases import NAMES, Case, bits
from torch_checks import ALONE, SCHEMAS, alone, calls_of, spied_on, through_operators
from torch_methods import through_core

RANKS = 3


@pytest.mark.parametrize("name", NAMES)
def test_an_operator_has_the_bits_of_the_method(name: str) -> None:
    def work(rank: weft.Communicator) -> None:
        case = Case(weft.torch.Group(rank.world))
        expected = through_core(case, name)
        assert [bits(tensor) for tensor in getattr(case, name)()] == expected

    run_ranks(RANKS, work)
    with through_operators():
        run_ranks(RANKS, work)


def test_counts_as_lists() -> None:
    def work(rank: weft.Communicator) -> None:
        group = weft.torch.Group(rank.world)
        mine, output = torch.full((2, 4), float(rank.rank)), torch.empty(3, 4)
        group.all_gather_v(output, mine, weft.torch.Counts([1, 2]))
        assert output[:, 0].tolist() == [0, 1, 1]
        group.all_gather_v(output, mine, weft.torch.Counts([1, 1], padding="per_rank", slots=(2, 1)))
        assert output[:, 0].tolist() == [0, 0, 1]

    run_ranks(2, work)


def test_a_mode_of_torch_sees_the_call() -> None:
    seen: list[str] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    def work(rank: weft.Communicator) -> None:
        group = weft.torch.Group(rank.world)
        with Watch():
            assert (group.all_reduce(torch.ones(3)) == 1).all()

    alone(work)
    assert "weft.all_reduce.default" in seen


def test_tensors_that_lie_in_no_usual_way() -> None:
    def work(rank: weft.Communicator) -> None:
        group = weft.torch.Group(rank.world)
        wide = torch.arange(12.0).reshape(3, 4)
        assert torch.equal(group.all_reduce(wide.t().contiguous()), wide.t())
        assert torch.equal(group.all_reduce(wide[1]), wide[1])
        output = torch.zeros(3, 2)
        group.all_gather_into_tensor(output, wide[:, 1:3])
        assert torch.equal(output, wide[:, 1:3])
        negated = torch.complex(torch.ones(3), torch.ones(3)).conj().imag
        assert negated.is_neg()
        assert torch.equal(group.all_reduce(negated), negated)
        with pytest.raises((weft.Error, RuntimeError, BufferError)):
            group.group.all_reduce(negated)
        tracked = torch.ones(3, requires_grad=True)
        group.group.all_reduce(tracked)
        with torch.no_grad():
            assert torch.equal(group.all_reduce(tracked), tracked)
        for refused in (torch.ones(3).to_sparse(), torch.ones(3, device="meta")):
            with pytest.raises((weft.Error, RuntimeError, TypeError, ValueError)):
                group.group.all_reduce(refused)

    alone(work)


def test_a_tensor_that_does_not_export_itself_is_told_to_those_who_wait() -> None:
    def work(rank: weft.Communicator) -> None:
        if rank.rank == 1:
            with pytest.raises(ValueError, match="meta"):
                rank.world.all_reduce(torch.ones(3, device="meta"))
        else:
            with pytest.raises(weft.Error) as told:
                rank.world.all_reduce(torch.ones(3))
            assert told.value.code == weft.Errc.mismatch

    run_ranks(2, work, weft.Config(device="cpu", deadline=None))


def test_lists_of_counts_are_whole_numbers() -> None:
    with pytest.raises(TypeError):
        weft.torch.Counts([1.5, 2])  # type: ignore[list-item]
    with torch.device("meta"):
        assert weft.torch.Counts([1, 2]).rows.device.type == "cpu"


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", ALONE)
def test_compiled_equals_eager(name: str, backend: str) -> None:
    """The graph has no break."""

    def work(rank: weft.Communicator) -> None:
        case = Case(weft.torch.Group(rank.world))
        case.exchanged()
        case.broadcast = lambda: [case.group.broadcast_(case.x.clone())]  # type: ignore[method-assign]
        call: Callable[[], list[torch.Tensor]] = getattr(case, name)
        eager = [bits(tensor) for tensor in call()]
        before = calls_of(case.group)
        compiled = torch.compile(call, fullgraph=True, backend=backend)
        assert [bits(tensor) for tensor in compiled()] == eager
        of_exchanges = "dispatch_and_combine", "halves_of_an_exchange", "rounds_of_an_exchange", "combine_with_weights"
        others = "take_rows", "rows_by_mask", "compact_rows", "experts_that_moved", "made_again"
        if name not in (*others, *of_exchanges):  # these are no calls of the group
            made = 3 if name == "even_columns" else 1
            assert calls_of(case.group) == before + made  # a compiler drops what seems to do nothing

    alone(work)


def test_a_compiler_keeps_messages() -> None:
    """Traced without a call: rank 1 of this world makes none."""
    group = weft.torch.Group(weft.Communicator.local(2, weft.Config(device="cpu"))[0].world)

    def calls(x: torch.Tensor) -> torch.Tensor:
        group.send(x, 1)
        group.receive(x, 1)
        group.gather(None, x, root=1)
        group.reduce(None, x, root=1)
        return x

    graph = make_fx(calls, tracing_mode="fake")(torch.ones(3))
    graph.graph.eliminate_dead_code()
    for name in ("send", "receive", "gather", "reduce"):
        assert f"weft.{name}." in graph.code, graph.code


def test_errors_have_their_records() -> None:
    def work(rank: weft.Communicator) -> None:
        group = weft.torch.Group(rank.world)
        with pytest.raises(weft.Error, match="elements are f64; sums are of") as rejected:
            group.all_reduce_(torch.zeros(3, dtype=torch.float64))
        assert rejected.value.code == weft.Errc.invalid_argument
        with pytest.raises(weft.Error, match="do not lie side by side"):
            group.all_reduce_(torch.zeros(4, 4).t())
        outside: list[dict[str, Any]] = [{"tag": -1}, {"tag": 1 << 32}, {"blocks": 4096}, {"threads": 2048}, {"cluster": 4}]
        for options in outside:  # weft.Group's errors, and those of an operator's packed options
            with pytest.raises(TypeError if "tag" in options else weft.Error, match=next(iter(options))):
                group.all_reduce_(torch.zeros(3), **options)
            with through_operators(), pytest.raises(ValueError, match="; it must be 0 to"):
                group.all_reduce_(torch.zeros(3), **options)
        with pytest.raises(weft.Error, match="launch.blocks: 99"):
            group.all_reduce_(torch.zeros(3), blocks=99)
        with pytest.raises(weft.Error, match="launch.cluster: 3 is not between 0 and 2"):
            group.all_reduce_(torch.zeros(3), cluster=3)
        group.all_reduce_(torch.zeros(3), tag=(1 << 32) - 1, blocks=2, cluster=2, algorithm="pipelined", op="max")
        last = group.group.recent_calls()[-1].operation
        assert last.startswith("all_reduce max f32[3] pipelined") and last.endswith("tag 4294967295"), last
        for word in ("mean", "prod", "premul_sum"):  # the latter are NCCL's
            with pytest.raises(weft.Error, match=f"op is '{word}'; it must be one of sum, max, min, avg"):
                group.all_reduce_(torch.zeros(3), op=word)
        with pytest.raises(RuntimeError, match="weft has no gradients"):
            group.all_reduce(torch.zeros(3, requires_grad=True))
        with torch.no_grad():
            group.all_reduce(torch.zeros(3, requires_grad=True))
        with pytest.raises(RuntimeError, match="group is 0; no group of weft.torch has this number"):
            torch.ops.weft.all_reduce(torch.zeros(3), 0, 0)

    alone(work)


class Allocated(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks used free kept".split()]


def allocated() -> int:
    """Bytes that malloc has given to this process."""
    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = Allocated
    now = ask()
    return int(now.used + now.hblkhd)


LONG = 1 << 18  # numbers of a list: two megabytes


def refused(operator: Any, values: tuple[Any, ...]) -> list[Any]:
    """The values of a call that is refused: a tensor requires a gradient, or else there is no such group."""
    given = []
    for argument, value in zip(operator._schema.arguments, values, strict=True):
        kind = str(argument.type)
        given.append(0 if argument.name in ("group", "exchange") else [1] * LONG if kind == "List[int]" else value)
    for tensor in tree_leaves(given):
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
            tensor.requires_grad_()
    return given


@pytest.mark.parametrize("name", ALONE)
def test_a_refused_operator_keeps_nothing(name: str) -> None:
    """It owns the tensors and lists that it is called with."""

    def work(rank: weft.Communicator) -> None:
        case = Case(weft.torch.Group(rank.world))
        case.broadcast = lambda: [case.group.broadcast_(case.x.clone())]  # type: ignore[method-assign]
        with spied_on() as called:
            getattr(case, name)()
        assert called
        for operator, values in called:
            given = refused(operator, values)
            tensors = [value for value in tree_leaves(given) if isinstance(value, torch.Tensor)]
            uses, before = [tensor._use_count() for tensor in tensors], allocated()
            for _ in range(4):
                with pytest.raises(RuntimeError, match="weft has no gradients|has this number"):
                    operator(*given)
            assert [tensor._use_count() for tensor in tensors] == uses, operator
            assert allocated() - before < 8 * LONG, operator

    with through_operators():
        alone(work)


def test_the_number_stands_behind_what_an_operator_owns() -> None:
    """Whatever refuses a call comes behind it: by then the operator has taken all tensors and lists."""
    for schema in SCHEMAS:
        names = [argument.name for argument in schema.arguments]
        behind = names.index("exchange" if "exchange" in names else "group") + 1
        assert {str(argument.type) for argument in schema.arguments[behind:]} <= {"int", "bool", "float"}, schema


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
def test_operators_of_reductions(dtype: torch.dtype) -> None:
    expected = {"sum": 7, "max": 5, "min": 2, "avg": 3}

    def work(rank: weft.Communicator) -> None:
        group = weft.torch.Group(rank.world)
        x = torch.full((4,), 5 if rank.rank else 2, dtype=dtype)
        for op, value in expected.items():
            assert group.all_reduce(x, op=op).tolist() == [value] * 4
            y, part = torch.zeros_like(x), torch.zeros(2, dtype=dtype)
            group.reduce(y if rank.rank else None, x, op=op, root=1)
            assert y.tolist() == [value * rank.rank] * 4
            group.reduce_scatter_tensor(part, x, op=op)
            assert part.tolist() == [value] * 2

    run_ranks(2, work)


def test_a_root_without_a_tensor_is_refused() -> None:
    def work(rank: weft.Communicator) -> None:
        group, x = weft.torch.Group(rank.world), torch.ones(3)
        for call in (lambda: group.gather(None, x), lambda: group.reduce(None, x)):
            with pytest.raises(weft.Error, match="output: none; the root must have one"):
                call()
        with pytest.raises(weft.Error, match="input: none; the root must have one"):
            group.scatter(x)
        with pytest.raises(RuntimeError, match="peer: -1 is not a rank of the group"):
            torch.ops.weft.send(x, group.number, 1 << 40, 0)
        with pytest.raises(ValueError, match="tag is -1; it must be 0 to"):
            group.send_receive([(x, 0, -1)])
        group.send_receive()

    alone(work)
    with through_operators():
        alone(work)


def test_a_fault_names_its_peer() -> None:
    def work(rank: weft.Communicator) -> None:
        group = weft.torch.Group(rank.world)
        if rank.rank == 1:
            return
        with pytest.raises(weft.Error) as late:
            group.all_reduce_(torch.zeros(3))
        assert (late.value.code, late.value.peer) == (weft.Errc.timeout, 1)

    run_ranks(2, work, weft.Config(device="cpu", deadline=0.3))


def test_a_refused_operator_is_told_to_those_who_wait() -> None:
    def work(rank: weft.Communicator) -> None:
        group = weft.torch.Group(rank.world)
        with pytest.raises(weft.Error) as refused:
            group.all_reduce_(torch.zeros(3, dtype=torch.float64 if rank.rank == 1 else torch.float32))
        code = refused.value.code
        assert code == (weft.Errc.mismatch if rank.rank == 0 else weft.Errc.invalid_argument)

    run_ranks(2, work, weft.Config(device="cpu", deadline=None))


def test_a_recording_keeps_an_operators_tensors() -> None:
    outputs: list[torch.Tensor] = []

    def work(rank: weft.Communicator) -> None:
        group = weft.torch.Group(rank.world)

        def calls() -> None:
            outputs.append(group.all_reduce(torch.full((1000,), 2.0)))

        recording = weft.Recording.capture(rank, calls)
        noise = [torch.full((1000,), 9.0) for _ in range(4)]
        recording.replay()
        assert (outputs[0] == 2).all(), noise[0][0]

    alone(work)


def test_a_group_is_gone_with_its_last_owner() -> None:
    def work(rank: weft.Communicator) -> None:
        group = weft.torch.Group(rank.world)
        number = group.number
        del group
        with pytest.raises(RuntimeError, match="no group of weft.torch has this number"):
            torch.ops.weft.all_reduce(torch.zeros(3), number, 0)

    alone(work)


def test_outputs_in_symmetric_memory() -> None:
    def work(rank: weft.Communicator) -> None:
        group = weft.torch.Group(rank.world)
        memory = weft.SymmetricMemory.allocate(rank, 1 << 20)
        output = weft.torch.symmetric_tensor(memory, [2 * 64, 1024], torch.bfloat16, 4096)
        assert output.data_ptr() == memory.data_ptr + 4096
        del memory
        group.all_gather_into_tensor(output, torch.full((64, 1024), rank.rank, dtype=torch.bfloat16))
        assert (output[:64] == 0).all() and (output[64:] == 1).all()

    run_ranks(2, work)


def test_a_handle_of_another_kind_is_refused() -> None:
    def work(rank: weft.Communicator) -> None:
        case = Case(weft.torch.Group(rank.world))
        exchange, rows, _, _, results = case.exchanged()
        with pytest.raises(weft.Error, match="handle: elements are f32; they must be i64"):
            exchange.combine(results, rows, torch.zeros(4))
        with pytest.raises(weft.Error):
            exchange.combine(results, rows, torch.zeros(4, dtype=torch.int64))
        with pytest.raises(TypeError, match="unexpected keyword argument 'count'; outputs are output_scales, counts"):
            exchange.dispatch(rows, case.tokens, case.topk_ids, case.topk_weights, count=rows)

    alone(work)


def test_outputs_of_a_dispatch_are_typed_by_name() -> None:
    assert list(weft.torch.exchange.Outputs.__annotations__) == weft._core._words()["DispatchOutput"]
