"""`ninfer save-session`: read a conversation or long documents once, and keep the model's state."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ninfer_cli import inputs
from ninfer_cli.options import FILE, MESSAGES, OPTIONS, REPORTS, SESSIONS, own, takes
from ninfer_core import UsageError

if TYPE_CHECKING:
    from ninfer_cli.output import Streams
    from ninfer_cli.session_text import SessionText
    from ninfer_cli.settings import Settings
    from ninfer_core import Engine


@takes((*OPTIONS, *REPORTS, FILE))
def save_session(
    given: Mapping[str, object],
    out: Annotated[str, typer.Argument(metavar="OUT", help="The session file to write.", show_default=False)],
    messages: Annotated[str | None, MESSAGES] = None,
    session_limit: Annotated[
        str | None,
        own(
            "--session-limit",
            metavar="SIZE",
            text="Most state in the file, such as 512MiB; what is left out is listed.",
            panel=SESSIONS,
        ),
    ] = None,
    force: Annotated[bool, own("--force", text="Replace an existing file.", panel=SESSIONS)] = False,
) -> int:
    """Read documents or a conversation once and save the session that later commands start from."""
    from ninfer_cli.opened_session import check_target
    from ninfer_cli.output import open_streams
    from ninfer_cli.session_files import size_limit
    from ninfer_cli.settings import resolve
    from ninfer_cli.starting import started_engine

    settings = resolve(given)
    limit = None if session_limit is None else size_limit(session_limit, "--session-limit")
    path = Path(out)
    check_target(path, force)
    text = _text(messages, given, settings)
    streams = open_streams(no_color=settings.no_color, quiet=settings.quiet)
    with started_engine(settings, streams, sessions=True) as engine:
        return _save(engine, path, text, (force, limit), (settings, streams))


def _text(messages: str | None, given: Mapping[str, object], settings: Settings) -> SessionText:
    """What to read, checked as far as that goes without a model."""
    from ninfer_cli.session_text import SessionText
    from ninfer_core import Conversation

    leading = inputs.leading_messages(settings.system)
    documents = inputs.read_documents(given)
    conversation = Conversation(leading, None)
    if messages is not None:
        parsed = inputs.read_messages(messages)
        conversation = Conversation((*leading, *parsed.messages), parsed.tools)
    if messages != "-" and (piped := inputs.read_standard_input()) and piped.strip():
        documents.append(piped)
    if not conversation.messages and not any(text.strip() for text in documents):
        raise UsageError("there is nothing to read: give --file, --messages, --system, or pipe a text in")
    return SessionText.of(conversation, [text.rstrip("\r\n") for text in documents])


def _save(
    engine: Engine,
    path: Path,
    text: SessionText,
    file: tuple[bool, int | None],
    how: tuple[Settings, Streams],
) -> int:
    from ninfer_cli.asking import command_result, proofs
    from ninfer_cli.cache_view import statistics_lines
    from ninfer_cli.opened_session import tell_saved
    from ninfer_cli.session_files import chat_command, named_json, session_key
    from ninfer_core import FileOptions

    settings, streams = how
    (force, limit), conversation = file, text.conversation()
    prompt = engine.prepare_prefix(
        conversation.messages, text.waiting, tools=conversation.tools, thinking=settings.think
    )
    done = engine.prefill(prompt)
    if done.cause is not None:
        raise done.cause
    if settings.stats:
        for line in statistics_lines(done, verbose=settings.verbose):
            streams.dim_line(line)
    options = FileOptions(replace=force, limit=limit, key=session_key())
    saved = engine.save_session(path, [prompt.token_ids], text.json(engine.info.model), options)
    tell_saved(path, saved, streams)
    if settings.json:
        held = [[(c.kind.value, c.frontier) for c in one] for one in saved.checkpoints]
        missing = [[(c.kind.value, c.frontier) for c in one] for one in saved.left_out]
        result = {
            "path": str(path),
            "bytes": saved.bytes,
            "tokens": len(prompt),
            "checkpoints": [named_json(one) for one in held],
            "left_out": [named_json(one) for one in missing],
        }
        command_result(streams, "save-session", result)
    streams.note(f"go on with: {chat_command(path, settings)}")
    return proofs(engine, done, settings, streams)
