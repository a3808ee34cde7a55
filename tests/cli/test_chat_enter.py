"""Enter sends when nothing comes right behind it; else it was a line's end within a paste."""

from __future__ import annotations

import asyncio
import contextvars
from types import SimpleNamespace
from typing import Any

from ninfer_cli.repl.enter import PATIENCE, Enter


class Desk:
    """A buffer and what was sent from it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.text, self.sent = "", list[str]()
        self.app: Any = SimpleNamespace(
            loop=loop,
            context=contextvars.copy_context(),
            current_buffer=self,
            invalidate=lambda: None,
        )
        self.enter = Enter(lambda: self.app, self.submit)

    def insert_text(self, text: str) -> None:
        self.text += text

    def submit(self, buffer: Any) -> None:
        self.sent.append(self.text)
        self.text = ""

    def types(self, keys: str) -> None:
        for key in keys:
            self.enter.another_key()
            if key == "\r":
                self.enter.press()
            else:
                self.insert_text(key)


def test_a_pause_decides() -> None:
    async def go() -> Desk:
        desk = Desk(asyncio.get_running_loop())
        desk.types("one\r")  # a read that ends with a line's end
        assert desk.sent == []
        desk.types("two\r")  # the next one comes at once
        await asyncio.sleep(PATIENCE * 3)
        desk.types("three\r")
        await asyncio.sleep(PATIENCE * 3)
        return desk

    desk = asyncio.run(go())
    assert desk.sent == ["one\ntwo", "three"] and desk.text == ""
