"""The gated MLP."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from ninfer_core.kernels.interface import Kernels
from ninfer_core.models.qwen3_5.weights import MlpWeights


class Mlp:
    """SiLU(gate) * up, then down."""

    def __init__(self, weights: MlpWeights, kernels: Kernels) -> None:
        self._weights = weights
        self._kernels = kernels

    def run(self, x: Tensor) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]."""
        gate, up = self._kernels.linear(x, self._weights.gate_up).chunk(2, dim=-1)
        return self._kernels.linear(F.silu(gate).mul_(up), self._weights.down)
