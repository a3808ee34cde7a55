"""Where every error ends: one line on standard error and an exit status. Nothing leaves a traceback without -v."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable

import typer

from ninfer_cli.cleaning import one_line
from ninfer_cli.interrupts import Terminated
from ninfer_cli.output import STANDARD_OUTPUT, is_closed_pipe, is_terminal, named
from ninfer_core import NinferError, UsageError

RUNTIME_ERROR, USAGE_ERROR, INTERRUPTED = 1, 2, 130
OUT_OF_MEMORY_LIBRARIES = "out of memory while loading torch: close other programs, or raise the limit (ulimit -v)"
OUT_OF_MEMORY = (
    "out of memory: lower --max-context, --max-concurrency or --kv-capacity, try --dtype bfloat16, or a smaller model"
)
FULL = {
    errno.ENOSPC: "no space left on the device",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would be too large",
}
_CLICK_ERROR = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def guarded(work: Callable[[], int], *, verbose: bool) -> int:
    """Run work and return the process's exit status. Flushes both streams, so that nothing is left to fail later."""
    try:
        status = work()
        with named(STANDARD_OUTPUT):
            sys.stdout.flush()
    except BaseException as error:
        status = _status_of(error, verbose=verbose)
    _flush_or_drop()
    return status


def _status_of(error: BaseException, *, verbose: bool) -> int:
    if isinstance(error, SystemExit):
        if error.__context__ is not None and is_closed_pipe(error.__context__):
            return 0  # typer ends with 1 where the reader of its help has gone
        return error.code if isinstance(error.code, int) else RUNTIME_ERROR
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return INTERRUPTED
    if isinstance(error, Terminated):
        return error.status
    if is_closed_pipe(error):
        return 0  # the reader has had enough: that is its right
    if verbose:
        _print_traceback()
    if isinstance(error, _CLICK_ERROR):
        _say(error.format_message().rstrip(".") + _help_hint(error))  # type: ignore[attr-defined]
        return USAGE_ERROR
    if isinstance(error, NinferError):
        _say(str(error))
        return USAGE_ERROR if isinstance(error, UsageError) else RUNTIME_ERROR
    _say(_unexpected(error, verbose=verbose))
    return RUNTIME_ERROR


def _unexpected(error: BaseException, *, verbose: bool) -> str:
    kind, text = type(error).__name__, str(error)
    if isinstance(error, MemoryError) or kind == "OutOfMemoryError" or "can't allocate memory" in text:
        return OUT_OF_MEMORY
    if isinstance(error, (ImportError, OSError)) and _could_not_map(error):
        return OUT_OF_MEMORY_LIBRARIES
    if isinstance(error, ImportError) or (isinstance(error, OSError) and ".so" in text):
        return f"the installation is broken: {text}: install ninfer and its requirements again"
    if isinstance(error, OSError) and (full := _not_written(error)):
        return full
    hint = "" if verbose else ": -v shows the traceback"
    return f"unexpected {kind}: {text or 'no message'}{hint}"


def _could_not_map(error: BaseException) -> bool:
    """Whether the dynamic loader found no room for a library: numpy, for one, wraps that into advice of its own."""
    chain: BaseException | None = error
    while chain is not None:
        text = str(chain).lower()
        if "failed to map segment" in text or "cannot allocate memory" in text:
            return True
        chain = chain.__cause__ or chain.__context__
    return False


def _not_written(error: OSError) -> str | None:
    """What to say where a file found no room. One that the error does not name is not guessed."""
    reason = FULL.get(error.errno or 0)
    if reason is None or error.filename is None:
        return reason
    return f"{error.filename} cannot be written: {reason}"


def _help_hint(error: BaseException) -> str:
    context = getattr(error, "ctx", None)
    return f" (see {context.command_path} --help)" if context is not None else ""


def _say(text: str) -> None:
    line = one_line(text) if is_terminal(sys.stderr) else " ".join(text.split())
    try:
        sys.stderr.write(f"ninfer: {line}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass  # standard error is closed: nobody to tell


def _print_traceback() -> None:
    import traceback

    with contextlib.suppress(OSError, ValueError, AttributeError):
        traceback.print_exc(file=sys.stderr)


def _flush_or_drop() -> None:
    """The interpreter flushes again at its end and would complain about a closed pipe: let it write into nothing."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            try:
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream.fileno())
                os.close(null)
            except (OSError, ValueError, AttributeError):
                pass
