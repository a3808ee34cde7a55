"""Tab completes slash commands and their arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from ninfer_cli.repl.commands import COMMANDS


class CommandCompleter(Completer):
    """names: the branches of the conversation, which /switch goes to."""

    def __init__(self, names: Callable[[], Iterable[str]] = tuple) -> None:
        self._names = names
        self._paths = PathCompleter(expanduser=False)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        if not text.startswith("/") or text.startswith("//") or "\n" in text:
            return
        name, space, argument = text[1:].partition(" ")
        if not space:
            words = (word for row in COMMANDS for word in (row.name, *row.aliases))
            yield from (Completion(word, start_position=-len(name)) for word in words if word.startswith(name))
            return
        row = next((row for row in COMMANDS if name in (row.name, *row.aliases)), None)
        if row is None:
            return
        if row.paths:
            yield from self._paths.get_completions(Document(argument), complete_event)
        elif " " not in argument:
            choices = self._names() if row.name == "switch" else row.words
            yield from (Completion(w, start_position=-len(argument)) for w in choices if w.startswith(argument))
