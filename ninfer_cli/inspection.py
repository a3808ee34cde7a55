"""What `restore-session --inspect` shows: a session's header, without a model, also where its state is damaged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ninfer_cli.rescue import into_another
from ninfer_cli.session_files import named_json, session_key
from ninfer_cli.session_text import SessionText
from ninfer_cli.sessions import holds_conversation
from ninfer_cli.wording import counted
from ninfer_core import SessionError, inspect_session

if TYPE_CHECKING:
    from ninfer_cli.output import Streams
    from ninfer_cli.settings import Settings

PROVEN = {
    True: "written by this user's ninfer",
    False: "signed by somebody else: its state is unproven",
    None: "not signed: its state is unproven",
}


def show(path: Path, settings: Settings, streams: Streams) -> int:
    """Write what a session holds. Returns the exit status: 1 where something of it is damaged, which a line says.

    Raises:
        SessionError: nothing of it can be shown.
    """
    from ninfer_cli.asking import command_result

    found = inspect_session(path, session_key())
    text, damage = None, found.damage
    if holds_conversation(conversation := found.header.value.get("conversation")):
        try:
            text = SessionText.parse(conversation, path)
        except SessionError as error:
            damage = damage or str(error)
    model = found.header.value.get("model")
    facts = model if isinstance(model, Mapping) else {}
    dtype, fingerprint = (_word(facts.get(name)) for name in ("dtype", "fingerprint"))
    held = found.continuations or ()
    if settings.json:
        result: dict[str, Any] = {
            "model": text and text.model,
            "dtype": dtype,
            "fingerprint": fingerprint,
            "proven": found.header.proven,
            "turns": text and text.turns,
            "waiting_characters": text and len(text.waiting),
            "continuations": None if found.continuations is None else [named_json(one) for one in held],
            "damage": damage,
        }
        command_result(streams, "restore-session", result, ok=damage is None)
    else:
        by = f"saved by {(text and text.model) or 'an unnamed model'}" + (f" ({dtype})" if dtype else "")
        lines = [f"{by}; {PROVEN[found.header.proven]}", _said(text)]
        for number, one in enumerate(held):
            lines.append(f"continuation {number + 1}: " + ", ".join(f"{kind} @ {frontier}" for kind, frontier in one))
        streams.out.write("".join(streams.out.foreign(line) + "\n" for line in lines))
    if damage is None:
        return 0
    streams.warn(damage if text is None else f"{damage}; {into_another(path)}")
    return 1


def _said(text: SessionText | None) -> str:
    if text is None:
        return "no conversation"
    waiting = f", {len(text.waiting):,} characters wait for the next message" if text.waiting else ""
    return f"{counted(text.turns, 'turn')} on the current path{waiting}"


def _word(value: object) -> str | None:
    return value if isinstance(value, str) else None
