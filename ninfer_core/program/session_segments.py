"""Segments: the files of a session's directory, written whole and read piece by piece. Needs no torch."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ninfer_core.errors import SessionError
from ninfer_core.program.session_file import sync_directory
from ninfer_core.program.session_header import Header, digest, seal, unseal
from ninfer_core.program.session_key import SessionKey
from ninfer_core.program.session_manifest import NAME, PART, SEGMENT, Blob, Manifest, segment_name
from ninfer_core.strict_json import MAX_BYTES, load_json

_MOST_MARKS = 4096
"""Bytes of the manifest's first line."""


class SegmentGone(SessionError):
    """The owner of the directory has replaced it meanwhile: read its manifest again."""


class Segments:
    """The files of one directory. Paths never come from a file's content."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # --- reading --------------------------------------------------------------------------------------------------
    def manifest(self, key: SessionKey | None) -> tuple[Header, Manifest]:
        """The checked manifest, every piece held against the length of its segment.

        Raises:
            SessionError: one line that names the check that failed.
        """
        header = self.header(key)
        try:
            found = Manifest.parse(header.value)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            reason = str(error)[:80]
            raise SessionError(f"{self.path}: its manifest is inconsistent ({reason}): restore a copy") from None
        self._check_lengths(found.blobs())
        return header, found

    def header(self, key: SessionKey | None) -> Header:
        """The manifest's header alone, which holds the text: no segment is looked at.

        Raises:
            SessionError: one line that names the check that failed.
        """
        data = self._manifest_bytes()
        first, _, rest = data.partition(b"\n")
        if len(first) > _MOST_MARKS or not rest:
            raise SessionError(f"{self.path} is no session, or damaged (manifest): restore a copy")
        marks = load_json(first, f"{self.path} is no session, or damaged (manifest)", SessionError)
        if not isinstance(marks, dict):
            raise SessionError(f"{self.path} is no session, or damaged (manifest): restore a copy")
        try:
            text = rest.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise SessionError(f"{self.path} is damaged (manifest): restore a copy") from None
        return unseal(self.path, text, marks, key)

    def following(self) -> int:
        """A number that no segment has."""
        found = (SEGMENT.fullmatch(entry.name) for entry in self.path.iterdir())
        return max((int(match[1]) for match in found if match is not None), default=0) + 1

    def read(self, blob: Blob) -> bytes:
        """A piece's bytes, its checksum verified. Raises SessionError."""
        handle = self._open(segment_name(blob.segment))
        try:
            data = os.pread(handle, blob.size, blob.offset)
            while len(data) < blob.size and (more := os.pread(handle, blob.size - len(data), blob.offset + len(data))):
                data += more
        except OSError as error:
            raise SessionError(f"{self.path} cannot be read: {error.strerror or error}") from error
        finally:
            os.close(handle)
        if digest(data) != blob.digest:
            raise SessionError(f"{self.path} is damaged (checksum in {segment_name(blob.segment)}): restore a copy")
        return data

    def _manifest_bytes(self) -> bytes:
        try:
            handle = os.open(self.path / NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise SessionError(f"{self.path} is a directory without a session in it (manifest)") from None
        except OSError as error:
            raise SessionError(f"{self.path} cannot be read: {error.strerror or error}") from error
        try:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_BYTES + _MOST_MARKS:
                raise SessionError(f"{self.path} is no session (kind or size of its manifest)")
            with os.fdopen(handle, "rb", closefd=False) as file:
                return file.read(MAX_BYTES + _MOST_MARKS)
        finally:
            os.close(handle)

    def _check_lengths(self, blobs: Iterable[Blob]) -> None:
        ends: dict[int, int] = {}
        for blob in blobs:
            ends[blob.segment] = max(ends.get(blob.segment, 0), blob.offset + blob.size)
        for number, end in ends.items():
            handle = self._open(segment_name(number))
            try:
                if os.fstat(handle).st_size < end:
                    name = segment_name(number)
                    raise SessionError(f"{self.path} is damaged (length of {name}): restore a copy")
            finally:
                os.close(handle)

    def _open(self, name: str) -> int:
        try:
            handle = os.open(self.path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise SegmentGone(f"{self.path} is damaged ({name} is missing): restore a copy") from None
        except OSError as error:
            raise SessionError(f"{self.path} cannot be read ({name}: {error.strerror or error})") from error
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise SessionError(f"{self.path} is damaged ({name} is no regular file): restore a copy")
        return handle

    # --- writing: only whoever holds the directory's lock ------------------------------------------------------------
    def write(self, segments: Mapping[int, Sequence[Any]], manifest: Manifest, key: SessionKey | None) -> int:
        """Write new segments, then put the manifest in the place of the old one: until then nothing has changed.

        Args:
            segments: number -> its buffers.

        Returns:
            Bytes written.

        Raises:
            SessionError: it cannot be written; what was there before is unchanged.
        """
        text, marks = seal(manifest.json(), key)
        line = b",".join(f'"{name}":"{value}"'.encode() for name, value in sorted(marks.items()))
        whole = b"{" + line + b"}\n" + text.encode("utf-8", "surrogatepass")
        parts: list[Path] = []
        written = 0
        try:
            moves = {}
            for number, buffers in segments.items():
                parts.append(self._part())
                moves[parts[-1]] = self.path / segment_name(number)
                written += _write_file(parts[-1], buffers)
            for part, target in moves.items():
                part.replace(target)
                parts.append(target)
            if moves:
                sync_directory(self.path)  # the manifest must not become durable before what it speaks of
            parts.append(self._part())
            written += _write_file(parts[-1], [whole])
            parts[-1].replace(self.path / NAME)
            parts.clear()  # from here on it is the new state, whatever the disk still has to say
            with suppress(OSError):
                sync_directory(self.path)
        except OSError as error:
            reason = error.strerror or error
            raise SessionError(f"{self.path} cannot be written ({reason}): the state before it is unchanged") from error
        finally:
            for part in parts:
                with suppress(OSError):
                    part.unlink(missing_ok=True)
        return written

    def sweep(self, manifest: Manifest) -> None:
        """Remove segments that nothing refers to, and what a crash has left half written."""
        alive = {segment_name(blob.segment) for blob in manifest.blobs()}
        with suppress(OSError):
            for entry in list(self.path.iterdir()):
                name = entry.name
                if (SEGMENT.fullmatch(name) and name not in alive) or PART.fullmatch(name):
                    with suppress(OSError):
                        entry.unlink()

    def _part(self) -> Path:
        return self.path / f".{secrets.token_hex(8)}.part"


def _write_file(path: Path, buffers: Sequence[Any]) -> int:
    """A new file of its owner's alone, durable."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    written = 0
    try:
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            while view:
                count = os.write(handle, view)
                written += count
                view = view[count:]
        os.fsync(handle)
    finally:
        os.close(handle)
    return written
