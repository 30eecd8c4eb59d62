"""Calls of a group with a norm."""

from __future__ import annotations

from typing import Any

import torch

from weft._words import Algorithm, Fp8Scaling, ScaleType
from weft.torch import _operators as operators
from weft.torch._counts import Counts


class Norms:
    """A part of weft.torch.Group."""

    number: int

    def all_reduce_rms_norm(
        self,
        output: torch.Tensor | None,
        residual_output: torch.Tensor,
        input: torch.Tensor,
        gamma: torch.Tensor,
        residual: torch.Tensor | None = None,
        *,
        fp8_rows: torch.Tensor | None = None,
        fp8_scales: torch.Tensor | None = None,
        fp8_scale: torch.Tensor | None = None,
        scaling: Fp8Scaling = "per_token",
        scale_type: ScaleType = "f32",
        scale_token_stride: int = 0,
        scale_group_stride: int = 0,
        scale_floor: float = 1e-4,
        epsilon: float = 1e-6,
        gamma_plus_one: bool = False,
        algorithm: Algorithm = "automatic",
        tag: int = 0,
        blocks: int = 0,
        threads: int = 0,
        cluster: int = 0,
    ) -> None:
        """A layer's sum, residual and RMSNorm; with `fp8_rows` also its rows as e4m3 (weft.Fp8Output).

        `gamma` is of the input's type, or of float32, which is used as it is.
        """
        operators.call(
            operators.ops.all_reduce_rms_norm.default,
            output,
            residual_output,
            input,
            gamma,
            residual,
            fp8_rows,
            fp8_scales,
            fp8_scale,
            self.number,
            operators.number("scaling", scaling, operators.SCALINGS),
            operators.number("scale_type", scale_type, operators.SCALE_TYPES),
            scale_token_stride,
            scale_group_stride,
            scale_floor,
            epsilon,
            gamma_plus_one,
            operators.reduction_options("sum", algorithm, tag, blocks, threads, cluster),
        )

    def gather_sums_rms_norm(
        self,
        output: torch.Tensor | None,
        residual_output: torch.Tensor,
        input: torch.Tensor,
        gamma: torch.Tensor,
        counts: Counts,
        residual: torch.Tensor | None = None,
        *,
        group_ranks: int,
        fp8_rows: torch.Tensor | None = None,
        fp8_scales: torch.Tensor | None = None,
        fp8_scale: torch.Tensor | None = None,
        scaling: Fp8Scaling = "per_token",
        scale_type: ScaleType = "f32",
        scale_token_stride: int = 0,
        scale_group_stride: int = 0,
        scale_floor: float = 1e-4,
        epsilon: float = 1e-6,
        gamma_plus_one: bool = False,
        tag: int = 0,
        blocks: int = 0,
        threads: int = 0,
        cluster: int = 0,
    ) -> None:
        """gather_sums with residual and RMSNorm on this rank's shard; with `fp8_rows` also e4m3 (weft.Fp8Output)."""
        norm = (scaling, scale_type, scale_token_stride, scale_group_stride, scale_floor, epsilon, gamma_plus_one)
        tensors = (output, residual_output, input, gamma, residual, fp8_rows, fp8_scales, fp8_scale)
        options = operators.options(tag, blocks, threads, cluster)
        self._cross(operators.ops.gather_sums_rms_norm.default, tensors, counts, norm, group_ranks, options)

    def scatter_sums_rms_norm(
        self,
        output: torch.Tensor | None,
        residual_output: torch.Tensor,
        input: torch.Tensor,
        gamma: torch.Tensor,
        counts: Counts,
        residual: torch.Tensor | None = None,
        *,
        group_ranks: int,
        fp8_rows: torch.Tensor | None = None,
        fp8_scales: torch.Tensor | None = None,
        fp8_scale: torch.Tensor | None = None,
        scaling: Fp8Scaling = "per_token",
        scale_type: ScaleType = "f32",
        scale_token_stride: int = 0,
        scale_group_stride: int = 0,
        scale_floor: float = 1e-4,
        epsilon: float = 1e-6,
        gamma_plus_one: bool = False,
        tag: int = 0,
        blocks: int = 0,
        threads: int = 0,
        cluster: int = 0,
    ) -> None:
        """scatter_sums with residual and RMSNorm on this rank's shard; with `fp8_rows` also e4m3."""
        norm = (scaling, scale_type, scale_token_stride, scale_group_stride, scale_floor, epsilon, gamma_plus_one)
        tensors = (output, residual_output, input, gamma, residual, fp8_rows, fp8_scales, fp8_scale)
        options = operators.options(tag, blocks, threads, cluster)
        self._cross(operators.ops.scatter_sums_rms_norm.default, tensors, counts, norm, group_ranks, options)

    def _cross(
        self,
        operator: Any,
        tensors: tuple[torch.Tensor | None, ...],
        counts: Counts,
        norm: tuple[str, str, int, int, float, float, bool],
        group_ranks: int,
        options: Any,
    ) -> None:
        scaling, scale_type, *others = norm
        operators.call(
            operator,
            *tensors,
            counts.rows,
            counts.slots,
            self.number,
            operators.number("scaling", scaling, operators.SCALINGS),
            operators.number("scale_type", scale_type, operators.SCALE_TYPES),
            *others,
            counts.sharding,
            counts.padding,
            counts.slot_rows,
            group_ranks,
            options,
        )
