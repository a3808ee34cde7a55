"""Full attention with an output gate."""

from __future__ import annotations

import torch
from torch import Tensor

from ninfer_core.kernels.interface import KernelPass, Kernels
from ninfer_core.models.qwen3_5.config import AttentionShape
from ninfer_core.models.qwen3_5.layers import rms_norm, rotate
from ninfer_core.models.qwen3_5.weights import AttentionWeights


class Attention:
    """One full-attention layer's mixer."""

    def __init__(self, shape: AttentionShape, eps: float, weights: AttentionWeights, kernels: Kernels) -> None:
        self._shape = shape
        self._eps = eps
        self._weights = weights
        self._kernels = kernels
        width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self._parts = [2 * width, kv_width, kv_width]

    def run(
        self, x: Tensor, tables: tuple[Tensor, Tensor], kernels: KernelPass, planes: tuple[Tensor, Tensor]
    ) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]; writes the tokens' keys and values into `planes`."""
        weights, head_dim = self._weights, self._shape.head_dim
        queries, keys, values = self._kernels.linear(x, weights.inputs).split_with_sizes(self._parts, dim=-1)
        query, gate = queries.view(len(x), -1, 2, head_dim).unbind(dim=2)
        query = rotate(rms_norm(query, weights.query_norm, self._eps), tables)
        key = rotate(rms_norm(keys.view(len(x), -1, head_dim), weights.key_norm, self._eps), tables)
        mixed = kernels.attend((query, key, values.view(len(x), -1, head_dim)), *planes)
        return self._kernels.linear(mixed.mul_(torch.sigmoid(gate)).flatten(1), weights.output)
