"""Tab completes slash commands and their arguments."""

from __future__ import annotations

from collections.abc import Iterable

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from ninfer_cli.repl.commands import COMMANDS


class CommandCompleter(Completer):
    def __init__(self) -> None:
        self._paths = PathCompleter(expanduser=False)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        if not text.startswith("/") or text.startswith("//") or "\n" in text:
            return
        name, space, argument = text[1:].partition(" ")
        if not space:
            for row in COMMANDS:
                for word in (row.name, *row.aliases):
                    if word.startswith(name):
                        yield Completion(word, start_position=-len(name))
            return
        row = next((row for row in COMMANDS if name in (row.name, *row.aliases)), None)
        if row is not None and row.name == "file":
            yield from self._paths.get_completions(Document(argument), complete_event)
        elif row is not None and " " not in argument:
            yield from (Completion(w, start_position=-len(argument)) for w in row.words if w.startswith(argument))
