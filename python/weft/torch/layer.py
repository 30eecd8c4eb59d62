"""Whole layers of experts, whose GEMMs are functions of torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from weft import _core
from weft._words import LayerSchedule, RowCast, RowLayout
from weft.torch import _operators as operators
from weft.torch.exchange import Exchange

# The bits of a type under a name that DLPack and all versions of torch know.
_NAMED = {"e4m3": ("u8", torch.float8_e4m3fn)}


def _tensor(view: _core.Tensor) -> torch.Tensor:
    if view.dtype not in _NAMED:
        plain: torch.Tensor = from_dlpack(view)
        return plain
    name, dtype = _NAMED[view.dtype]
    raw: torch.Tensor = from_dlpack(_core.Tensor(view, name))
    return raw.view(dtype)


@dataclass(frozen=True)
class ExpertGemm:
    """A weft.ExpertGemm whose tensors are torch's. On GPUs the GEMM goes to the current stream."""

    which: str
    layout: RowLayout
    round: int
    first_expert: int
    experts: int
    capacity: int
    num_sms: int
    input: torch.Tensor
    output: torch.Tensor
    counts: torch.Tensor
    input_scales: torch.Tensor | None
    offsets: torch.Tensor | None


def _for_torch(function: Callable[[ExpertGemm], object]) -> Callable[[_core.ExpertGemm], None]:
    def given(gemm: _core.ExpertGemm) -> None:
        of_torch = ExpertGemm(
            which=gemm.which,
            layout=gemm.layout,
            round=gemm.round,
            first_expert=gemm.first_expert,
            experts=gemm.experts,
            capacity=gemm.capacity,
            num_sms=gemm.num_sms,
            input=_tensor(gemm.input),
            output=_tensor(gemm.output),
            counts=_tensor(gemm.counts),
            input_scales=None if gemm.input_scales is None else _tensor(gemm.input_scales),
            offsets=None if gemm.offsets is None else _tensor(gemm.offsets),
        )
        function(of_torch)
        operators.refuse_gradients((of_torch.output,))  # of weights that the function knows

    return given


@dataclass(frozen=True)
class SharedExpert:
    """A weft.SharedExpert whose tensors are torch's. On GPUs its work goes to the current stream."""

    input: torch.Tensor
    output: torch.Tensor
    scales: torch.Tensor | None
    residual: torch.Tensor | None
    tokens: int
    hidden: int
    num_sms: int


def _shared_for_torch(
    function: Callable[[SharedExpert], object], device: torch.device
) -> Callable[[_core.SharedExpert], None]:
    def given(expert: _core.SharedExpert) -> None:
        inputs: Any = expert  # run()'s own tensors
        of_torch = SharedExpert(
            input=inputs.input,
            output=_tensor(expert.output),
            scales=inputs.scales,
            residual=inputs.residual,
            tokens=expert.tokens,
            hidden=expert.hidden,
            num_sms=expert.num_sms,
        )
        with _on(expert.stream, device):
            function(of_torch)
        operators.refuse_gradients((of_torch.output,))  # of weights that the function knows

    return given


def _on(stream: int, device: torch.device) -> AbstractContextManager[object]:
    if device.type != "cuda":
        return nullcontext()
    made: AbstractContextManager[object] = torch.cuda.stream(
        torch.cuda.ExternalStream(stream, device)  # type: ignore[no-untyped-call]  # torch has no types for it
    )
    return made


class MoeLayer:
    """A weft.MoeLayer for tensors of torch, whose docstrings hold.

    It is no operator, since its GEMMs are functions: torch.compile leaves it out of its graphs. CUDA graphs capture it.
    """

    def __init__(self, exchange: Exchange, *, intermediate: int, down_cast: RowCast = "none") -> None:
        """Local: weft.MoeLayer.create(exchange, …)."""
        self.layer = _core.MoeLayer.create(exchange.exchange, intermediate=intermediate, down_cast=down_cast)
        self.exchange = exchange  # as long as the layer
        self.workspace_bytes = self.layer.workspace_bytes

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # torch has no types for it
    def run(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        topk_ids: torch.Tensor,
        topk_weights: torch.Tensor | None = None,
        *,
        up: Callable[[ExpertGemm], object],
        down: Callable[[ExpertGemm], object],
        shared: Callable[[SharedExpert], object] | None = None,
        workspace: torch.Tensor | None = None,
        scales: torch.Tensor | None = None,
        residual: torch.Tensor | None = None,
        schedule: LayerSchedule = "automatic",
        rounds: int | Sequence[int] = 1,
        most_tokens: int = 0,
        map: int = 0,
        alone_by_size: bool = False,
        cluster: int = 0,
        tag: int = 0,
        observe: Callable[[str, int, bool, int], object] | None = None,
        **num_sms: int,
    ) -> None:
        """output = for each token the weighted sum of what its experts make of it, then the residual.

        up, down: functions that enqueue the GEMM that they are given on the current stream. shared: likewise, and the
        current stream is then one of the layer's: tensors that the function makes are freed behind its own work there.
        workspace: None takes one from torch's allocator. num_sms: send_num_sms, …, alone_by_size and cluster as
        in weft.MoeLayer.run. observe: as there, and torch.cuda.ExternalStream makes a stream of its number.
        """
        operators.refuse_gradients((output, input, topk_weights, scales, residual))
        if workspace is None:
            workspace = torch.empty(self.workspace_bytes, dtype=torch.uint8, device=input.device)
        options: dict[str, Any] = {"schedule": schedule, "rounds": rounds, "most_tokens": most_tokens, "tag": tag}
        options |= num_sms
        options |= {"alone_by_size": alone_by_size, "cluster": cluster, "map": map}
        self.layer.run(
            output,
            input,
            topk_ids,
            topk_weights,
            up=_for_torch(up),
            down=_for_torch(down),
            shared=None if shared is None else _shared_for_torch(shared, input.device),
            workspace=workspace,
            scales=scales,
            residual=residual,
            stream=torch.cuda.current_stream(input.device) if input.is_cuda else None,
            observe=observe,
            **options,
        )
