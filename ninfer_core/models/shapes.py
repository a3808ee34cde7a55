"""Shapes of published sizes, for benchmarks on random weights. Knows no torch. Loading never looks here: it reads
config.json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PublishedShape:
    """The numbers of a published config.json that differ between sizes. The rest is common to the family."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    value_heads: int
    tied: bool
    vocab: int = 248_320
    head_dim: int = 256
    key_heads: int = 16
    linear_head_dim: int = 128

    def config(self) -> dict[str, Any]:
        """A composite config.json."""
        text = {
            "model_type": "qwen3_5_text",
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "full_attention_interval": 4,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "linear_num_key_heads": self.key_heads,
            "linear_num_value_heads": self.value_heads,
            "linear_key_head_dim": self.linear_head_dim,
            "linear_value_head_dim": self.linear_head_dim,
            "linear_conv_kernel_dim": 4,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-6,
            "max_position_embeddings": 262_144,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
            "tie_word_embeddings": self.tied,
            "dtype": "bfloat16",
        }
        return {
            "architectures": ["Qwen3_5ForConditionalGeneration"],
            "model_type": "qwen3_5",
            "tie_word_embeddings": self.tied,
            "text_config": text,
        }


SHAPES: dict[str, PublishedShape] = {
    "tiny": PublishedShape(64, 128, 4, 4, 2, 4, True, vocab=1024, head_dim=16, key_heads=2, linear_head_dim=16),
    "0.8b": PublishedShape(1024, 3584, 24, 8, 2, 16, True),
    "9b": PublishedShape(4096, 12_288, 32, 16, 4, 32, False),
    "27b": PublishedShape(5120, 17_408, 64, 24, 4, 48, False),
}
"""Dense sizes by the name that people know; tiny is for a quick try."""
