"""What every rival does, by plain loops: rows go to the experts' ranks, and sums of them come back."""

import os

import torch
from torch.distributed import gathered, get_rank


def dispatch(x, ids, experts, once_a_rank=False):
    """Rows of this rank's experts, in their order, with (rank, token, choice) of each; and the rows of each expert."""
    everything = gathered((x.rows(), ids.rows()))
    local = experts // len(everything)
    first = get_rank() * local
    found = []
    for rank, (rows, choices) in enumerate(everything):
        for token, (row, chosen) in enumerate(zip(rows, choices, strict=True)):
            mine = [(expert - first, choice) for choice, expert in enumerate(chosen) if first <= expert < first + local]
            for expert, choice in mine[:1] if once_a_rank else mine:
                found.append((expert, (rank, token, choice), row))
    found.sort(key=lambda one: one[0])
    if "FAKE_WRONG" in os.environ and get_rank() == 1:
        at = min((i for i, (_, to, _) in enumerate(found) if to[0] == 1), key=lambda i: found[i][1][1])
        found[at] = (*found[at][:2], [8 * value for value in found[at][2]])  # of the last rank's token alone
    rows = torch.Tensor([value for one in found for value in one[2]], (len(found), x.shape[1]), x.dtype)
    return rows, [(one[0], one[1]) for one in found], [sum(one[0] == e for one in found) for e in range(local)]


def combine(rows, handle, tokens, weights=None):
    """Sums of this rank's tokens."""
    sums = [[0.0] * rows.shape[1] for _ in range(tokens)]
    for of_rank in gathered([(to, row) for (_, to), row in zip(handle, rows.rows(), strict=True)]):
        for (rank, token, choice), row in of_rank:
            if rank == get_rank():
                weight = 1.0 if weights is None else weights.rows()[token][choice]
                sums[token] = [a + weight * b for a, b in zip(sums[token], row, strict=True)]
    return torch.Tensor(sum(sums, []), (tokens, rows.shape[1]), rows.dtype)
