"""Writes tiny random checkpoints in the published layouts. Knows neither ninfer's loader nor transformers."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

_OUTPUTS = ("out_proj.weight", "o_proj.weight", "down_proj.weight")
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Tiny:
    """What to write.

    Attributes:
        composite: `text_config` and `model.language_model.*` names beside vision and MTP tensors; else text only.
        fused_experts: one tensor for all experts, else three for each.
        shards: weight files; more than one come with an index.
        changes: fields that replace those of the text config; None leaves a field out.
    """

    moe: bool = False
    tied: bool = False
    composite: bool = False
    fused_experts: bool = False
    shards: int = 1
    dtype: str = "float32"
    seed: int = 0
    changes: dict[str, Any] = field(default_factory=dict)

    def text_config(self) -> dict[str, Any]:
        """The text model's config.json."""
        config: dict[str, Any] = {
            "architectures": ["Qwen3_5MoeForCausalLM" if self.moe else "Qwen3_5ForCausalLM"],
            "model_type": "qwen3_5_moe_text" if self.moe else "qwen3_5_text",
            "dtype": self.dtype,
            "vocab_size": 256,
            "hidden_size": 64,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 32,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-6,
            "hidden_act": "silu",
            "tie_word_embeddings": self.tied,
            "eos_token_id": 255,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e7,
                "partial_rotary_factor": 0.25,
                "mrope_section": [2, 1, 1],
                "mrope_interleaved": True,
            },
        }
        if self.moe:
            config |= {
                "num_experts": 6,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 32,
                "shared_expert_intermediate_size": 48,
            }
        else:
            config["intermediate_size"] = 96
        config |= self.changes
        return {key: value for key, value in config.items() if value is not None}

    def config(self) -> dict[str, Any]:
        """config.json as it is written."""
        text = self.text_config()
        if not self.composite:
            return text
        kind = "qwen3_5_moe" if self.moe else "qwen3_5"
        name = "Qwen3_5MoeForConditionalGeneration" if self.moe else "Qwen3_5ForConditionalGeneration"
        vision = {
            "model_type": f"{kind}_vision",
            "depth": 1,
            "hidden_size": 32,
            "num_heads": 2,
            "intermediate_size": 64,
            "out_hidden_size": 64,
        }
        return {
            "architectures": [name],
            "model_type": kind,
            "text_config": text,
            "vision_config": vision,
            "tie_word_embeddings": self.tied,
        }

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every text tensor by published name."""
        c = self.text_config()
        hidden, vocab = c["hidden_size"], c["vocab_size"]
        key = c["linear_num_key_heads"] * c["linear_key_head_dim"]
        value = c["linear_num_value_heads"] * c["linear_value_head_dim"]
        heads, kv, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        shapes: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (vocab, hidden), "norm.weight": (hidden,)}
        for i, kind in enumerate(c["layer_types"]):
            layer = {"input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,)}
            if kind == "linear_attention":
                layer |= {
                    "linear_attn.in_proj_qkv.weight": (2 * key + value, hidden),
                    "linear_attn.in_proj_z.weight": (value, hidden),
                    "linear_attn.in_proj_b.weight": (c["linear_num_value_heads"], hidden),
                    "linear_attn.in_proj_a.weight": (c["linear_num_value_heads"], hidden),
                    "linear_attn.conv1d.weight": (2 * key + value, 1, c["linear_conv_kernel_dim"]),
                    "linear_attn.A_log": (c["linear_num_value_heads"],),
                    "linear_attn.dt_bias": (c["linear_num_value_heads"],),
                    "linear_attn.norm.weight": (c["linear_value_head_dim"],),
                    "linear_attn.out_proj.weight": (hidden, value),
                }
            else:
                layer |= {
                    "self_attn.q_proj.weight": (2 * heads * dim, hidden),
                    "self_attn.k_proj.weight": (kv * dim, hidden),
                    "self_attn.v_proj.weight": (kv * dim, hidden),
                    "self_attn.o_proj.weight": (hidden, heads * dim),
                    "self_attn.q_norm.weight": (dim,),
                    "self_attn.k_norm.weight": (dim,),
                }
            layer |= self._mlp_shapes(c)
            shapes |= {f"layers.{i}.{name}": shape for name, shape in layer.items()}
        prefix = "model.language_model." if self.composite else "model."
        named = {prefix + name: shape for name, shape in shapes.items()}
        return named if self.tied else named | {"lm_head.weight": (vocab, hidden)}

    def _mlp_shapes(self, c: dict[str, Any]) -> dict[str, tuple[int, ...]]:
        hidden = c["hidden_size"]

        def mlp(prefix: str, size: int) -> dict[str, tuple[int, ...]]:
            return {
                f"{prefix}gate_proj.weight": (size, hidden),
                f"{prefix}up_proj.weight": (size, hidden),
                f"{prefix}down_proj.weight": (hidden, size),
            }

        if not self.moe:
            return mlp("mlp.", c["intermediate_size"])
        count, size = c["num_experts"], c["moe_intermediate_size"]
        shapes = {"mlp.gate.weight": (count, hidden), "mlp.shared_expert_gate.weight": (1, hidden)}
        shapes |= mlp("mlp.shared_expert.", c["shared_expert_intermediate_size"])
        if self.fused_experts:
            return shapes | {
                "mlp.experts.gate_up_proj": (count, 2 * size, hidden),
                "mlp.experts.down_proj": (count, hidden, size),
            }
        for expert in range(count):
            shapes |= mlp(f"mlp.experts.{expert}.", size)
        return shapes

    def tensors(self) -> dict[str, Tensor]:
        """Random values that keep activations sane; equal names and seed give equal values whatever the layout."""
        if self.fused_experts:
            return self._fused(replace(self, fused_experts=False).tensors())
        made: dict[str, Tensor] = {}
        for name, shape in self.shapes().items():
            inner = name.removeprefix("model.").removeprefix("language_model.")
            generator = torch.Generator().manual_seed(hash_name(inner) + self.seed)
            made[name] = _values(inner, shape, self.tied, generator).to(_DTYPES[self.dtype])
        if self.composite:
            made["model.visual.patch_embed.proj.bias"] = torch.zeros(8)
            made["mtp.norm.weight"] = torch.zeros(4)
        return made

    def _fused(self, single: dict[str, Tensor]) -> dict[str, Tensor]:
        """The same model with one tensor for all experts of a layer."""
        made = {name: value for name, value in single.items() if ".experts." not in name}
        count = self.text_config()["num_experts"]
        for name in (name for name in self.shapes() if ".experts." in name):
            prefix, _, part = name.rpartition(".")
            whole = []
            for expert in range(count):
                parts = ("gate_proj", "up_proj") if part == "gate_up_proj" else ("down_proj",)
                whole.append(torch.cat([single[f"{prefix}.{expert}.{p}.weight"] for p in parts]))
            made[name] = torch.stack(whole)
        return made

    def write(self, directory: Path) -> Path:
        """Write the checkpoint and return its directory."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.json").write_text(json.dumps(self.config()))
        tensors = self.tensors()
        if self.shards == 1:
            save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
            return directory
        names = sorted(tensors)
        where = {
            name: f"model-{i * self.shards // len(names) + 1:05d}-of-{self.shards:05d}.safetensors"
            for i, name in enumerate(names)
        }
        for file in sorted(set(where.values())):
            save_file({name: tensors[name] for name in names if where[name] == file}, directory / file)
        index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": where}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index))
        return directory


def hash_name(name: str) -> int:
    """A stable small number for a name."""
    return sum((i + 1) * byte for i, byte in enumerate(name.encode())) % 100_003


def _values(name: str, shape: tuple[int, ...], tied: bool, generator: torch.Generator) -> Tensor:
    """Layers add moderately to the stream: were the embedding small, rounding errors of the first layers would
    be magnified by the norms until two right implementations differ by more than the tests' tolerance."""
    stream = 0.1 if tied else 1.0  # a tied embedding is the head too, and logits shall stay of order 1
    t = torch.empty(shape, dtype=torch.float32)
    if name.endswith("A_log"):
        return t.uniform_(1e-2, 16, generator=generator).log_()
    if name.endswith("dt_bias"):
        return t.uniform_(-6.0, 1.0, generator=generator)
    if name.endswith("linear_attn.norm.weight"):
        return t.normal_(1.0, 0.05, generator=generator)
    if name.endswith("norm.weight"):
        return t.normal_(0.0, 0.05, generator=generator)
    if "conv1d" in name:
        return t.normal_(0.0, 0.5, generator=generator)
    if "embed_tokens" in name:
        return t.normal_(0.0, stream, generator=generator)
    if name.endswith(_OUTPUTS):
        return t.normal_(0.0, 0.3 * stream / math.sqrt(shape[-1]), generator=generator)
    if "lm_head" in name:
        return t.normal_(0.0, 0.02, generator=generator)  # as models are initialised: logits of order 1
    return t.normal_(0.0, 1.0 / math.sqrt(shape[-1]), generator=generator)
