"""The training checkpoint: one safetensors file with weights, optimizer state and progress. No code in it."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import save_file

NAME = "last.safetensors"
TIED = "lm_head.weight"
"""Shares its memory with the embedding: stored once."""


class Progress(NamedTuple):
    """How far training is: optimizer steps, tokens seen, seconds spent."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0


def save(
    path: pathlib.Path, model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer], progress: Progress
) -> None:
    """Write beside the target, then replace it: an interruption leaves the old checkpoint."""
    tensors = {f"model/{name}": value for name, value in model.state_dict().items() if name != TIED}
    for number, optimizer in enumerate(optimizers):
        for parameter, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                tensors[f"optimizer/{number}/{parameter}/{name}"] = torch.as_tensor(value)
    metadata = {name: str(value) for name, value in progress._asdict().items()}
    following = path.with_suffix(".next")
    save_file({name: value.detach().contiguous() for name, value in tensors.items()}, following, metadata=metadata)
    following.replace(path)


def load(path: pathlib.Path, model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer] = ()) -> Progress:
    """Fill model and optimizers from a checkpoint, or the model alone from exported weights (no progress then)."""
    states: list[dict[int, dict[str, torch.Tensor]]] = [{} for _ in optimizers]
    weights = {}
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        for name in file.keys():  # noqa: SIM118 (not a dict)
            kind, _, rest = name.partition("/")
            if kind == "optimizer":
                number, parameter, key = rest.split("/")
                if optimizers:
                    states[int(number)].setdefault(int(parameter), {})[key] = file.get_tensor(name)
            else:
                weights[rest or name] = file.get_tensor(name).float()
    missing, unexpected = model.load_state_dict(weights, strict=False)
    if unexpected or set(missing) - {TIED}:
        raise SystemExit(f"{path} is not a checkpoint of this model: {[*missing, *unexpected][:3]}")
    for optimizer, state in zip(optimizers, states, strict=True):
        if state:
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    if "step" not in metadata:
        return Progress()
    return Progress(int(metadata["step"]), int(metadata["tokens"]), float(metadata["seconds"]))
