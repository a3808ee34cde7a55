"""prefill_signature: which models prefill alike (context-cache COST-4)."""

from __future__ import annotations

import hashlib

import torch

from ninfer_core.models.qwen3_5.config import Qwen3_5Config
from ninfer_core.models.qwen3_5.weights import Blueprint


def prefill_signature(config: Qwen3_5Config, dtype: torch.dtype) -> str:
    """Hex digest over the text config, how its matrices are bound (fused, tied, in which dtype) and where each is used.

    Two checkpoints of one shape have one signature, whatever their names and values.
    """
    blueprint = Blueprint(config, torch.device("meta"), dtype)
    hasher = hashlib.blake2b(repr(config).encode(), digest_size=20)
    for part, tensor in sorted(blueprint.targets.items()):
        place = (tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), str(tensor.dtype))
        hasher.update(f"{part} {place}".encode())
    return hasher.hexdigest()
