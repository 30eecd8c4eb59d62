"""Layers of experts of weft.torch, on CPU ranks."""

from __future__ import annotations

import pytest
import torch
import weft
import weft.torch
from ranks import run_ranks
from torch_cases import bits
from torch_layer_cases import SCHEDULES, Layer


@pytest.mark.parametrize(("schedule", "rounds"), SCHEDULES)
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_layer_has_the_bits_of_its_parts(ranks: int, schedule: str, rounds: int) -> None:
    def work(rank: weft.Communicator) -> None:
        made = Layer(weft.torch.Group(rank.world))
        for shared in (False, True):
            assert bits(made.run(schedule, rounds, shared=shared)) == bits(made.expected())
            assert made.shared_calls == int(shared)
        assert made.rounds_seen == set(range(rounds if schedule == "rounds" else 1))

    run_ranks(ranks, work)


def test_fp8_rows_are_tensors_of_torch() -> None:
    def work(rank: weft.Communicator) -> None:
        definition = {"tokens": 4, "hidden": 128, "experts": 3, "top_k": 1, "cast": "fp8", "layout": "expert_contiguous"}
        exchange = weft.torch.Exchange(weft.torch.Group(rank.world), **definition)
        layer = weft.torch.MoeLayer(exchange, intermediate=256, down_cast="fp8_ue8m0")

        def up(gemm: weft.torch.ExpertGemm) -> None:
            assert gemm.input.dtype == torch.float8_e4m3fn and gemm.input_scales is not None
            assert gemm.offsets is not None and gemm.counts.tolist() == [2, 0, 2] and gemm.offsets.tolist() == [0, 2, 2, 4]
            rows = gemm.input[:4].to(torch.float32) * gemm.input_scales[:4]
            assert torch.equal(rows, torch.tensor([[448.0], [448], [1], [1]]).expand(4, 128))
            gemm.output[:4] = 2

        def down(gemm: weft.torch.ExpertGemm) -> None:
            assert gemm.input.shape == (gemm.capacity, 256) and gemm.input_scales is not None
            assert gemm.input_scales.dtype == torch.uint8 and gemm.input_scales.shape == (gemm.capacity, 2)
            gemm.output[:4] = torch.tensor([1.0, 2, 3, 4])[:, None]

        x = torch.tensor([[448.0], [1], [448], [1]]).expand(4, 128).to(torch.bfloat16).contiguous()
        ids, weights, y = torch.tensor([[0], [2], [0], [2]]), torch.ones(4, 1), torch.empty(4, 128, dtype=torch.bfloat16)
        layer.run(y, x, ids, weights, up=up, down=down)
        assert torch.equal(y, torch.tensor([[1.0], [3], [2], [4]]).expand(4, 128).to(torch.bfloat16))

    run_ranks(1, work)


def test_gradients_are_refused_and_compilers_step_aside() -> None:
    def work(rank: weft.Communicator) -> None:
        made = Layer(weft.torch.Group(rank.world))
        expected = bits(made.expected())
        compiled = torch.compile(lambda: made.run("rounds", 2) + 0, backend="eager")
        assert bits(compiled()) == expected
        made.case.topk_weights.requires_grad_(True)
        with pytest.raises(RuntimeError, match="weft has no gradients"):
            made.run("plain", 1)
        made.case.topk_weights.requires_grad_(False)
        weights = torch.ones(64, requires_grad=True)

        def down(gemm: weft.torch.ExpertGemm) -> None:
            gemm.output[:] = gemm.input * weights

        made.down, right = down, made.down  # type: ignore[method-assign]
        with pytest.raises(RuntimeError, match="weft has no gradients"):
            made.run("plain", 1)
        rank.release()  # voids the rest of that call
        rank.acquire()
        made.down = right  # type: ignore[method-assign]

        def shared(expert: weft.torch.SharedExpert) -> None:
            expert.output[:] = expert.input * weights

        made.shared = shared  # type: ignore[method-assign]
        with pytest.raises(RuntimeError, match="weft has no gradients"):
            made.run("plain", 1, shared=True)

    run_ranks(1, work)


def test_without_gradients_tensors_may_have_some() -> None:
    def work(rank: weft.Communicator) -> None:
        made = Layer(weft.torch.Group(rank.world))
        expected = bits(made.expected())
        made.case.topk_weights.requires_grad_(True)
        with torch.no_grad():
            assert bits(made.run("plain", 1)) == expected

    run_ranks(1, work)
