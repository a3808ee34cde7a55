"""Qwen3_5Config: the model's shape, read strictly from config.json. Nothing is guessed; the unknown is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ninfer_core.errors import ModelError
from ninfer_core.models.qwen3_5.fields import Fields

_ARCHITECTURES = (
    "Qwen3_5ForCausalLM",
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForCausalLM",
    "Qwen3_5MoeForConditionalGeneration",
)
_DENSE_TYPES = ("qwen3_5", "qwen3_5_text")
_MOE_TYPES = ("qwen3_5_moe", "qwen3_5_moe_text")
_MAX_LAYERS = 1024
_MAX_EXPERTS = 4096


class LayerKind(Enum):
    """How a layer mixes tokens. The values are config.json's words."""

    GDN = "linear_attention"
    ATTENTION = "full_attention"


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Full attention: heads, and how many of a head's dimensions rotate with the base `rope_theta`."""

    heads: int
    kv_heads: int
    head_dim: int
    rotary_dim: int
    rope_theta: float


@dataclass(frozen=True, slots=True)
class GdnShape:
    """Gated DeltaNet: heads, their dimensions, and the convolution's width in tokens."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    @property
    def channels(self) -> int:
        """Channels of the convolution: queries, keys and values of all heads."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


@dataclass(frozen=True, slots=True)
class MoeShape:
    """Experts of one layer, how many serve a token, and the intermediate sizes."""

    experts: int
    per_token: int
    intermediate: int
    shared_intermediate: int


@dataclass(frozen=True, slots=True)
class Qwen3_5Config:  # noqa: N801 (the family's own name)
    """Attributes:
    intermediate: of the dense MLP; 0 when `moe` is set.
    moe: None for a dense model.
    tied: the head is the embedding.
    """

    vocab_size: int
    hidden_size: int
    layers: tuple[LayerKind, ...]
    attention: AttentionShape
    gdn: GdnShape
    intermediate: int
    moe: MoeShape | None
    eps: float
    tied: bool
    max_positions: int

    @classmethod
    def parse(cls, config: Mapping[str, Any]) -> Qwen3_5Config:
        """Read a decoded config.json, composite (`text_config`) or text only.

        Raises:
            ModelError: another architecture, a quantized checkpoint, a missing or impossible field.
        """
        _check_architecture(config)
        text = Fields(config).section("text_config") if "text_config" in config else Fields(config)
        _check_plain(config)
        _check_plain(text.values)
        kind = text.text("model_type", default=str(config.get("model_type")))
        if kind not in _DENSE_TYPES + _MOE_TYPES:
            raise ModelError(f'config.json: text model type "{kind}" is not supported: only Qwen3.5 text models are')
        moe = _moe(text) if kind in _MOE_TYPES else None
        return cls(
            vocab_size=text.size("vocab_size"),
            hidden_size=text.size("hidden_size"),
            layers=_layers(text, moe),
            attention=_attention(text),
            gdn=_gdn(text),
            intermediate=0 if moe else text.size("intermediate_size"),
            moe=moe,
            eps=text.number("rms_norm_eps", default=1e-6, below=1.0),
            tied=_tied(config, text),
            max_positions=text.size("max_position_embeddings"),
        )


def _check_architecture(config: Mapping[str, Any]) -> None:
    named = config.get("architectures") or [config.get("model_type")]
    known = (*_ARCHITECTURES, *_DENSE_TYPES, *_MOE_TYPES)
    if not isinstance(named, list) or not named or named[0] not in known:
        shown = named[0] if isinstance(named, list) and named else named
        raise ModelError(f'config.json: architecture "{shown}" is not supported: use a Qwen3.5-family model')


def _check_plain(values: Mapping[str, Any]) -> None:
    """Refuse what would change the mathematics and is not implemented."""
    quantization = values.get("quantization_config")
    if quantization:
        method = quantization.get("quant_method", "unnamed") if isinstance(quantization, dict) else quantization
        raise ModelError(
            f'config.json: quantization_config "{method}" is not supported: use the unquantized bf16 checkpoint'
        )
    expected: dict[str, tuple[Any, ...]] = {
        "hidden_act": ("silu",),
        "attention_bias": (False,),
        "attn_output_gate": (True,),
        "norm_topk_prob": (True,),
        "mlp_only_layers": ([],),
        "decoder_sparse_step": (1,),
        "use_sliding_window": (False,),
    }
    for name, allowed in expected.items():
        value = values.get(name)
        if value is not None and value not in allowed:
            raise ModelError(f"config.json: {name} is {value!r}, and only {allowed[0]!r} is supported")


def _layers(text: Fields, moe: MoeShape | None) -> tuple[LayerKind, ...]:
    count = text.size("num_hidden_layers", most=_MAX_LAYERS)
    if moe and count * moe.experts > 1 << 20:
        raise ModelError(f"config.json: {count} layers of {moe.experts} experts are more than this program handles")
    given = text.values.get("layer_types")
    if given is None:
        interval = text.size("full_attention_interval", default=4)
        return tuple(LayerKind.GDN if (i + 1) % interval else LayerKind.ATTENTION for i in range(count))
    if not isinstance(given, list) or len(given) != count:
        raise ModelError(f"config.json: layer_types must be a list of num_hidden_layers = {count} names")
    words = {kind.value: kind for kind in LayerKind}
    for word in given:
        if not isinstance(word, str) or word not in words:
            raise ModelError(f"config.json: layer type {word!r} is not supported, only {' and '.join(words)}")
    return tuple(words[word] for word in given)


def _attention(text: Fields) -> AttentionShape:
    heads, kv_heads = text.size("num_attention_heads"), text.size("num_key_value_heads")
    if heads % kv_heads:
        raise ModelError(f"config.json: {heads} attention heads cannot share {kv_heads} key-value heads")
    # A model without head_dim splits the hidden size evenly, as transformers does.
    head_dim = text.size("head_dim", default=max(1, text.size("hidden_size") // heads))
    rope = text.section("rope_parameters") if text.values.get("rope_parameters") is not None else Fields({})
    scaling = text.values.get("rope_scaling")
    if "rope_theta" not in rope.values and "rope_theta" not in text.values:
        raise ModelError("config.json: neither rope_parameters nor rope_theta says how positions rotate")
    for source in (rope.values, scaling if isinstance(scaling, dict) else {}):
        kind = source.get("rope_type", source.get("type", "default"))
        if kind not in ("default", "mrope"):
            raise ModelError(f'config.json: rope_type "{kind}" is not supported, only "default"')
    theta = (rope if "rope_theta" in rope.values else text).number("rope_theta", below=1e15)
    factor = (rope if "partial_rotary_factor" in rope.values else text).number(
        "partial_rotary_factor", default=0.25, below=1.0
    )
    rotary = int(head_dim * factor)
    if rotary < 2 or rotary % 2:
        raise ModelError(f"config.json: {factor} of {head_dim} head dimensions rotate: that is no even number")
    return AttentionShape(heads, kv_heads, head_dim, rotary, theta)


def _gdn(text: Fields) -> GdnShape:
    key_heads, value_heads = text.size("linear_num_key_heads"), text.size("linear_num_value_heads")
    if value_heads % key_heads:
        raise ModelError(f"config.json: {value_heads} linear value heads cannot share {key_heads} key heads")
    kernel = text.size("linear_conv_kernel_dim", most=64)
    if kernel < 2:
        raise ModelError("config.json: linear_conv_kernel_dim must be at least 2")
    key_dim, value_dim = text.size("linear_key_head_dim"), text.size("linear_value_head_dim")
    return GdnShape(key_heads, value_heads, key_dim, value_dim, kernel)


def _moe(text: Fields) -> MoeShape:
    experts = text.size("num_experts", most=_MAX_EXPERTS)
    per_token = text.size("num_experts_per_tok")
    if per_token > experts:
        raise ModelError(f"config.json: {per_token} experts per token of only {experts}")
    return MoeShape(
        experts, per_token, text.size("moe_intermediate_size"), text.size("shared_expert_intermediate_size")
    )


def _tied(config: Mapping[str, Any], text: Fields) -> bool:
    """The outer value wins, as in transformers; a composite that leaves it out means its text model's."""
    value = config.get("tie_word_embeddings", text.values.get("tie_word_embeddings", False))
    if not isinstance(value, bool):
        raise ModelError("config.json: tie_word_embeddings must be true or false")
    return value
