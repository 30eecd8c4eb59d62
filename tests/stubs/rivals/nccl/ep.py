"""Stands for NCCL EP."""

from types import SimpleNamespace

import torch
from rows_of_experts import combine, dispatch

__version__ = "0.1-fake"
Algorithm = SimpleNamespace(LOW_LATENCY="low latency")
Layout = SimpleNamespace(EXPERT_MAJOR="by expert")
GroupConfig = DispatchInputs = DispatchOutputs = LayoutInfo = CombineInputs = CombineOutputs = SimpleNamespace
DispatchConfig = CombineConfig = SimpleNamespace


def Tensor(tensor):
    return tensor


class Group:
    @staticmethod
    def create(world, config):
        group = Group()
        group.config = config
        return group

    def create_handle(self, layout, topk_idx, *, layout_info, stream):
        assert layout == Layout.EXPERT_MAJOR and layout_info is None and stream == 7
        return Handle(self.config, topk_idx)

    def destroy(self):
        pass


class Handle:
    def __init__(self, config, ids):
        self.config, self.ids, self.rows = config, ids, None

    def dispatch(self, inputs, outputs, *, layout_info, config, stream):
        if torch.capturing:
            return
        assert inputs.tokens.shape[0] <= self.config.max_dispatch_tokens_per_rank
        got, self.rows, counts = dispatch(inputs.tokens, self.ids, self.config.num_experts)
        outputs.tokens.data[: len(got.data)] = got.data
        layout_info.expert_counters.data[:] = counts

    def combine(self, inputs, outputs, *, config, stream):
        if torch.capturing:
            return
        width = inputs.tokens.shape[-1]
        rows = torch.Tensor(inputs.tokens.data[: len(self.rows) * width], (len(self.rows), width), torch.bfloat16)
        tokens = outputs.tokens.shape[0]
        outputs.tokens.data[:] = combine(rows, self.rows, tokens, outputs.topk_weights).data

    def destroy(self):
        pass
