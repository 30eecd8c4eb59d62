"""Stands for DeepEP."""

import torch
from rows_of_experts import combine, dispatch

__version__ = "1.0-fake"


class Buffer:
    num_sms = 20

    def __init__(self, group, explicitly_destroy, **sizes):
        assert explicitly_destroy and (sizes.keys() == {"num_nvl_bytes"} or sizes["low_latency_mode"])
        self.last = None

    @classmethod
    def set_num_sms(cls, sms):
        cls.num_sms = sms

    @staticmethod
    def get_low_latency_rdma_size_hint(tokens, hidden, ranks, experts):
        return tokens * hidden * ranks * experts

    @staticmethod
    def get_dispatch_config(ranks):
        return "of dispatch"

    @staticmethod
    def get_combine_config(ranks):
        return "of combine"

    def low_latency_dispatch(self, x, ids, most, experts, use_fp8):
        if torch.capturing:
            return None
        assert x.shape[0] <= most
        rows, handle, counts = dispatch(x, ids, experts)
        counts = torch.Tensor(counts, (len(counts),), torch.int32)
        return ((rows, None) if use_fp8 else rows), counts, (handle, ids), None, None

    def low_latency_combine(self, rows, ids, weights, handle):
        if torch.capturing:
            return None
        assert handle[1].data == ids.data, "the handle is another dispatch's"
        return combine(rows, handle[0], weights.shape[0], weights), None, None

    def get_dispatch_layout(self, ids, experts):
        return "ranks", None, ("experts", experts), "sent", None

    def dispatch(self, x, num_tokens_per_rank, is_token_in_rank, num_tokens_per_expert, config, num_worst_tokens,
                 topk_idx, topk_weights):  # fmt: skip
        if torch.capturing:
            assert num_worst_tokens > 0, "the host waits"
            return None
        assert (num_tokens_per_rank, is_token_in_rank, config) == ("ranks", "sent", "of dispatch")
        rows = x[0] if isinstance(x, tuple) else x
        rows, handle, _ = dispatch(rows, topk_idx, num_tokens_per_expert[1], once_a_rank=True)
        return ((rows, None) if isinstance(x, tuple) else rows), None, None, None, (handle, topk_idx.shape[0]), None

    def combine(self, rows, handle, config):
        if torch.capturing:
            return None
        assert config == "of combine" and rows.dtype == torch.bfloat16
        return combine(rows, *handle), None, None

    def destroy(self):
        pass


class ElasticBuffer:
    def __init__(self, group, num_max_tokens_per_rank, hidden, num_topk, use_fp8_dispatch, allow_hybrid_mode,
                 explicitly_destroy):  # fmt: skip
        self.most = num_max_tokens_per_rank

    def get_theoretical_num_sms(self, experts, top_k):
        return 12

    def dispatch(self, x, num_experts, num_sms, do_cpu_sync, do_expand, expert_alignment, topk_idx, topk_weights):
        if torch.capturing:
            assert not do_cpu_sync, "the host waits"
            return None
        assert do_expand and topk_idx.shape[0] <= self.most
        rows, handle, _ = dispatch(x[0] if isinstance(x, tuple) else x, topk_idx, num_experts)
        return ((rows, None) if isinstance(x, tuple) else rows), None, None, (handle, topk_idx.shape[0]), None

    def combine(self, rows, handle, num_sms):
        return None if torch.capturing else (combine(rows, *handle), None, None)

    def destroy(self):
        pass
