"""config.json: both forms, and every refusal in one clear line."""

from __future__ import annotations

from typing import Any

import pytest

from ninfer_core.errors import ModelError
from ninfer_core.models.qwen3_5.config import LayerKind, Qwen3_5Config
from tests.support.checkpoints import Tiny


def test_text_only_and_composite_say_the_same() -> None:
    for moe in (False, True):
        plain = Qwen3_5Config.parse(Tiny(moe=moe).config())
        assert plain == Qwen3_5Config.parse(Tiny(moe=moe, composite=True).config())
        assert (plain.moe is not None) == moe


def test_values() -> None:
    config = Qwen3_5Config.parse(Tiny(tied=True).config())
    assert config.layers == (LayerKind.GDN,) * 3 + (LayerKind.ATTENTION,)
    assert config.attention.rotary_dim == 8
    assert config.attention.rope_theta == 1e7
    assert config.gdn.channels == 2 * 2 * 16 + 4 * 32
    assert config.tied


def test_interval_in_place_of_layer_types() -> None:
    given = Tiny(changes={"layer_types": None, "full_attention_interval": 2}).config()
    kinds = Qwen3_5Config.parse(given).layers
    assert kinds == (LayerKind.GDN, LayerKind.ATTENTION) * 2
    default = Tiny(changes={"layer_types": None}).config()
    assert Qwen3_5Config.parse(default).layers[3] is LayerKind.ATTENTION


def test_flat_rope_theta() -> None:
    changes = {"rope_parameters": None, "rope_theta": 5e6, "partial_rotary_factor": 0.5}
    config = Qwen3_5Config.parse(Tiny(changes=changes).config())
    assert (config.attention.rope_theta, config.attention.rotary_dim) == (5e6, 16)


@pytest.mark.parametrize("composite", [False, True])
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rope_parameters": None}, "rope_theta"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e7}}, "yarn"),
        ({"rope_parameters": [1]}, "rope_parameters"),
        ({"quantization_config": {"quant_method": "fp8"}}, "fp8"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"attention_bias": True}, "attention_bias"),
        ({"attn_output_gate": False}, "attn_output_gate"),
        ({"hidden_size": None}, "hidden_size"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"hidden_size": True}, "hidden_size"),
        ({"hidden_size": 10**12}, "hidden_size"),
        ({"hidden_size": "64"}, "hidden_size"),
        ({"num_attention_heads": 3}, "heads"),
        ({"linear_num_value_heads": 3}, "heads"),
        ({"layer_types": ["linear_attention"]}, "layer_types"),
        ({"layer_types": ["sliding_attention"] * 4}, "sliding_attention"),
        ({"layer_types": [[]] * 4}, "layer type"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"linear_conv_kernel_dim": 1}, "linear_conv_kernel_dim"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
    ],
)
def test_refused(changes: dict[str, Any], named: str, composite: bool) -> None:
    config = Tiny(composite=composite, changes=changes).config()
    if composite:
        config.pop("tie_word_embeddings")
    with pytest.raises(ModelError, match=named) as caught:
        Qwen3_5Config.parse(config)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_experts": 10**7}, "num_experts"),
        ({"num_experts_per_tok": 7}, "experts per token"),
        ({"norm_topk_prob": False}, "norm_topk_prob"),
        ({"num_experts": 4096, "num_hidden_layers": 1024}, "experts"),
    ],
)
def test_refused_experts(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelError, match=named):
        Qwen3_5Config.parse(Tiny(moe=True, changes=changes).config())


@pytest.mark.parametrize(
    "config",
    [
        {"architectures": ["LlamaForCausalLM"], "model_type": "llama"},
        {"model_type": "llama"},
        {"architectures": []},
        {"architectures": "Qwen3_5ForCausalLM"},
        {"architectures": [["x"]]},
        {},
    ],
)
def test_foreign_architectures(config: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="not supported"):
        Qwen3_5Config.parse(config)


def test_a_quantized_composite_is_refused() -> None:
    config = Tiny(composite=True).config() | {"quantization_config": {"quant_method": "awq"}}
    with pytest.raises(ModelError, match="awq"):
        Qwen3_5Config.parse(config)
