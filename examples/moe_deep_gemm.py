"""The experts of moe_layer.py by DeepGEMM's grouped GEMM of fp8 rows in masked layout.

It needs a Hopper GPU, torch, and the module deep_gemm: PyPI's sgl-deep-gemm 0.1.5 with apache-tvm-ffi 0.1.11. At its
first call DeepGEMM compiles kernels with nvcc, into ~/.deep_gemm or DG_JIT_CACHE_DIR.

Dispatch casts rows to e4m3 with a f32 scale per 128 columns, and the activation casts the down GEMM's input likewise.
Scales lie in columns, [experts, hidden / 128, capacity]: seen as [experts, capacity, hidden / 128] these are the strides
that DeepGEMM asks for on Hopper, so it passes over no scale. Newer GPUs ask for packed scales instead (fp8_ue8m0).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import deep_gemm
import torch
import weft.torch

TILE_ROWS = 128  # at most; DeepGEMM writes whole tiles


def blocks_of(values: torch.Tensor, rows: int) -> torch.Tensor:
    return values.float().reshape(-1, rows, values.shape[1] // 128, 128)


def cast(values: torch.Tensor, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """e4m3 of a matrix, and a scale per block of `rows` rows and 128 columns."""
    blocks = blocks_of(values, rows)
    scales = blocks.abs().amax(dim=(1, 3), keepdim=True).clamp(min=1e-4) / 448
    return (blocks / scales).reshape(values.shape).to(torch.float8_e4m3fn), scales[:, 0, :, 0].contiguous()


def values_of(numbers: torch.Tensor, scales: torch.Tensor, rows: int) -> torch.Tensor:
    return (blocks_of(numbers, rows) * scales[:, None, :, None]).reshape(numbers.shape)


class DeepGemmExperts:
    """deep_gemm.fp8_m_grouped_gemm_nt_masked for the rows of a layer's dispatch."""

    def __init__(
        self,
        matrices: Callable[[int], tuple[torch.Tensor, torch.Tensor]],
        experts: range,
        *,
        all_tokens: int,
        expected_rows: int,
    ) -> None:
        """all_tokens: of all ranks. expected_rows: of an expert in a call, which DeepGEMM chooses tiles by."""
        # A tile behind an expert's last row must not reach into the next expert.
        capacity = -(-all_tokens // TILE_ROWS) * TILE_ROWS
        self.exchange: dict[str, Any] = {"cast": "fp8", "scale_order": "columns", "capacity": capacity}
        self.down_cast: weft.RowCast = "fp8"
        self.tolerance = 0.05
        self.expected_rows, self.processors = max(expected_rows, 1), deep_gemm.get_num_sms()
        both = [[cast(matrix, 128) for matrix in matrices(expert)] for expert in experts]
        # Of each GEMM [experts, output columns, input columns] and a scale per 128 × 128.
        self.matrices = {
            name: tuple(torch.stack([expert[which][part] for expert in both]) for part in (0, 1))
            for which, name in enumerate(("up", "down"))
        }

    def gemm(self, gemm: weft.torch.ExpertGemm) -> None:
        assert gemm.input_scales is not None
        experts = slice(gemm.first_expert, gemm.first_expert + gemm.experts)
        numbers, scales = self.matrices[gemm.which]
        of_rows = gemm.input_scales.view(len(numbers), -1, gemm.capacity).transpose(1, 2)
        deep_gemm.set_num_sms(gemm.num_sms or self.processors)
        deep_gemm.fp8_m_grouped_gemm_nt_masked(
            (gemm.input[experts], of_rows[experts]),
            (numbers[experts], scales[experts]),
            gemm.output[experts],
            gemm.counts[experts],
            self.expected_rows,
        )

    def rows(self, rows: torch.Tensor) -> torch.Tensor:
        return values_of(*cast(rows, 1), 1)

    def matrix(self, matrix: torch.Tensor) -> torch.Tensor:
        return values_of(*cast(matrix, 128), 128)
