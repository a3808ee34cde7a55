"""The CPU backend: torch and its oneDNN and MKL kernels, no code of our own to compile."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ninfer_core.kernels.batch import ForwardBatch
from ninfer_core.kernels.interface import DeltaInputs
from ninfer_core.kernels.scan_plan import ScanPlan
from ninfer_core.kernels.torch_cpu import convolution, delta_chunks, delta_steps
from ninfer_core.kernels.torch_cpu.attention import PagedAttention

_FEW_ROWS = 64
"""Up to this many rows oneDNN streams a bf16 weight faster as the left operand (measured: 1.4 to 1.8 times)."""


class TorchCpu:
    """`Kernels` on the CPU."""

    name = "torch_cpu"

    def linear(self, inputs: Tensor, weight: Tensor) -> Tensor:
        rows = inputs.shape[0]
        if inputs.dtype == torch.float32 or rows > _FEW_ROWS:
            return F.linear(inputs, weight)
        if rows == 1:
            return torch.mv(weight, inputs[0])[None]
        return torch.mm(weight, inputs.t()).t().contiguous()

    def begin(self, batch: ForwardBatch, scan: ScanPlan) -> TorchCpuPass:
        return TorchCpuPass(batch, scan)


class TorchCpuPass:
    """`KernelPass` on the CPU."""

    def __init__(self, batch: ForwardBatch, scan: ScanPlan) -> None:
        self._plan = scan
        self._attention = PagedAttention(batch.attention, batch.kv_slots)

    def convolve(self, inputs: Tensor, weight: Tensor, history: Tensor) -> Tensor:
        return convolution.run(inputs, weight, history, self._plan)

    def delta_rule(self, inputs: DeltaInputs, recurrent: Tensor) -> Tensor:
        steps = self._plan.steps
        if not self._plan.scans:
            assert steps is not None
            return delta_steps.run(inputs, recurrent, steps)
        out = torch.empty(inputs.value.shape, dtype=inputs.value.dtype)
        if steps is not None:
            picked = (inputs.query, inputs.key, inputs.value, inputs.decay, inputs.beta)
            chosen = DeltaInputs(*(x.index_select(0, steps.tokens) for x in picked))
            out.index_copy_(0, steps.tokens, delta_steps.run(chosen, recurrent, steps))
        for scan in self._plan.scans:
            delta_chunks.run(inputs, recurrent, scan, out)
        return out

    def attend(self, qkv: tuple[Tensor, Tensor, Tensor], keys: Tensor, values: Tensor) -> Tensor:
        return self._attention.run(qkv, keys, values)
