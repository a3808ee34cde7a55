"""What a person hands in as text: arguments, files, standard input. Every mistake is one line."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from ninfer_cli.options import FILE
from ninfer_cli.output import is_terminal
from ninfer_core import Conversation, Message, UsageError, parse_messages

MOST_BYTES = 64 << 20
"""Read of one source of text: more than any context holds, less than what a device file would fill the memory with."""


def read_text_file(path: str | Path, what: str) -> str:
    """A UTF-8 file's text, without a byte order mark.

    Raises:
        UsageError: no such file, a directory, not readable, not UTF-8 (with the byte's offset).
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"{what}: there is no file {path}") from None
    except IsADirectoryError:
        raise UsageError(f"{what}: {path} is a directory, not a file") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{what}: {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return decoded(data, f"{what}: {path}")


def read_documents(given: Mapping[str, object]) -> list[str]:
    """The texts of every --file of a command line. Raises UsageError as read_text_file does."""
    paths = given.get(FILE.name, [])
    assert isinstance(paths, list)
    return [read_text_file(str(path), "--file") for path in paths]


def read_messages(source: str) -> Conversation:
    """What --messages names: a file, or standard input for -. Raises UsageError."""
    text = read_standard_input() if source == "-" else read_text_file(source, "--messages")
    if text is None:
        raise UsageError("--messages - reads standard input, which is a terminal or closed: pipe the messages in")
    return parse_messages(text)


def read_standard_input() -> str | None:
    """All of standard input, or None if it is a terminal (never waited for) or closed."""
    if sys.stdin is None or is_terminal(sys.stdin):
        return None
    try:
        data = sys.stdin.buffer.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"standard input cannot be read: {error}") from None
    return decoded(data, "standard input")


def decoded(data: bytes, what: str) -> str:
    if len(data) > MOST_BYTES:
        raise UsageError(f"{what} is larger than {MOST_BYTES >> 20} MiB: no context holds that, give less")
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{what} is not valid UTF-8 (byte {error.start}): convert it, for instance with iconv"
        ) from None


def text_or_file(value: str, what: str) -> str:
    """TEXT or @FILE."""
    return read_text_file(value[1:], what).rstrip("\n") if value.startswith("@") else value


def leading_messages(system: str | None) -> tuple[Message, ...]:
    """What --system puts before a conversation: nothing without one, or for an empty one.

    Raises:
        UsageError: as text_or_file does.
    """
    text = None if system is None else text_or_file(system, "--system")
    return (Message(role="system", content=text),) if text else ()


def joined(parts: list[str | None]) -> str:
    """The parts that hold anything, separated by a blank line; line ends at the end of a part do not count."""
    return "\n\n".join(part for part in ((p or "").rstrip("\r\n") for p in parts) if part.strip())
