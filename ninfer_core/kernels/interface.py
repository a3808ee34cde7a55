"""What a backend computes. Everything else of the model is plain torch, the same on every device.

A backend is chosen once, by `ninfer_core.kernels.backends.select`. For each batch it is asked for a `KernelPass`, which
does the work that depends on the batch alone (scan plan, masks, page runs) once, and then serves every layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from ninfer_core.kernels.batch import ForwardBatch
from ninfer_core.kernels.scan_plan import ScanPlan


@dataclass(frozen=True, slots=True)
class DeltaInputs:
    """What the gated delta rule reads, all rows of a batch one after the other.

    Attributes:
        query, key: [tokens, key_heads, key_dim], model dtype, not normalised. May be strided views.
        value: [tokens, value_heads, value_dim], model dtype. value_heads is a multiple of key_heads; value head h
            reads query and key head h // (value_heads // key_heads).
        decay: [tokens, value_heads] fp32, the logarithm of the state's decay, at most 0 ("g").
        beta: [tokens, value_heads], model dtype: the write strength, 0..1.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    decay: Tensor
    beta: Tensor


class KernelPass(Protocol):
    """The kernels of one batch. Valid as long as the batch's pages and slots are.

    State kernels read every row's read slot and write its write slot and its taps; no other slot is touched, and a
    read slot keeps its bytes unless it is also the row's write slot. No slot that one row writes may be read or
    written by another row.
    """

    def convolve(self, inputs: Tensor, weight: Tensor, history: Tensor) -> Tensor:
        """Causal depthwise convolution and SiLU; advances the history.

        Args:
            inputs: [tokens, channels], model dtype, rows one after the other.
            weight: [channels, kernel], model dtype, oldest input first.
            history: [slots, channels, kernel - 1], model dtype: the inputs before each row. Written in place.

        Returns:
            [tokens, channels], model dtype.
        """

    def delta_rule(self, inputs: DeltaInputs, recurrent: Tensor) -> Tensor:
        """Gated delta rule (Yang et al., "Gated Delta Networks", arXiv 2412.06464); advances the recurrent state.

        Queries and keys are l2-normalised and queries scaled by key_dim^-0.5 here, in fp32.

        Args:
            recurrent: [slots, value_heads, key_dim, value_dim] fp32. Written in place.

        Returns:
            [tokens, value_heads, value_dim], model dtype.
        """

    def attend(self, qkv: tuple[Tensor, Tensor, Tensor], keys: Tensor, values: Tensor) -> Tensor:
        """Store the new keys and values in their pages, then causal paged attention over all of each row's pages.

        Args:
            qkv: [tokens, heads, head_dim] and twice [tokens, kv_heads, head_dim], model dtype, rotated; the scale is
                head_dim^-0.5. Query head h reads KV head h // (heads // kv_heads).
            keys, values: [pages, 64, kv_heads, head_dim], model dtype. Written in place at the batch's `kv_slots`.

        Returns:
            [tokens, heads, head_dim], model dtype.
        """


class Kernels(Protocol):
    """One backend."""

    @property
    def name(self) -> str: ...

    def linear(self, inputs: Tensor, weight: Tensor) -> Tensor:
        """[rows, in] times the transpose of [out, in] -> [rows, out], accumulated in fp32."""

    def begin(self, batch: ForwardBatch, scan: ScanPlan) -> KernelPass:
        """Prepare a batch; `scan` is its plan. Mutates nothing."""
