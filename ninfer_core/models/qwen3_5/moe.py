"""The mixture of experts with one shared expert."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ninfer_core.kernels.interface import Kernels
from ninfer_core.models.qwen3_5.config import MoeShape
from ninfer_core.models.qwen3_5.mlp import Mlp
from ninfer_core.models.qwen3_5.weights import MlpWeights, MoeWeights


class Moe:
    """Routes each token to its best experts; the shared expert sees every token."""

    def __init__(self, shape: MoeShape, weights: MoeWeights, kernels: Kernels) -> None:
        self._shape = shape
        self._weights = weights
        self._kernels = kernels
        self._shared = Mlp(weights.shared, kernels)
        self._experts = [
            Mlp(MlpWeights(gate_up, down), kernels)
            for gate_up, down in zip(weights.gate_up.unbind(), weights.down.unbind(), strict=True)
        ]

    def run(self, x: Tensor) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]."""
        scores = F.softmax(self._kernels.linear(x, self._weights.router).float(), dim=-1)
        top, chosen = scores.topk(self._shape.per_token, dim=-1)
        share = (top / top.sum(dim=-1, keepdim=True)).to(x.dtype)
        out = self._routed(x, chosen, share)
        gate = torch.sigmoid(self._kernels.linear(x, self._weights.shared_gate))
        return out.add_(gate * self._shared.run(x))

    def _routed(self, x: Tensor, chosen: Tensor, share: Tensor) -> Tensor:
        """Expert by expert in ascending order, each over all of its tokens at once."""
        order = chosen.flatten().argsort(stable=True)
        tokens = order // self._shape.per_token
        weights = share.flatten()[order][:, None]
        out = torch.zeros_like(x)
        begin = 0
        for expert, count in enumerate(chosen.flatten().bincount(minlength=len(self._experts)).tolist()):
            if count:
                part = slice(begin, begin + count)
                served = self._experts[expert].run(x.index_select(0, tokens[part]))
                out.index_add_(0, tokens[part], served * weights[part])
                begin += count
        return out
