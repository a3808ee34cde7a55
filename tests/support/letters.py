"""A checkpoint that says letters only and never ends a reply: every reply is as long as --max-new says, whatever the
weights and the seed, so that places in a conversation can be counted by hand."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from tests.support.checkpoints import Tiny
from tests.support.tokenizers import write_bytes

LETTERS = b"abcdefghijklmnopqrstuvwxyz"
TOP_K = 8
"""Fewer than half of the letters: see `write_letters`."""


def write_letters(directory: Path) -> Path:
    """Write the model directory: the byte vocabulary, the published template, random weights.

    The head's rows are zero but for the letters', and those come in pairs of opposite sign: at any place thirteen
    letters stand above zero and everything else at or below it, so the first eight are letters.
    """
    Tiny(changes={"vocab_size": 272, "eos_token_id": 258}).write(directory)
    weights = directory / "model.safetensors"
    tensors = load_file(weights)
    head = tensors["lm_head.weight"]
    rows = torch.randn((len(LETTERS) // 2, head.shape[1]), generator=torch.Generator().manual_seed(1)) * 0.05
    head.zero_()
    head[list(LETTERS)] = torch.cat([rows, -rows])
    save_file(tensors, weights, metadata={"format": "pt"})
    write_bytes(directory)
    (directory / "generation_config.json").write_text(json.dumps({"top_k": TOP_K, "temperature": 1.0}))
    return directory
