"""The chat on a terminal: one prompt-toolkit application owns it; replies appear above its input line.

The application runs in the main thread and never stops while the chat lasts, so that a person can type during a reply.
A second thread takes the submissions one by one; it draws through Screen only.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
from base64 import b64encode
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, FormattedTextControl, HSplit, Window
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.shortcuts import CompleteStyle, PromptSession

from ninfer_cli.cleaning import clean
from ninfer_cli.collector import settle
from ninfer_cli.output import Stream, Streams
from ninfer_cli.repl.completion import CommandCompleter
from ninfer_cli.repl.enter import Enter
from ninfer_cli.repl.history import open_history
from ninfer_cli.repl.loop import GOES_ON, REPLYING, UNSAVED, Step, Taker
from ninfer_cli.repl.render import fitting, live_view
from ninfer_cli.repl.screen import Screen
from ninfer_cli.repl.submission import is_open, unquoted
from ninfer_cli.repl.surface import YES
from ninfer_cli.repl.toolbar import toolbar
from ninfer_core import UsageError

if TYPE_CHECKING:
    from prompt_toolkit.buffer import Buffer

    from ninfer_cli.repl.chat import Chat

PROMPT = "> "
MOST_ECHOED = 40
"""Lines of a message that are shown again above the input line."""
MOST_COPIED = 74_994
"""Bytes that xterm and tmux take in one OSC 52 code: 100,000 characters of base64, frame included."""


class Terminal:
    """The application and the thread beside it. It is the Surface of its chat."""

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
        self._question: Future[bool] | None = None
        self._warned = False  # that something is not saved
        self._held = ""  # what was typed when a question came
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
            key_bindings=self._bindings(),
            bottom_toolbar=self._toolbar,
            color_depth=depth,
            erase_when_done=True,
        )
        # A window of its own: as lines of the prompt it would be taken apart, glyph by glyph, several times a drawing.
        tail = Window(FormattedTextControl(self._tail), dont_extend_height=True)
        layout = self._session.layout
        layout.container = HSplit([ConditionalContainer(tail, Condition(self._has_tail)), layout.container])

    def run(self) -> int:
        """Chat until the person leaves. Returns the exit status."""
        worker = threading.Thread(target=self._work, name="ninfer-chat", daemon=True)
        worker.start()
        try:
            status = self._session.prompt(pre_run=self._begin, handle_sigint=False)
        except EOFError:
            status = 0
        finally:
            self._end.set()
            self._answer(yes=False)
            self._screen.detach()
        if self._at_once:
            os._exit(130)
        self._submissions.put(None)
        worker.join()
        return status

    # --- Surface: called by the thread that takes submissions -----------------------------------------------------
    def ask(self, question: str) -> bool:
        """The next Enter answers. Ctrl-C, Ctrl-D and the end of the application mean no."""
        answer: Future[bool] = Future()
        self._call(lambda: self._pose(question, answer))
        while not answer.done() and self._session.app.is_running:
            wait((answer,), timeout=0.2)
        return answer.done() and answer.result()

    def copy(self, text: str) -> None:
        """By OSC 52, which the terminal hands on to its clipboard, over ssh too."""
        data = text.encode("utf-8", "replace")
        if len(data) > MOST_COPIED:
            raise UsageError(f"/copy: terminals take at most {MOST_COPIED} bytes: /export writes a file")
        self._screen.control(f"\x1b]52;c;{b64encode(data).decode('ascii')}\x07")

    def progress(self, text: str) -> None:
        if text != self._progress:
            self._progress = text
            self._session.app.invalidate()

    # --- the thread that takes submissions ----------------------------------------------------------------------------
    def _work(self) -> None:
        while (text := self._submissions.get()) is not None:
            try:
                step = self._taker.take(text, self._end.is_set)
            except BaseException as error:  # shown by main's boundary, in the main thread
                self._call(lambda error=error: self._session.app.exit(exception=error))  # type: ignore[misc]
                return
            self._call(lambda step=step: self._after(step))  # type: ignore[misc]

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
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and app.loop is not None and signal.getsignal(number) is not signal.SIG_IGN:
                app.loop.add_signal_handler(number, self._leave, 128 + number)

    def _pose(self, question: str, answer: Future[bool]) -> None:
        self._question = answer
        buffer = self._session.default_buffer
        self._held = buffer.text
        buffer.reset()
        self._streams.warn(question)

    def _answer(self, *, yes: bool) -> None:
        """Nothing happens while nothing was asked."""
        question, self._question = self._question, None
        if question is None:
            return
        buffer = self._session.default_buffer
        buffer.text, self._held = self._held, ""
        buffer.cursor_position = len(buffer.text)
        question.set_result(yes)

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
        self._answer(yes=False)
        if self._busy:
            self._leaving = True
            self._end.set()
        elif self._session.app.is_running:
            self._session.app.exit(result=status)

    def _send(self, text: str) -> None:
        self._busy = True
        lines = clean(text).split("\n")
        if len(lines) > MOST_ECHOED:
            lines[MOST_ECHOED:] = [f"… and {len(lines) - MOST_ECHOED} more lines"]
        shown = ("\n" + " " * len(PROMPT)).join(lines)
        self._screen.write(f"\n{PROMPT}{shown}\n" if not self._styled else f"\n\x1b[1m{PROMPT}{shown}\x1b[0m\n")
        self._submissions.put(text)

    def _submit(self, buffer: Buffer) -> None:
        text = buffer.text
        if self._question is not None:
            self._answer(yes=text.strip().lower() in YES)
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
        doing = self._taker.doing if self._question is None else ""
        return toolbar(self._chat, doing=doing, queued=self._queued, progress=self._progress)

    def _bindings(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter", save_before=lambda event: False)  # ten thousand pasted lines are no steps of undo
        def _(event: KeyPressEvent) -> None:
            # More keys at once mean a paste on a terminal without bracketed paste: it never sends by itself.
            together = any(press.key is not Keys.CPRResponse for press in event.key_processor.input_queue)
            buffer = event.current_buffer
            if together:
                buffer.insert_text("\n")
            elif is_open(buffer.text):
                if buffer.document.text_before_cursor.endswith("\\"):
                    buffer.delete_before_cursor()  # it has done its work; others, pasted or edited, are text
                buffer.insert_text("\n")
            else:
                self._enter.press()

        @keys.add("escape", "enter")
        @keys.add("c-j")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-x", "c-e")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.open_in_editor(validate_and_handle=False)

        @keys.add("c-c")
        @keys.add("<sigint>")
        def _(event: KeyPressEvent) -> None:
            if self._question is not None:
                self._answer(yes=False)
            elif self._busy:
                if self._end.is_set():
                    self._at_once = True
                    event.app.exit(result=130)
                elif self._taker.doing != REPLYING:
                    self._streams.warn(GOES_ON)
                self._end.set()
            elif event.current_buffer.text:
                event.current_buffer.reset()
            else:
                self._streams.warn("Ctrl-D leaves")

        @keys.add("c-d")
        def _(event: KeyPressEvent) -> None:
            if self._question is not None:
                self._answer(yes=False)
            elif event.current_buffer.text:
                event.current_buffer.delete()
            elif not self._warned and self._chat.keeper.unsaved(self._chat.tree):
                self._warned = True
                self._streams.warn(UNSAVED)
            else:
                self._leave(0)

        return keys
