"""Every operation from Python gives what the oracle says: the same bits as from C++."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import weft
import weft_oracle
from ranks import run_ranks

Array = npt.NDArray[Any]

RANKS = [1, 2, 3, 4]
REDUCED: dict[str, Any] = {
    "bf16": np.uint16,
    "f16": np.float16,
    "f32": np.float32,
    "i32": np.int32,
    "i64": np.int64,
    "u8": np.uint8,
}
OPS = ["sum", "max", "min", "avg"]


def numbers(dtype: str, shape: tuple[int, ...], seed: int) -> Array:
    """Numbers whose sums need rounding, or wrap. NumPy has no bf16: these are bits."""
    if dtype in ("i32", "i64", "u8"):
        limits = np.iinfo(REDUCED[dtype])
        return np.random.default_rng(seed).integers(limits.min, limits.max, shape, REDUCED[dtype], endpoint=True)
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * 100
    if dtype == "bf16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(REDUCED[dtype])


def given(array: Array, dtype: str) -> Any:
    """What a call is given: the array itself, or a view that says bf16."""
    return weft.Tensor(array, dtype) if dtype == "bf16" else array


def columns(array: Array) -> Array:
    """The same values in a matrix with gaps between its rows."""
    wide = np.zeros((array.shape[0], array.shape[1] + 8), array.dtype)
    wide[:, : array.shape[1]] = array
    return wide[:, : array.shape[1]]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("dtype", REDUCED)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("algorithm", ["automatic", "one_shot", "two_shot", "pipelined"])
def test_all_reduce(ranks: int, dtype: str, op: weft.ReduceOp, algorithm: weft.Algorithm) -> None:
    inputs = [numbers(dtype, (5, 133), rank) for rank in range(ranks)]
    expected = weft_oracle.reduce(dtype, op, [x.tobytes() for x in inputs])

    def work(rank: weft.Communicator) -> None:
        x = inputs[rank.rank].copy()
        y = np.zeros_like(x)
        rank.world.all_reduce(given(y, dtype), given(x, dtype), op=op, algorithm=algorithm, tag=7)
        assert y.tobytes() == expected
        assert x.tobytes() == inputs[rank.rank].tobytes()
        rank.world.all_reduce(given(x, dtype), op=op, algorithm=algorithm)
        assert x.tobytes() == expected

    run_ranks(ranks, work)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("dtype", REDUCED)
@pytest.mark.parametrize("op", OPS)
def test_reduce(ranks: int, dtype: str, op: weft.ReduceOp) -> None:
    inputs = [numbers(dtype, (5, 133), rank) for rank in range(ranks)]
    expected = weft_oracle.reduce(dtype, op, [x.tobytes() for x in inputs])

    def work(rank: weft.Communicator) -> None:
        for root in range(ranks):
            own = inputs[rank.rank].tobytes()
            x, y = inputs[rank.rank].copy(), np.zeros_like(inputs[0])
            rank.world.reduce(given(y, dtype) if rank.rank == root else None, given(x, dtype), op=op, root=root, tag=7)
            assert y.tobytes() == (expected if rank.rank == root else bytes(y.nbytes))
            assert x.tobytes() == own
            rank.world.reduce(given(x, dtype), op=op, root=root)
            assert x.tobytes() == (expected if rank.rank == root else own)

    run_ranks(ranks, work)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float16])
def test_gather_and_scatter(ranks: int, dtype: Any) -> None:
    # Part q of rank r's tensor is for rank q.
    places = np.arange(ranks * 15).reshape(ranks, 3, 5)
    tensors: list[Array] = [(places + 60 * rank).astype(dtype) for rank in range(ranks)]

    def work(rank: weft.Communicator) -> None:
        me, world = rank.rank, rank.world
        for root in range(ranks):
            at_root = me == root
            expected = weft_oracle.exchanged([tensor.tobytes() for tensor in tensors], root) if at_root else b""
            x: Array = tensors[me][root]
            gathered: Array = np.zeros((ranks, 3, 5), dtype)
            world.gather(gathered if at_root else None, x, root=root, tag=root)
            if at_root:
                assert gathered.tobytes() == expected
                gathered[np.arange(ranks) != root] = 0
            world.gather(gathered, gathered[root] if at_root else x, root=root)
            assert gathered.tobytes() == (expected if at_root else bytes(gathered.nbytes))

            y: Array = np.zeros((3, 5), dtype)
            whole = tensors[root].copy()
            world.scatter(y, whole if at_root else None, root=root, tag=root)
            assert y.tobytes() == tensors[root][me].tobytes()
            world.scatter(whole[root] if at_root else y, whole, root=root)
            assert y.tobytes() == tensors[root][me].tobytes()
            assert whole.tobytes() == tensors[root].tobytes()

    run_ranks(ranks, work)


@pytest.mark.parametrize("ranks", RANKS)
def test_messages(ranks: int) -> None:
    all_of = [np.arange(24 * ranks, dtype=np.int64).reshape(ranks, 24) + 1000 * rank for rank in range(ranks)]

    def work(rank: weft.Communicator) -> None:
        world, me = rank.world, rank.rank
        x, y = all_of[me], np.zeros_like(all_of[0])
        sends = [(x[peer], peer, 100 * me + peer) for peer in range(ranks)]
        world.send_receive(sends, ((y[peer], peer, 100 * peer + me) for peer in range(ranks)))
        assert y.tobytes() == weft_oracle.exchanged([a.tobytes() for a in all_of], me)
        world.send_receive()

        # A message after the other, and one of another type and length, around the ring.
        after, before = (me + 1) % ranks, (me - 1) % ranks
        first, second = np.zeros(24, np.int64), np.zeros(me + 1, np.uint8)
        own = np.full(after + 1, me, np.uint8)
        world.send_receive([(x[0], after), (own, after, 3)], [(first, before), (second, before, 3)])
        assert (first == all_of[before][0]).all()
        assert (second == before).all()

        # From rank 0 to each other one, and back.
        for peer in range(1, ranks):
            if me == 0:
                world.send(x[peer], peer, tag=peer)
                world.receive(y[peer], peer)
                assert (y[peer] == x[peer]).all()
            elif me == peer:
                got = np.zeros((4, 6), np.int64)
                world.receive(got, 0, tag=peer)
                world.send(got, 0)
                assert got.tobytes() == all_of[0][peer].tobytes()

    run_ranks(ranks, work)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("shape", [(24,), (3, 8), (2, 3, 4)])
@pytest.mark.parametrize("gaps", [False, True])
def test_gathers_and_copies(ranks: int, shape: tuple[int, ...], gaps: bool) -> None:
    inputs = [np.arange(24, dtype=np.int64).reshape(shape) + 100 * rank for rank in range(ranks)]
    all_of = [np.arange(24 * ranks, dtype=np.int64).reshape((-1, *shape[1:])) + 1000 * rank for rank in range(ranks)]

    def strided(array: Array) -> Array:
        return columns(array) if gaps and array.ndim == 2 else array

    def work(rank: weft.Communicator) -> None:
        world = rank.world
        x, y = strided(inputs[rank.rank]), strided(np.zeros_like(all_of[0]))
        world.all_gather_into_tensor(y, x)
        assert y.tobytes() == np.stack(inputs).tobytes()
        stacked = np.zeros((ranks, *shape), np.int64)
        world.all_gather_into_tensor(stacked, x)
        assert (stacked == np.stack(inputs)).all()

        z = strided(np.zeros_like(all_of[0]))
        world.all_to_all(z, strided(all_of[rank.rank]))
        assert z.tobytes() == weft_oracle.exchanged([a.tobytes() for a in all_of], rank.rank)

        for root in range(ranks):
            b = strided(np.zeros_like(x))
            world.broadcast(b, x, root=root)
            assert (b == inputs[root]).all()
            b[:] = rank.rank
            world.broadcast(b, root=root)
            assert (b == root).all()
        world.barrier(tag=3)

    run_ranks(ranks, work)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("dtype", REDUCED)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("gaps", [False, True])
def test_reduce_scatter(ranks: int, dtype: str, op: weft.ReduceOp, gaps: bool) -> None:
    inputs = [numbers(dtype, (3 * ranks, 40), rank) for rank in range(ranks)]
    messages = [x.tobytes() for x in inputs]
    row_bytes = inputs[0].nbytes // (3 * ranks)

    def work(rank: weft.Communicator) -> None:
        x, y = inputs[rank.rank], np.zeros((3, 40), inputs[0].dtype)
        if gaps:
            x, y = columns(x), columns(y)
        rank.world.reduce_scatter_tensor(given(y, dtype), given(x, dtype), op=op)
        expected = weft_oracle.scattered(dtype, op, [3] * ranks, "none", 0, [], messages, rank.rank, row_bytes)
        assert y.tobytes() == expected

    run_ranks(ranks, work)


KINDS = [("none", 0, "sum"), ("aligned", 4, "max"), ("max", 0, "min"), ("fixed", 6, "avg"), ("per_rank", 0, "sum")]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize(("padding", "slot_rows", "op"), KINDS)
def test_ragged(ranks: int, padding: weft.Padding, slot_rows: int, op: weft.ReduceOp) -> None:
    rows = [(5, 0, 3, 1)[rank] for rank in range(ranks)]
    slots = np.array([row + 2 for row in rows], np.int32) if padding == "per_rank" else None
    hidden = [numbers("f32", (row, 24), rank) for rank, row in enumerate(rows)]
    ids = [np.arange(row, dtype=np.int64) + 10 * rank for rank, row in enumerate(rows)]
    places = list(map(int, slots)) if slots is not None else []
    given_slots = None if slots is None else places
    end = weft.slots_of(rows, padding, slot_rows, given_slots)[-1].end
    sums = [numbers("f32", (end, 24), 7 * rank + 1) for rank in range(ranks)]

    def gathered(of: list[Array], row_bytes: int) -> bytes:
        said: bytes = weft_oracle.gathered(rows, padding, slot_rows, places, [a.tobytes() for a in of], row_bytes)
        return said

    def work(rank: weft.Communicator) -> None:
        counts = weft.Counts(np.array(rows, np.int32), padding=padding, slot_rows=slot_rows, slots=slots)
        capacity = 8
        x, one = np.full((capacity, 24), np.nan, np.float32), np.full(capacity, -1, np.int64)
        x[: rows[rank.rank]], one[: rows[rank.rank]] = hidden[rank.rank], ids[rank.rank]
        y, all_ids = np.full((end, 24), np.nan, np.float32), np.full(end, -1, np.int64)
        rank.world.all_gather_v([y, all_ids], [x, one], counts)
        assert y.tobytes() == gathered(hidden, 96)
        assert all_ids.tobytes() == gathered(ids, 8)
        single = np.full((end, 24), np.nan, np.float32)
        listed = weft.Counts(rows, padding=padding, slot_rows=slot_rows, slots=None if slots is None else tuple(places))
        rank.world.all_gather_v(single, x, listed if rank.rank % 2 else counts)
        assert single.tobytes() == y.tobytes()

        slot = weft.slots_of(rows, padding, slot_rows, given_slots)[rank.rank]
        own = np.full((slot.end - slot.begin, 24), np.nan, np.float32)
        rank.world.reduce_scatter_v(own, sums[rank.rank], counts if rank.rank % 2 else listed, op=op)
        packed = [np.concatenate([s[p.begin : p.begin + r] for p, r in zip(all_slots, rows)]) for s in sums]
        messages = [p.tobytes() for p in packed]
        expected = weft_oracle.scattered("f32", op, rows, padding, slot_rows, places, messages, rank.rank, 96)
        assert own.tobytes() == expected

        taken = np.full((6, 24), np.nan, np.float32)
        rank.world.take_rows(taken, y, counts, slots=ranks, slot=ranks - 1)
        assert taken[: rows[-1]].tobytes() == hidden[-1].tobytes()
        assert not taken[rows[-1] :].any()

    all_slots = weft.slots_of(rows, padding, slot_rows, given_slots)
    run_ranks(ranks, work)


@pytest.mark.parametrize("sharding", ["balanced", "ceil"])
def test_sharded_counts(sharding: weft.Sharding) -> None:
    ranks, total = 4, 10
    shards = [weft.shard_of(total, ranks, part, sharding) for part in range(ranks)]
    everything = np.arange(total * 3, dtype=np.int32).reshape(total, 3)

    def work(rank: weft.Communicator) -> None:
        counts = weft.Counts(np.array([total], np.int32), sharding=sharding)
        mine = shards[rank.rank]
        x, y = np.zeros((3, 3), np.int32), np.zeros((total, 3), np.int32)
        x[: mine.end - mine.begin] = everything[mine.begin : mine.end]
        rank.world.all_gather_v(y, x, counts)
        assert (y == everything).all()
        part = np.zeros((3, 3), np.int32)
        rank.world.take_rows(part, y, counts, slots=1, slot=0, shards=ranks, shard=rank.rank)
        begin, size = weft_oracle.taken([total], "none", 0, 0, ranks, rank.rank, sharding, False)
        assert (begin, begin + size) == mine
        assert (part[:size] == everything[begin : begin + size]).all()

    run_ranks(ranks, work)


@pytest.mark.parametrize("group_ranks", [1, 2])
@pytest.mark.parametrize(("padding", "slot_rows"), [("none", 0), ("aligned", 4), ("max", 0), ("fixed", 16)])
def test_counts(group_ranks: int, padding: weft.Padding, slot_rows: int) -> None:
    ranks, words = 4, 3
    said = np.array([[5 + 3 * (rank // group_ranks), rank, 1 << rank] for rank in range(ranks)], np.int32)
    rules = (words, group_ranks, "balanced", False, padding, slot_rows)
    expected = weft_oracle.table_of_counts(said.ravel().tolist(), *rules)
    places = weft.GatheredCounts(ranks, words, group_ranks)

    def work(rank: weft.Communicator) -> None:
        table, copy = np.full(places.words, -7, np.int32), np.full(places.words, -7, np.int32)
        rank.world.all_gather_counts(
            table, said[rank.rank], host_output=copy, group_ranks=group_ranks, padding=padding, slot_rows=slot_rows
        )
        assert table.tolist() == copy.tolist() == expected
        assert table[places.total] == said[::group_ranks, 0].sum()
        assert (table[places.all :].reshape(ranks, words) == said).all()

    run_ranks(ranks, work)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("plus_one", [False, True])
@pytest.mark.parametrize("f32", [False, True])
def test_all_reduce_rms_norm(ranks: int, dtype: str, residual: bool, plus_one: bool, f32: bool) -> None:
    shape = (3, 64)
    inputs = [numbers(dtype, shape, rank) for rank in range(ranks)]
    weights = "f32" if f32 else dtype
    rest, gamma = numbers(dtype, shape, 50), numbers(weights, (64,), 51)
    messages = [x.tobytes() for x in inputs]
    before = rest.tobytes() if residual else b""
    sums, normed = weft_oracle.normed(dtype, messages, before, gamma.tobytes(), 64, 1e-6, plus_one)

    def work(rank: weft.Communicator) -> None:
        x, added, y = inputs[rank.rank].copy(), np.zeros(shape, rest.dtype), np.zeros(shape, rest.dtype)
        call = rank.world.all_reduce_rms_norm
        old = given(rest, dtype) if residual else None
        gammas = given(gamma, weights)
        call(given(y, dtype), given(added, dtype), given(x, dtype), gammas, old, gamma_plus_one=plus_one)
        assert added.tobytes() == sums
        assert y.tobytes() == normed

        rows, scales = np.zeros(shape, np.uint8), np.zeros(3, np.float32)
        fp8 = weft.Fp8Output(rows, scales)
        call(None, given(added, dtype), given(x, dtype), gammas, old, gamma_plus_one=plus_one, fp8=fp8)
        assert (rows.tobytes(), scales.tobytes()) == weft_oracle.cast(dtype, normed, 64, 64)

        fp8 = weft.Fp8Output(rows, scales, floor=448)
        call(None, given(np.zeros(shape, rest.dtype), dtype), given(np.zeros_like(x), dtype), gammas, fp8=fp8)
        assert (scales == 1).all() and not (rows & 0x7F).any()  # zeros of both signs

    run_ranks(ranks, work)
