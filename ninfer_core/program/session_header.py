"""The header of a session, in either of its forms: JSON under limits, a digest, and the user's tag. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blake3 import blake3

from ninfer_core.errors import SessionError, SessionTooLarge
from ninfer_core.program.session_key import SessionKey
from ninfer_core.strict_json import MAX_BYTES, check_value, load_json

FORMAT, VERSION = "ninfer-session", 1
DIGEST_BYTES = 20


def digest(data: Any) -> str:
    """Hex digest of bytes, or of anything that shows its bytes. Collision resistant: the tag stands on it."""
    return blake3(data).hexdigest(length=DIGEST_BYTES)


@dataclass(frozen=True, slots=True)
class Header:
    """
    Attributes:
        value: JSON-like; keys `model`, `continuations`, `conversation` and those of the form.
        proven: True when it carries a tag under the user's key, False when its tag is another's, None when it has no
            tag or no key was given.
    """

    value: Mapping[str, Any]
    proven: bool | None


def seal(value: Mapping[str, Any], key: SessionKey | None) -> tuple[str, dict[str, str]]:
    """A header as text, and the marks that `unseal` checks it by.

    Raises:
        SessionTooLarge: any reader would refuse it: it must not be written.
    """
    check_value(value.get("conversation"), "the conversation", _too_large)
    check_value(value, "the session's directory", _too_large)
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > MAX_BYTES:
        raise _too_large(f"{len(data):,} bytes of JSON are too many, the limit is {MAX_BYTES >> 20} MiB")
    checksum = digest(data)
    marks = {"format": FORMAT, "version": str(VERSION), "header_checksum": checksum}
    if key is not None:
        marks["tag"] = key.sign(checksum)
    return text, marks


def unseal(path: Path, text: str, marks: Mapping[str, Any], key: SessionKey | None) -> Header:
    """Check a header's marks and parse it.

    Raises:
        SessionError: one line that names the check that failed.
    """
    if marks.get("format") != FORMAT:
        raise SessionError(f"{path} is no session (format): give one that ninfer has saved")
    version = str(marks.get("version", ""))
    if version != str(VERSION):
        newer = version.isdigit() and version.isascii() and len(version) < 10 and int(version) > VERSION
        what = "a newer ninfer, which this one cannot read: update ninfer" if newer else "an unknown version"
        raise SessionError(f"{path} was written by {what} (version {version[:20]!r})")
    checksum = digest(text.encode("utf-8", "surrogatepass"))
    if checksum != marks.get("header_checksum"):
        raise SessionError(f"{path} is damaged (checksum of the header): restore a copy")
    value = load_json(text, f"{path} is damaged (header)", SessionError)
    if not isinstance(value, dict) or not isinstance(value.get("continuations"), list):
        raise SessionError(f"{path} is damaged (header): restore a copy")
    tag = marks.get("tag")
    proven = None if key is None or not isinstance(tag, str) else key.proves(checksum, tag)
    return Header(value, proven)


def _too_large(text: str) -> SessionTooLarge:
    return SessionTooLarge(f"the session is too large to be read back ({text}): save a shorter conversation")
