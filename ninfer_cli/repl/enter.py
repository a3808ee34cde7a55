"""Enter sends, but only if nothing comes right behind it: a paste never sends by itself.

With bracketed paste a paste is one key. Without it, its lines come as keys, in as many reads as the terminal likes; one
that ends with a line's end looks like a person's Enter until the next one is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prompt_toolkit.application import Application
    from prompt_toolkit.buffer import Buffer

PATIENCE = 0.03
"""Seconds: longer than a terminal takes between two reads of a paste, shorter than a person notices."""


class Enter:
    """The Enter key between its press and the decision what it was."""

    def __init__(self, app: Callable[[], Application[Any]], submit: Callable[[Buffer], None]) -> None:
        self._app = app
        self._submit = submit
        self._timer: asyncio.TimerHandle | None = None

    def press(self) -> None:
        """Send soon, unless another key comes first."""
        app = self._app()
        if app.loop is not None:
            self._timer = app.loop.call_later(PATIENCE, self._send, context=app.context)

    def another_key(self) -> None:
        """It was a line's end within a paste."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._app().current_buffer.insert_text("\n")

    def _send(self) -> None:
        self._timer = None
        app = self._app()
        self._submit(app.current_buffer)
        app.invalidate()
