"""Stands for sgl-deep-gemm's masked grouped GEMM on Hopper: in plain torch, and with what that one asks of its tensors.

As there, a tile is written whole: rows behind an expert's own get numbers that nobody may read.
"""

from __future__ import annotations

import torch

TILE_ROWS = 128
processors = [132]


def get_num_sms() -> int:
    return processors[-1]


def set_num_sms(number: int) -> None:
    assert 0 < number <= processors[0]
    processors.append(number)


def fp8_m_grouped_gemm_nt_masked(
    a: tuple[torch.Tensor, torch.Tensor],
    b: tuple[torch.Tensor, torch.Tensor],
    d: torch.Tensor,
    masked_m: torch.Tensor,
    expected_m: int,
) -> None:
    (rows, row_scales), (weights, weight_scales) = a, b
    groups, m, k = rows.shape
    n = weights.shape[1]
    assert rows.dtype == weights.dtype == torch.float8_e4m3fn and d.dtype == torch.bfloat16
    assert row_scales.dtype == weight_scales.dtype == torch.float32 and masked_m.dtype == torch.int32
    assert rows.is_contiguous() and weights.is_contiguous() and d.is_contiguous() and masked_m.is_contiguous()
    assert weights.shape == (groups, n, k) and d.shape == (groups, m, n) and masked_m.shape == (groups,)
    assert k % 128 == 0 and n % 128 == 0 and m % TILE_ROWS == 0 and expected_m > 0
    # Neighbouring rows lie side by side, and TMA asks for columns of a multiple of 16 bytes.
    assert row_scales.shape == (groups, m, k // 128) and row_scales.stride() == (m * (k // 128), 1, m)
    assert weight_scales.shape == (groups, n // 128, k // 128) and weight_scales.is_contiguous()
    for group in range(groups):
        count = int(masked_m[group])
        of_rows = rows[group, :count].float() * row_scales[group, :count].repeat_interleave(128, 1)
        of_weights = weight_scales[group].repeat_interleave(128, 0).repeat_interleave(128, 1)
        d[group, :count] = (of_rows @ (weights[group].float() * of_weights).T).bfloat16()
        d[group, count : -(-count // TILE_ROWS) * TILE_ROWS] = torch.nan
