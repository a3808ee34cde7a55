"""The terminal's clipboard, by OSC 52: the terminal hands it on to its machine's, over ssh too."""

from __future__ import annotations

from base64 import b64encode

from ninfer_core import UsageError

MOST_COPIED = 74_994
"""Bytes that xterm and tmux take in one OSC 52 code: 100,000 characters of base64, frame included."""


def clipboard_code(text: str) -> str:
    """What puts text on the clipboard when the terminal reads it. Raises UsageError: more than terminals take."""
    data = text.encode("utf-8", "replace")
    if len(data) > MOST_COPIED:
        raise UsageError(f"/copy: terminals take at most {MOST_COPIED:,} bytes: /export writes a file")
    return f"\x1b]52;c;{b64encode(data).decode('ascii')}\x07"
