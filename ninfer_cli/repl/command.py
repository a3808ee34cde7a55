"""A row of the command table, and what running one gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ninfer_cli.repl.chat import Chat
    from ninfer_cli.repl.job import Job


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command says and asks for.

    Attributes:
        text: for people.
        value: for --json.
        leave: the chat is over.
        job: replies to generate now; text is then empty.
        prefill: a command line for the input line, to be finished and sent by the person.
        unsent: a message for the input line.
        show: the turn at the current point is to be shown to a person who reads along.
    """

    text: str = ""
    value: object = None
    leave: bool = False
    job: Job | None = None
    prefill: str = ""
    unsent: str = ""
    show: bool = False


@dataclass(frozen=True, slots=True)
class ReplCommand:
    """One row of the table.

    Attributes:
        name: without the slash.
        argument: how help shows it, "" for none.
        summary: one line, no full stop.
        run: raises UsageError when the argument makes no sense; then nothing was changed.
        words: completions of the argument.
        paths: the argument is completed as a path.
    """

    name: str
    argument: str
    summary: str
    run: Callable[[Chat, str], Outcome]
    aliases: tuple[str, ...] = ()
    words: tuple[str, ...] = field(default=())
    paths: bool = False

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.argument}".rstrip()


def shown(value: object) -> str:
    """A setting's value for people."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None or value == [] else str(value)


def whole_number(word: str) -> int | None:
    """A number of few digits, with or without a sign; None for anything else."""
    digits = word[1:] if word[:1] in ("-", "+") else word
    return int(word) if digits.isascii() and digits.isdecimal() and len(word) < 10 else None


def shortened(text: str, limit: int = 60) -> str:
    """The beginning of a text on one line."""
    words = " ".join(text.split())
    return words if len(words) <= limit else words[: limit - 1] + "…"
