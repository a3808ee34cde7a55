"""OpenedSession: a saved session that a command starts from, and the session that it leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ninfer_cli.inputs import joined
from ninfer_cli.session_files import session_key, tell_restored
from ninfer_cli.session_text import SessionText
from ninfer_cli.wording import counted
from ninfer_core import Conversation, Message, size_text

if TYPE_CHECKING:
    from ninfer_cli.output import Streams
    from ninfer_core import Engine, RestoredSession, SavedSession


@dataclass(slots=True)
class OpenedSession:
    """
    Attributes:
        header: as `open_session` checked it; no state is read yet.
        paths: token ids of what was restored.
    """

    path: Path
    header: Any
    text: SessionText
    paths: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def at(cls, path: Path, *, text_only: bool = False) -> OpenedSession:
        """Before a model is loaded: what is wrong with the file is told at once.

        Args:
            text_only: leave the state aside, which may be damaged.

        Raises:
            SessionError: no session, or damaged.
        """
        from ninfer_core import open_session, open_text

        header = open_text(path, session_key()) if text_only else open_session(path, session_key()).header
        return cls(path, header, SessionText.parse(header.value.get("conversation"), path))

    def restore(self, engine: Engine, streams: Streams) -> RestoredSession:
        """Make its state resident, and say what a person must know.

        Raises:
            SessionError: the state is refused; its text still opens with --rebuild.
        """
        restored = engine.restore_session(self.path, session_key())
        self.paths = restored.paths
        tell_restored(restored, engine.info, streams)
        return restored

    def rebuild(self, engine: Engine, think: bool | None) -> int:
        """Read the text again and ignore the state. Returns how many tokens that took."""
        conversation = self.text.conversation()
        prompt = engine.prepare_prefix(
            conversation.messages, self.text.waiting, tools=conversation.tools, thinking=think
        )
        done = engine.prefill(prompt)
        if done.cause is not None:
            raise done.cause
        self.paths = (prompt.token_ids,)
        return done.statistics.usage.prefill_tokens

    def asked(self, question: str) -> Conversation:
        """The conversation with one more question."""
        conversation = self.text.conversation()
        message = Message(role="user", content=joined([*self.text.kept.files, question]))
        return replace(conversation, messages=(*conversation.messages, message))


def check_target(path: Path, force: bool) -> None:
    """Before a model is loaded. Raises SessionError: the file exists, or is none."""
    from ninfer_core.program.session_file import check_target as check

    check(path, force)


def save_answer(
    engine: Engine,
    path: Path,
    text: SessionText,
    paths: Sequence[Sequence[int]],
    how: tuple[bool, Streams],
) -> SavedSession:
    """Write a session and say where it is. Raises SessionError."""
    from ninfer_core import FileOptions

    replaces, streams = how
    options = FileOptions(replace=replaces, key=session_key())
    saved = engine.save_session(path, paths, text.json(engine.info.model), options)
    tell_saved(path, saved, streams)
    return saved


def tell_saved(path: Path, saved: SavedSession, streams: Streams) -> None:
    streams.note(f"saved {path}: {size_text(saved.bytes)}, {counted(sum(map(len, saved.checkpoints)), 'checkpoint')}")
    for continuation in saved.left_out:
        tokens = counted(continuation[-1].frontier, "token")
        streams.warn(f"no room for the continuation of {tokens} within the limit: left out")
