"""The chat on a terminal: one prompt-toolkit application owns it; replies appear above its input line.

The application runs in the main thread and never stops while the chat lasts, so that a person can type during a reply.
A second thread takes the submissions one by one; it draws through Screen only.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from prompt_toolkit.formatted_text import ANSI, FormattedText, merge_formatted_text
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.shortcuts import CompleteStyle, PromptSession

from ninfer_cli.cleaning import clean
from ninfer_cli.output import Stream, Streams
from ninfer_cli.repl.completion import CommandCompleter
from ninfer_cli.repl.history import open_history
from ninfer_cli.repl.loop import Step, Taker
from ninfer_cli.repl.render import fitting, live_view
from ninfer_cli.repl.screen import Screen
from ninfer_cli.repl.submission import closed, is_open
from ninfer_cli.repl.toolbar import toolbar

if TYPE_CHECKING:
    from prompt_toolkit.buffer import Buffer

    from ninfer_cli.repl.chat import Chat

PROMPT = "> "


class Terminal:
    """The application and the thread beside it."""

    def __init__(self, chat: Chat, streams: Streams) -> None:
        self._chat = chat
        self._styled = streams.out.styled
        self._screen = Screen(streams.out.file)
        above = Stream(self._screen, True, streams.out.styled)  # type: ignore[arg-type]
        self._streams = replace(streams, out=above, err=above if streams.err.terminal else streams.err)
        view = lambda: live_view(chat.settings, self._streams, self._screen)  # noqa: E731
        self._taker = Taker(chat, self._streams, view, show_reuse=not streams.quiet)
        self._submissions: queue.Queue[str | None] = queue.Queue()
        self._busy = False
        self._queued: str | None = None
        self._end = threading.Event()
        self._leaving = False
        self._status = 0
        self._at_once = False
        depth = None if self._styled else ColorDepth.DEPTH_1_BIT
        self._session: PromptSession[int] = PromptSession(
            self._message,
            multiline=True,
            prompt_continuation=" " * len(PROMPT),
            history=open_history(wanted=not chat.settings.no_history),
            completer=CommandCompleter(),
            complete_style=CompleteStyle.READLINE_LIKE,
            complete_while_typing=False,
            key_bindings=self._bindings(),
            bottom_toolbar=lambda: toolbar(chat, busy=self._busy, queued=self._queued),
            color_depth=depth,
            erase_when_done=True,
        )

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
            self._screen.detach()
        if self._at_once:
            os._exit(130)
        self._submissions.put(None)
        worker.join()
        return status

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
        self._screen.attach(app)
        self._streams.dim_line("/help lists the commands, Ctrl-D leaves")
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
        if self._queued is not None and not interrupted:
            text, self._queued = self._queued, None
            self._send(text)
            return
        returned = [text for text in (step.unsent, self._queued) if text]
        self._queued = None
        if returned:
            buffer.text = "\n".join([*returned, *([buffer.text] if buffer.text else [])])
            buffer.cursor_position = len(buffer.text)
        self._session.app.invalidate()

    def _leave(self, status: int) -> None:
        """Leave now, or as soon as the running reply has ended at a token boundary."""
        self._status = status
        if self._busy:
            self._leaving = True
            self._end.set()
        elif self._session.app.is_running:
            self._session.app.exit(result=status)

    def _send(self, text: str) -> None:
        self._busy = True
        shown = clean(text).replace("\n", "\n" + " " * len(PROMPT))
        self._screen.write(f"\n{PROMPT}{shown}\n" if not self._styled else f"\n\x1b[1m{PROMPT}{shown}\x1b[0m\n")
        self._submissions.put(text)

    def _submit(self, buffer: Buffer) -> None:
        text = buffer.text
        if not text.strip():
            return
        if self._busy and self._queued is not None:
            self._streams.warn("one message is queued already: wait, or end the reply with Ctrl-C")
            return
        buffer.append_to_history()
        buffer.reset()
        text = closed(text).strip("\n")
        if self._busy:
            self._queued = text
        else:
            self._send(text)

    def _message(self) -> Any:
        tail = fitting(self._screen.tail)
        prompt = FormattedText([("bold" if self._styled else "", PROMPT)])
        return merge_formatted_text([ANSI(tail + "\n"), prompt]) if tail else prompt

    def _bindings(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _(event: KeyPressEvent) -> None:
            # More keys in the same read mean a paste on a terminal without bracketed paste: it never sends by itself.
            together = any(press.key is not Keys.CPRResponse for press in event.key_processor.input_queue)
            if together or is_open(event.current_buffer.text):
                event.current_buffer.insert_text("\n")
            else:
                self._submit(event.current_buffer)

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
            if self._busy:
                if self._end.is_set():
                    self._at_once = True
                    event.app.exit(result=130)
                self._end.set()
            elif event.current_buffer.text:
                event.current_buffer.reset()
            else:
                self._streams.warn("Ctrl-D leaves")

        @keys.add("c-d")
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.delete()
            else:
                self._leave(0)

        return keys
