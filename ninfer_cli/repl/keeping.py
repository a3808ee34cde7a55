"""Keeper: keeps a chat's conversation and its state on the disk after every turn, and brings it back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from ninfer_cli.repl.room import Room
from ninfer_cli.session_files import session_key
from ninfer_cli.session_links import remember
from ninfer_cli.sessions import Kept, conversation_json, new_path, read_conversation, sessions_directory
from ninfer_core import FileOptions, NinferError, SessionError, SessionStore, UsageError, open_session, open_text

if TYPE_CHECKING:
    from ninfer_cli.repl.chat import Chat
    from ninfer_cli.repl.tree import Tree
    from ninfer_core import PreparedPrompt, RestoredSession, SavedSession


DEFAULT_LIMIT = 4 << 30
"""Bytes of state that one conversation's directory may hold."""


@dataclass(slots=True)
class Keeper:
    """
    Attributes:
        warn: shows a line.
        path: where the conversation is kept; None chooses a new place at the first turn.
        enabled: False keeps nothing by itself.
        limit: bytes of state that the directory may hold (--autosave-limit).
        file_limit: bytes of state in a saved file (--session-limit).
        saved_to: where /save wrote last.
        room: how large the conversation may become.
    """

    warn: Callable[[str], None]
    path: Path | None = None
    enabled: bool = True
    limit: int = DEFAULT_LIMIT
    file_limit: int | None = None
    saved_to: Path | None = None
    room: Room = field(default_factory=Room, repr=False)
    _file: Path | None = None
    """Where the conversation came from, if it is kept beside that."""
    _store: SessionStore | None = None
    _kept: Kept | None = field(default=None, repr=False)
    _saved: Tree | None = field(default=None, repr=False)
    _trouble: str = ""
    _remembered: bool = False  # that --continue and --resume find it

    # --- by itself ------------------------------------------------------------------------------------------------
    def keep(self, chat: Chat, *, closing: bool = False) -> None:
        """Bring the directory up to date, if something was said. Trouble is a warning, once: the chat goes on."""
        with suppress(NinferError):  # what cannot be measured cannot be kept either: that is said below
            if line := self.room.nearly_full(chat.tree):
                self.warn(line)
        if not self.enabled or (chat.tree.turn is None and self._store is None):
            return
        kept, before = chat.kept(is_open=not closing), self._kept
        unchanged = before is not None and replace(kept, open=before.open) == before
        if before is not None and unchanged and not (closing and before.open):
            return
        what = "the conversation"
        try:
            store = self._open()
            conversation = conversation_json(kept, chat.engine.info.model, self.room.writer)
            try:
                chat.engine.autosave(store, chat.ledgers(), conversation)
            except (NinferError, OSError):
                # Text before state: it is small, and nothing can make it again.
                store.autosave(None, conversation)
                what = "the state of the last turns"
                self._kept = kept
                raise
            self._kept, self._trouble = kept, ""
            if not self._remembered:
                self._remembered = True
                remember(store.path, sessions_directory())
        except (NinferError, OSError) as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                self.warn(f"{what} was not kept: {error}")

    def close(self, chat: Chat) -> None:
        """The chat ends in peace."""
        if self._store is not None:
            self.keep(chat, closing=True)
        self.leave()

    def leave(self) -> None:
        """Let go of the directory; the next turn chooses another one."""
        if self._store is not None:
            self._store.close()
        self._store, self._kept, self.path, self._file = None, None, None, None
        self._saved, self.saved_to, self.room, self._trouble = None, None, Room(), ""
        self._remembered = False

    def unsaved(self, tree: Tree) -> bool:
        """Whether leaving would lose something of it."""
        by_itself = self.enabled and not self._trouble
        return len(tree.nodes) > 1 and not by_itself and tree != self._saved

    def check_room(self, tree: Tree, more: str = "") -> None:
        """Before a tree grows by a message, or to this one. Raises UsageError when it could not be kept any more."""
        if self.enabled:
            self.room.check(tree, more, stays=not self._trouble)

    @property
    def place(self) -> Path | None:
        return self.path if self._store is not None else None

    @property
    def aside(self) -> Path | None:
        """Where what a session held before --rebuild, or what is left of one, goes with the next turn that is kept."""
        return None if self._store is None else self._store.aside

    def keep_at(self, path: Path) -> None:
        """Keep a new conversation at a place that a person named. Raises SessionError when that cannot be."""
        self.path = path
        try:
            self._open()
        except BaseException:
            self.path = None
            raise
        if self.aside is not None:
            self.warn(
                f"{path} holds state but no manifest, which says what it is of: with the first turn it is kept in "
                f"{self.aside}; to go on with it instead, leave now and put its manifest back"
            )

    def _open(self) -> SessionStore:
        if self._store is None:
            if self._file is not None and self.path is not None and self.path.exists():  # another chat's meanwhile
                self.path = self._beside(self._file)
                self.warn(f"what comes is kept in {self.path}")
            self.path = self.path or new_path()
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            except OSError as error:
                raise SessionError(f"{self.path.parent} cannot be made: {error.strerror or error}") from error
            self._store = SessionStore(self.path, session_key(), self.limit)
        return self._store

    def held(self, prompts: Sequence[PreparedPrompt]) -> tuple[int, ...]:
        """For each prompt, how much of it has state on the disk. What cannot be read is no state."""
        try:
            return (0,) * len(prompts) if self._store is None else self._store.held(prompts)
        except SessionError as error:
            self.warn(str(error))
            return (0,) * len(prompts)

    # --- on demand ------------------------------------------------------------------------------------------------
    def save(self, chat: Chat, path: Path, *, overwrite: bool) -> SavedSession:
        """Write one portable file. Raises SessionError, UsageError."""
        value = conversation_json(chat.kept(), chat.engine.info.model, self.room.writer)
        options = FileOptions(replace=overwrite, limit=self.file_limit, key=session_key())
        saved = chat.engine.save_session(path, chat.ledgers(), value, options)
        self.saved_to, self._saved = path, chat.tree
        return saved

    def bring_back(self, chat: Chat, path: Path, *, rebuild: bool) -> tuple[Kept, RestoredSession | None]:
        """Read a session of either form: its conversation, and unless rebuild its state, which becomes resident.

        A directory goes on being kept where it is; a file's conversation is kept beside it, in PATH.d.

        Raises:
            SessionError, UsageError: one line; nothing has changed then.
        """
        key = session_key()
        if self._store is not None and path.is_dir() and path.samefile(self._store.path):
            raise UsageError(f"{path} is the conversation that is open here: there is nothing to restore")
        if not path.is_dir():
            header = open_text(path, key) if rebuild else open_session(path, key).header
            kept = read_conversation(header.value.get("conversation"), path)
            restored = None if rebuild else chat.engine.restore_session(path, key)
            self.leave()
            self.path, self._file, self._saved, self._kept = self._beside(path), path, kept.tree, kept
            return kept, restored
        store = SessionStore(path, key, self.limit, text_only=rebuild)
        try:
            header = store.header or open_text(path, key)  # which says what is missing
            kept = read_conversation(header.value.get("conversation"), path)
            restored = None if rebuild else chat.engine.restore_session(store, key)
        except BaseException:
            store.close()
            raise
        self.leave()
        self.path, self._store, self._saved, self._kept = path, store, kept.tree, kept
        return kept, restored

    def _beside(self, path: Path) -> Path:
        """Where a file's conversation is kept: PATH.d, or another name where one was kept there before."""
        first = path.with_name(path.name + ".d")
        if not first.exists():
            return first
        self.warn(f"an earlier chat from this file is kept in {first}: --session {first} goes on with that one")
        return next(p for n in count(2) if not (p := path.with_name(f"{path.name}.d{n}")).exists())
