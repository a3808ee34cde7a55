"""A chat script in this process, on the fake Engine: the whole REPL but the keyboard, in milliseconds."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from typing import Any

from ninfer_cli.output import Stream, Streams
from ninfer_cli.repl.chat import Chat
from ninfer_cli.repl.loop import script_loop
from ninfer_cli.settings import Settings
from ninfer_core import EngineOptions
from tests.support.fake_engine import FakeEngine, Scripted


@dataclass
class Talk:
    """One conversation; `run` goes on with it."""

    settings: dict[str, Any] = field(default_factory=dict)
    replies: list[Any] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)
    system: str | None = None

    def __post_init__(self) -> None:
        replies = [reply if isinstance(reply, Scripted) else Scripted(reply) for reply in self.replies]
        self.engine = FakeEngine(EngineOptions(max_concurrency=4), replies=replies, info=self.info)
        settings = Settings(**self.settings)
        self.chat = Chat.start(self.engine, settings, self.system, [])  # type: ignore[arg-type]
        self.out, self.err = "", ""

    def run(self, *lines: str, keep_going: bool = False) -> int:
        """Run lines; `out` and `err` hold what they wrote."""
        out, err = io.StringIO(), io.StringIO()
        streams = Streams(Stream(out, False, False), Stream(err, False, False))
        status = script_loop(self.chat, lines, streams, keep_going=keep_going)
        self.out, self.err = out.getvalue(), err.getvalue()
        return status

    def fails(self, line: str) -> str:
        """Run a line that changes nothing but says one line, which is returned."""
        before = self.chat.tree, self.chat.settings, list(self.chat.files)
        assert self.run(line) == 1
        assert (self.chat.tree, self.chat.settings, list(self.chat.files)) == before
        assert self.err.count("\n") == 1 and self.err.startswith("ninfer: line 1: "), self.err
        return self.err.removeprefix("ninfer: line 1: ").rstrip("\n")

    @property
    def values(self) -> list[Any]:
        """With --json: the objects."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def said(self) -> list[str]:
        """What the model was given last."""
        return [f"{message.role}: {message.content}" for message in self.engine.prepared[-1]]
