"""Text above the input line, from any thread. The input line is never disturbed and lines are never drawn twice."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from prompt_toolkit.application import Application


TAIL_SECONDS = 0.05
"""Between two drawings for the tail's sake: each costs as much as half a token, and a key that comes waits for it."""


class Screen:
    """A text file for Stream. Whole lines go above the input line; an unfinished one waits as `tail`, which the prompt
    shows, until its newline comes."""

    encoding = "utf-8"

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._lines = ""
        self._partial = ""
        self._live = ""
        self._app: Application[Any] | None = None
        self._scheduled = False
        self._tail_due = False
        self._tail_drawn = 0.0

    def attach(self, app: Application[Any]) -> None:
        """Called inside the running application. What was written before is drawn now."""
        with self._lock:
            self._app = app
        self.write("")

    def detach(self) -> None:
        """The application has ended: what is left, and everything from here on, goes straight out."""
        with self._lock:
            self._app = None
            text, self._lines, self._partial = self._lines + self._partial, "", ""
        self._put(text)

    def write(self, text: str) -> int:
        with self._lock:
            *lines, self._partial = (self._partial + text).split("\n")
            self._lines += "".join(line + "\n" for line in lines)
            app, loop = self._app, self._app.loop if self._app else None
            if app is None:
                text, self._lines = self._lines, ""
            elif loop is not None and self._lines and not self._scheduled:
                self._scheduled = True
                loop.call_soon_threadsafe(self._draw, context=app.context)
        if app is None:
            self._put(text)
        else:
            self._tail_changed(app)
        return len(text)

    def flush(self) -> None:
        pass  # whole lines are on their way, the rest is the tail

    def isatty(self) -> bool:
        return True

    @property
    def tail(self) -> str:
        """What the prompt shows above itself: the live text of an unfinished block, or the unfinished line."""
        return self._live or self._partial

    def show_live(self, text: str) -> None:
        self._live = text
        if app := self._app:
            self._tail_changed(app)

    def _tail_changed(self, app: Application[Any]) -> None:
        """Have it drawn: at once if it was long ago, else soon. A key is echoed at once, whatever the tail does."""
        loop = app.loop
        with self._lock:
            if self._tail_due or loop is None:
                return
            self._tail_due = True
        wait = max(0.0, self._tail_drawn + TAIL_SECONDS - time.monotonic())
        loop.call_soon_threadsafe(loop.call_later, wait, self._draw_tail, app)

    def _draw_tail(self, app: Application[Any]) -> None:
        self._tail_due, self._tail_drawn = False, time.monotonic()
        app.invalidate()

    def control(self, code: str) -> None:
        """Send a code that draws nothing and moves nothing, between two drawings."""
        app = self._app
        if app is not None and app.loop is not None:
            app.loop.call_soon_threadsafe(self._put, code)

    def _draw(self) -> None:
        if self._app:
            self._app.create_background_task(self._drain(self._app))

    async def _drain(self, app: Application[Any]) -> None:
        """Erase the input line, write, and have it drawn again.

        Not prompt-toolkit's run_in_terminal: that leaves raw mode for a moment, in which the terminal turns a typed
        Enter into Ctrl-J, and echoes what is typed.
        """
        if app.renderer.waiting_for_cpr:  # an answer that came after the text would speak of another row
            await app.renderer.wait_for_cpr_responses()
        with self._lock:
            text, self._lines, self._scheduled = self._lines, "", False
        if text:
            app.renderer.erase()
            self._put(text)
            app.renderer.request_absolute_cursor_position()
            app.invalidate()

    def _put(self, text: str) -> None:
        if text:
            self._file.write(text)
            self._file.flush()
