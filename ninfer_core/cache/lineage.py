"""Lineage: what exists on the path of a running request's prompt, exactly. A view for one decision."""

from __future__ import annotations

from functools import cached_property

from ninfer_core.cache.books import Books
from ninfer_core.cache.candidates import Match, find_matches
from ninfer_core.cache.running import RunningRequest
from ninfer_core.contract.ids import OwnerId
from ninfer_core.contract.results import CheckpointSummary
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.program.program import Program


class Lineage:
    """Valid until a checkpoint is made or goes. Program verifies whatever is told here (CAN-10)."""

    def __init__(self, program: Program, books: Books, running: RunningRequest) -> None:
        self._program = program
        self._books = books
        self._running = running

    @property
    def own(self) -> tuple[CheckpointSummary, ...]:
        """The running sequence's checkpoints, ascending."""
        return self._program.summaries(self._running.owner)

    def own_at(self, frontier: int) -> CheckpointSummary | None:
        return next((c for c in self.own if c.frontier == frontier), None)

    @cached_property
    def matches(self) -> tuple[Match, ...]:
        """Catalogued checkpoints on the path, deepest first."""
        return find_matches(self._program, self._running.asker, self._books)

    def elsewhere(self, frontier: int) -> Match | None:
        """A catalogued checkpoint with exactly the request's state at a frontier."""
        return next((match for match in self.matches if match.summary.frontier == frontier), None)

    def is_shared(self, frontier: int) -> bool:
        return any(match.shared and match.summary.frontier == frontier for match in self.matches)

    @property
    def extended(self) -> frozenset[OwnerId]:
        """Shared owners whose frontier the path matches exactly: the request itself extends them (EVI-4)."""
        return frozenset(match.entry.owner for match in self.matches if match.shared)

    def deepest_endpoint(self) -> Match | None:
        """The deepest catalogued end of a private continuation on the path."""
        ends = (m for m in self.matches if not m.shared and m.summary.kind is SourceKind.SESSION_ENDPOINT)
        return next(ends, None)
