"""Sessions: a conversation's state on a disk and back (context-cache SES, product: Sessions and Trust).

Only the copy out of memory, and into it, runs in the worker; files are read and written by the caller's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ninfer_core.cache.persistence import Persistence
from ninfer_core.contract.ids import CheckpointRef, OwnerId
from ninfer_core.contract.results import CheckpointSummary
from ninfer_core.contract.verification import Verification
from ninfer_core.program import session_file
from ninfer_core.program.restoring import options_for
from ninfer_core.program.session_content import SessionSource
from ninfer_core.program.session_key import SessionKey
from ninfer_core.program.session_reader import READS, open_session
from ninfer_core.program.session_segments import SegmentGone
from ninfer_core.program.session_store import Autosaved, SessionStore
from ninfer_core.program.snapshot import content as complete_content

T = TypeVar("T")
Continuations = tuple[tuple[CheckpointSummary, ...], ...]
"""The checkpoints of each continuation, ascending by frontier."""
Named = tuple[tuple[str, int], ...]
"""Checkpoints that are not here: kind and frontier."""


class Worker(Protocol):
    """What runs between two units of work."""

    def call(self, act: Callable[[], T]) -> T: ...


@dataclass(frozen=True, slots=True)
class FileOptions:
    """
    Attributes:
        replace: an existing session file may be replaced.
        limit: bytes of state, newest continuations first; None is no limit.
        key: signs the file, so that this user's ninfer knows it again; None leaves it unproven.
    """

    replace: bool = False
    limit: int | None = None
    key: SessionKey | None = None


@dataclass(frozen=True, slots=True)
class SavedSession:
    """bytes: of the file; left_out: what the limit left no room for."""

    bytes: int
    checkpoints: Continuations
    left_out: Continuations


@dataclass(frozen=True, slots=True)
class AutosavedSession:
    """
    Attributes:
        written: bytes; only what is new.
        state_bytes: of all state that the directory holds.
        checkpoints: what is resident of the conversation.
        left_out: checkpoints of continuations that the limit left no room for.
    """

    written: int
    state_bytes: int
    checkpoints: Continuations
    left_out: tuple[Named, ...]


@dataclass(frozen=True, slots=True)
class RestoredSession:
    """
    Attributes:
        conversation: as it was given when it was saved. Hostile until checked.
        proven: True when this user's key signed it, False when another's did, None when nothing tells.
        checkpoints: what is resident now, newest continuation first.
        dropped: checkpoints that found no place.
        left_out: continuations that found none.
        released: how many other continuations had to go.
        owners: handles for `Engine.verify_session`.
        paths: token ids of each continuation, for a later save.
        advice: the options to raise where something found no place.
    """

    conversation: Any
    proven: bool | None
    checkpoints: Continuations = ()
    dropped: Named = ()
    left_out: tuple[Named, ...] = ()
    released: int = 0
    owners: tuple[OwnerId, ...] = ()
    paths: tuple[tuple[int, ...], ...] = ()
    advice: str = ""


class Sessions:
    """An Engine's part that saves and restores. Any thread may call it; a store is one caller's."""

    def __init__(self, worker: Worker, persistence: Persistence) -> None:
        self._worker = worker
        self._persistence = persistence
        self._unproven: set[OwnerId] = set()
        """Restored continuations that nothing vouches for: while there are any, nothing is signed."""

    def save(self, path: Path, paths: Sequence[Sequence[int]], conversation: Any, file: FileOptions) -> SavedSession:
        """See `Engine.save_session`."""
        session_file.check_target(path, file.replace)  # before the state is copied
        taken = self._worker.call(lambda: self._persistence.snapshot(paths, None, file.limit))
        content = complete_content(taken.snapshot, conversation)
        key = None if self._unproven else file.key
        size = session_file.write(path, content, replace=file.replace, key=key)
        return SavedSession(size, taken.checkpoints, taken.left_out)

    def autosave(self, store: SessionStore, paths: Sequence[Sequence[int]], conversation: Any) -> AutosavedSession:
        """See `Engine.autosave`."""
        taken = self._worker.call(lambda: self._persistence.snapshot(paths, store, store.limit))
        store.signs = not self._unproven
        saved: Autosaved = store.autosave(taken.snapshot, conversation)
        early = tuple(_named([(c.kind, c.frontier) for c in one]) for one in taken.left_out)
        late = tuple(_named(one) for one in saved.left_out)
        return AutosavedSession(saved.written, saved.state_bytes, taken.checkpoints, late + early)

    def restore(self, where: Path | SessionStore, key: SessionKey | None) -> RestoredSession:
        """See `Engine.restore_session`."""
        for attempt in range(1, READS + 1):
            source = where.source() if isinstance(where, SessionStore) else open_session(where, key)
            try:
                return self._restore(source, where if isinstance(where, SessionStore) else None)
            except SegmentGone:
                if attempt == READS:
                    raise
        raise AssertionError("unreachable")

    def verify(self, restored: RestoredSession) -> tuple[tuple[Verification, ...], ...]:
        """See `Engine.verify_session`."""

        def one(owner: OwnerId, ref: CheckpointRef) -> Verification:
            return self._worker.call(lambda: self._persistence.verify(owner, ref))

        found = tuple(
            tuple(one(owner, checkpoint.ref) for checkpoint in checkpoints)
            for owner, checkpoints in zip(restored.owners, restored.checkpoints, strict=True)
        )
        for owner, checkpoints in zip(restored.owners, found, strict=True):
            if checkpoints and all(one.done and not one.differs for one in checkpoints):
                self._unproven.discard(owner)  # a replay is the better proof
        return found

    def _restore(self, source: SessionSource, store: SessionStore | None) -> RestoredSession:
        selection = self._persistence.selection(source)
        conversation, proven = source.header.value.get("conversation"), source.header.proven
        if not source.header.value["continuations"]:
            return RestoredSession(conversation, proven)
        content = source.load(selection.directory)
        state = self._worker.call(lambda: self._persistence.restore(content, proven=proven is True))
        if proven is not True:
            self._unproven.update(state.physical.owners)
        if store is not None and content.places is not None:
            store.adopt(content.places, state.physical, self._persistence.origin, state.continuations)
        missing = tuple(c.named() for c in selection.left_out)
        return RestoredSession(
            conversation,
            proven,
            state.checkpoints,
            _named((*state.physical.dropped, *selection.dropped)),
            tuple(_named(one) for one in (*state.physical.left_out, *missing)),
            state.released,
            state.owners,
            tuple(tuple(content.tensors[f"tokens.{place}"].tolist()) for place in state.continuations),
            options_for(state.physical.lacks | selection.lacks),
        )


def _named(checkpoints: Sequence[tuple[Any, int]]) -> Named:
    return tuple((kind.value, frontier) for kind, frontier in checkpoints)
