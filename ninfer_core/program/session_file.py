"""The session file: continuation snapshots in one portable, checked file that holds no code (context-cache SES-4).

It is a safetensors file. Tensors: `images` and `pages.N` (deduplicated replicas, as bytes), `tokens.K` and `trace.K`
per continuation (int32). The metadata holds one JSON header with the directory of checkpoints, the facts of the model,
a checksum of every tensor, and the conversation, readable as it is; a checksum of the header, and the user's tag.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from blake3 import blake3
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from ninfer_core.errors import SessionError
from ninfer_core.program.session_content import Places, SessionContent
from ninfer_core.program.session_directory import Directory, Sizes
from ninfer_core.program.session_header import DIGEST_BYTES, Header, digest, seal, unseal
from ninfer_core.program.session_key import SessionKey

MAX_HEADER = 64 << 20
"""Bytes of the safetensors header: our own JSON in it, escaped once more, and a line for every tensor."""

T = TypeVar("T")
Array = np.ndarray[Any, np.dtype[Any]]


def write(path: Path, content: SessionContent, *, replace: bool, key: SessionKey | None = None) -> int:
    """Write a session file so that at every moment the old file or the whole new one is there.

    Args:
        replace: whether an existing file may be replaced.
        key: signs it; None leaves it unproven.

    Returns:
        Bytes written.

    Raises:
        SessionError: the target exists and may not be replaced, is no regular file, or cannot be written.
    """
    check_target(path, replace)
    arrays = {name: tensor.contiguous().numpy() for name, tensor in content.tensors.items()}
    checksums = {name: checksum_of(array) for name, array in sorted(arrays.items())}
    text, marks = seal({**content.header, "checksums": checksums}, key)
    temporary: Path | None = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        temporary = Path(name)
        os.close(handle)
        save_file(arrays, temporary, metadata={**marks, "header": text})
        temporary.chmod(stat.S_IRUSR | stat.S_IWUSR)
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        size = temporary.stat().st_size
        if replace:
            temporary.replace(path)
        else:
            os.link(temporary, path)  # unlike a rename, refuses what has appeared meanwhile
            temporary.unlink()
        temporary = None
        sync_directory(path.parent)
        return size
    except FileExistsError:
        raise SessionError(f"{path} exists: choose another name, or replace it with --force") from None
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SessionError(f"{path} cannot be written ({reason}): what was there before is unchanged") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


class SessionFile:
    """A portable file that is open for reading (a SessionSource). Its header is checked, its tensors not yet."""

    def __init__(self, path: Path, key: SessionKey | None = None) -> None:
        """
        Raises:
            SessionError: one line that names the check that failed.
        """
        self.path = path
        marks, self._described = _structure(path)
        self.header: Header = unseal(path, marks.pop("header", ""), marks, key)
        checksums = self.header.value.get("checksums")
        if not isinstance(checksums, dict) or set(checksums) != set(self._described):
            raise SessionError(f"{path} is damaged (its tensors are not those of the header): restore a copy")
        self._checksums: dict[str, Any] = checksums

    def sizes(self) -> Sizes:
        """See SessionSource."""
        pools = sum(name.startswith("pages.") for name in self._described)
        count = len(self.header.value["continuations"])
        try:
            pages = tuple(self._rows(f"pages.{pool}") for pool in range(pools))
            tokens = tuple(self._length(f"tokens.{i}") for i in range(count))
            for i in range(count):
                self._length(f"trace.{i}")
            return Sizes(self._rows("images"), pages, tokens)
        except (KeyError, ValueError) as error:
            raise SessionError(f"{self.path} is damaged (shape of {error}): restore a copy") from None

    def load(self, directory: Directory) -> SessionContent:
        """See SessionSource. Rows that are not needed are only run through the checksum."""
        import torch

        images = directory.images()
        pools = range(len(self.sizes().pages))
        pages = [list(directory.pages(pool)) for pool in pools]
        tensors = {}
        try:
            with safe_open(self.path, framework="np") as file:
                tensors["images"] = self._picked(file, "images", images)
                for pool in pools:
                    tensors[f"pages.{pool}"] = self._picked(file, f"pages.{pool}", pages[pool])
                for number, continuation in enumerate(directory.continuations):
                    for name in ("tokens", "trace"):
                        tensors[f"{name}.{number}"] = self._whole(file, f"{name}.{continuation.place}")
        except (OSError, SafetensorError, ValueError) as error:
            raise SessionError(f"{self.path} cannot be read (tensors: {first_line(error)})") from error
        header = {**self.header.value, "continuations": directory.json(images, pages)}
        header.pop("checksums")
        places = Places(tuple(c.place for c in directory.continuations), tuple(images), tuple(map(tuple, pages)))
        found = {name: torch.from_numpy(array) for name, array in tensors.items()}
        return SessionContent(header, found, self.header.proven, places)

    def _rows(self, name: str) -> tuple[int, int]:
        kind, shape = self._described[name]
        if kind != "U8" or len(shape) != 2:
            raise ValueError(name)
        return shape[0], shape[1]

    def _length(self, name: str) -> int:
        kind, shape = self._described[name]
        if kind != "I32" or len(shape) != 1 or not shape[0]:
            raise ValueError(name)
        return shape[0]

    def _whole(self, file: Any, name: str) -> Array:
        array: Array = file.get_tensor(name)
        self._compare(name, digest(_bytes(array)))
        return array

    def _picked(self, file: Any, name: str, wanted: Sequence[int]) -> Array:
        """The wanted rows; all of them run through the checksum, one in memory at a time."""
        count, width = self._rows(name)
        rows, hasher = file.get_slice(name), blake3()
        at = {place: i for i, place in enumerate(wanted)}
        found = np.empty((len(wanted), width), dtype=np.uint8)
        for place in range(count):
            row = np.ascontiguousarray(rows[place : place + 1])
            hasher.update(_bytes(row))
            if place in at:
                found[at[place]] = row[0]
        self._compare(name, hasher.hexdigest(length=DIGEST_BYTES))
        return found

    def _compare(self, name: str, checksum: str) -> None:
        if checksum != self._checksums[name]:
            raise SessionError(f"{self.path} is damaged (checksum of {name}): restore a copy")


def read_header(path: Path, key: SessionKey | None = None) -> Header:
    """The checked header alone: no tensor is read. Raises SessionError as SessionFile does."""
    return SessionFile(path, key).header


def read(path: Path, key: SessionKey | None = None) -> SessionContent:
    """Everything, every checksum verified. Raises SessionError as SessionFile does."""
    return load_all(SessionFile(path, key))


def load_all(source: Any) -> SessionContent:
    """The whole content of a SessionSource."""
    try:
        directory = Directory.parse(source.header.value["continuations"], source.sizes())
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise inconsistent(error) from None
    content: SessionContent = source.load(directory)
    return content


def inconsistent(error: Exception) -> SessionError:
    """A directory that does not fit together."""
    return SessionError(f"the session's directory is inconsistent ({str(error)[:80]}): restore a copy")


def checksum_of(array: Array) -> str:
    """Hex digest of an array's bytes, as the header holds it."""
    return digest(_bytes(np.ascontiguousarray(array)))


def check_target(path: Path, replace: bool) -> None:
    """Raises SessionError when path may not be written: it is no regular file, or exists and is not to be replaced."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise SessionError(f"{path} cannot be written: there is no directory {path.parent}") from None
        return
    except OSError as error:
        raise SessionError(f"{path} cannot be written: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise SessionError(f"{path} is not a regular file: choose another name")
    if not replace:
        raise SessionError(f"{path} exists: choose another name, or replace it with --force")


def sync_directory(directory: Path) -> None:
    """Make renames in a directory durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _structure(path: Path) -> tuple[dict[str, str], dict[str, tuple[str, list[int]]]]:
    """Metadata, and dtype and shape by tensor; safetensors holds every offset against the file's length."""

    def look() -> tuple[dict[str, str], dict[str, tuple[str, list[int]]]]:
        header_length(path)
        with safe_open(path, framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            described = {name: (piece.get_dtype(), list(piece.get_shape())) for name, piece in slices.items()}
            return dict(file.metadata() or {}), described

    return guarded_read(path, look)


def header_length(path: Path) -> int:
    """Bytes of the JSON that a session file begins with, behind the eight that say so. All of it is there.

    Raises:
        SessionError: it can be seen from here that the file is no session, or cut short.
        OSError: it cannot be read.
    """
    facts = path.stat()
    if not stat.S_ISREG(facts.st_mode):
        raise SessionError(f"{path} is not a regular file: give a session file")
    if not facts.st_size:
        raise SessionError(f"{path} is empty: it is no session, check the path or restore a copy")
    with path.open("rb") as stream:
        length, first = int.from_bytes(stream.read(8), "little"), stream.read(1)
    if not 0 < length <= MAX_HEADER or first not in (b"{", b""):
        raise no_session(path)
    if 8 + length > facts.st_size:
        raise SessionError(f"{path} is cut short within its text: restore a copy") if first else no_session(path)
    return length


def no_session(path: Path) -> SessionError:
    """Another kind of file, as far as can be seen; what a library finds in it helps nobody."""
    return SessionError(f"{path} is no session, or damaged: check the path, or restore a copy")


def guarded_read(path: Path, look: Callable[[], T]) -> T:
    """Whatever the system or the file's structure has against reading it becomes one line."""
    try:
        return look()
    except FileNotFoundError:
        raise SessionError(f"{path}: there is no such session") from None
    except OSError as error:
        raise SessionError(f"{path} cannot be read: {error.strerror or error}") from error
    except (SafetensorError, UnicodeDecodeError) as error:
        raise no_session(path) from error


def _bytes(array: Array) -> memoryview:
    """A contiguous array's bytes, without a copy."""
    return array.reshape(-1).view(np.uint8).data


def first_line(error: BaseException) -> str:
    """Somebody else's error as a part of a line."""
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
