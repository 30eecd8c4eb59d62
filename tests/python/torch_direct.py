"""Calls of weft.torch: which of them go past torch's dispatcher, and which are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import weft
import weft.torch
from ranks import run_ranks
from torch_cases import Case
from torch_checks import ALONE, DEFINED, alone, calls_of, spied_on, through_operators


def by_name(x: torch.Tensor, group: int) -> torch.Tensor:
    made: torch.Tensor = torch.ops.weft.all_reduce(x * 2, group, 0)
    return made


def test_gradients_are_refused_for_any_tensor() -> None:
    def work(rank: weft.Communicator) -> None:
        group, x, tracked = weft.torch.Group(rank.world), torch.ones(2, 8), torch.ones(2, 8, requires_grad=True)
        norm, counts = torch.ones(8, requires_grad=True), weft.torch.Counts([2])
        refused: list[Callable[[], object]] = [
            lambda: group.all_reduce_(tracked),
            lambda: group.all_reduce_rms_norm(None, x, x, norm),
            lambda: group.all_reduce_rms_norm(None, x, x, torch.ones(8), tracked),
            lambda: group.all_gather_v([x, x], [x, tracked], counts),
            lambda: group.reduce_scatter_v(x, tracked, counts),
            lambda: group.gather_sums(x, tracked, counts, group_ranks=1),
            lambda: group.scatter_sums(x, tracked, counts, group_ranks=1),
            lambda: group.gather_sums_rms_norm(x, x, x, norm, counts, group_ranks=1),
            lambda: group.scatter_sums_rms_norm(x, x, x, torch.ones(8), counts, tracked, group_ranks=1),
            lambda: group.gather(x, tracked),
            lambda: group.scatter(x, tracked),
            lambda: group.send_receive([(tracked, 0)], [(x, 0)]),
            lambda: torch.compile(lambda: group.all_reduce(tracked), fullgraph=True, backend="aot_eager")(),
            lambda: torch.compile(by_name, fullgraph=True, backend="aot_eager")(tracked, group.number),
        ]
        for call in refused:
            with pytest.raises(RuntimeError, match="weft has no gradients"):
                call()
        assert calls_of(group) == 0
        case = Case(group)
        case.combine_with_weights()
        for call in (case.dispatch_and_combine, case.halves_of_an_exchange, case.rounds_of_an_exchange, case.combine_with_weights):
            case.topk_weights.requires_grad_(True)
            with pytest.raises(RuntimeError, match="weft has no gradients"):
                call()

    alone(work)


def with_gradients(values: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """The values of a call, each time with another tensor, or list of tensors, that requires a gradient."""

    def tracked(value: Any) -> Any:
        if isinstance(value, list):
            return [tracked(one) for one in value]
        takes = isinstance(value, torch.Tensor) and value.is_floating_point() and value.element_size() > 1
        return value.detach().clone().requires_grad_() if takes else value

    for place, value in enumerate(values):
        of_floats = [one for one in (value if isinstance(value, list) else [value]) if tracked(one) is not one]
        if of_floats:
            yield (*values[:place], tracked(value), *values[place + 1 :])


def test_operators_called_by_name_refuse_gradients() -> None:
    """Any tensor of any operator, also of a list, and in code that is compiled."""

    def work(rank: weft.Communicator) -> None:
        case = Case(weft.torch.Group(rank.world))
        case.broadcast = lambda: [case.group.broadcast_(case.x.clone())]  # type: ignore[method-assign]
        for name in ALONE:
            getattr(case, name)()
        calls = calls_of(case.group)
        assert {str(operator).split(".")[1] for operator, _ in called} == DEFINED - {"send", "receive"}
        x = torch.ones(3)
        called.extend((operator, (x, case.group.number, 0, 0)) for operator in (torch.ops.weft.send, torch.ops.weft.receive))
        for operator, values in called:
            for changed in with_gradients(values):
                with pytest.raises(RuntimeError, match="weft has no gradients"):
                    operator(*changed)
        assert calls_of(case.group) == calls

    with through_operators(), spied_on() as called:
        alone(work)


def test_gamma_is_of_the_rows_type_or_of_float32() -> None:
    """One and a fourth is a number of either; a little more is one of float32 alone, and rounds up to the next one."""

    def work(rank: weft.Communicator) -> None:
        group, x = weft.torch.Group(rank.world), torch.ones(1, 8, dtype=torch.bfloat16)
        normed, sums = torch.empty_like(x), torch.empty_like(x)
        quarter = torch.full((8,), 0.25)
        for gamma, plus_one in ((quarter + 1, False), ((quarter + 1).bfloat16(), False), (quarter, True)):
            group.all_reduce_rms_norm(normed, sums, x, gamma, gamma_plus_one=plus_one, epsilon=0)
            assert (normed == 1.25).all()
        group.all_reduce_rms_norm(normed, sums, x, quarter + 2**-8 + 2**-20, gamma_plus_one=True, epsilon=0)
        assert (normed == 1.25 + 2**-7).all()
        for dtype, name in ((torch.float16, "f16"), (torch.float64, "f64")):
            with pytest.raises(weft.Error, match=f"gamma: elements are {name}; they must be bf16 or f32"):
                group.all_reduce_rms_norm(normed, sums, x, quarter.to(dtype))

    alone(work)


def test_a_floor_of_scales_outside_of_its_range_is_refused() -> None:
    def work(rank: weft.Communicator) -> None:
        group, x = weft.torch.Group(rank.world), torch.ones(1, 8, dtype=torch.bfloat16)
        rows, scales = torch.empty(1, 8, dtype=torch.uint8), torch.empty(1)
        for floor in (0.0, 449.0, float("nan")):
            with pytest.raises(weft.Error, match="fp8.floor: .+ is not a number between 1e-30 and 448"):
                group.all_reduce_rms_norm(None, x, x, x[0], fp8_rows=rows, fp8_scales=scales, scale_floor=floor)

    alone(work)


STRANGE = {
    "nine dimensions": torch.ones([1] * 9),
    "negated lazily, nine dimensions": torch._neg_view(torch.ones([1] * 9)),
    "complex": torch.ones(3, dtype=torch.complex64),
    "conjugated lazily": torch.ones(3, dtype=torch.complex64).conj(),
}


@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.parametrize("name", ["all_reduce_", "all_reduce"])
def test_a_tensor_that_is_refused_is_told_to_those_who_wait(name: str, kind: str) -> None:
    def work(rank: weft.Communicator) -> None:
        call = getattr(weft.torch.Group(rank.world), name)
        with pytest.raises(weft.Error) as told:
            call(STRANGE[kind] if rank.rank else torch.ones(3))
        assert told.value.code == (weft.Errc.invalid_argument if rank.rank else weft.Errc.mismatch)

    run_ranks(2, work, weft.Config(device="cpu", deadline=None))


def test_direct_calls_do_not_ask_the_dispatcher() -> None:
    """And those that torch must see do: with gradients off, views that are negated, types without a name."""

    def work(rank: weft.Communicator) -> None:
        group, x = weft.torch.Group(rank.world), torch.arange(6.0)
        group.all_reduce_(x)
        group.all_reduce(x, op="max", algorithm="two_shot", tag=7, blocks=2, cluster=2)
        group.all_gather_into_tensor(torch.empty(6), x)
        group.gather(torch.empty(6), x)
        strange = torch.tensor([1 + 2j, 3 - 4j])
        assert torch.equal(group.broadcast_(strange), torch.tensor([1 + 2j, 3 - 4j]))
        assert not seen
        negated, result = torch._neg_view(x), torch.empty(6)
        group.all_gather_into_tensor(result, negated)
        assert torch.equal(result, -x) and len(seen) == 1
        with torch.no_grad():
            group.all_reduce_(torch.ones(3, requires_grad=True))
        assert len(seen) == 2
        with pytest.raises(weft.Error, match="negated lazily"):
            group.group.all_gather_into_tensor(result, negated)
        with pytest.raises(weft.Error, match="negated lazily"):
            weft.Recording.capture(rank, lambda: group.group.all_gather_into_tensor(result, negated))

    with spied_on() as seen:
        alone(work)
