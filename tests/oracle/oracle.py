"""Oracle: transformers' model, run whole, in chunks or step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor

from tests.support.checkpoints import Tiny


@dataclass
class Oracle:
    """The text model; a composite checkpoint's weights are given to it under its own names."""

    model: Any

    @classmethod
    def load(cls, tiny: Tiny, dtype: torch.dtype) -> Oracle:
        text = tiny.text_config()
        kind = "Qwen3_5Moe" if tiny.moe else "Qwen3_5"
        fields = {key: value for key, value in text.items() if key not in ("architectures", "model_type", "dtype")}
        config = getattr(transformers, f"{kind}TextConfig")(**fields)
        config._attn_implementation = "sdpa"
        config._experts_implementation = "eager"
        model = getattr(transformers, f"{kind}ForCausalLM")(config).to(dtype).eval()
        model.load_state_dict(cls._own_names(tiny), strict=not tiny.tied)
        model.tie_weights()
        return cls(model)

    @staticmethod
    def _own_names(tiny: Tiny) -> dict[str, Tensor]:
        held = {name.replace("model.language_model.", "model."): value for name, value in tiny.tensors().items()}
        held = {name: value for name, value in held.items() if not name.startswith(("mtp.", "model.visual."))}
        experts = {name.split("experts.")[0] for name in held if ".experts.0." in name}
        for prefix in experts:
            count = tiny.text_config()["num_experts"]

            def part(kind: str, prefix: str = prefix, count: int = count) -> list[Tensor]:
                return [held.pop(f"{prefix}experts.{e}.{kind}_proj.weight") for e in range(count)]

            gate, up, down = part("gate"), part("up"), part("down")
            held[f"{prefix}experts.gate_up_proj"] = torch.stack(
                [torch.cat(both) for both in zip(gate, up, strict=True)]
            )
            held[f"{prefix}experts.down_proj"] = torch.stack(down)
        return held

    @torch.no_grad()
    def whole(self, tokens: Sequence[int]) -> Tensor:
        """[tokens, vocab] fp32 logits of one pass."""
        return self.model(torch.tensor([list(tokens)]), use_cache=False).logits[0].float()

    @torch.no_grad()
    def pieces(self, pieces: Sequence[Sequence[int]]) -> tuple[Tensor, Any]:
        """[tokens, vocab] fp32 logits of passes that continue each other, and the cache after them."""
        cache, found = None, []
        for piece in pieces:
            out = self.model(torch.tensor([list(piece)]), past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            found.append(out.logits[0].float())
        return torch.cat(found), cache

    def states(self, cache: Any) -> list[tuple[Tensor, Tensor]]:
        """Per GDN layer the recurrent state [heads, key, value] and the last three convolution inputs."""
        kinds = self.model.config.layer_types
        layers = [i for i, kind in enumerate(kinds) if kind == "linear_attention"]
        return [
            (cache.get_recurrent_state(i, state_idx=0)[0], cache.get_conv_state(i, state_idx=0)[0, :, -3:])
            for i in layers
        ]

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        """The next tokens by argmax, prefill then single steps."""
        found: list[int] = []
        with torch.no_grad():
            out = self.model(torch.tensor([list(prompt)]), use_cache=True)
            for _ in range(count):
                found.append(int(out.logits[0, -1].argmax()))
                out = self.model(torch.tensor([[found[-1]]]), past_key_values=out.past_key_values, use_cache=True)
        return found
