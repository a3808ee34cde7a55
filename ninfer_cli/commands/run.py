"""`ninfer run`: one answer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ninfer_cli import inputs
from ninfer_cli.options import FILE, FORCE, MESSAGES, OPTIONS, REPORTS, SESSIONS, own, takes
from ninfer_core import UsageError

if TYPE_CHECKING:
    from ninfer_cli.opened_session import OpenedSession
    from ninfer_cli.output import Streams
    from ninfer_cli.settings import Settings
    from ninfer_core import Conversation, Engine

NO_PROMPT = (
    "there is no prompt: give one as an argument or on standard input, or start a conversation with: ninfer chat"
)


@dataclass(frozen=True, slots=True)
class Paths:
    """Attributes: session: to start from; save: to keep the conversation in; force: over an existing file."""

    session: Path | None
    save: Path | None
    force: bool


@takes((*OPTIONS, *REPORTS, FILE))
def run(
    given: Mapping[str, object],
    prompt: Annotated[str | None, typer.Argument(metavar="PROMPT", help="What to answer.", show_default=False)] = None,
    messages: Annotated[str | None, MESSAGES] = None,
    session: Annotated[
        str | None,
        own(
            "--session",
            metavar="PATH",
            text="Start from a saved session: what it holds is not read again.",
            panel=SESSIONS,
        ),
    ] = None,
    save: Annotated[
        str | None,
        own(
            "--save", metavar="PATH", text="Keep the conversation, answer included, as a session file.", panel=SESSIONS
        ),
    ] = None,
    force: Annotated[bool, FORCE] = False,
) -> int:
    """Print one answer. The prompt is the argument, standard input, or both: standard input comes first."""
    from ninfer_cli.opened_session import OpenedSession, check_target
    from ninfer_cli.output import open_streams
    from ninfer_cli.rescue import rescue
    from ninfer_cli.settings import resolve
    from ninfer_cli.starting import started_engine

    settings = resolve(given)
    paths = Paths(Path(session) if session else None, Path(save) if save else None, force)
    if paths.save is not None and not _same(paths.save, paths.session):
        check_target(paths.save, force)
    opened = None
    if paths.session is not None:
        if messages is not None or settings.origins.get("system") == "flag":
            raise UsageError("--session brings its own conversation: leave out --messages and --system")
        with rescue(paths.session):
            opened = OpenedSession.at(paths.session)
    asked = _ask(prompt, messages, given, settings if opened is None else None)
    streams = open_streams(no_color=settings.no_color, quiet=settings.quiet)
    with started_engine(settings, streams, sessions=bool(session or save)) as engine:
        return _run(engine, asked, opened, paths, (settings, streams))


def _run(
    engine: Engine,
    asked: Conversation,
    opened: OpenedSession | None,
    paths: Paths,
    how: tuple[Settings, Streams],
) -> int:
    from ninfer_cli.asking import answer
    from ninfer_cli.opened_session import save_answer
    from ninfer_cli.rescue import rescue
    from ninfer_cli.session_text import SessionText

    settings, streams = how
    if opened is not None:
        with rescue(opened.path):
            opened.restore(engine, streams)
        asked = opened.asked(asked.messages[-1].content)
    completion, status = answer(engine, asked, settings, streams)
    if paths.save is not None and completion.finish_reason.value != "error":
        from ninfer_core import Conversation

        text = opened.text if opened is not None else SessionText.of(Conversation(asked.messages[:-1], asked.tools))
        text = text.answered(asked.messages[-1], completion, settings.think)
        held = () if opened is None else opened.paths
        replace = paths.force or _same(paths.save, paths.session)
        save_answer(engine, paths.save, text, [(*completion.prompt_token_ids, *completion.token_ids), *held],
                    (replace, streams))  # fmt: skip
    return status


def _same(one: Path, other: Path | None) -> bool:
    """The bound session may be written without asking."""
    return other is not None and one.absolute() == other.absolute() and one.is_file()


def _ask(
    prompt: str | None, messages: str | None, given: Mapping[str, object], settings: Settings | None
) -> Conversation:
    """What to answer, read and checked as far as that goes without a model. settings brings a system message."""
    from ninfer_core import Conversation, Message

    leading = inputs.leading_messages(None if settings is None else settings.system)
    if messages is not None:
        if prompt is not None or FILE.name in given:
            raise UsageError("--messages holds the whole conversation: leave out PROMPT and --file")
        parsed = inputs.read_messages(messages)
        return Conversation((*leading, *parsed.messages), parsed.tools)
    if prompt is not None:
        check_argument(prompt, "PROMPT")
    text = inputs.joined([*inputs.read_documents(given), inputs.read_standard_input(), prompt])
    if not text:
        raise UsageError(NO_PROMPT if prompt is None else "the prompt is empty: say something")
    return Conversation((*leading, Message(role="user", content=text)), None)


def check_argument(text: str, what: str) -> None:
    """Raises UsageError for bytes that are no UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        offset = _first_bad_byte(os.fsencode(text))
        raise UsageError(f"{what} is not valid UTF-8 (byte {offset}): check the terminal's encoding") from None


def _first_bad_byte(data: bytes) -> int:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return 0
