"""What every way of chatting does with one submission; and the loops for scripts and dumb terminals."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ninfer_cli.cache_view import statistics_lines
from ninfer_cli.interrupts import Interrupts
from ninfer_cli.repl import commands
from ninfer_cli.repl.command import shortened
from ninfer_cli.repl.submission import Command, Say, closed, is_open, read, script
from ninfer_cli.repl.surface import PlainSurface
from ninfer_cli.reply_view import ReplyView, view_for
from ninfer_cli.result import Branch, branch_json, json_line, notices, result_object
from ninfer_core import Completion, FinishReason, NinferError

if TYPE_CHECKING:
    from ninfer_cli.output import Streams
    from ninfer_cli.repl.chat import Chat
    from ninfer_cli.repl.job import Answer, Job

PROMPT = "> "
NO_REPLY = "interrupted before the reply began: no turn was made"
UNSAVED = "this conversation is not saved: /save PATH keeps it, Ctrl-D again leaves"
GOES_ON = "this is finished first, such as a save: Ctrl-C again leaves at once, and a file stays as it was before"
NOTHING_ADDED = "the model ends the reply where it ended: nothing was added"
REPLYING, SAVING, WORKING = "replying", "saving", "working"


@dataclass(frozen=True, slots=True)
class Step:
    """What became of a submission.

    Attributes:
        ok: it was done, or was interrupted.
        leave: the chat is over.
        unsent: text for the input line: a message that made no turn, or a command to be finished there.
    """

    ok: bool = True
    leave: bool = False
    unsent: str = ""


class Taker:
    """Takes submissions: dispatches commands, shows replies, turns errors into one line.

    Attributes:
        doing: REPLYING, which can be ended early, SAVING, WORKING, which go on to their end; "" for nothing.
    """

    def __init__(
        self,
        chat: Chat,
        streams: Streams,
        make_view: Callable[[], ReplyView],
        *,
        show_reuse: bool,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """changed is called, in the thread that takes, when doing is something else."""
        self._chat = chat
        self._streams = streams
        self._make_view = make_view
        self._show_reuse = show_reuse
        self._changed = changed
        self.doing = ""

    def take(self, text: str, wants_end: Callable[[], bool], where: str = "") -> Step:
        """Do one submission. Errors are shown here, with where before them."""
        submission = read(text)
        self._begin(REPLYING if isinstance(submission, Say) else SAVING if submission.name == "save" else WORKING)
        try:
            return self._take(submission, wants_end)
        except NinferError as error:
            self._streams.warn(f"{where}{error}")
            self._failed(submission, error)
            return Step(ok=False)
        finally:
            self._begin(SAVING)
            self._chat.keeper.keep(self._chat)
            self._begin("")

    def _begin(self, what: str) -> None:
        self.doing = what
        self._changed()

    def _take(self, submission: Say | Command, wants_end: Callable[[], bool]) -> Step:
        if isinstance(submission, Command):
            return self._command(submission, wants_end)
        return self._generate(self._chat.message(submission.text), wants_end)

    def _command(self, command: Command, wants_end: Callable[[], bool]) -> Step:
        outcome = commands.dispatch(self._chat, command)
        if outcome.job is not None:
            return self._generate(outcome.job, wants_end, command)
        if self._chat.settings.json:
            self._object({"command": command.line, "ok": True, "result": outcome.value})
        elif outcome.text:
            self._streams.dim_line(outcome.text)
        if outcome.show and self._chat.surface.interactive:
            self.show_turn()
        return Step(leave=outcome.leave, unsent=outcome.prefill or outcome.unsent)

    def _failed(self, submission: object, error: NinferError) -> None:
        if not self._chat.settings.json:
            return
        completion = getattr(error, "completion", None)
        if completion is not None:
            branch = Branch(turn=len(self._chat.tree.path()) + 1)
            self._object(self._result(completion, branch))
        if isinstance(submission, Command):
            self._object({"command": submission.line, "ok": False, "result": str(error)})

    # --- replies --------------------------------------------------------------------------------------------------
    def _generate(self, job: Job, wants_end: Callable[[], bool], command: Command | None = None) -> Step:
        self._begin(REPLYING)
        answers = self._chat.carry_out(job, self._make_view(), wants_end)
        for index, answer in enumerate(answers):
            self._report(answer, index)
        if command is not None and self._chat.settings.json:
            places = [None if a.node is None else branch_json(self._chat.tree.branch(a.node)) for a in answers]
            self._object({"command": command.line, "ok": True, "result": places})
        if all(answer.node is None for answer in answers):
            if answers[0].completion.finish_reason is not FinishReason.INTERRUPTED:
                self._streams.warn(NOTHING_ADDED)
                return Step()
            self._streams.warn(NO_REPLY)
            return Step(unsent=job.unsent or (command.line if command else ""))
        return Step()

    def _report(self, answer: Answer, index: int) -> None:
        """Everything that is said of a reply beside its text; of siblings, which nobody has seen yet, the text too."""
        completion, settings = answer.completion, self._chat.settings
        if completion.finish_reason is FinishReason.ERROR:
            self._streams.warn(f"one of the replies failed: {completion.error or 'it does not say why'}")
        if answer.node is None:
            return
        branch = self._chat.tree.branch(answer.node)
        if settings.json:
            reply = self._chat.tree.turn_at(answer.node).reply  # of a reply that went on, the whole
            self._object(self._result(replace(completion, text=reply.text, reasoning=reply.reasoning), branch))
        elif index and self._chat.surface.interactive:
            words = shortened(completion.text, 50)
            self._streams.dim_line(f"sibling {branch.sibling}/{branch.siblings}: {words}  (/next)")
        elif index:
            play(completion.text, completion.reasoning, self._make_view())
        for line in notices(completion, settings, self._chat.engine.info, "/undo some turns"):
            self._streams.warn(line)
        if completion.finish_reason is FinishReason.INTERRUPTED and not index:
            self._streams.dim_line("interrupted: what is there stays in the conversation")
        if self._show_reuse or settings.stats:
            for line in statistics_lines(completion, verbose=settings.stats and settings.verbose):
                self._streams.dim_line(line)

    def show_turn(self) -> None:
        """The message and the reply that the conversation stands at, if there is one, as when they were said."""
        from ninfer_cli.repl.render import echoed  # a script needs neither it nor rich

        turn = self._chat.tree.turn
        if turn is not None:
            self._streams.out.write(echoed(turn.text, PROMPT, styled=self._streams.out.styled))
            play(turn.reply.text, turn.reply.reasoning, self._make_view())

    def _result(self, completion: Completion, branch: Branch) -> dict[str, object]:
        settings = self._chat.settings
        return result_object(completion, self._chat.engine.info.model, branch, with_tokens=settings.json_tokens)

    def _object(self, value: object) -> None:
        self._streams.out.write(json_line(value, terminal=self._streams.out.terminal))


def play(text: str, reasoning: str | None, view: ReplyView) -> None:
    """Show a reply that is there already."""
    if reasoning:
        view.reasoning(reasoning)
    if text:
        view.text(text)
    view.finish()


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
    chat.surface = PlainSurface(streams)
    taker = Taker(chat, streams, lambda: view_for(chat.settings, streams), show_reuse=not streams.quiet)
    warned = False
    taker.show_turn()
    while True:
        try:
            text = _read_submission(streams)
        except EOFError:
            streams.out.write("\n")
            if not warned and chat.keeper.unsaved(chat.tree):
                warned = True
                streams.warn(UNSAVED)
                continue
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
    streams.out.write(PROMPT)
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
