"""The demo model's configuration, and a faster forward pass for training it on a CPU.

transformers' pure-torch modules run hundreds of small passes over memory; the forward pass here calls a few fused
kernels (kernels.cpp) instead and uses the same modules' weights. Run as a program it compares both in fp32.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from kernels import ConvSilu, DeltaRule, GatedNorm, Norm
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

VOCAB = 600


def config() -> Qwen3_5TextConfig:
    """About 4 million parameters; six Gated DeltaNet layers and two of full attention."""
    return Qwen3_5TextConfig(
        vocab_size=VOCAB,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        linear_conv_kernel_dim=4,
        linear_key_head_dim=64,
        linear_value_head_dim=64,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        rms_norm_eps=1e-6,
        initializer_range=0.02,
        layer_types=["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 2,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 1e7,
            "partial_rotary_factor": 0.25,
            "mrope_section": [3, 3, 2],
            "mrope_interleaved": True,
        },
    )


def build() -> Qwen3_5ForCausalLM:
    """A freshly initialised model."""
    model = Qwen3_5ForCausalLM(config())
    with torch.no_grad():
        for module in model.modules():
            if hasattr(module, "A_log"):
                # Slow to middling decay (time constants of tens to thousands of tokens), so that memory reaches
                # over a whole conversation from the first step on.
                module.A_log.copy_(torch.empty_like(module.A_log).uniform_(0.5, 4.0).log())
                step = torch.exp(torch.empty_like(module.dt_bias).uniform_(-7.5, -3.5))
                module.dt_bias.copy_(step + torch.log(-torch.expm1(-step)))
    return model


def delta_net(layer: torch.nn.Module, x: torch.Tensor, reset: torch.Tensor | None) -> torch.Tensor:
    """A Gated DeltaNet layer over whole sequences that start from nothing (padding, if any, on the right)."""
    batch, length, _ = x.shape
    projections = (layer.in_proj_qkv, layer.in_proj_z, layer.in_proj_a, layer.in_proj_b)
    mixed, z, a, b = (project(x).float() for project in projections)
    mixed = ConvSilu.apply(mixed, layer.conv1d.weight)
    g = -layer.A_log.exp() * F.softplus(a + layer.dt_bias)
    if reset is not None:
        g = g.masked_fill(reset[:, :, None], -200.0)  # exp(-200) is zero in fp32
    out = DeltaRule.apply(mixed, g, b.sigmoid(), layer.num_k_heads)
    return layer.out_proj(GatedNorm.apply(out, z.view(out.shape), layer.norm.weight).view(batch, length, -1))


def forward(model: Qwen3_5ForCausalLM, ids: torch.Tensor, reset: torch.Tensor | None = None) -> torch.Tensor:
    """Hidden states after the last norm, for right-padded ids; `reset` [B, T] marks where the state is cleared."""
    body = model.model
    x = body.embed_tokens(ids)
    mask = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()[None, None]
    rotary = body.rotary_emb(x, torch.arange(ids.shape[1]).expand(3, 1, -1))
    for layer in body.layers:
        normed = Norm.apply(x, layer.input_layernorm.weight)
        if hasattr(layer, "linear_attn"):
            mixed = delta_net(layer.linear_attn, normed, reset)
        else:
            mixed = layer.self_attn(hidden_states=normed, position_embeddings=rotary, attention_mask=mask)[0]
        x = x + mixed
        normed = Norm.apply(x, layer.post_attention_layernorm.weight)
        x = x + layer.mlp.down_proj(F.silu(layer.mlp.gate_proj(normed)) * layer.mlp.up_proj(normed))
    return Norm.apply(x, body.norm.weight)


def check() -> None:
    """The fast forward pass equals transformers' own in fp32, in value and gradient."""
    torch.manual_seed(0)
    model = build().float()
    ids = torch.randint(0, VOCAB, (2, 150))
    theirs = model(input_ids=ids).logits
    loss = theirs.square().mean()
    loss.backward()
    grads = {n: p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad()
    ours = model.lm_head(forward(model, ids))
    ours.square().mean().backward()
    worst = max(
        (p.grad - grads[n]).abs().max().item() / (grads[n].abs().max().item() + 1e-12)
        for n, p in model.named_parameters()
    )
    count, apart = sum(p.numel() for p in model.parameters()), (ours - theirs).abs().max().item()
    print(f"parameters {count:,}; logits differ by {apart:.2e}, gradients by {worst:.2e} (relative)")


if __name__ == "__main__":
    check()
