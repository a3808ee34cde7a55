"""Writes a training checkpoint as a model directory: config, bf16 weights in one safetensors file, generation settings.

python export.py [--work DIR] [--out DIR]
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil

import checkpoint
import torch
from model import build, config
from safetensors.torch import save_file
from text import MODEL_DIR
from tokenizers import Tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path.home() / ".cache" / "ninfer-demo")
    parser.add_argument("--out", type=pathlib.Path, default=MODEL_DIR)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    model = build()
    progress = checkpoint.load(args.work / checkpoint.NAME, model)
    tensors = {
        n: p.detach().to(torch.bfloat16).contiguous() for n, p in model.named_parameters() if n != "lm_head.weight"
    }
    save_file(tensors, args.out / "model.safetensors", metadata={"format": "pt"})
    if args.out.resolve() != MODEL_DIR.resolve():
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copy(MODEL_DIR / name, args.out)
    tokenizer = Tokenizer.from_file(str(args.out / "tokenizer.json"))
    end, pad = tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")
    text = config()
    text.architectures, text.dtype, text.eos_token_id, text.pad_token_id = ["Qwen3_5ForCausalLM"], "bfloat16", end, pad
    out = json.loads(text.to_json_string(use_diff=False))
    keep = (
        "architectures",
        "model_type",
        "dtype",
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "hidden_act",
        "linear_conv_kernel_dim",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "layer_types",
        "max_position_embeddings",
        "rms_norm_eps",
        "rope_parameters",
        "tie_word_embeddings",
        "attention_bias",
        "attention_dropout",
        "initializer_range",
        "use_cache",
        "eos_token_id",
        "pad_token_id",
    )
    written = {k: out[k] for k in keep} | {"full_attention_interval": 4, "mamba_ssm_dtype": "float32"}
    (args.out / "config.json").write_text(json.dumps(written, indent=1) + "\n")
    (args.out / "generation_config.json").write_text(
        json.dumps(
            {"do_sample": False, "eos_token_id": [end, pad], "pad_token_id": pad, "max_new_tokens": 256}, indent=1
        )
        + "\n"
    )
    count, size = sum(t.numel() for t in tensors.values()), (args.out / "model.safetensors").stat().st_size
    print(f"step {progress.step}, {progress.tokens:,} tokens: {count:,} parameters, {size:,} bytes")


if __name__ == "__main__":
    main()
