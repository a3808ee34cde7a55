"""Opening: which conversation a chat begins with, and how it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ninfer_core import UsageError

if TYPE_CHECKING:
    from ninfer_cli.output import Streams
    from ninfer_cli.repl.chat import Chat


@dataclass(frozen=True, slots=True)
class Opening:
    """The options of `ninfer chat` about sessions, as they were given. resume: "" lets a person choose."""

    session: str | None
    newest: bool
    resume: str | None
    rebuild: bool

    def path(self, streams: Streams | None) -> Path | None:
        """Where the conversation lies or shall lie; None where none was named.

        Args:
            streams: where a person can be asked to choose one, if there is a person.

        Raises:
            UsageError: options exclude each other, or there is no such conversation.
        """
        from ninfer_cli.repl.choosing import choose, named
        from ninfer_cli.sessions import find_session, kept_sessions, newest_session

        if sum((self.session is not None, self.newest, self.resume is not None)) > 1:
            raise UsageError("--session, --continue and --resume exclude each other: give one of them")
        if self.newest:
            return newest_session()
        if self.resume == "":
            if streams is None:
                raise named(kept_sessions())
            return choose(kept_sessions(), streams)
        if self.resume is not None:
            return find_session(self.resume)
        if self.rebuild and (self.session is None or not Path(self.session).exists()):
            raise UsageError("--rebuild reads the text of a session: name one with --session, --continue or --resume")
        if self.session is None:
            return None
        if not self.session:
            raise UsageError("--session is empty: give a path")
        path = Path(self.session)
        if path.is_symlink() and not path.exists():
            raise UsageError(f"--session {path} is a link to nothing: choose another place")
        return path

    def begin(self, chat: Chat, path: Path | None, streams: Streams) -> None:
        """Prepare a chat: bring a session back, or say where a new one goes.

        Raises:
            SessionError, UsageError: the session cannot be gone on with.
        """
        from ninfer_cli.repl.keeping import DEFAULT_LIMIT, Keeper
        from ninfer_cli.repl.session_commands import restored_text
        from ninfer_cli.sessions import crashed
        from ninfer_core import is_new_session

        settings = chat.settings
        limit = DEFAULT_LIMIT if settings.autosave_limit is None else settings.autosave_limit
        chat.keeper = Keeper(streams.warn, None, settings.autosave, limit, settings.session_limit)
        if path is None:
            left = crashed() if settings.autosave else None
            if left is not None:
                streams.note(f"the conversation {left.name} did not end in peace: --continue goes on with it")
            return
        if is_new_session(path):
            if not settings.autosave:
                what = "there is no session in it" if path.exists() else "there is no such session"
                raise UsageError(f"{path}: {what}, and --no-autosave makes none")
            chat.keeper.keep_at(path)
            streams.note(f"{path}: a new conversation, kept there")
            return
        restored = chat.restore(path, rebuild=self.rebuild)
        for line in restored_text(chat, path, restored)[0].split("\n"):
            streams.note(line)
        if settings.autosave and chat.keeper.place is None:
            streams.note(f"what comes is kept in {chat.keeper.path}; {path} stays as it is")
