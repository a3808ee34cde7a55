"""Question: a yes or no that borrows the input line. What was typed there comes back behind it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from ninfer_cli.repl.surface import YES

if TYPE_CHECKING:
    from prompt_toolkit.buffer import Buffer


class Question:
    """One at a time. Everything but the future's result happens in the application's thread."""

    def __init__(self, buffer: Callable[[], Buffer], show: Callable[[str], None]) -> None:
        self._buffer = buffer
        self._show = show
        self._asked: Future[bool] | None = None
        self._held = ""

    def __bool__(self) -> bool:
        """Whether one waits for its answer."""
        return self._asked is not None

    def pose(self, text: str, answer: Future[bool]) -> None:
        self._asked = answer
        buffer = self._buffer()
        self._held = buffer.text
        buffer.reset()
        self._show(text)

    def answered(self, words: str) -> None:
        self.answer(yes=words.strip().lower() in YES)

    def answer(self, *, yes: bool) -> None:
        """Nothing happens while nothing was asked."""
        asked, self._asked = self._asked, None
        if asked is None:
            return
        buffer = self._buffer()
        buffer.text, self._held = self._held, ""
        buffer.cursor_position = len(buffer.text)
        asked.set_result(yes)
