"""`ninfer restore-session`: look at a session, check it against the model, ask it something."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ninfer_cli.options import FORCE, OPTIONS, PROMPT, REPORTS, SESSIONS, own, takes
from ninfer_core import UsageError

if TYPE_CHECKING:
    from ninfer_cli.opened_session import OpenedSession
    from ninfer_cli.output import Streams
    from ninfer_cli.settings import Settings
    from ninfer_core import Engine, RestoredSession


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line asks of the session."""

    prompt: str | None
    verify: bool
    rebuild: bool
    save: Path | None
    force: bool


@takes((*OPTIONS, *REPORTS))
def restore_session(
    given: Mapping[str, object],
    path: Annotated[str, typer.Argument(metavar="PATH", help="A session file or directory.", show_default=False)],
    prompt: Annotated[
        str | None, own("--prompt", metavar="TEXT", text="Ask one question from it.", panel=PROMPT)
    ] = None,
    inspect: Annotated[
        bool,
        own(
            "--inspect",
            text="Show what it holds, also if it is damaged; needs no model and reads no state.",
            panel=SESSIONS,
        ),
    ] = False,
    verify: Annotated[
        bool, own("--verify", text="Replay every checkpoint cold and compare it bit for bit.", panel=SESSIONS)
    ] = False,
    rebuild: Annotated[
        bool, own("--rebuild", text="Ignore its state and read its text again.", panel=SESSIONS)
    ] = False,
    save: Annotated[
        str | None, own("--save", metavar="PATH", text="Keep the result as a session file.", panel=SESSIONS)
    ] = None,
    force: Annotated[bool, FORCE] = False,
) -> int:
    """Verify a session against the model and say what is resumable, checkpoint by checkpoint."""
    from ninfer_cli.commands.run import check_argument
    from ninfer_cli.opened_session import OpenedSession, check_target
    from ninfer_cli.output import open_streams
    from ninfer_cli.rescue import rescue
    from ninfer_cli.settings import resolve
    from ninfer_cli.starting import started_engine

    settings = resolve(given)
    if inspect and (prompt is not None or verify or rebuild or save):
        raise UsageError("--inspect loads no model: leave out --prompt, --verify, --rebuild and --save")
    if verify and rebuild:
        raise UsageError("--rebuild ignores the state that --verify would replay: give one of them")
    if prompt is not None:
        check_argument(prompt, "--prompt")
        if not prompt.strip():
            raise UsageError("--prompt is empty: say something")
    wishes = Wishes(prompt, verify, rebuild, Path(save) if save else None, force)
    if wishes.save is not None:
        check_target(wishes.save, force)
    streams = open_streams(no_color=settings.no_color, quiet=settings.quiet)
    if inspect:
        from ninfer_cli.inspection import show

        return show(Path(path), settings, streams)
    with rescue(Path(path), rebuild=rebuild):
        opened = OpenedSession.at(Path(path), text_only=rebuild)
    with started_engine(settings, streams, sessions=not rebuild or bool(save)) as engine:
        return _restore(engine, opened, wishes, settings, streams)


def _restore(engine: Engine, opened: OpenedSession, wishes: Wishes, settings: Settings, streams: Streams) -> int:
    from ninfer_cli.asking import answer
    from ninfer_cli.opened_session import save_answer
    from ninfer_cli.rescue import rescue
    from ninfer_cli.session_files import chat_command
    from ninfer_cli.wording import counted

    status = 0
    if wishes.rebuild:
        tokens = opened.rebuild(engine, settings.think)
        lines = [f"its state is ignored; read again: {counted(tokens, 'token')} of its text"]
        _tell(settings, streams, wishes, {"rebuilt_tokens": tokens}, lines)
    else:
        with rescue(opened.path):
            restored = opened.restore(engine, streams)
        status = _resumable(engine, restored, wishes, settings, streams)
    text, paths = opened.text, list(opened.paths)
    if wishes.prompt is not None:
        asked = opened.asked(wishes.prompt)
        completion, failed = answer(engine, asked, settings, streams)
        status = status or failed
        if completion.finish_reason.value != "error":
            text = text.answered(asked.messages[-1], completion, settings.think)
            paths.insert(0, (*completion.prompt_token_ids, *completion.token_ids))
    if wishes.save is not None:
        save_answer(engine, wishes.save, text, paths, (wishes.force, streams))
    streams.note(f"go on with: {chat_command(wishes.save or opened.path, settings)}")
    return status


def _resumable(engine: Engine, restored: RestoredSession, wishes: Wishes, settings: Settings, streams: Streams) -> int:
    """Say checkpoint by checkpoint what is there, and with --verify whether it is right."""
    from ninfer_cli.cache_view import verification_json, verification_text
    from ninfer_cli.inspection import PROVEN
    from ninfer_cli.session_files import checkpoints_json, named_json
    from ninfer_cli.wording import counted

    found = engine.verify_session(restored) if wishes.verify else None
    lines = [PROVEN[restored.proven]]
    where = "resumable from" if engine.info.cache else "on"
    wrong = 0
    for number, continuation in enumerate(restored.checkpoints):
        lines.append(f"continuation {number + 1}, {counted(continuation[-1].frontier, 'token')}:")
        for place, c in enumerate(continuation):
            line = f"  {c.kind.value} @ {c.frontier}: {where} {c.placement.value}"
            if found is not None:
                line += f"; {verification_text(found[number][place])}"
                wrong += found[number][place].differs
            lines.append(line)
    if not restored.checkpoints:
        lines.append("it holds no state: its text is read again")
    result = {
        "proven": restored.proven,
        "continuations": checkpoints_json(restored),
        "dropped": named_json(restored.dropped),
        "left_out": [named_json(one) for one in restored.left_out],
        "released": restored.released,
        "verified": None if found is None else [[verification_json(v) for v in one] for one in found],
    }
    _tell(settings, streams, wishes, result, lines, ok=not wrong)
    if wrong:
        wrongs = counted(wrong, "checkpoint")
        streams.warn(f"other than a cold replay gives: {wrongs}; use --rebuild, and do not trust the file")
    return int(wrong > 0)


def _tell(
    settings: Settings, streams: Streams, wishes: Wishes, result: dict[str, Any], lines: list[str], *, ok: bool = True
) -> None:
    """The report is the answer unless a question was asked."""
    from ninfer_cli.asking import command_result

    if settings.json:
        command_result(streams, "restore-session", result, ok=ok)
        return
    if wishes.prompt is None:
        streams.out.write("".join(line + "\n" for line in lines))
    else:
        for line in lines:
            streams.note(line)
