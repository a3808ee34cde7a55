"""What every way of chatting does with one submission; and the loops for scripts and dumb terminals."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ninfer_cli.interrupts import Interrupts
from ninfer_cli.repl import commands
from ninfer_cli.repl.submission import Command, closed, is_open, read, script
from ninfer_cli.reply_view import ReplyView, view_for
from ninfer_cli.result import Branch, json_line, notices, result_object, reuse_line
from ninfer_core import Completion, NinferError

if TYPE_CHECKING:
    from ninfer_cli.output import Streams
    from ninfer_cli.repl.chat import Chat, Reply

NO_REPLY = "interrupted before the reply began: no turn was made"


@dataclass(frozen=True, slots=True)
class Step:
    """What became of a submission.

    Attributes:
        ok: it was done, or was interrupted.
        leave: the chat is over.
        unsent: text that made no turn and belongs back into the input line.
    """

    ok: bool = True
    leave: bool = False
    unsent: str = ""


class Taker:
    """Takes submissions: dispatches commands, shows replies, turns errors into one line."""

    def __init__(self, chat: Chat, streams: Streams, make_view: Callable[[], ReplyView], *, show_reuse: bool) -> None:
        self._chat = chat
        self._streams = streams
        self._make_view = make_view
        self._show_reuse = show_reuse

    def take(self, text: str, wants_end: Callable[[], bool], where: str = "") -> Step:
        """Do one submission. Errors are shown here, with where before them."""
        submission = read(text)
        try:
            if isinstance(submission, Command):
                return self._command(submission)
            return self._reply(self._chat.say(submission.text, self._make_view(), wants_end), submission.text)
        except NinferError as error:
            self._streams.warn(f"{where}{error}")
            self._failed(submission, error)
            return Step(ok=False)

    def _command(self, command: Command) -> Step:
        outcome = commands.dispatch(self._chat, command)
        if self._chat.settings.json:
            self._object({"command": command.line, "ok": True, "result": outcome.value})
        elif outcome.text:
            self._streams.dim_line(outcome.text)
        return Step(leave=outcome.leave)

    def _failed(self, submission: object, error: NinferError) -> None:
        if not self._chat.settings.json:
            return
        completion = getattr(error, "completion", None)
        if isinstance(submission, Command):
            self._object({"command": submission.line, "ok": False, "result": str(error)})
        elif completion is not None:
            turn = len(self._chat.conversation.path()) + 1
            self._object(self._result(completion, Branch(turn=turn)))

    def _reply(self, reply: Reply, text: str) -> Step:
        completion, turn = reply.completion, reply.turn
        if turn is None:
            self._streams.warn(NO_REPLY)
            return Step(unsent=text)
        if self._chat.settings.json:
            self._object(self._result(completion, self._chat.conversation.branch(turn)))
        for line in notices(completion, self._chat.settings, "/undo some turns"):
            self._streams.warn(line)
        if turn.interrupted:
            self._streams.dim_line("interrupted: what is there stays in the conversation")
        if self._show_reuse or self._chat.settings.stats:
            self._streams.dim_line(reuse_line(completion))
        return Step()

    def _result(self, completion: Completion, branch: Branch) -> dict[str, object]:
        settings = self._chat.settings
        return result_object(completion, self._chat.engine.info.model, branch, with_tokens=settings.json_tokens)

    def _object(self, value: object) -> None:
        self._streams.out.write(json_line(value, terminal=self._streams.out.terminal))


def script_loop(chat: Chat, lines: Iterable[str], streams: Streams, *, keep_going: bool) -> int:
    """Run a script. Returns the exit status: 1 if a submission failed."""
    spaced = _Spaced(chat, streams)
    taker = Taker(chat, streams, spaced.view, show_reuse=False)
    status = 0
    for line in script(lines):
        with Interrupts() as interrupts:
            step = taker.take(line.text, lambda i=interrupts: i.number is not None, f"line {line.number}: ")  # type: ignore[misc]
        if interrupts.status:
            return interrupts.status
        if not step.ok:
            status = 1
            if not keep_going:
                return status
        if step.leave:
            break
    return status


class _Spaced:
    """Separates the replies of a script by a blank line; one that failed before it said anything leaves none."""

    def __init__(self, chat: Chat, streams: Streams) -> None:
        self._chat = chat
        self._streams = streams
        self._first = True

    def view(self) -> ReplyView:
        view = view_for(self._chat.settings, self._streams)
        return view if self._chat.settings.json else _SpacedView(view, self._begin)

    def _begin(self) -> None:
        if not self._first:
            self._streams.out.write("\n")
        self._first = False


class _SpacedView:
    """A view that calls begin before the answer's first text."""

    def __init__(self, view: ReplyView, begin: Callable[[], None]) -> None:
        self._view = view
        self._begin: Callable[[], None] | None = begin
        self.prefilled = view.prefilled
        self.reasoning = view.reasoning
        self.finish = view.finish

    def text(self, text: str) -> None:
        if self._begin is not None:
            self._begin()
            self._begin = None
        self._view.text(text)


def plain_loop(chat: Chat, streams: Streams) -> int:
    """For TERM=dumb: the terminal's own line editing, no cursor codes."""
    taker = Taker(chat, streams, lambda: view_for(chat.settings, streams), show_reuse=not streams.quiet)
    while True:
        try:
            text = _read_submission(streams)
        except EOFError:
            streams.out.write("\n")
            return 0
        except KeyboardInterrupt:
            streams.err.write("\n")
            streams.warn("Ctrl-D leaves")
            continue
        if not text.strip():
            continue
        with Interrupts() as interrupts:
            step = taker.take(text, lambda i=interrupts: i.number is not None)  # type: ignore[misc]
        if interrupts.status not in (None, 130):
            return interrupts.status or 0
        if step.leave:
            return 0


def _read_submission(streams: Streams) -> str:
    streams.out.write("> ")
    text = _line()
    while is_open(text):
        streams.out.write(". ")
        text += "\n" + _line()
    return closed(text)


def _line() -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\r\n")
