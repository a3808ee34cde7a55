"""From typed lines to submissions: multi-line input, slash commands and their escape."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

QUOTES = '"""'
_OPENED = re.compile(r'(?:/[^\s/]\S*(?: +-?\d+)? +)?"""')


@dataclass(frozen=True, slots=True)
class Say:
    """A message for the model."""

    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A slash command: its name without the slash, and the rest of the line."""

    name: str
    argument: str

    @property
    def line(self) -> str:
        return f"/{self.name} {self.argument}".rstrip()


def read(text: str) -> Say | Command:
    """What a whole submission means. `//text` says `/text`."""
    if text.startswith("//"):
        return Say(text[1:])
    if text.startswith("/"):
        name, _, argument = text[1:].partition(" ") if " " in text.split("\n", 1)[0] else text[1:].partition("\n")
        return Command(name, argument.strip())
    return Say(text)


def is_open(text: str) -> bool:
    """Whether the submission goes on in the next line."""
    if _quoted(text):
        return text.count(QUOTES) < 2
    return text.endswith("\\")


def closed(text: str) -> str:
    """The submission without what made it multi-line."""
    return unquoted(text) if _quoted(text) else text.replace("\\\n", "\n").removesuffix("\\")


def unquoted(text: str) -> str:
    """Without the quotes that it opened with, if it did; backslashes at lines' ends are part of a pasted text."""
    if not _quoted(text):
        return text
    before, _, rest = text.partition(QUOTES)
    inside, _, after = rest.partition(QUOTES)
    return before + inside.removeprefix("\n").removesuffix("\n") + after


def _quoted(text: str) -> bool:
    """The quotes open a submission at its start, or after a command's name and a number behind it."""
    return _OPENED.match(text) is not None


@dataclass(frozen=True, slots=True)
class ScriptLine:
    """A submission of a script and the number of the line that it starts on."""

    number: int
    text: str


def script(lines: Iterable[str]) -> Iterator[ScriptLine]:
    """The submissions of a script: blank lines and comments are skipped, `\\#` sends a line that begins with #."""
    held, start = "", 0
    for number, raw in enumerate(lines, 1):
        line = raw.rstrip("\r\n")
        if not held:
            if not line.strip() or line.startswith("#"):
                continue
            start = number
            line = line[1:] if line.startswith("\\#") else line
        held = f"{held}\n{line}" if held else line
        if not is_open(held):
            yield ScriptLine(start, closed(held))
            held = ""
    if held:
        yield ScriptLine(start, closed(held))
