"""The text of a portable session file, read without the state behind it. Needs no torch."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ninfer_core.program.session_file import guarded_read, header_length, no_session
from ninfer_core.program.session_header import Header, unseal
from ninfer_core.program.session_key import SessionKey


class _Marks(msgspec.Struct):
    """What a session's metadata holds; whatever else stands there is passed over without being built."""

    format: str | None = None
    version: str | None = None
    header_checksum: str | None = None
    header: str | None = None
    tag: str | None = None


class _Described(msgspec.Struct):
    """The JSON that a safetensors file begins with."""

    metadata: _Marks = msgspec.field(name="__metadata__", default_factory=_Marks)


class _Placed(msgspec.Struct):
    """Where a tensor lies; the metadata lies nowhere."""

    data_offsets: tuple[int, int] = (0, 0)


def read_text(path: Path, key: SessionKey | None = None) -> Header:
    """The checked header alone, however the file goes on behind it: cut short, or with damaged tensors.

    Raises:
        SessionError: the part that holds the conversation is not whole; one line that names the check that failed.
    """

    def look() -> dict[str, str]:
        data = _description(path)
        try:
            found = msgspec.json.decode(data, type=_Described)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise no_session(path) from error
        return {name: text for name, text in msgspec.structs.asdict(found.metadata).items() if text is not None}

    marks = guarded_read(path, look)
    return unseal(path, marks.pop("header", ""), marks, key)


def missing_bytes(path: Path) -> int:
    """How many bytes of tensors a file should have behind those that it has, negative where it has too many; 0 where
    nothing can be said.

    Raises:
        SessionError: its description cannot be read.
    """

    def look() -> int:
        data = _description(path)
        try:
            tensors = msgspec.json.decode(data, type=dict[str, _Placed])
        except (msgspec.MsgspecError, RecursionError):
            return 0
        end = max((placed.data_offsets[1] for placed in tensors.values()), default=0)
        return 8 + len(data) + end - path.stat().st_size if tensors else 0

    return guarded_read(path, look)


def _description(path: Path) -> bytes:
    """The bytes of the JSON that a file begins with. Raises SessionError, OSError."""
    length = header_length(path)
    with path.open("rb") as stream:
        stream.seek(8)
        return stream.read(length)
