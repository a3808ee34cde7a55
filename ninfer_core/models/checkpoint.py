"""Checkpoint: which tensors a model directory holds and where their bytes lie. Reads headers only; knows no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from ninfer_core.errors import ModelError
from ninfer_core.models.directory import INDEX, SINGLE, ModelDirectory

_PICKLES = (".bin", ".pt", ".pth", ".ckpt")


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of one file.

    Attributes:
        file: resolved path; shown: the name for messages.
        dtype: safetensors' word, such as "BF16".
        offset, nbytes: where the bytes lie in the file.
    """

    file: Path
    shown: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Attributes:
    directory: where it was found.
    config: the decoded config.json.
    tensors: by published name.
    """

    directory: ModelDirectory
    config: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]

    @classmethod
    def open(cls, path: Path) -> Checkpoint:
        """Read config.json and every weight file's header.

        Raises:
            ModelError: nothing usable there; one line that says what to do.
        """
        directory = ModelDirectory.open(path)
        config = directory.json_object("config.json")
        if config is None:
            _refuse_foreign(directory, directory.names())
            raise ModelError(f"{path}: no config.json: this is not a model directory")
        tensors: dict[str, StoredTensor] = {}
        for name, wanted in _weight_files(directory).items():
            held = _header(directory, name)
            absent = set(wanted) - held.keys()
            if absent:
                raise ModelError(
                    f"{path / name}: {listed(absent, 'tensor')} of the index is not in the file: download it again"
                )
            tensors.update({key: held[key] for key in wanted} if wanted else held)
        return cls(directory, config, tensors)


def listed(names: Iterable[str], noun: str) -> str:
    """'3 tensors (a, b, c)': at most five names, and the count of all."""
    ordered = sorted(names)
    shown = ", ".join(ordered[:5]) + (", ..." if len(ordered) > 5 else "")
    return f"{len(ordered)} {noun}{'s' if len(ordered) != 1 else ''} ({shown})"


def _weight_files(directory: ModelDirectory) -> dict[str, list[str]]:
    """File name -> the tensors that the index promises in it (empty: whatever the file holds)."""
    if directory.file(SINGLE) is not None:
        return {SINGLE: []}
    index = directory.json_object(INDEX)
    if index is not None:
        return _sharded(directory, index)
    names = directory.names()
    found = [name for name in names if name.endswith(".safetensors")]
    if len(found) == 1:
        return {found[0]: []}
    if found:
        raise ModelError(f"{directory.path}: {len(found)} weight files but no {INDEX}: download the model again")
    _refuse_foreign(directory, names)
    raise ModelError(f"{directory.path}: no safetensors weights: download the model again")


def _refuse_foreign(directory: ModelDirectory, names: list[str]) -> None:
    gguf = [name for name in names if name.lower().endswith(".gguf")]
    if gguf:
        raise ModelError(f"{directory.path / gguf[0]}: GGUF is not supported: use the safetensors checkpoint")
    pickles = [name for name in names if name.lower().endswith(_PICKLES)]
    if pickles:
        raise ModelError(
            f"{directory.path / pickles[0]}: pickled weights may run code and are never opened: "
            "convert them to safetensors"
        )


def _sharded(directory: ModelDirectory, index: Mapping[str, Any]) -> dict[str, list[str]]:
    weight_map = index.get("weight_map")
    shown = directory.path / INDEX
    if not isinstance(weight_map, dict) or not all(isinstance(value, str) for value in weight_map.values()):
        raise ModelError(f"{shown}: no weight_map of tensor and file names: download the model again")
    files: dict[str, list[str]] = {}
    for tensor, name in weight_map.items():
        files.setdefault(name, []).append(tensor)
    for name in files:
        if "/" in name or "\\" in name:
            raise ModelError(f"{shown}: {name!r} is not a plain file name: do not trust this model")
        if not name.endswith(".safetensors"):
            raise ModelError(f"{shown}: {name!r} is not a safetensors file: use the safetensors checkpoint")
    absent = [name for name in files if directory.file(name) is None]
    if absent:
        raise ModelError(f"{directory.path}: {listed(absent, 'weight file')} missing: download the model again")
    return dict(sorted(files.items()))


def _header(directory: ModelDirectory, name: str) -> dict[str, StoredTensor]:
    """The tensors of one file. The library checks the header (sizes, overlaps, length); offsets are then read."""
    path, shown = directory.file(name), str(directory.path / name)
    assert path is not None
    try:
        with safe_open(path, framework="numpy"):
            pass
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(length))
    except (SafetensorError, ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(f"{shown}: damaged or cut short ({reason[:120]}): download it again") from None
    except OSError as error:
        raise ModelError(f"{shown}: cannot be read: {error.strerror or error}") from error
    tensors = {}
    for key, entry in header.items():
        if key != "__metadata__":
            begin, end = entry["data_offsets"]
            shape = tuple(entry["shape"])
            tensors[key] = StoredTensor(path, shown, entry["dtype"], shape, 8 + length + begin, end - begin)
    return tensors
