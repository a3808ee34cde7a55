"""The pools as kernels see them: typed views, no ownership. Program owns the memory behind them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class StatePlanes:
    """All Device StateImages. Slot s of every plane together is one complete image, contiguous in memory.

    Attributes:
        recurrent: per GDN layer [slots, value_heads, key_dim, value_dim] fp32.
        conv: per GDN layer [slots, conv_channels, kernel - 1], model dtype: the last inputs of the convolution.
        hidden: [slots, hidden] model dtype: the final hidden row (after the last norm) of the last covered token.
    """

    recurrent: tuple[Tensor, ...]
    conv: tuple[Tensor, ...]
    hidden: Tensor


@dataclass(frozen=True, slots=True)
class KvPlanes:
    """The paged pool of the full-attention layers.

    Attributes:
        keys, values: per attention layer [pages, 64, kv_heads, head_dim], model dtype.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
