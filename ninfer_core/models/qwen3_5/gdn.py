"""Gated DeltaNet (Yang et al., arXiv 2412.06464), the recurrent mixer."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from ninfer_core.kernels.interface import DeltaInputs, KernelPass, Kernels
from ninfer_core.models.qwen3_5.config import GdnShape
from ninfer_core.models.qwen3_5.weights import GdnWeights


class Gdn:
    """One Gated DeltaNet layer's mixer."""

    def __init__(self, shape: GdnShape, eps: float, weights: GdnWeights, kernels: Kernels) -> None:
        self._shape = shape
        self._eps = eps
        self._weights = weights
        self._kernels = kernels
        self._parts = [shape.channels, shape.value_heads * shape.value_dim, shape.value_heads, shape.value_heads]
        width = shape.key_heads * shape.key_dim
        self._qkv = [width, width, shape.value_heads * shape.value_dim]

    def run(self, x: Tensor, kernels: KernelPass, planes: tuple[Tensor, Tensor]) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]; advances the recurrent state and convolution history in `planes`."""
        shape, weights = self._shape, self._weights
        recurrent, history = planes
        qkv, z, b, a = self._kernels.linear(x, weights.inputs).split_with_sizes(self._parts, dim=-1)
        query, key, value = kernels.convolve(qkv, weights.convolution, history).split_with_sizes(self._qkv, dim=-1)
        inputs = DeltaInputs(
            query=query.view(len(x), -1, shape.key_dim),
            key=key.view(len(x), -1, shape.key_dim),
            value=value.view(len(x), -1, shape.value_dim),
            decay=F.softplus(a.float() + weights.step_bias).mul_(weights.decay_rate),
            beta=b.sigmoid(),
        )
        mixed = kernels.delta_rule(inputs, recurrent)
        return self._kernels.linear(self._gated_norm(mixed, z.view(mixed.shape)).flatten(1), weights.output)

    def _gated_norm(self, x: Tensor, gate: Tensor) -> Tensor:
        """RMSNorm in fp32, cast, times the weight, times SiLU(gate) in fp32, cast: the family's order of roundings."""
        normed = F.rms_norm(x.float(), (x.shape[-1],), None, self._eps).to(x.dtype).mul_(self._weights.norm)
        return F.silu(gate.float()).mul_(normed).to(x.dtype)
