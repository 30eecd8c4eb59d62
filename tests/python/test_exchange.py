"""Dispatch and combine from Python give what the oracle says."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import weft
import weft_oracle
from ranks import run_ranks

Array = npt.NDArray[Any]

TOKENS, HIDDEN, EXPERTS, TOP_K = 6, 128, 5, 2
BY_RANK = "rank_major", "rank_compact"


class Case:
    """Tokens of all ranks, and what the oracle makes of them if experts return rows as they came."""

    def __init__(self, ranks: int, layout: weft.RowLayout, cast: weft.RowCast = "none") -> None:
        random = np.random.default_rng(ranks)
        bits = random.standard_normal((ranks, TOKENS, HIDDEN)).astype(np.float32).view(np.uint32) >> 16
        self.rows = bits.astype(np.uint16)
        self.counts = [TOKENS - rank for rank in range(ranks)]
        self.ids = np.argsort(random.random((ranks, TOKENS, EXPERTS)))[:, :, :TOP_K].astype(np.int32)
        self.ids[0, 0, 1] = -1
        self.weights = random.random((ranks, TOKENS, TOP_K)).astype(np.float32)
        if layout in BY_RANK:
            self.weights[:] = 1
        self.layout, self.cast = layout, cast
        self.expected = weft_oracle.moe(
            TOKENS,
            HIDDEN,
            EXPERTS,
            TOP_K,
            layout,
            4,
            cast,
            [self.input(rank).tobytes() for rank in range(ranks)],
            [self.ids[rank, : self.counts[rank]].ravel().tolist() for rank in range(ranks)],
            [self.weights[rank, : self.counts[rank]].ravel().tolist() for rank in range(ranks)],
            b"",
        )

    def input(self, rank: int) -> Array:
        return self.rows[rank, : self.counts[rank]].copy()

    def exchange(self, group: weft.Group, **options: Any) -> weft.Exchange:
        if self.layout == "expert_contiguous":
            options["alignment"] = 4
        return weft.Exchange.create(
            group,
            tokens=TOKENS,
            hidden=HIDDEN,
            experts=EXPERTS,
            top_k=TOP_K,
            layout=self.layout,
            cast=self.cast,
            **options,
        )


class Outputs:
    """Tensors of one rank's dispatch, with a value that no result has."""

    def __init__(self, exchange: weft.Exchange, ranks: int, cast: weft.RowCast) -> None:
        rows, local = exchange.output_rows, exchange.local_experts
        self.rows = np.full((rows, HIDDEN), 0x7F, np.uint16 if cast == "none" else np.uint8)
        self.scales = np.full((rows, HIDDEN // 128), 99, np.uint8 if cast == "fp8_ue8m0" else np.float32)
        self.counts = np.full(local, -1, np.int32)
        self.offsets = np.full(local + 1, -1, np.int32)
        self.sources = np.full(rows, -2, np.int32)
        self.source_tokens = np.full(ranks, -1, np.int32)
        self.waits = np.full(ranks, 2**63, np.uint64)
        self.host = np.zeros(local + 2 * ranks, np.uint64)
        self.prefix = np.full((ranks, ranks), -1, np.int32)
        self.ids = np.full((rows, TOP_K), -2, np.int32)
        self.weights = np.full((rows, TOP_K), -1, np.float32)
        self.view = weft.Tensor(self.rows, "bf16") if cast == "none" else self.rows

    def named(self, layout: weft.RowLayout, cast: weft.RowCast) -> dict[str, Any]:
        named: dict[str, Any] = {
            "counts": self.counts,
            "source_tokens": self.source_tokens,
            "source_wait_ns": self.waits,
            "host_counts": self.told(layout),
        }
        if cast != "none":
            named["output_scales"] = self.scales
        if layout in BY_RANK:
            named |= {"output_ids": self.ids, "output_weights": self.weights}
        if layout == "rank_compact":
            named["rank_prefix"] = self.prefix
        if layout == "rank_major":
            return named
        named["output_sources"] = self.sources
        return named | {"offsets": self.offsets} if layout == "expert_contiguous" else named


    def told(self, layout: weft.RowLayout) -> Array:
        """The host's words: compact rows have one more for each rank."""
        return self.host if layout == "rank_compact" else self.host[: -len(self.prefix)]


def check_dispatch(case: Case, rank: int, ranks: int, got: Outputs) -> None:
    counts, offsets, arrived, _, prefix = case.expected[rank]
    assert got.counts.tolist() == counts
    said = weft.read_host_counts(got.told(case.layout))
    rows = []
    if case.layout == "rank_compact":
        assert got.prefix.ravel().tolist() == prefix
        rows = np.diff(got.prefix[:, rank], prepend=0).tolist()
        assert len({row for row, _ in arrived}) == sum(rows)
    assert [word.value for word in said] == counts + case.counts + rows
    assert len({word.stamp for word in said}) == 1 and said[0].stamp % 2 == 1
    assert got.source_tokens.tolist() == case.counts
    assert got.waits[rank] == 0
    if case.layout == "expert_contiguous":
        assert got.offsets.tolist() == offsets
    width = got.rows[0].nbytes
    for row, expected in arrived:
        assert got.rows[row].tobytes() == expected[:width]
        if case.cast != "none":
            assert got.scales[row].tobytes() == expected[width:]


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("layout", ["expert_masked", "expert_contiguous"])
@pytest.mark.parametrize("rounds", [2, 4, "uneven"])
def test_rows_come_and_go_back_in_rounds(ranks: int, layout: weft.RowLayout, rounds: int | str) -> None:
    case = Case(ranks, layout)

    def work(rank: weft.Communicator) -> None:
        me = rank.rank
        # Beside a ring only slots serve rounds.
        ring, most = ({"path": "ring", "slot_tokens": TOKENS}, TOKENS) if rounds == 4 else ({}, 0)
        exchange = case.exchange(rank.world, **ring)
        experts = -(-EXPERTS // ranks)
        division: int | list[int] = [1, 0, experts - 1] if isinstance(rounds, str) else rounds
        count = division if isinstance(division, int) else len(division)
        got = Outputs(exchange, ranks, "none")
        tokens = case.counts[me]
        x, ids, weights = weft.Tensor(case.input(me), "bf16"), case.ids[me, :tokens], case.weights[me, :tokens].copy()
        back = np.full((tokens, HIDDEN), 0x7F, np.uint16)
        handle = exchange.dispatch_send(x, ids.copy(), weights, rounds=division, most_tokens=most)
        for number in range(count):
            if number + 1 < count:
                with pytest.raises(weft.Error, match=f"round: {number + 1} is out of turn"):
                    exchange.dispatch_wait(handle, got.view, round=number + 1, **got.named(layout, "none"))
            exchange.dispatch_wait(handle, got.view, round=number, **got.named(layout, "none"))
            exchange.combine_send(got.view, handle, rounds=division, round=number)
        check_dispatch(case, me, ranks, got)
        exchange.combine_wait(weft.Tensor(back, "bf16"), handle)
        assert back.tobytes() == case.expected[me][3]
        # Joined calls may have rounds, too.
        named = got.named(layout, "none")
        handle = exchange.dispatch(got.view, x, ids.copy(), weights, rounds=division, most_tokens=most, **named)
        exchange.combine(weft.Tensor(back, "bf16"), got.view, handle, rounds=division)
        assert back.tobytes() == case.expected[me][3]
        with pytest.raises(TypeError, match="rounds: must be their number"):
            exchange.dispatch_send(x, ids.copy(), weights, rounds="two")  # type: ignore[arg-type]
        exchange.free()

    run_ranks(ranks, work)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("layout", ["expert_masked", "expert_contiguous", "rank_major", "rank_compact"])
@pytest.mark.parametrize("path", ["slots", "ring"])
@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("wide_ids", [False, True])
def test_rows_come_and_go_back(ranks: int, layout: weft.RowLayout, path: str, halves: bool, wide_ids: bool) -> None:
    case = Case(ranks, layout)

    def work(rank: weft.Communicator) -> None:
        me = rank.rank
        if layout == "rank_compact" and path == "slots":
            with pytest.raises(weft.Error, match="path: slots is not automatic or ring"):
                case.exchange(rank.world, path=path)
        exchange = case.exchange(rank.world, path="automatic" if layout == "rank_compact" else path)
        got = Outputs(exchange, ranks, "none")
        tokens = case.counts[me]
        x = weft.Tensor(case.input(me), "bf16")
        ids = case.ids[me, :tokens].astype(np.int64 if wide_ids else np.int32)
        weights = case.weights[me, :tokens].copy()
        outputs = got.named(layout, "none")
        if halves:
            handle = exchange.dispatch_send(x, ids, weights, tag=5)
            exchange.dispatch_wait(handle, got.view, **outputs)
        else:
            handle = exchange.dispatch(got.view, x, ids, weights, tag=5, **outputs)
        assert handle.tokens == tokens
        check_dispatch(case, me, ranks, got)

        back = np.full((tokens, HIDDEN), 0x7F, np.uint16)
        y = weft.Tensor(back, "bf16")
        if halves:
            exchange.combine_send(got.view, handle)
            exchange.combine_wait(y, handle)
        else:
            exchange.combine(y, got.view, handle)
        if layout not in BY_RANK:  # there a rank's experts share a row, which comes back once
            assert back.tobytes() == case.expected[me][3]
        exchange.free()
        with pytest.raises(weft.Error) as freed:
            exchange.combine(y, got.view, handle)
        assert freed.value.code == weft.Errc.released

    run_ranks(ranks, work)


@pytest.mark.parametrize("cast", ["fp8", "fp8_ue8m0", "fp8_pow2"])
@pytest.mark.parametrize("layout", ["expert_masked", *BY_RANK])
def test_casts(cast: weft.RowCast, layout: weft.RowLayout) -> None:
    case = Case(2, layout, cast)

    def work(rank: weft.Communicator) -> None:
        me = rank.rank
        exchange = case.exchange(rank.world)
        got = Outputs(exchange, 2, cast)
        x = weft.Tensor(case.input(me), "bf16")
        ids, weights = case.ids[me, : case.counts[me]].copy(), case.weights[me, : case.counts[me]].copy()
        exchange.dispatch(got.view, x, ids, weights, discard=True, **got.named(layout, cast))
        check_dispatch(case, me, 2, got)

    run_ranks(2, work)


def test_the_residual_is_added() -> None:
    case = Case(2, "expert_masked")

    def work(rank: weft.Communicator) -> None:
        me = rank.rank
        exchange = case.exchange(rank.world, weighted=False)
        got = Outputs(exchange, 2, "none")
        tokens = case.counts[me]
        ids = np.full((tokens, TOP_K), -1, np.int32)  # no token has an expert
        handle = exchange.dispatch(got.view, weft.Tensor(case.input(me), "bf16"), ids, counts=got.counts)
        back = np.zeros((tokens, HIDDEN), np.uint16)
        residual = weft.Tensor(case.input(me), "bf16")
        exchange.combine(weft.Tensor(back, "bf16"), got.view, handle, residual)
        assert (back == case.input(me)).all()

    run_ranks(2, work)


@pytest.mark.parametrize("halves", [False, True])
def test_weights_that_combine_is_given(halves: bool) -> None:
    """The bits of weights that dispatch is given, which check_combine's reference takes."""
    case = Case(2, "expert_masked")

    def work(rank: weft.Communicator) -> None:
        me = rank.rank
        tokens = case.counts[me]
        ids, weights = case.ids[me, :tokens].copy(), case.weights[me, :tokens].copy()
        results = []
        for late in (False, True):
            exchange = case.exchange(rank.world, weights_at_combine=late)
            got = Outputs(exchange, 2, "none")
            handle = exchange.dispatch(
                got.view, weft.Tensor(case.input(me), "bf16"), ids, None if late else weights, counts=got.counts
            )
            back = np.zeros((tokens, HIDDEN), np.uint16)
            view, given = weft.Tensor(back, "bf16"), weights if late else None
            if halves:
                exchange.combine_send(None if late else got.view, handle, topk_weights=given)
                exchange.combine_wait(view, handle, input=got.view)
            else:
                exchange.combine(view, got.view, handle, topk_weights=given)
            results.append(back)
        assert (results[0] == results[1]).all()
        with pytest.raises(weft.Error, match="topk_weights: .* 2 elements; .* are needed"):
            exchange.combine(view, got.view, handle, topk_weights=np.zeros((1, TOP_K), np.float32))

    run_ranks(2, work)


@pytest.mark.parametrize("halves", [False, True])
def test_a_mask_sends_rows_to_ranks(halves: bool) -> None:
    ranks, tokens = 2, 5
    random = np.random.default_rng(5)
    mask = random.random((ranks, tokens, ranks)) < 0.5
    mask[0, 0], mask[1, 0] = True, False
    rows = random.integers(0x3F00, 0x4000, (ranks, tokens, HIDDEN)).astype(np.uint16)

    def work(rank: weft.Communicator) -> None:
        me = rank.rank
        exchange = weft.Exchange.create(
            rank.world,
            tokens=tokens,
            hidden=HIDDEN,
            experts=ranks,
            top_k=ranks,
            weighted=False,
            layout="expert_contiguous",
        )
        got = np.zeros((exchange.output_rows, HIDDEN), np.uint16)
        view, x = weft.Tensor(got, "bf16"), weft.Tensor(rows[me].copy(), "bf16")
        counts, offsets = np.zeros(1, np.int32), np.zeros(2, np.int32)
        given: dict[str, Any] = {"rank_mask": mask[me].copy(), "mask_ids": np.full((tokens, ranks), 9, np.int32)}
        if halves:
            handle = exchange.dispatch_send(x, **given)
            exchange.dispatch_wait(handle, view, counts=counts, offsets=offsets)
        else:
            handle = exchange.dispatch(view, x, counts=counts, offsets=offsets, **given)
        wanted = np.concatenate([rows[source][mask[source, :, me]] for source in range(ranks)])
        assert counts[0] == len(wanted)
        assert (got[: len(wanted)] == wanted).all()
        assert (given["mask_ids"] == np.where(mask[me], np.arange(ranks), -1)).all()
        with pytest.raises(weft.Error, match="topk_ids: give either them or rank_mask"):
            exchange.dispatch(view, x, counts=counts, offsets=offsets)

    run_ranks(ranks, work)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "short output": ({"output": np.zeros((3, HIDDEN), np.uint8)}, "output: elements are u8; they must be bf16"),
    "short rows": ({"output": weft.Tensor(np.zeros((3, HIDDEN), np.uint16), "bf16")}, "384 elements; 3840 are needed"),
    "ids of a wrong k": ({"topk_ids": np.zeros((2, 3), np.int32)}, r"shape \[2, 3\]; it must be \[tokens, 2\]"),
    "floats as ids": ({"topk_ids": np.zeros((2, 2), np.float32)}, "topk_ids: elements are f32; they must be i32 or"),
    "too many tokens": ({"topk_ids": np.zeros((7, 2), np.int32)}, "7 tokens; the exchange is for 6 at most"),
    "fewer rows than ids": ({"topk_ids": np.zeros((6, 2), np.int32)}, "input: shape .* 768 are needed"),
    "half the weights": ({"topk_weights": np.zeros((1, 2), np.float32)}, "topk_weights: .* 2 elements; 4 are needed"),
    "short counts": ({"counts": np.zeros(1, np.int32)}, "counts: .* 1 elements; 5 are needed"),
    "wide rows": ({"input": weft.Tensor(np.zeros((2, 2 * HIDDEN), np.uint16), "bf16")}, "last dimension must be 128"),
    "more weights": ({"topk_weights": np.zeros((2, 3), np.float32)}, "topk_weights: .* last dimension must be 2"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_tensors_are_rejected(name: str) -> None:
    changes, message = WRONG[name]

    def work(rank: weft.Communicator) -> None:
        exchange = Case(1, "expert_masked").exchange(rank.world)
        call: dict[str, Any] = {
            "output": weft.Tensor(np.zeros((exchange.output_rows, HIDDEN), np.uint16), "bf16"),
            "input": weft.Tensor(np.zeros((2, HIDDEN), np.uint16), "bf16"),
            "topk_ids": np.zeros((2, TOP_K), np.int32),
            "topk_weights": np.zeros((2, TOP_K), np.float32),
            "counts": np.zeros(5, np.int32),
        }
        with pytest.raises(weft.Error, match=message) as rejected:
            exchange.dispatch(**(call | changes))
        assert rejected.value.code == weft.Errc.invalid_argument
        exchange.dispatch(**call)  # nothing was sent

    run_ranks(1, work)


def test_an_unknown_output_is_named() -> None:
    def work(rank: weft.Communicator) -> None:
        exchange = Case(1, "expert_masked").exchange(rank.world)
        output = weft.Tensor(np.zeros((exchange.output_rows, HIDDEN), np.uint16), "bf16")
        x = weft.Tensor(np.zeros((1, HIDDEN), np.uint16), "bf16")
        with pytest.raises(TypeError, match="unexpected keyword argument 'count'; outputs are output_scales, counts"):
            exchange.dispatch(
                output, x, np.zeros((1, TOP_K), np.int32), count=np.zeros(5, np.int32)  # type: ignore[call-arg]
            )

    run_ranks(1, work)


def test_memory_is_known_beforehand() -> None:
    def work(rank: weft.Communicator) -> None:
        before = rank.memory.window
        exchange = weft.Exchange.create(rank.world, tokens=TOKENS, hidden=HIDDEN, experts=EXPERTS, top_k=TOP_K)
        memory = weft.Exchange.memory(2, tokens=TOKENS, hidden=HIDDEN, experts=EXPERTS, top_k=TOP_K)
        assert (memory.ring_rows, memory.half_tokens) == (0, TOKENS)
        definition: dict[str, Any] = {"tokens": 4096, "hidden": HIDDEN, "experts": EXPERTS, "top_k": TOP_K}
        ring = weft.Exchange.memory(8, **definition)
        assert (ring.ring_rows, ring.half_tokens) == (512, 512)
        assert rank.memory.window - before == memory.window
        # Rows of bf16, and nothing else: they are not cast.
        local = -(-EXPERTS // 2)
        assert exchange.capacity * local * HIDDEN * 2 == memory.output
        exchange.free()

    run_ranks(2, work)
