"""The bundled demo model: a small Qwen3.5-architecture checkpoint in the published file layout."""

from __future__ import annotations

import pathlib


def demo_model_path() -> pathlib.Path:
    """The directory that holds the demo model's config, weights, tokenizer and chat template."""
    return pathlib.Path(__file__).resolve().parent
