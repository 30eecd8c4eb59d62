"""One process for each rank: all of them add up one vector each.

torchrun --nproc-per-node 4 examples/all_reduce.py
python examples/all_reduce.py    # without a launcher this is a world of one
"""

import sys

import numpy as np
import weft


def main() -> None:
    world = weft.Communicator.from_environment(weft.Config(device="cpu")).world
    x = np.full(8192, world.rank + 1, np.float32)
    world.all_reduce(x)  # in place; other threads run while it waits
    if not (x == world.size * (world.size + 1) / 2).all():
        sys.exit(f"rank {world.rank}: wrong sums, {x}")
    print(f"rank {world.rank} of {world.size}: every sum is {x[0]:g}")


if __name__ == "__main__":
    try:
        main()
    except weft.Error as error:
        sys.exit(str(error))  # which call, and which rank was late, died or called something else
