"""Pools for tests: a tiny stand-in for what Program owns. Nothing is managed; slots and pages are named by hand."""

from __future__ import annotations

import torch
from torch import Tensor

from ninfer_core.contract.ids import PAGE_SIZE
from ninfer_core.kernels.batch import Cut, ForwardBatch, Row
from ninfer_core.kernels.planes import KvPlanes, StatePlanes
from ninfer_core.models.layout import ModelLayout
from ninfer_core.models.model import Model


def state_planes(layout: ModelLayout, slots: int) -> StatePlanes:
    """Slots full of rubbish, so that a zero state that nobody wrote is noticed."""
    recurrent = tuple(torch.full((slots, *layout.recurrent_shape), 7.0) for _ in range(layout.gdn_layers))
    conv = tuple(torch.full((slots, *layout.conv_shape), 7.0, dtype=layout.dtype) for _ in range(layout.gdn_layers))
    return StatePlanes(recurrent, conv, torch.full((slots, layout.hidden_size), 7.0, dtype=layout.dtype))


def kv_planes(layout: ModelLayout, pages: int) -> KvPlanes:
    """Pages full of rubbish."""
    shape = (pages, PAGE_SIZE, *layout.kv_shape)

    def planes() -> tuple[Tensor, ...]:
        return tuple(torch.full(shape, 7.0, dtype=layout.dtype) for _ in range(layout.attention_layers))

    return KvPlanes(planes(), planes())


class Pools:
    """A model with its pools, run by hand."""

    def __init__(self, model: Model, slots: int = 8, pages: int = 16) -> None:
        self.model = model
        self.state = state_planes(model.layout, slots)
        self.kv = kv_planes(model.layout, pages)

    def hidden(self, *rows: Row) -> Tensor:
        """Run a batch: [rows, hidden]."""
        return self.model.forward(ForwardBatch.build(rows), self.state, self.kv)

    def run(self, *rows: Row) -> Tensor:
        """Run a batch: [rows, vocab] fp32 logits."""
        return self.model.logits(self.hidden(*rows))

    def image(self, slot: int) -> list[Tensor]:
        """A copy of everything that one slot holds."""
        planes = (*self.state.recurrent, *self.state.conv, self.state.hidden)
        return [plane[slot].clone() for plane in planes]


def taps(*pairs: tuple[int, int | None]) -> tuple[Cut, ...]:
    """Cuts from (offset, slot) pairs."""
    return tuple(Cut(offset, slot) for offset, slot in pairs)
