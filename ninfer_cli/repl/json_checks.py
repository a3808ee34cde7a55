"""Checks of a conversation's JSON, which is hostile until they have passed. Each error is one line with the place."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Mapping
from typing import Any

from ninfer_core import Message, UsageError, parse_messages

WHAT = "the conversation"


def error(text: str) -> UsageError:
    return UsageError(f"{WHAT}: {text}")


def object_of(
    value: object, here: str, keys: Collection[str] | None = None, may: Collection[str] = ()
) -> Mapping[str, Any]:
    """An object with exactly these keys, and those that it may have.

    Args:
        keys: None allows any.
    """
    if not isinstance(value, dict):
        raise error(f"{here} is not a JSON object")
    if keys is None:
        return value
    if unknown := value.keys() - set(keys) - set(may):
        raise error(f"{here} has the unknown key {min(unknown)[:40]!r}")
    if lacking := set(keys) - value.keys():
        raise error(f"{here} lacks the key {min(lacking)!r}")
    return value


def index(value: object, count: int, here: str, what: str = "a node") -> int:
    """A place among count."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < count:
        raise error(f"{here}: {str(value)[:20]!r} is not {what} from 0 to {count - 1}")
    return value


def messages(value: object, here: str, tools: object = None) -> tuple[Message, ...]:
    """Messages in OpenAI's form; tools beside them are checked."""
    if not isinstance(value, list):
        raise error(f"{here}: its messages are not a list")
    try:
        probe = value or [{"role": "system", "content": ""}]  # an empty list is fine here, its tools are checked
        found = parse_messages({"messages": probe, "tools": tools}).messages
    except UsageError as problem:
        raise error(f"{here}: {problem}") from None
    return found if value else ()


def data(value: object, here: str, width: int) -> bytes:
    """base64 of numbers of width bytes each."""
    try:
        if not isinstance(value, str):
            raise ValueError
        found = base64.b64decode(value, validate=True)
        if len(found) % width:
            raise ValueError
        return found
    except (ValueError, binascii.Error):
        raise error(f"{here}: its token ids are not base64 of {8 * width}-bit numbers") from None


def short(problem: Exception) -> str:
    """Somebody else's error as a part of a line."""
    return " ".join(str(problem).split())[:200]
