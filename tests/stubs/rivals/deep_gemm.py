"""Stands for sgl-deep-gemm's fp8_mega_moe."""

from types import SimpleNamespace

import torch
from rows_of_experts import combine, dispatch

__version__ = "0.1-fake"


def set_num_sms(sms):
    pass


def get_symm_buffer_for_sm90_mega_moe(group, experts, most, top_k, hidden, intermediate):
    return SimpleNamespace(experts=experts, most=most, intermediate=intermediate, x={}, x_sf=None, topk_idx={}, topk_weights={})


def transform_weights_for_mega_moe_sm90(up, down):
    for weights, scales in (up, down):
        assert scales.shape == (weights.shape[0], weights.shape[1] // 128, weights.shape[2] // 128)
    return up, down


def mega_moe_pre_dispatch_sm90(x, ids, weights, x_of, scales_of, ids_of, weights_of, tokens):
    assert ids.dtype == torch.int32 and tokens == x.shape[0]
    x_of["is"], ids_of["is"], weights_of["is"] = x, ids, weights


def fp8_mega_moe(y, up, down, buffer):
    if torch.capturing:
        return
    assert y.shape[0] <= buffer.most
    rows, handle, _ = dispatch(buffer.x["is"], buffer.topk_idx["is"], buffer.experts)
    out = []
    for (expert, _), row in zip(handle, rows.rows(), strict=True):
        both = (up[0][expert] @ torch.Tensor(row, (len(row),), torch.float32)) * up[1].data[0]
        gate = both[: buffer.intermediate]
        middle = gate / ((-gate).exp() + 1) * both[buffer.intermediate :]
        out += ((down[0][expert] @ middle) * down[1].data[0]).data
    y.data[:] = combine(rows.like(out), handle, y.shape[0], buffer.topk_weights["is"]).data
