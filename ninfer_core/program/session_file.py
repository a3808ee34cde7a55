"""The session file: continuation snapshots in one portable, checked file that holds no code (context-cache SES-4).

It is a safetensors file. Tensors: `images` and `pages.N` (deduplicated replicas, as bytes), `tokens.K` and `trace.K`
per continuation (int32). The metadata holds one JSON header with the directory of checkpoints, the facts of the model,
a checksum of every tensor, and the conversation, readable as it is; and a checksum of the header itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ninfer_core.errors import SessionError

FORMAT, VERSION = "ninfer-session", 1
MAX_HEADER = 16 << 20
"""Bytes of the JSON header."""


@dataclass(frozen=True, slots=True)
class SessionContent:
    """
    Attributes:
        header: JSON-like; keys `model`, `continuations`, `conversation`.
        tensors: by name.
    """

    header: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def checksum(tensor: Tensor) -> str:
    """Hex digest of a tensor's bytes."""
    data = tensor.contiguous().view(-1).view(torch.uint8).numpy().data
    return hashlib.blake2b(data, digest_size=20).hexdigest()


def write(path: Path, content: SessionContent, *, replace: bool) -> int:
    """Write a session file so that at every moment the old file or the whole new one is there.

    Args:
        replace: whether an existing file may be replaced.

    Returns:
        Bytes written.

    Raises:
        SessionError: the target exists and may not be replaced, is no regular file, or cannot be written.
    """
    _check_target(path, replace)
    tensors = {name: tensor.contiguous() for name, tensor in content.tensors.items()}
    header = {**content.header, "checksums": {name: checksum(tensor) for name, tensor in sorted(tensors.items())}}
    text = json.dumps(header, ensure_ascii=False, sort_keys=True)
    if len(text.encode()) > MAX_HEADER:
        raise SessionError(f"the conversation's text is larger than {MAX_HEADER >> 20} MiB: save a shorter one")
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "header": text,
        "header_checksum": _digest(text),
    }
    temporary: Path | None = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        temporary = Path(name)
        os.close(handle)
        save_file(tensors, temporary, metadata=metadata)
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.chmod(stat.S_IRUSR | stat.S_IWUSR)
        size = temporary.stat().st_size
        if replace:
            temporary.replace(path)
        else:
            os.link(temporary, path)  # unlike a rename, refuses what has appeared meanwhile
            temporary.unlink()
        temporary = None
        _sync_directory(path.parent)
        return size
    except FileExistsError:
        raise SessionError(f"{path} exists: choose another name, or replace it with --force") from None
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SessionError(f"{path} cannot be written ({reason}): what was there before is unchanged") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def read_header(path: Path) -> Mapping[str, Any]:
    """The checked header alone: no tensor is read.

    Raises:
        SessionError: one line that names the check that failed.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise SessionError(f"{path} is not a regular file: give a session file")
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
        if length > 2 * MAX_HEADER or length > path.stat().st_size:
            raise SessionError(f"{path} is damaged (header length): restore a copy")
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            shapes = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            described = {name: (piece.get_dtype(), list(piece.get_shape())) for name, piece in shapes.items()}
    except FileNotFoundError:
        raise SessionError(f"{path}: there is no such session") from None
    except OSError as error:
        raise SessionError(f"{path} cannot be read: {error.strerror or error}") from error
    except (SafetensorError, UnicodeDecodeError) as error:
        raise SessionError(f"{path} is no session, or damaged (file structure: {_first_line(error)})") from None
    return _checked(path, metadata, described)


def read(path: Path) -> SessionContent:
    """Header and tensors, every checksum verified.

    Raises:
        SessionError: one line that names the check that failed.
    """
    header = read_header(path)
    tensors = {}
    try:
        with safe_open(path, framework="pt") as file:
            for name, expected in header["checksums"].items():
                tensor = file.get_tensor(name)
                if checksum(tensor) != expected:
                    raise SessionError(f"{path} is damaged (checksum of {name}): restore a copy")
                tensors[name] = tensor
    except (OSError, SafetensorError) as error:
        raise SessionError(f"{path} cannot be read (tensors: {_first_line(error)})") from error
    return SessionContent(header, tensors)


def _checked(path: Path, metadata: Mapping[str, str], described: Mapping[str, tuple[str, list[int]]]) -> dict[str, Any]:
    if metadata.get("format") != FORMAT:
        raise SessionError(f"{path} is no session (format): give a file that ninfer has saved")
    version = metadata.get("version", "")
    if version != str(VERSION):
        newer = version.isdigit() and int(version) > VERSION
        what = "a newer ninfer, which this one cannot read: update ninfer" if newer else "an unknown version"
        raise SessionError(f"{path} was written by {what} (version {version[:20]!r})")
    text = metadata.get("header", "")
    if len(text) > MAX_HEADER or _digest(text) != metadata.get("header_checksum"):
        raise SessionError(f"{path} is damaged (checksum of the header): restore a copy")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise SessionError(f"{path} is damaged (header): restore a copy") from None
    if not isinstance(header, dict) or not isinstance(header.get("checksums"), dict):
        raise SessionError(f"{path} is damaged (header): restore a copy")
    if set(header["checksums"]) != set(described):
        raise SessionError(f"{path} is damaged (its tensors are not those of the header): restore a copy")
    header["tensors"] = {name: [kind, shape] for name, (kind, shape) in described.items()}
    return header


def _check_target(path: Path, replace: bool) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise SessionError(f"{path} cannot be written: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise SessionError(f"{path} is not a regular file: choose another name")
    if not replace:
        raise SessionError(f"{path} exists: choose another name, or replace it with --force")


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
