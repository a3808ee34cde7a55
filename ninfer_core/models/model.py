"""The one thing that Program knows of a model: its layout, a forward pass and a head."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from ninfer_core.kernels.batch import ForwardBatch
from ninfer_core.kernels.planes import KvPlanes, StatePlanes
from ninfer_core.models.layout import ModelLayout


class Model(Protocol):
    """A resident model. Neither method keeps a reference to its arguments; both run under inference mode."""

    @property
    def layout(self) -> ModelLayout: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def weight_bytes(self) -> int:
        """Bytes that the weights occupy, tied ones once."""

    def forward(self, batch: ForwardBatch, state: StatePlanes, kv: KvPlanes) -> Tensor:
        """Run every row; write its KV, its taps and the state (and hidden row) after it.

        Returns:
            [rows, hidden] final hidden row of each row's last token, model dtype.
        """

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, hidden] -> [rows, vocab] fp32."""

    def fingerprint(self) -> str:
        """Hex digest of the weights and what else decides the model's function. Slow the first time: reads them all.

        Raises:
            SessionError: they cannot be read back. EngineClosed: `close` came first.
        """

    def close(self) -> None:
        """End what goes on beside the callers. Idempotent."""
