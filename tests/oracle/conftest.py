"""The oracle: Hugging Face transformers on the same random weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers

from ninfer_core.models.loader import load_model
from ninfer_core.models.qwen3_5.model import Qwen3_5Model
from tests.oracle.oracle import Oracle
from tests.support.checkpoints import Tiny

torch.set_num_threads(1)  # the models are tiny: threads would only wait for each other
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

VARIANTS = {
    "dense": Tiny(),
    "dense-tied-composite": Tiny(tied=True, composite=True, seed=1),
    "moe": Tiny(moe=True, seed=2),
    "moe-fused-composite": Tiny(moe=True, fused_experts=True, composite=True, seed=3),
    "wide-values": Tiny(seed=4, changes={"linear_num_value_heads": 6, "num_attention_heads": 6}),
}

Pair = tuple[Oracle, Qwen3_5Model]


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, torch.dtype], Pair]:
    """(variant, dtype) -> the oracle and our model with equal weights, made once."""
    made: dict[tuple[str, torch.dtype], Pair] = {}

    def get(variant: str, dtype: torch.dtype = torch.float32) -> Pair:
        key = (variant, dtype)
        if key not in made:
            tiny = replace(VARIANTS[variant], dtype=str(dtype).removeprefix("torch."))
            directory: Path = tiny.write(tmp_path_factory.mktemp(variant))
            made[key] = Oracle.load(tiny, dtype), load_model(directory)
        return made[key]

    return get
