"""The line below the input: figures that came with the last event, never asked for while a person waits."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

from ninfer_cli.cache_view import use_text
from ninfer_cli.output import Stream, Streams
from ninfer_cli.repl.chat import Chat
from ninfer_cli.repl.keeping import Keeper
from ninfer_cli.repl.loop import Taker
from ninfer_cli.repl.toolbar import toolbar
from ninfer_cli.reply_view import SilentView
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
    assert "cache: Device 50%, Host 25%" in toolbar(talk.chat, doing="replying") and not calls


def test_a_narrow_window_keeps_what_is_going_on() -> None:
    talk = Talk(replies=["A"])
    talk.run("one")
    talk.chat.cache_use = AXES
    whole = toolbar(talk.chat, doing="replying")
    assert toolbar(talk.chat, doing="replying", columns=len(whole)) == whole
    model, rest = whole[1:].split(" · ", 1)
    assert toolbar(talk.chat, doing="replying", columns=len(whole) - 1) == f" {rest}" and model not in rest
    narrow = toolbar(talk.chat, doing="replying", columns=48)
    assert "cache" not in narrow and "turn 1" in narrow and narrow.endswith("replying, Ctrl-C ends it")


@dataclass
class Disk(Keeper):
    """Notes what the toolbar says while the conversation is written."""

    said: list[str] = field(default_factory=list)
    taker: Taker | None = None

    def keep(self, chat: Chat, *, closing: bool = False) -> None:
        assert self.taker is not None
        self.said.append(toolbar(chat, doing=self.taker.doing).split(" · ")[-1])


def test_the_toolbar_says_what_is_going_on() -> None:
    talk = Talk(replies=["A", "B"])
    disk = Disk(lambda line: None)
    talk.chat.keeper = disk
    seen: list[str] = []
    streams = Streams(Stream(io.StringIO(), False, False), Stream(io.StringIO(), False, False))

    def changed() -> None:
        seen.append(toolbar(talk.chat, doing=disk.taker.doing if disk.taker else "").split(" · ")[-1])

    disk.taker = Taker(talk.chat, streams, SilentView, show_reuse=False, changed=changed)
    for line in ("one", "/tree", "/regen", "/save"):
        disk.taker.take(line, lambda: False)
    replying, working, saving = "replying, Ctrl-C ends it", "working", "saving"
    turn, sibling = "turn 1", "turn 1, sibling 2/2"
    assert seen == [
        *(replying, replying, saving, turn),
        *(working, saving, turn),
        *(working, replying, saving, sibling),
        *(saving, saving, sibling),
    ]
    # /save without a path keeps too, inside the command and behind it
    assert disk.said == [saving] * 5
