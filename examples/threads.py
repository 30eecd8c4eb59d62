"""Ranks are threads of this process. They add up, gather, and send tokens to experts. No GPU is needed.

python examples/threads.py [ranks]
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import weft

TOKENS, HIDDEN, TOP_K = 16, 64, 2


def add_and_gather(world: weft.Group) -> None:
    x = np.full(8192, world.rank + 1, np.float32)
    world.all_reduce(x)
    assert (x == world.size * (world.size + 1) / 2).all()

    gathered = np.empty((world.size, 3), np.int32)
    world.all_gather_into_tensor(gathered, np.full(3, world.rank, np.int32))
    assert (gathered == np.arange(world.size)[:, None]).all()


def run_experts(world: weft.Group) -> None:
    """Each rank has two experts, which double their rows."""
    experts = 2 * world.size
    exchange = weft.Exchange.create(
        world, tokens=TOKENS, hidden=HIDDEN, experts=experts, top_k=TOP_K, type="f16", combine_type="f16"
    )
    x = np.random.default_rng(world.rank).standard_normal((TOKENS, HIDDEN)).astype(np.float16)
    first = np.arange(TOKENS, dtype=np.int32) + world.rank
    topk_ids = np.stack([first, first + 1], axis=1) % experts
    topk_weights = np.full((TOKENS, TOP_K), 1 / TOP_K, np.float32)

    rows = np.zeros((exchange.local_experts, exchange.capacity, HIDDEN), np.float16)
    counts = np.zeros(exchange.local_experts, np.int32)
    handle = exchange.dispatch(rows, x, topk_ids, topk_weights, counts=counts)
    for expert, count in enumerate(counts):
        rows[expert, :count] *= 2  # your GEMM

    y = np.empty_like(x)
    exchange.combine(y, rows, handle)  # the weighted sum of what a token's experts made
    assert (y == 2 * x).all()


def run_rank(communicator: weft.Communicator) -> None:
    add_and_gather(communicator.world)
    run_experts(communicator.world)


def main() -> None:
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    communicators = weft.Communicator.local(ranks, weft.Config(device="cpu"))
    with ThreadPoolExecutor(ranks) as threads:
        list(threads.map(run_rank, communicators))  # raises the error of a rank
    print(f"{ranks} ranks: sums and gathered rows are right, and {TOKENS} tokens of each came back doubled")


if __name__ == "__main__":
    try:
        main()
    except weft.Error as error:
        sys.exit(str(error))
