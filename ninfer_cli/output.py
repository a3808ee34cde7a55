"""Standard output carries the answer, standard error everything else; each knows what it may show."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from ninfer_cli.cleaning import clean, one_line

DIM, RESET = "\x1b[2m", "\x1b[0m"
ERASE_LINE = "\r\x1b[K"
STANDARD_OUTPUT = "standard output"


@dataclass(frozen=True, slots=True)
class Stream:
    """One standard stream.

    Attributes:
        file: where it goes.
        terminal: a person's terminal: text that ninfer did not write is cleaned before it is shown.
        styled: a terminal that may also get colour and cursor codes.
        name: what an error calls it; None drops what cannot be written or has lost its reader, for the answer does not
            depend on it.
    """

    file: TextIO
    terminal: bool
    styled: bool
    name: str | None = None

    def write(self, text: str) -> None:
        """Write and flush: a reply is seen as it comes.

        Raises:
            OSError: the answer cannot be written; with its name, so that no other file is blamed. Or its reader has
                gone.
        """
        try:
            with named(self.name):
                self.file.write(text)
                self.file.flush()
        except OSError:
            if self.name is not None:
                raise

    def dim(self, text: str) -> str:
        return f"{DIM}{text}{RESET}" if self.styled and text else text

    def foreign(self, text: str) -> str:
        """A whole text that ninfer did not write, as this stream may show it."""
        return clean(text) if self.terminal else text

    def fitted(self, text: str) -> str:
        """Lines as the window shows them best; elsewhere they stay as they are."""
        if not self.terminal:
            return text
        from ninfer_cli.wrapping import wrapped

        return wrapped(text, shutil.get_terminal_size().columns)


@dataclass(frozen=True, slots=True)
class Streams:
    out: Stream
    err: Stream
    quiet: bool = False
    _noted: set[str] = field(default_factory=set, compare=False, repr=False)

    def note(self, text: str) -> None:
        """A line about what is going on; -q drops it."""
        if not self.quiet:
            self.warn(text)

    def note_once(self, text: str) -> None:
        """A note that is not worth a second reading."""
        if text not in self._noted:
            self._noted.add(text)
            self.note(text)

    def warn(self, text: str) -> None:
        """A line that a person must not miss; -q keeps it."""
        self.err.write(self.err.fitted(f"ninfer: {one_line(text)}") + "\n")

    def dim_line(self, text: str) -> None:
        self.err.write(self.err.dim(self.err.fitted(self.err.foreign(text))) + "\n")


def open_streams(*, no_color: bool = False, quiet: bool = False) -> Streams:
    """The process's own streams. Off a terminal the encoding is UTF-8 whatever the locale says."""
    return Streams(_stream(sys.stdout, no_color, STANDARD_OUTPUT), _stream(sys.stderr, no_color), quiet)


def _stream(file: TextIO, no_color: bool, name: str | None = None) -> Stream:
    terminal = is_terminal(file)
    reconfigure = getattr(file, "reconfigure", None)
    if reconfigure is not None:
        # backslashreplace: a lone surrogate from a tokenizer is spelled out instead of ending the reply
        reconfigure(errors="backslashreplace", **({} if terminal else {"encoding": "utf-8"}))
    return Stream(file, terminal, terminal and not no_color and may_style(), name)


def hold_standard_streams() -> None:
    """Let nothing stand in for a standard stream that was closed at the start.

    Else the next file that is opened, a history or the weights, would get its number, and what a library writes to
    standard error would land in it.
    """
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor <= 2:
        descriptor = os.dup(descriptor)
    os.close(descriptor)
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (as long as the process)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115


@contextmanager
def named(name: str | None) -> Iterator[None]:
    """Within this context something is written that errors name no file of: let them, unless its reader has gone."""
    try:
        yield
    except OSError as error:
        if name is None or error.filename is not None or is_closed_pipe(error):
            raise
        raise OSError(error.errno, error.strerror, name) from error


def is_closed_pipe(error: BaseException) -> bool:
    """EPIPE, or EIO from a terminal that hung up; that of a disk names a file, or standard output is one."""
    if not isinstance(error, OSError) or error.filename is not None:
        return False
    return error.errno == errno.EPIPE or (error.errno == errno.EIO and not _is_file(sys.stdout))


def _is_file(stream: TextIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):
        return False


def is_terminal(file: object) -> bool:
    try:
        return bool(file.isatty())  # type: ignore[attr-defined]
    except (AttributeError, ValueError):
        return False


def may_style() -> bool:
    """Whether the terminal and its user accept colour and cursor codes (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and not is_dumb()


def is_dumb() -> bool:
    """Whether the terminal knows no cursor codes, by its own word."""
    return os.environ.get("TERM", "") in ("", "dumb", "unknown")
