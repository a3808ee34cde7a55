"""Persistence: continuations into sessions and back (context-cache SES). Between units of work only."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ninfer_core.cache.books import Books
from ninfer_core.cache.catalog import Entry
from ninfer_core.cache.retention import Retention
from ninfer_core.contract.ids import CheckpointRef, OwnerId
from ninfer_core.contract.results import CheckpointSummary
from ninfer_core.contract.verification import Verification
from ninfer_core.program.identity import encode
from ninfer_core.program.program import Program
from ninfer_core.program.restoring import Restored
from ninfer_core.program.session_content import SessionContent, SessionSource
from ninfer_core.program.session_directory import Fit
from ninfer_core.program.snapshot import Known, Snapshot

Checkpoints = tuple[CheckpointSummary, ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """
    Attributes:
        checkpoints: what the snapshot holds, by continuation.
        left_out: continuations that the size limit left no room for.
    """

    snapshot: Snapshot
    checkpoints: tuple[Checkpoints, ...]
    left_out: tuple[Checkpoints, ...]


@dataclass(frozen=True, slots=True)
class RestoredState:
    """
    Attributes:
        physical: what Program made of it.
        continuations: places in the content of what is resident now, also of what was before; ascending.
        owners, checkpoints: of each of them.
        released: how many other continuations were released to make room.
    """

    physical: Restored
    continuations: tuple[int, ...]
    owners: tuple[OwnerId, ...]
    checkpoints: tuple[Checkpoints, ...]
    released: int


class Persistence:
    """The only path that publishes an owner without a materialization or capture (SES-1)."""

    def __init__(self, program: Program, books: Books) -> None:
        self._program = program
        self._books = books

    @property
    def origin(self) -> str:
        """Names the Program whose keys snapshots carry."""
        return self._program.origin

    def snapshot(self, paths: Sequence[Sequence[int]], known: Known | None = None, limit: int | None = None) -> Taken:
        """Copy every inactive owner that lies on one of the paths, newest first. Mutates nothing (SES-2).

        Args:
            paths: token ids of the conversation's branches, each from its first token.
            known: what need not be copied.
            limit: bytes that the continuations may take together.
        """
        whole = [encode(path) for path in paths]
        found = [entry for entry in self._books.entries() if self._on_path(entry, whole)]
        found.sort(key=lambda e: (-e.last_hit, -e.published, -e.owner))
        owners = [entry.owner for entry in found]
        count = len(owners) if limit is None else self._program.fitting(owners, limit)
        snapshot = self._program.snapshot(owners[:count], known)
        named = tuple(entry.checkpoints for entry in found)
        return Taken(snapshot, named[:count], named[count:])

    def selection(self, source: SessionSource) -> Fit:
        """What of a session could find room if nothing else were there. Any thread may ask; raises SessionError."""
        return self._program.selection(source.header.value, source.sizes(), self._books.private.cells)

    def restore(self, content: SessionContent, *, proven: bool = True) -> RestoredState:
        """Publish a checked content's continuations as anonymous private owners, found by prefix only (SES-3).

        What is resident already, state for state, is not restored again. There is no pressure in this path: while a
        checkpoint finds no room, the least recently used inactive owners are released one by one. What finds none even
        so is left out; it is named in the result.

        Args:
            proven: somebody vouches for it: it goes before what nobody does.

        Raises:
            SessionError: another model, a damaged directory or state, or room for nothing while nothing of it is here.
                Nothing has changed then.
        """
        resident, released = self._program.resident(content), 0
        kept = frozenset(resident.values())
        while not (fit := self._program.restorable(content, self._books.private.free_cells, resident)).complete:
            spare = self._books.eligible().keys() - kept
            cells = self._books.private.free_cells + sum(not self._books.is_shared(owner) for owner in spare)
            if not released:  # nobody is released for what would be refused all the same
                self._program.check_continuations(content, cells, resident, spare)
            if self._program.restorable(content, cells, resident, spare).directory == fit.directory:
                break  # nor for what would be left out
            if not self._release_one(spare, fit.lacks):
                break
            released += 1
        restored = self._program.restore_continuations(content, self._books.private.free_cells, resident)
        for owner in reversed(restored.owners):  # the newest is published last: it counts as used last
            cell = self._books.private.reserve()
            assert cell is not None, "cells were counted before"
            entry = self._books.publish_private(cell, owner, None, 0)
            entry.retention, entry.proven = Retention.RECENT_PRIVATE, proven
        for owner in kept:
            found = self._books.get(owner)
            assert found is not None, "an inactive owner is catalogued"
            found.last_hit, found.proven = self._books.demand.epoch, found.proven or proven
        here = dict(sorted({**resident, **dict(zip(restored.continuations, restored.owners, strict=True))}.items()))
        checkpoints = tuple(self._program.summaries(owner) for owner in here.values())
        return RestoredState(restored, tuple(here), tuple(here.values()), checkpoints, released)

    def verify(self, owner: OwnerId, ref: CheckpointRef) -> Verification:
        """Replay a restored checkpoint cold and compare it with its state (product: Trust)."""
        return self._program.verify_checkpoint(owner, ref)

    def _on_path(self, entry: Entry, paths: Sequence[bytes]) -> bool:
        tokens = self._program.record(entry.checkpoints[-1].ref).identity.tokens
        return any(path.startswith(tokens) for path in paths)

    def _release_one(self, eligible: Collection[OwnerId], lacks: Collection[str]) -> bool:
        """An explicit release of the least recently used of these owners that can help (RET-2)."""
        if set(lacks) == {"places"}:  # a shared prefix takes none of them
            eligible = {owner for owner in eligible if not self._books.is_shared(owner)}
        oldest: OwnerId | None = next((owner for owner in self._books.ranking() if owner in eligible), None)
        if oldest is None:
            return False
        self._books.release(oldest)
        return True
