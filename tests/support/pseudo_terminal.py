"""The program in a pseudo-terminal: a person's keys in, what the screen was told out."""

from __future__ import annotations

import re
from typing import Any, Self

import pexpect

from tests.support.ninfer_process import Ninfer

CURSOR_QUERY = b"\x1b[6n"
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Recorder:
    """Keeps everything that was written, and answers the cursor position query as a real terminal would."""

    def __init__(self, child: Any) -> None:
        self.child = child
        self.bytes = b""

    def write(self, data: bytes) -> None:
        self.bytes += data
        if CURSOR_QUERY in data:
            self.child.send("\x1b[20;1R")

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
            dimensions=(24, 80),
            timeout=20,
        )
        self.child.delaybeforesend = None
        self.record = Recorder(self.child)
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
