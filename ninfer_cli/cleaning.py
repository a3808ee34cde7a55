"""What a terminal may be shown of text that ninfer did not write (product.md, Convention 12).

Control characters other than newline and tab, and characters that reorder text, are spelled out: a reply can then
neither move the cursor, retitle the window, write to the clipboard nor show words in another order than they are in.
"""

from __future__ import annotations

import re

_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"
_UNSAFE = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_BIDI}\u2028\u2029\ud800-\udfff]")


def clean(text: str) -> str:
    """A whole text. A carriage return before a newline is part of the line's end; any other is spelled out."""
    return _UNSAFE.sub(_spelled, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """A whole text for a one-line message: line ends become spaces."""
    return clean(" ".join(text.split()))


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


class Cleaner:
    """The same for text that comes in pieces: the result does not depend on where the pieces were cut."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        text, self._held = self._held + text, ""
        if text and (text[-1] == "\r" or "\ud800" <= text[-1] <= "\udbff"):
            text, self._held = text[:-1], text[-1]
        return clean(_joined(text))

    def finish(self) -> str:
        text, self._held = self._held, ""
        return clean(text)


def _joined(text: str) -> str:
    """Make one character of the two halves of a surrogate pair that arrived as two."""
    if not any("\ud800" <= character <= "\udbff" for character in text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
