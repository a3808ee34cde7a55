"""The model's tensors as the layers want them, and where each published tensor goes in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ninfer_core.models.qwen3_5.config import LayerKind, Qwen3_5Config


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """Attributes:
    inputs: [heads * 2 * head_dim + 2 * kv_heads * head_dim, hidden]: per head query and gate, then keys, values.
    query_norm, key_norm: [head_dim] fp32, 1 + w.
    output: [hidden, heads * head_dim].
    """

    inputs: Tensor
    query_norm: Tensor
    key_norm: Tensor
    output: Tensor


@dataclass(frozen=True, slots=True)
class GdnWeights:
    """Attributes:
    inputs: [channels + value_heads * value_dim + 2 * value_heads, hidden]: q|k|v, z, b, a.
    convolution: [channels, kernel].
    decay_rate: [value_heads] fp32, -exp(A_log).
    step_bias: [value_heads] fp32, dt_bias.
    norm: [value_dim], plain w.
    output: [hidden, value_heads * value_dim].
    """

    inputs: Tensor
    convolution: Tensor
    decay_rate: Tensor
    step_bias: Tensor
    norm: Tensor
    output: Tensor


@dataclass(frozen=True, slots=True)
class MlpWeights:
    """Attributes:
    gate_up: [2 * intermediate, hidden], gate first.
    down: [hidden, intermediate].
    """

    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class MoeWeights:
    """Attributes:
    router: [experts, hidden].
    gate_up: [experts, 2 * intermediate, hidden].
    down: [experts, hidden, intermediate].
    shared: the expert that serves every token; shared_gate: [1, hidden].
    """

    router: Tensor
    gate_up: Tensor
    down: Tensor
    shared: MlpWeights
    shared_gate: Tensor


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Attributes: input_norm, post_norm: [hidden] fp32, 1 + w."""

    input_norm: Tensor
    mixer: GdnWeights | AttentionWeights
    post_norm: Tensor
    mlp: MlpWeights | MoeWeights


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """Attributes:
    embedding: [vocab, hidden]; head: the same tensor when tied.
    norm: [hidden] fp32, 1 + w.
    """

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Tensor


@dataclass(slots=True)
class Blueprint:
    """Allocates the weights and remembers which published tensor fills which part.

    On the meta device it costs nothing and tells names and shapes; on a real one it is the destination of loading.

    Attributes:
        targets: published name without its prefix (`layers.0...`, `lm_head.weight`) -> the part that it fills. A
            name of fused experts is listed beside the per-expert names in `alternatives`, not here.
        alternatives: fused name -> (whole part, the per-expert names that it replaces).
        weights: the tensors.
    """

    config: Qwen3_5Config
    device: torch.device
    dtype: torch.dtype
    targets: dict[str, Tensor] = field(default_factory=dict)
    alternatives: dict[str, tuple[Tensor, tuple[str, ...]]] = field(default_factory=dict)
    weights: ModelWeights = field(init=False)
    _added_one: list[Tensor] = field(default_factory=list)
    _rates: list[Tensor] = field(default_factory=list)
    _owned: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = self.config
        embedding = self._matrix("embed_tokens.weight", config.vocab_size, config.hidden_size)
        layers = tuple(self._layer(f"layers.{i}.", kind) for i, kind in enumerate(config.layers))
        norm = self._norm("norm.weight", config.hidden_size)
        head = embedding if config.tied else self._matrix("lm_head.weight", config.vocab_size, config.hidden_size)
        self.weights = ModelWeights(embedding, layers, norm, head)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, tied ones once."""
        return sum(tensor.nbytes for tensor in self._owned)

    def part(self, name: str) -> Tensor:
        """The tensor that a published name fills, fused experts' names included."""
        return self.targets[name] if name in self.targets else self.alternatives[name][0]

    def finish(self) -> None:
        """Turn raw values into the form that the layers use (1 + w, -exp(A_log)). Call once, after loading."""
        for norm in self._added_one:
            norm.add_(1)
        for rate in self._rates:
            rate.exp_().neg_()

    def _empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        tensor = torch.empty(shape, dtype=dtype or self.dtype, device=self.device)
        self._owned.append(tensor)
        return tensor

    def _matrix(self, name: str, *shape: int) -> Tensor:
        tensor = self._empty(*shape)
        self.targets[name] = tensor
        return tensor

    def _stacked(self, columns: int, parts: dict[str, int]) -> Tensor:
        """One matrix of several published ones, row ranges in the order given: one product instead of many."""
        tensor = self._empty(sum(parts.values()), columns)
        for (name, rows), part in zip(parts.items(), tensor.split_with_sizes(list(parts.values())), strict=True):
            assert part.shape == (rows, columns)
            self.targets[name] = part
        return tensor

    def _vector(self, name: str, size: int) -> Tensor:
        """fp32: small, and the mathematics wants it so."""
        tensor = self._empty(size, dtype=torch.float32)
        self.targets[name] = tensor
        return tensor

    def _norm(self, name: str, size: int) -> Tensor:
        tensor = self._vector(name, size)
        self._added_one.append(tensor)
        return tensor

    def _layer(self, prefix: str, kind: LayerKind) -> LayerWeights:
        hidden = self.config.hidden_size
        return LayerWeights(
            input_norm=self._norm(prefix + "input_layernorm.weight", hidden),
            mixer=self._gdn(prefix + "linear_attn.")
            if kind is LayerKind.GDN
            else self._attention(prefix + "self_attn."),
            post_norm=self._norm(prefix + "post_attention_layernorm.weight", hidden),
            mlp=self._mlp(prefix + "mlp.", self.config.intermediate)
            if self.config.moe is None
            else self._moe(prefix + "mlp."),
        )

    def _attention(self, prefix: str) -> AttentionWeights:
        shape, hidden = self.config.attention, self.config.hidden_size
        width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        rows = {"q_proj.weight": 2 * width, "k_proj.weight": kv_width, "v_proj.weight": kv_width}
        return AttentionWeights(
            inputs=self._stacked(hidden, {prefix + name: size for name, size in rows.items()}),
            query_norm=self._norm(prefix + "q_norm.weight", shape.head_dim),
            key_norm=self._norm(prefix + "k_norm.weight", shape.head_dim),
            output=self._matrix(prefix + "o_proj.weight", hidden, width),
        )

    def _gdn(self, prefix: str) -> GdnWeights:
        shape, hidden = self.config.gdn, self.config.hidden_size
        width = shape.value_heads * shape.value_dim
        rows = {
            "in_proj_qkv.weight": shape.channels,
            "in_proj_z.weight": width,
            "in_proj_b.weight": shape.value_heads,
            "in_proj_a.weight": shape.value_heads,
        }
        inputs = self._stacked(hidden, {prefix + name: size for name, size in rows.items()})
        convolution = self._empty(shape.channels, shape.kernel)
        self.targets[prefix + "conv1d.weight"] = convolution[:, None]
        rate = self._vector(prefix + "A_log", shape.value_heads)
        self._rates.append(rate)
        return GdnWeights(
            inputs=inputs,
            convolution=convolution,
            decay_rate=rate,
            step_bias=self._vector(prefix + "dt_bias", shape.value_heads),
            norm=self._matrix(prefix + "norm.weight", shape.value_dim),
            output=self._matrix(prefix + "out_proj.weight", hidden, width),
        )

    def _mlp(self, prefix: str, intermediate: int) -> MlpWeights:
        hidden = self.config.hidden_size
        rows = {prefix + "gate_proj.weight": intermediate, prefix + "up_proj.weight": intermediate}
        return MlpWeights(self._stacked(hidden, rows), self._matrix(prefix + "down_proj.weight", hidden, intermediate))

    def _moe(self, prefix: str) -> MoeWeights:
        moe, hidden = self.config.moe, self.config.hidden_size
        assert moe is not None
        gate_up = self._empty(moe.experts, 2 * moe.intermediate, hidden)
        down = self._empty(moe.experts, hidden, moe.intermediate)
        single: dict[str, list[str]] = {"gate_up_proj": [], "down_proj": []}
        for expert in range(moe.experts):
            parts = {
                "gate_proj": gate_up[expert, : moe.intermediate],
                "up_proj": gate_up[expert, moe.intermediate :],
                "down_proj": down[expert],
            }
            for part, target in parts.items():
                name = f"{prefix}experts.{expert}.{part}.weight"
                self.targets[name] = target
                single["down_proj" if part == "down_proj" else "gate_up_proj"].append(name)
        self.alternatives[prefix + "experts.gate_up_proj"] = (gate_up, tuple(single["gate_up_proj"]))
        self.alternatives[prefix + "experts.down_proj"] = (down, tuple(single["down_proj"]))
        return MoeWeights(
            router=self._matrix(prefix + "gate.weight", moe.experts, hidden),
            gate_up=gate_up,
            down=down,
            shared=self._mlp(prefix + "shared_expert.", moe.shared_intermediate),
            shared_gate=self._matrix(prefix + "shared_expert_gate.weight", 1, hidden),
        )

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor, tied ones once."""
        return iter(self._owned)

    def whole_after(self, parts: Sequence[str]) -> dict[str, Tensor]:
        """When the parts are filled in this order: the tensors that are final, `finish` or not, by their last part."""
        last = {self.part(name).untyped_storage().data_ptr(): name for name in parts}
        changed = {id(tensor) for tensor in (*self._added_one, *self._rates)}
        return {last[t.untyped_storage().data_ptr()]: t for t in self._owned if id(t) not in changed}
