"""What one StateImage and one KV page consist of: the model owns the mathematics, Program the storage (CAP-1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class ModelLayout:
    """Shapes that Program needs to build its pools.

    Attributes:
        gdn_layers, attention_layers: how many layers of each kind.
        recurrent_shape: (value_heads, key_dim, value_dim), fp32.
        conv_shape: (channels, kernel - 1), model dtype.
        hidden_size: length of the final hidden row, model dtype.
        kv_shape: (kv_heads, head_dim), model dtype, per token, layer and for keys and values each.
        dtype: the model dtype.
        vocab_size: rows of the head.
        max_positions: longest context that the model's config allows.
    """

    gdn_layers: int
    attention_layers: int
    recurrent_shape: tuple[int, int, int]
    conv_shape: tuple[int, int]
    hidden_size: int
    kv_shape: tuple[int, int]
    dtype: torch.dtype
    vocab_size: int
    max_positions: int
