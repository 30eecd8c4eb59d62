"""Python of the documents that needs torch: it runs, at small sizes, as a world of one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import weft.torch
from test_documents import DOCUMENTS, blocks_of

TOKENS, HIDDEN, EXPERTS, TOP_K, LAYERS = 8, 64, 8, 2, 3
SIZES = {"tokens": TOKENS, "hidden": HIDDEN, "experts": EXPERTS, "top_k": TOP_K, "intermediate": HIDDEN}


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[dist.ProcessGroup]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    assert dist.group.WORLD is not None
    yield dist.group.WORLD
    dist.destroy_process_group()


def small(block: str) -> str:
    return re.sub(r"\b(\w+)=\d+\b", lambda found: f"{found[1]}={SIZES.get(found[1], found[0].split('=')[1])}", block)


def given(process_group: dist.ProcessGroup) -> dict[str, Any]:
    """Names that the documents' programs have already."""
    exchange_rows = torch.zeros(EXPERTS, TOKENS, HIDDEN, dtype=torch.bfloat16)
    x = torch.ones(TOKENS, HIDDEN, dtype=torch.bfloat16)
    places = torch.arange(EXPERTS).repeat(LAYERS, 1)
    weights = torch.zeros(EXPERTS, HIDDEN, 2 * HIDDEN, dtype=torch.bfloat16)
    return {
        "torch": torch,
        "process_group": process_group,
        "hidden": x,
        "x": x,
        "y": torch.empty_like(x),
        "rows": exchange_rows,
        "expert_rows": exchange_rows,
        "topk_ids": torch.arange(TOKENS * TOP_K, dtype=torch.int32).view(TOKENS, TOP_K) % EXPERTS,
        "topk_weights": torch.full((TOKENS, TOP_K), 0.5),
        "counts": torch.zeros(EXPERTS, dtype=torch.int32),
        "gate_and_up": weights,
        "down": lambda gemm: gemm.output.copy_(gemm.input),
        "layers": LAYERS,
        "layer": 1,
        "model_state": SimpleNamespace(physical_to_logical_map=places),
        "new_physical_to_logical_map": places.flip(1),
    }


def test_python_runs(process_group: dist.ProcessGroup) -> None:
    """The blocks of a document follow each other."""
    ran: dict[str, int] = defaultdict(int)
    for name in DOCUMENTS:
        names = given(process_group)
        for block in blocks_of(name):
            if "np." not in block:
                exec(small(block), names)
                ran[name] += 1
        names["group"].group.check()
    assert ran == {"docs/integration.md": 2, "docs/python.md": 2}
