"""The line below the input: figures that came with the last event, never asked for while a person waits."""

from __future__ import annotations

from ninfer_cli.cache_view import use_text
from ninfer_cli.repl.toolbar import toolbar
from ninfer_core import AxisUse
from tests.support.chat_script import Talk

AXES = (
    AxisUse("Device states", "images", 3, 1, 12),
    AxisUse("Host states", "images", 1, 0, 4),
    AxisUse("Device KV", "pages", 64, 0, 128),
    AxisUse("Host KV", "bytes", 0, 0, 0),
)


def test_the_fullest_axis_of_each_place() -> None:
    assert use_text(AXES) == "cache: Device 50%, Host 25%"
    assert use_text(AXES[:1]) == "cache: Device 25%"
    assert use_text(()) == ""


def test_the_toolbar_shows_what_the_last_event_brought_and_asks_nobody() -> None:
    talk = Talk(replies=["A"])
    talk.run("one")
    talk.chat.cache_use = AXES
    calls = []
    for name in ("cache_table", "residency", "audit"):
        setattr(talk.engine, name, lambda *_, n=name: calls.append(n))
    assert "cache: Device 50%, Host 25%" in toolbar(talk.chat, busy=True, queued=None) and not calls
