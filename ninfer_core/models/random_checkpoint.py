"""Checkpoints of a published shape with random weights: for benchmarks, where only shapes and bytes matter."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from ninfer_core.contract.progress import LoadProgress
from ninfer_core.demo import demo_model_path
from ninfer_core.errors import CapacityError, ModelError, UsageError
from ninfer_core.models.qwen3_5.config import Qwen3_5Config
from ninfer_core.models.qwen3_5.weights import Blueprint
from ninfer_core.models.shapes import SHAPES

_SPARE = 256 << 20
"""Bytes of disk left free."""
_PIECE = 1 << 22
"""Elements drawn at a time: memory stays small whatever the tensor."""
_TEXT_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def write_random_checkpoint(shape: str, parent: Path, progress: Callable[[LoadProgress], None] | None = None) -> Path:
    """The directory parent/qwen3.5-random-SHAPE; written unless it is already there.

    The files have the published layout (one bf16 safetensors file); tokenizer and template are the demo model's, so
    only a part of the vocabulary has a text.

    Raises:
        UsageError: no such shape.
        CapacityError: the disk is too small (the numbers).
        ModelError: the directory cannot be written.
    """
    if shape not in SHAPES:
        raise UsageError(f"there is no shape {shape!r}: use {', '.join(SHAPES)}")
    target = parent / f"qwen3.5-random-{shape}"
    if target.is_dir():
        return target
    config = SHAPES[shape].config()
    tensors = _tensors(config)
    total = sum(tensor.numel() for _, tensor in tensors) * 2
    try:
        parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        free = shutil.disk_usage(parent).free
        if free < total + _SPARE:
            raise CapacityError(f"{parent} has {free >> 20:,} MiB free and the weights take {total >> 20:,} MiB")
        building = Path(tempfile.mkdtemp(prefix=".building-", dir=parent))
        try:
            _write(building, config, tensors, total, progress)
            building.rename(target)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
    except OSError as error:
        raise ModelError(f"{error.filename or parent} cannot be written: {error.strerror}") from error
    return target


def _tensors(config: dict[str, Any]) -> list[tuple[str, Tensor]]:
    """Published names and tensors without memory."""
    blueprint = Blueprint(Qwen3_5Config.parse(config), torch.device("meta"), torch.bfloat16)
    named = blueprint.targets.items()
    return [(n if n == "lm_head.weight" else f"model.language_model.{n}", t) for n, t in named]


def _write(
    directory: Path,
    config: dict[str, Any],
    tensors: list[tuple[str, Tensor]],
    total: int,
    progress: Callable[[LoadProgress], None] | None,
) -> None:
    with _created(directory / "config.json") as file:
        file.write(json.dumps(config, indent=1).encode())
    for name in _TEXT_FILES:
        with _created(directory / name) as file:
            file.write((demo_model_path() / name).read_bytes())
    header: dict[str, Any] = {}
    offset = 0
    for name, tensor in tensors:
        end = offset + tensor.numel() * 2
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    generator = torch.Generator().manual_seed(0)
    done = 0
    with _created(directory / "model.safetensors") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, tensor in tensors:
            for piece in _values(name, tensor, generator):
                file.write(piece.view(torch.uint8).numpy().data)
                done += piece.nbytes
                if progress:
                    progress(LoadProgress("random weights", done, total, name))
        file.flush()
        os.fsync(file.fileno())


def _values(name: str, tensor: Tensor, generator: torch.Generator) -> Iterator[Tensor]:
    """Values in the range of a trained model's: states neither vanish nor explode, so timings are honest."""
    left = tensor.numel()
    if name.endswith("linear_attn.norm.weight"):
        yield torch.ones(left, dtype=torch.bfloat16)
    elif name.endswith("norm.weight"):  # stored as w of 1 + w
        yield torch.zeros(left, dtype=torch.bfloat16)
    elif name.endswith("A_log"):
        yield torch.empty(left).uniform_(1, 16, generator=generator).log().bfloat16()
    elif name.endswith("dt_bias"):
        yield torch.ones(left, dtype=torch.bfloat16)
    else:
        while left:
            count = min(left, _PIECE)
            yield torch.empty(count, dtype=torch.bfloat16).normal_(0, 0.02, generator=generator)
            left -= count


def _created(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
