"""The chat on a terminal: one prompt-toolkit application owns it; replies appear above its input line.

The application runs in the main thread and never stops while the chat lasts, so that a person can type during a reply.
A second thread takes the submissions one by one; it draws through Screen only.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.layout import ConditionalContainer, FormattedTextControl, HSplit, Window
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.shortcuts import CompleteStyle, PromptSession

from ninfer_cli.collector import settle
from ninfer_cli.output import Stream, Streams
from ninfer_cli.repl.clipboard import clipboard_code
from ninfer_cli.repl.completion import CommandCompleter
from ninfer_cli.repl.enter import Enter
from ninfer_cli.repl.history import open_history
from ninfer_cli.repl.keys import bindings, type_ahead
from ninfer_cli.repl.loop import GOES_ON, PROMPT, REPLYING, UNSAVED, Step, Taker
from ninfer_cli.repl.question import Question
from ninfer_cli.repl.render import echoed, fitting, live_view
from ninfer_cli.repl.screen import Screen
from ninfer_cli.repl.submission import unquoted
from ninfer_cli.repl.toolbar import toolbar

if TYPE_CHECKING:
    from prompt_toolkit.buffer import Buffer

    from ninfer_cli.repl.chat import Chat
    from ninfer_cli.repl.held_input import HeldInput


class Terminal:
    """The application and the thread beside it. It is the Surface of its chat, and what its keys ask (keys.Person)."""

    interactive = True
    prefills = True

    def __init__(self, chat: Chat, streams: Streams) -> None:
        self._chat = chat
        self._styled = streams.out.styled
        self._screen = Screen(streams.out.file)
        above = Stream(self._screen, True, streams.out.styled)  # type: ignore[arg-type]
        self._streams = replace(streams, out=above, err=above if streams.err.terminal else streams.err)
        view = lambda: live_view(chat.settings, self._streams, self._screen)  # noqa: E731
        redraw = lambda: self._session.app.invalidate()  # noqa: E731
        self._taker = Taker(chat, self._streams, view, show_reuse=not streams.quiet, changed=redraw)
        self._submissions: queue.Queue[str | None] = queue.Queue()
        self._busy = False
        self._queued: str | None = None
        self._end = threading.Event()
        self._leaving = False
        self._status = 0
        self._at_once = False
        self._question = Question(lambda: self._session.default_buffer, self._streams.warn)
        self._warned = False  # that something is not saved
        self._progress = ""
        chat.surface = self
        self._enter = Enter(lambda: self._session.app, self._submit)
        depth = None if self._styled else ColorDepth.DEPTH_1_BIT
        self._session: PromptSession[int] = PromptSession(
            self._message,
            multiline=True,
            prompt_continuation=" " * len(PROMPT),
            history=open_history(wanted=not chat.settings.no_history),
            completer=CommandCompleter(lambda: chat.tree.names),
            complete_style=CompleteStyle.READLINE_LIKE,
            complete_while_typing=False,
            key_bindings=bindings(self),
            bottom_toolbar=self._toolbar,
            color_depth=depth,
            erase_when_done=True,
        )
        # A window of its own: as lines of the prompt it would be taken apart, glyph by glyph, several times a drawing.
        tail = Window(FormattedTextControl(self._tail), dont_extend_height=True)
        layout = self._session.layout
        layout.container = HSplit([ConditionalContainer(tail, Condition(self._has_tail)), layout.container])

    def run(self, held: HeldInput) -> int:
        """Chat until the person leaves; then the terminal is as it was before held. Returns the exit status."""
        worker = threading.Thread(target=self._work, name="ninfer-chat", daemon=True)
        worker.start()
        type_ahead(held.hand_over(), self._session.app.input)
        try:
            status = self._session.prompt(pre_run=self._begin, handle_sigint=False)
        except EOFError:
            status = 0
        finally:
            self._end.set()
            self._question.answer(yes=False)
            self._screen.detach()
            held.restore()
        if self._at_once:
            os._exit(130)
        self._submissions.put(None)
        worker.join()
        return status

    # --- Surface: called by the thread that takes submissions -----------------------------------------------------
    def ask(self, question: str) -> bool:
        """The next Enter answers. Ctrl-C, Ctrl-D and the end of the application mean no."""
        answer: Future[bool] = Future()
        self._call(lambda: self._question.pose(question, answer))
        while not answer.done() and self._session.app.is_running:
            wait((answer,), timeout=0.2)
        return answer.done() and answer.result()

    def copy(self, text: str) -> None:
        """By a code that the terminal takes. Raises UsageError: too much for one."""
        self._screen.control(clipboard_code(text))

    def progress(self, text: str) -> None:
        if text != self._progress:
            self._progress = text
            self._session.app.invalidate()

    # --- Person: what keys ask for, in the application's thread -------------------------------------------------------
    def send(self) -> None:
        self._enter.press()

    def interrupt(self, buffer: Buffer) -> None:
        if self._question:
            self._question.answer(yes=False)
        elif self._busy:
            if self._end.is_set():
                self._at_once = True
                self._session.app.exit(result=130)
            elif self._taker.doing != REPLYING:
                self._streams.warn(GOES_ON)
            self._end.set()
        elif buffer.text:
            buffer.reset()
        else:
            self._streams.warn("Ctrl-D leaves")

    def end_of_input(self, buffer: Buffer) -> None:
        if self._question:
            self._question.answer(yes=False)
        elif buffer.text:
            buffer.delete()
        elif not self._warned and self._chat.keeper.unsaved(self._chat.tree):
            self._warned = True
            self._streams.warn(UNSAVED)
        else:
            self._leave(0)

    # --- the thread that takes submissions ----------------------------------------------------------------------------
    def _work(self) -> None:
        while (text := self._submissions.get()) is not None:
            try:
                step = self._taker.take(text, self._end.is_set)
            except BaseException as error:  # shown by main's boundary, in the main thread
                self._call(lambda error=error: self._session.app.exit(exception=error))
                return
            self._call(lambda step=step: self._after(step))

    def _call(self, function: Any) -> None:
        """Run in the application's thread; dropped if the application has ended."""
        loop = self._session.app.loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(function, context=self._session.app.context)

    # --- in the application's thread ----------------------------------------------------------------------------------
    def _begin(self) -> None:
        app = self._session.app
        app.key_processor.before_key_press += lambda _: self._enter.another_key()
        settle()  # again: a collection that went through the application would hold up keys
        self._screen.attach(app)
        self._streams.dim_line("/help lists the commands, Ctrl-D leaves")
        self._taker.show_turn()
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and app.loop is not None and signal.getsignal(number) is not signal.SIG_IGN:
                app.loop.add_signal_handler(number, self._leave, 128 + number)

    def _after(self, step: Step) -> None:
        self._busy = False
        interrupted = self._end.is_set()
        self._end.clear()
        buffer = self._session.default_buffer
        if step.leave or self._leaving:
            self._leave(self._status if self._leaving else 0)
            return
        queued, self._queued = self._queued, None
        returned = [text for text in (step.unsent, queued if interrupted else None) if text]
        if returned:
            buffer.text = "\n".join([*returned, *([buffer.text] if buffer.text else [])])
            buffer.cursor_position = len(buffer.text)
        if queued is not None and not interrupted:
            self._send(queued)
        self._session.app.invalidate()

    def _leave(self, status: int) -> None:
        """Leave now, or as soon as the running reply has ended at a token boundary."""
        self._status = status
        self._question.answer(yes=False)
        if self._busy:
            self._leaving = True
            self._end.set()
        elif self._session.app.is_running:
            self._session.app.exit(result=status)

    def _send(self, text: str) -> None:
        self._busy = True
        self._screen.write(echoed(text, PROMPT, styled=self._styled))
        self._submissions.put(text)

    def _submit(self, buffer: Buffer) -> None:
        text = buffer.text
        if self._question:
            self._question.answered(text)
            return
        if not text.strip():
            return
        if self._busy and self._queued is not None:
            self._streams.warn("one message is queued already: wait, or end the reply with Ctrl-C")
            return
        buffer.append_to_history()
        buffer.reset()
        text = unquoted(text).strip("\n")
        if self._busy:
            self._queued = text
        else:
            self._send(text)

    def _has_tail(self) -> bool:
        return bool(self._screen.tail)

    def _tail(self) -> FormattedText:
        size = self._session.app.output.get_size()
        tail = fitting(self._screen.tail, size.columns, size.rows)
        return FormattedText([("dim" if self._styled else "", tail)])

    def _message(self) -> FormattedText:
        prompt = "[y/N] " if self._question else PROMPT
        return FormattedText([("bold" if self._styled else "", prompt)])

    def _toolbar(self) -> str:
        doing = "" if self._question else self._taker.doing
        columns = self._session.app.output.get_size().columns
        return toolbar(self._chat, doing=doing, queued=self._queued, progress=self._progress, columns=columns)
