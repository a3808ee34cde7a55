"""The program in a pseudo-terminal: a person's keys in, what the screen was told out."""

from __future__ import annotations

import re
from typing import Any, Self

import pexpect
import pyte

from tests.support.ninfer_process import Ninfer

CURSOR_QUERY = b"\x1b[6n"
ROWS, COLUMNS = 24, 80
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Window(pyte.HistoryScreen):
    """What a person sees and can scroll back to, through changes of size.

    pyte's own resize moves the rows up under a cursor that stays where it was, so that a program which erases its own
    rows erases others; and it forgets what leaves at the top. Here, as in tmux, Alacritty and VTE, the cursor stays on
    its row, what leaves at the top can be scrolled back to, and a taller window takes it back. Long lines are not
    wrapped anew: a narrower window hides their ends.
    """

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        lines, columns = lines or self.lines, columns or self.columns
        past, rows = self.history.top, [self.buffer[y] for y in range(self.lines)]
        leaving = max(0, self.cursor.y + 1 - lines)
        returning = min(max(0, lines - self.lines), len(past))
        past.extend(rows[:leaving])
        rows = [past.pop() for _ in range(returning)][::-1] + rows[leaving : leaving + lines]
        self.buffer.clear()
        self.buffer.update(enumerate(rows))
        self.lines, self.columns = lines, columns
        self.cursor.y += returning - leaving
        self.set_margins()
        self.ensure_hbounds()


class Recorder:
    """Keeps everything that was written, draws it as a real terminal would, and answers its cursor position query."""

    def __init__(self, child: Any, columns: int, rows: int) -> None:
        self.child = child
        self.bytes = b""
        self.screen = Window(columns, rows, history=20_000)
        self._stream = pyte.ByteStream(self.screen)

    def write(self, data: bytes) -> None:
        self.bytes += data
        *before, rest = data.split(CURSOR_QUERY)
        for part in before:
            self._stream.feed(part)
            self.child.send(f"\x1b[{self.screen.cursor.y + 1};{self.screen.cursor.x + 1}R")
        self._stream.feed(rest)

    def flush(self) -> None:
        pass


class Terminal:
    """`with Terminal(ninfer, "chat") as t: t.type("Hi\\r"); t.sees("Hello")`."""

    def __init__(self, ninfer: Ninfer, *arguments: str, environment: dict[str, str] | None = None) -> None:
        command = ninfer.command(*arguments)
        self.child = pexpect.spawn(
            command[0],
            command[1:],
            env={**ninfer.environment, **(environment or {})},
            cwd=str(ninfer.home),
            dimensions=(ROWS, COLUMNS),
            timeout=120,
        )
        self.child.delaybeforesend = None
        self.record = Recorder(self.child, COLUMNS, ROWS)
        self.child.logfile_read = self.record

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.child.close(force=True)

    def type(self, keys: str) -> None:
        self.child.send(keys)

    def sees(self, text: str) -> None:
        """Wait until text was written. Text that grows on the screen is written piece by piece: expect one piece."""
        self.child.expect_exact(text.encode())

    def resize(self, columns: int, rows: int) -> None:
        """The window changes, and the program is told."""
        self.record.screen.resize(rows, columns)
        self.child.setwinsize(rows, columns)

    def lines(self) -> list[str]:
        """What a person sees and can scroll back to, without trailing spaces."""
        screen = self.record.screen
        columns = range(screen.columns)
        past = ["".join(line[x].data for x in columns) for line in screen.history.top]
        return [line.rstrip() for line in (*past, *screen.display)]

    def ends(self) -> int:
        """Wait for the end; the exit status, 128 + n for an unhandled signal."""
        self.child.expect_exact(pexpect.EOF)
        self.child.close()
        return self.child.exitstatus if self.child.exitstatus is not None else 128 + self.child.signalstatus

    @property
    def raw(self) -> str:
        return self.record.bytes.decode("utf-8", "replace")

    @property
    def text(self) -> str:
        """What was written, without escape sequences."""
        return ESCAPE.sub("", self.raw).replace("\r", "")
