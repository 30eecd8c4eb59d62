"""Layers of experts from Python: GEMMs are functions, and all schedules have the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import weft
from ranks import run_ranks
from test_exchange import EXPERTS, HIDDEN, TOKENS, Case

Array = npt.NDArray[Any]

# silu of it is the number itself, and a product with it is exact.
GATE = 64


def bf16_of(values: Array) -> Array:
    """Of values that bf16 holds."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def f32_of(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def e4m3_of(codes: Array) -> Array:
    exponent, mantissa = (codes >> 3 & 15).astype(np.float32), (codes & 7).astype(np.float32)
    size = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7))
    return np.where(codes & 128, -size, size).astype(np.float32)


def array(view: weft.Tensor, dtype: str) -> Array:
    return np.from_dlpack(weft.Tensor(view, dtype))


class Experts:
    """Experts that give each row back as it came, and note what they were asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, int]] = []
        self.budgets: set[tuple[str, int]] = set()

    def rows_of(self, gemm: weft.ExpertGemm) -> list[Any]:
        """For each of its experts, where its rows lie."""
        self.asked.append((gemm.which, gemm.round, gemm.first_expert, gemm.experts))
        self.budgets.add((gemm.which, gemm.num_sms))
        counts = np.from_dlpack(gemm.counts)
        experts = range(gemm.first_expert, gemm.first_expert + gemm.experts)
        if gemm.layout == "expert_masked":
            assert gemm.offsets is None and gemm.input.shape[:2] == (len(counts), gemm.capacity)
            return [(expert, slice(0, counts[expert])) for expert in experts]
        assert gemm.offsets is not None and gemm.input.shape[0] == gemm.capacity
        offsets = np.from_dlpack(gemm.offsets)
        assert len(offsets) == len(counts) + 1
        return [slice(offsets[expert], offsets[expert] + counts[expert]) for expert in experts]

    def up(self, gemm: weft.ExpertGemm) -> None:
        given, made = array(gemm.input, "u16"), array(gemm.output, "u16")
        assert given.shape[-1] == HIDDEN and made.shape[-1] == 2 * HIDDEN and gemm.input_scales is None
        for at in self.rows_of(gemm):
            made[at][..., :HIDDEN] = bf16_of(np.array([GATE]))
            made[at][..., HIDDEN:] = given[at]

    def down(self, gemm: weft.ExpertGemm) -> None:
        given, made = array(gemm.input, "u16"), array(gemm.output, "u16")
        assert given.shape[-1] == HIDDEN and made.shape[-1] == HIDDEN
        for at in self.rows_of(gemm):
            made[at] = bf16_of(f32_of(given[at]) / GATE)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("layout", ["expert_masked", "expert_contiguous"])
@pytest.mark.parametrize("schedule", ["plain", "rounds", "combine_rounds", "automatic"])
def test_every_schedule_gives_what_the_oracle_says(ranks: int, layout: weft.RowLayout, schedule: weft.LayerSchedule) -> None:
    case = Case(ranks, layout)

    def work(rank: weft.Communicator) -> None:
        me = rank.rank
        exchange = case.exchange(rank.world)
        layer = weft.MoeLayer.create(exchange, intermediate=HIDDEN)
        workspace = np.full(layer.workspace_bytes + 1, 0x7F, np.uint8)[1:]  # at an odd address
        tokens, local = case.counts[me], -(-EXPERTS // ranks)  # of the rank that has most
        x, ids, weights = weft.Tensor(case.input(me), "bf16"), case.ids[me, :tokens], case.weights[me, :tokens].copy()
        divisions = ([local], [-(-local // 2), local // 2], [1, 0, local - 1])
        for rounds in divisions[:1] if schedule in ("plain", "automatic") else divisions:
            experts = Experts()
            back = np.full((tokens, HIDDEN), 0x7F, np.uint16)
            layer.run(
                weft.Tensor(back, "bf16"),
                x,
                ids.copy(),
                weights,
                up=experts.up,
                down=experts.down,
                workspace=workspace,
                schedule=schedule,
                rounds=rounds if len(rounds) > 2 else len(rounds),
                up_num_sms=7,
                down_num_sms=5,
            )
            assert back.tobytes() == case.expected[me][3]
            assert experts.budgets == {("up", 7), ("down", 5)}
            made = {which: [a for a in experts.asked if a[0] == which] for which in ("up", "down")}
            for which, asked in made.items():
                # Each expert once, whatever the division.
                of = [expert for _, _, first, count in asked for expert in range(first, first + count)]
                assert of == list(range(exchange.local_experts)), which
            parts = [min(sum(rounds[: r + 1]), exchange.local_experts) - sum(rounds[:r]) for r in range(len(rounds))]
            with_experts = [(r, part) for r, part in enumerate(parts) if part > 0]
            assert [(r, count) for _, r, _, count in made["down"]] == with_experts
            together = [(0, exchange.local_experts)] if schedule == "combine_rounds" else with_experts
            assert [(r, count) for _, r, _, count in made["up"]] == together
        # Rows of the last call are still there, and experts make the same of them in other rounds.
        rows: dict[int, list[bytes]] = {1: [], 2: []}
        for rounds_alone, kept in rows.items():
            again = Experts()

            def down(gemm: weft.ExpertGemm, again: Experts = again, kept: list[bytes] = kept) -> None:
                made = array(gemm.output, "u16")
                for at in again.rows_of(gemm):
                    made[at] = 0x7F
                again.down(gemm)
                kept.extend(made[at].tobytes() for at in again.rows_of(gemm))

            layer.run_experts(
                workspace, up=again.up, down=down, rounds=rounds_alone, up_num_sms=3, down_num_sms=4
            )
            assert again.budgets == {("up", 3), ("down", 4)}
            ups = [(first, count) for which, _, first, count in again.asked if which == "up"]
            assert [expert for first, count in ups for expert in range(first, first + count)] == list(
                range(exchange.local_experts)
            )
        assert rows[1] == rows[2] and len(rows[1]) == exchange.local_experts

    run_ranks(ranks, work)


@pytest.mark.parametrize("cast", ["fp8", "fp8_ue8m0"])
@pytest.mark.parametrize("scale_order", ["rows", "columns"])
def test_rows_that_are_cast_come_with_scales(cast: weft.RowCast, scale_order: weft.ScaleOrder) -> None:
    case = Case(2, "expert_masked", cast)

    def work(rank: weft.Communicator) -> None:
        me = rank.rank
        exchange = case.exchange(rank.world, scale_order=scale_order)
        layer = weft.MoeLayer.create(exchange, intermediate=256, down_cast=cast)
        seen = []

        def scaled(gemm: weft.ExpertGemm) -> Array:
            """The input's values, where scales lie by rows."""
            assert gemm.input.dtype == "e4m3" and gemm.input_scales is not None
            codes = array(gemm.input, "u8")
            assert gemm.input_scales.dtype == ("u8" if cast == "fp8_ue8m0" else "f32")
            scales = np.from_dlpack(gemm.input_scales)
            if scale_order == "columns":
                assert scales.ndim == 1
                return codes
            assert scales.shape == (*codes.shape[:2], codes.shape[2] // 128)
            factors = 2.0 ** (scales.astype(np.float32) - 127) if cast == "fp8_ue8m0" else scales
            return e4m3_of(codes) * np.repeat(factors, 128, axis=2)

        def up(gemm: weft.ExpertGemm) -> None:
            values, made = scaled(gemm), array(gemm.output, "u16")
            for expert, count in enumerate(np.from_dlpack(gemm.counts)):
                made[expert, :count, :256] = bf16_of(np.array([GATE]))
                made[expert, :count, 256:] = bf16_of(np.array([3]))
            if scale_order == "rows":
                for row, expected in case.expected[me][2]:  # what dispatch is held to give
                    codes = np.frombuffer(expected[:HIDDEN], np.uint8)
                    kind = np.uint8 if cast == "fp8_ue8m0" else np.float32
                    scale = np.frombuffer(expected[HIDDEN:], kind)[0]
                    factor = 2.0 ** (float(scale) - 127) if cast == "fp8_ue8m0" else scale
                    assert (values.reshape(-1, HIDDEN)[row] == e4m3_of(codes) * np.float32(factor)).all()
                    seen.append(row)

        def down(gemm: weft.ExpertGemm) -> None:
            values, made = scaled(gemm), array(gemm.output, "u16")
            assert values.shape[-1] == 256
            made[:] = 0
            if scale_order == "rows":
                for expert, count in enumerate(np.from_dlpack(gemm.counts)):
                    assert (values[expert, :count] == 3 * GATE).all()

        tokens = case.counts[me]
        back = np.full((tokens, HIDDEN), 0x7F, np.uint16)
        layer.run(
            weft.Tensor(back, "bf16"),
            weft.Tensor(case.input(me), "bf16"),
            case.ids[me, :tokens].copy(),
            case.weights[me, :tokens].copy(),
            up=up,
            down=down,
            workspace=np.zeros(layer.workspace_bytes, np.uint8),
        )
        assert (back & 0x7FFF == 0).all()
        assert len(seen) == (len(case.expected[me][2]) if scale_order == "rows" else 0)

    run_ranks(2, work)


def call_of(case: Case, me: int, layer: weft.MoeLayer, **changed: Any) -> dict[str, Any]:
    tokens, experts = case.counts[me], Experts()
    given: dict[str, Any] = {
        "output": weft.Tensor(np.zeros((tokens, HIDDEN), np.uint16), "bf16"),
        "input": weft.Tensor(case.input(me), "bf16"),
        "topk_ids": case.ids[me, :tokens].copy(),
        "topk_weights": case.weights[me, :tokens].copy(),
        "up": experts.up,
        "down": experts.down,
        "workspace": np.zeros(layer.workspace_bytes, np.uint8),
    }
    return given | changed


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"up": 5}, TypeError, "up: must be a function"),
        ({"shared": 5}, TypeError, "shared: must be a function of a SharedExpert, or None"),
        ({"shared_num_sms": 257}, weft.Error, "shared_num_sms: 257 is not between 0 and 256"),
        ({"workspace": np.zeros(8, np.uint8)}, weft.Error, "workspace: 8 bytes; it must be"),
        ({"rounds": 2}, weft.Error, "rounds.count: 2 is not 1, and the schedule is automatic"),
        ({"combine_recv_num_sms": 1}, weft.Error, "combine_recv_num_sms: 1 is not 0 or 2"),
        ({"combine_send_num_sms": 3}, weft.Error, "combine_send_num_sms: 3 is not 0 or 2"),
        ({"up_num_sms": -1}, weft.Error, "up_num_sms: -1 is not between 0 and 256"),
        ({"down_num_sms": 257}, weft.Error, "down_num_sms: 257 is not between 0 and 256"),
        ({"rounds": "two"}, TypeError, "rounds: must be their number"),
        ({"schedule": "fast"}, weft.Error, "schedule is 'fast'; it must be one of plain, rounds, combine_rounds, automatic"),
        ({"output": np.zeros((TOKENS, HIDDEN), np.float32)}, weft.Error, "output"),
        ({"topk_ids": np.zeros((TOKENS, 3), np.int32)}, weft.Error, r"topk_ids: shape \[6, 3\]"),
    ],
)
def test_arguments_that_cannot_be(changed: dict[str, Any], error: type[Exception], text: str) -> None:
    def work(rank: weft.Communicator) -> None:
        case = Case(1, "expert_masked")
        layer = weft.MoeLayer.create(case.exchange(rank.world), intermediate=HIDDEN)
        given = call_of(case, 0, layer)
        for _ in range(3):  # more than the exchange has handles
            with pytest.raises(error, match=text):
                layer.run(**given | changed)
        layer.run(**given)

    run_ranks(1, work)


def test_layers_that_cannot_be() -> None:
    def work(rank: weft.Communicator) -> None:
        with pytest.raises(weft.Error, match="its layout is rank-major"):
            weft.MoeLayer.create(Case(1, "rank_major").exchange(rank.world), intermediate=HIDDEN)
        exchange = Case(1, "expert_masked").exchange(rank.world)
        with pytest.raises(weft.Error, match="intermediate: 60 is not a multiple of 8"):
            weft.MoeLayer.create(exchange, intermediate=60)
        with pytest.raises(weft.Error, match="down_cast is 'fp4'"):
            weft.MoeLayer.create(exchange, intermediate=64, down_cast="fp4")  # type: ignore[arg-type]

    run_ranks(1, work)


@pytest.mark.parametrize(
    ("function", "part"), [("down", "down, round 1 of 0 to 1: ZeroDivisionError: down"), ("shared", "shared expert: ZeroDivisionError: 3")]
)
def test_an_exception_of_a_function_is_passed_on(function: str, part: str) -> None:
    """The rank that raises names its own error; the other one learns at once where it was: there is no deadline."""
    case = Case(2, "expert_masked")

    def work(rank: weft.Communicator) -> str:
        layer = weft.MoeLayer.create(case.exchange(rank.world), intermediate=HIDDEN)

        def broken(gemm: weft.ExpertGemm) -> None:
            if gemm.round == 1:
                raise ZeroDivisionError(gemm.which)

        def broken_shared(expert: weft.SharedExpert) -> None:
            raise ZeroDivisionError(expert.num_sms)

        given = call_of(case, rank.rank, layer, schedule="rounds", rounds=2, shared_num_sms=3)
        wrong = {"down": broken} if function == "down" else {"shared": broken_shared}
        with pytest.raises((ZeroDivisionError, weft.Error)) as raised:
            layer.run(**given | (wrong if rank.rank == 0 else {}))
        return f"{raised.value.code} {raised.value}" if isinstance(raised.value, weft.Error) else str(raised.value)

    said = run_ranks(2, work, weft.Config(device="cpu", deadline=0))
    assert said[0] == ("down" if function == "down" else "3")
    assert said[1].startswith("Errc.mismatch")
    assert f"peer 0 called a call that it rejected (layer: {part})" in said[1]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"workspace": np.zeros(8, np.uint8)}, "workspace: 8 bytes"),
        ({"schedule": "fast"}, "schedule is 'fast'"),
    ],
)
def test_a_refused_call_is_told(wrong: dict[str, Any], text: str) -> None:
    case = Case(2, "expert_masked")

    def work(rank: weft.Communicator) -> str:
        layer = weft.MoeLayer.create(case.exchange(rank.world), intermediate=HIDDEN)
        with pytest.raises(weft.Error) as refused:
            layer.run(**call_of(case, rank.rank, layer, **(wrong if rank.rank == 0 else {})))
        return f"{refused.value.code} {refused.value}"

    said = run_ranks(2, work)
    assert said[0].startswith("Errc.invalid_argument")
    assert said[1].startswith("Errc.mismatch") and text in said[1]


def test_results_of_f16_are_named_so() -> None:
    def work(rank: weft.Communicator) -> None:
        case = Case(1, "expert_masked")
        exchange = case.exchange(rank.world, combine_type="f16")
        layer = weft.MoeLayer.create(exchange, intermediate=HIDDEN)

        def up(gemm: weft.ExpertGemm) -> None:
            assert (gemm.input.dtype, gemm.output.dtype) == ("bf16", "f16")
            made = np.from_dlpack(gemm.output)
            made[..., :HIDDEN] = GATE
            made[..., HIDDEN:] = 2

        def down(gemm: weft.ExpertGemm) -> None:
            assert (gemm.input.dtype, gemm.output.dtype) == ("f16", "f16")
            for expert, count in enumerate(np.from_dlpack(gemm.counts)):
                assert (np.from_dlpack(gemm.input)[expert, :count] == 2 * GATE).all()
            np.from_dlpack(gemm.output)[:] = 0

        output = np.full((TOKENS, HIDDEN), 7, np.float16)
        given = call_of(case, 0, layer, up=up, down=down, output=output)
        layer.run(**given)
        assert (output == 0).all()

    run_ranks(1, work)


def test_an_observer_hears_of_every_part() -> None:
    """In front of each part and behind it, in the order in which they are made."""

    def work(rank: weft.Communicator) -> None:
        case = Case(1, "expert_masked")
        layer = weft.MoeLayer.create(case.exchange(rank.world), intermediate=HIDDEN)
        heard: list[tuple[str, int, bool, int]] = []
        choices = {"schedule": "rounds", "rounds": 2, "observe": lambda *part: heard.append(part)}
        layer.run(**call_of(case, 0, layer, **choices))
        experts = [("up", 0), ("activation", 0), ("down", 0), ("combine send", 0)]
        parts = [("dispatch send", 0), ("dispatch wait", 0), *experts, ("dispatch wait", 1)]
        parts += [(part, 1) for part, _ in experts] + [("combine wait", 0)]
        assert heard == [(*part, begins, 0) for part in parts for begins in (True, False)]
        with pytest.raises(TypeError, match="observe: must be a function, or None"):
            layer.run(**call_of(case, 0, layer, observe=3))
        layer.run(**call_of(case, 0, layer))

        def broken(*part: object) -> None:
            raise ZeroDivisionError(part)

        with pytest.raises(ZeroDivisionError):
            layer.run(**call_of(case, 0, layer, observe=broken))

    run_ranks(1, work)


def test_a_view_keeps_the_workspace() -> None:
    def work(rank: weft.Communicator) -> None:
        case = Case(1, "expert_masked")
        layer = weft.MoeLayer.create(case.exchange(rank.world), intermediate=HIDDEN)
        kept: list[weft.Tensor] = []
        experts = Experts()

        def up(gemm: weft.ExpertGemm) -> None:
            kept.append(gemm.counts)
            experts.up(gemm)

        layer.run(**call_of(case, 0, layer, up=up))
        assert np.from_dlpack(kept[0]).tolist() == case.expected[0][0]

    run_ranks(1, work)
