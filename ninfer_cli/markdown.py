"""Markdown on a terminal: finished blocks only, so that nothing that was shown must ever be drawn again."""

from __future__ import annotations

import io
import re
import shutil

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_ITEM = re.compile(r"^ {0,3}([-*+]|\d{1,9}[.)])(\s|$)")


class Blocks:
    """Cuts Markdown that comes in pieces at the blank lines that end a block.

    A fenced code block runs to its closing fence. A list runs on over blank lines while what follows is indented or
    is another item: a list in two halves would lose its numbering.
    """

    def __init__(self) -> None:
        self._partial = ""
        self._lines: list[str] = []
        self._fence = ""
        self._blank_seen = False

    def feed(self, text: str) -> list[str]:
        """The blocks that text finishes, in order."""
        done: list[str] = []
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            self._line(line, done)
        return done

    def finish(self) -> list[str]:
        done: list[str] = []
        if self._partial:
            self._line(self._partial, done)
        self._partial, self._fence = "", ""
        self._end(done)
        return done

    @property
    def pending(self) -> str:
        """The last line of what no finished block holds yet."""
        return self._partial or next((line for line in reversed(self._lines) if line.strip()), "")

    @property
    def growing(self) -> str:
        """Everything that no finished block holds yet."""
        return "\n".join([*self._lines, self._partial]).rstrip("\n")

    def _line(self, line: str, done: list[str]) -> None:
        fence = _FENCE.match(line)
        if self._fence:
            self._lines.append(line)
            if fence and fence[1].startswith(self._fence) and not line.strip().strip(self._fence[0]):
                self._fence = ""
            return
        if not line.strip():
            if self._lines and _ITEM.match(self._lines[0]):
                self._blank_seen = True
                self._lines.append(line)
            else:
                self._end(done)
            return
        if self._blank_seen and not (line[0] in " \t" or _ITEM.match(line)):
            self._end(done)
        self._blank_seen = False
        if fence:
            self._fence = fence[1]
        self._lines.append(line)

    def _end(self, done: list[str]) -> None:
        block = "\n".join(self._lines).strip("\n")
        self._lines, self._blank_seen = [], False
        if block.strip():
            done.append(block)


def render(block: str, width: int | None = None) -> str:
    """One block, already cleaned, as terminal text that ends with a newline. No hyperlinks: an address is shown."""
    from rich.console import Console
    from rich.markdown import Markdown

    text = io.StringIO()
    width = width or shutil.get_terminal_size().columns
    console = Console(file=text, force_terminal=True, width=width, highlight=False, markup=False, emoji=False)
    console.print(Markdown(block, hyperlinks=False))
    # rich fills lines with spaces up to the width: they would wrap when the window gets narrower
    lines = (line.rstrip(" ") for line in text.getvalue().split("\n"))
    return "\n".join(lines).strip("\n") + "\n"
