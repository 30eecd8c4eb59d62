# Types of the oracle's module (oracle.cpp), for mypy.
from collections.abc import Sequence

def reduce(type: str, op: str, inputs: Sequence[bytes]) -> bytes: ...
def gathered(
    rows: Sequence[int],
    padding: str,
    slot_rows: int,
    slots: Sequence[int],
    messages: Sequence[bytes],
    row_bytes: int,
) -> bytes: ...
def exchanged(messages: Sequence[bytes], rank: int) -> bytes: ...
def scattered(
    type: str,
    op: str,
    rows: Sequence[int],
    padding: str,
    slot_rows: int,
    slots: Sequence[int],
    messages: Sequence[bytes],
    rank: int,
    row_bytes: int,
) -> bytes: ...
def gathered_sums(
    type: str,
    rows: Sequence[int],
    padding: str,
    slot_rows: int,
    group_ranks: int,
    messages: Sequence[bytes],
    row_bytes: int,
) -> bytes: ...
def scattered_sums(
    type: str,
    rows: Sequence[int],
    padding: str,
    slot_rows: int,
    group_ranks: int,
    messages: Sequence[bytes],
    rank: int,
    row_bytes: int,
) -> bytes: ...
def taken(
    rows: Sequence[int],
    padding: str,
    slot_rows: int,
    slot: int,
    shards: int,
    shard: int,
    sharding: str,
    of_slots: bool,
) -> tuple[int, int]: ...
def table_of_counts(
    said: Sequence[int],
    columns: int,
    group_ranks: int,
    sharding: str,
    split_slots: bool,
    padding: str,
    slot_rows: int,
) -> list[int]: ...
def largest(type: str, rows: bytes, columns: int, k: int) -> tuple[bytes, list[int]]: ...
def cast(type: str, rows: bytes, hidden: int, columns: int) -> tuple[bytes, bytes]: ...
def normed(
    type: str,
    inputs: Sequence[bytes],
    residual: bytes,
    gamma: bytes,
    hidden: int,
    epsilon: float,
    plus_one: bool,
) -> tuple[bytes, bytes]: ...

Expected = tuple[list[int], list[int], list[tuple[int, bytes]], bytes, list[int]]

def moe(
    tokens: int,
    hidden: int,
    experts: int,
    top_k: int,
    layout: str,
    alignment: int,
    cast: str,
    inputs: Sequence[bytes],
    ids: Sequence[Sequence[int]],
    weights: Sequence[Sequence[float]],
    residual: bytes,
) -> list[Expected]: ...
