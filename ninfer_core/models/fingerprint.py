"""Fingerprint of resident weights: which model a saved state belongs to (context-cache SES-4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from blake3 import blake3
from torch import Tensor


def fingerprint(weights: Any, facts: str) -> str:
    """Hex digest over names, shapes, dtypes and bytes of every tensor in a tree of dataclasses and tuples.

    Args:
        facts: what else decides the model's function, such as its configuration.
    """
    hasher = blake3(facts.encode(), max_threads=blake3.AUTO)
    seen: set[int] = set()
    for name, tensor in _walk("", weights):
        hasher.update(f"{name} {list(tensor.shape)} {tensor.dtype}".encode())
        if tensor.data_ptr() not in seen:  # a tied head is the embedding
            seen.add(tensor.data_ptr())
            hasher.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return hasher.hexdigest(length=20)


def _walk(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            yield from _walk(f"{name}.{i}", item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _walk(f"{name}.{field.name}", getattr(value, field.name))
