"""An independent account of what ResourceManager's catalogs, edges and sessions must hold.

It is told what was asked for, which target was sealed, and how requests ended; where owners are, it reads in Program's
ledger. Nothing is taken from the books that it is compared with.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ninfer_core.cache.admission import Ask
from ninfer_core.cache.manager import ResourceManager
from ninfer_core.cache.retention import Retention
from ninfer_core.cache.sessions import session_digest
from ninfer_core.contract.ids import CheckpointRef, OwnerId, RequestId
from ninfer_core.contract.intent import CacheMode
from ninfer_core.program.ledger.objects import Role
from ninfer_core.program.planning.target import Activation, SourceMode, Target
from ninfer_core.program.program import Program


@dataclass
class Kept:
    session: str | None
    order: int
    refs: frozenset[CheckpointRef]


@dataclass
class LogicalModel:
    """
    Attributes:
        placed: running requests that have a private cell.
        highest: the largest publication order that was ever bound to a session.
    """

    program: Program
    cells: int
    private: dict[OwnerId, Kept] = field(default_factory=dict)
    shared: dict[OwnerId, frozenset[CheckpointRef]] = field(default_factory=dict)
    running: dict[RequestId, Ask] = field(default_factory=dict)
    placed: set[RequestId] = field(default_factory=set)
    edges: dict[RequestId, OwnerId] = field(default_factory=dict)
    bound: dict[str, OwnerId] = field(default_factory=dict)
    highest: dict[str, int] = field(default_factory=dict)
    materialized: int = 0

    # --- what happened --------------------------------------------------------------------------------------------
    def admitted(self, ask: Ask, target: Target) -> None:
        assert isinstance(target.demand, Activation)
        source = target.demand.source
        free = self.cells - len(self.private) - len(self.placed)
        evicted = {o for o, outcome in target.outcomes.items() if outcome.evicted and o in self.private}
        consumed = source is not None and source.mode is SourceMode.CONSUME
        if ask.intent.writes and (consumed or free > 0 or evicted):
            self.placed.add(ask.request)
        if source is not None and not consumed:
            self.edges[ask.request] = source.owner
        self.running[ask.request] = ask
        self.materialized += ask.intent.mode is CacheMode.READ_WRITE
        self.settled()

    def finished(self, request: RequestId, owner: OwnerId, frontier: int) -> bool:
        """Returns whether the continuation must have been kept."""
        ask, kept = self.running[request], request in self.placed and frontier > 0
        session = ask.intent.session
        if kept:
            refs = frozenset(c.ref for c in self.program.checkpoints(owner))
            self.private[owner] = Kept(session, ask.order, refs)
            if session is not None and ask.order > self.highest.get(session, 0):
                self.bound[session], self.highest[session] = owner, ask.order
        self.left(request)
        return kept

    def left(self, request: RequestId) -> None:
        del self.running[request]
        self.placed.discard(request)
        self.edges.pop(request, None)
        self.settled()

    def settled(self) -> None:
        """A transition has ended: read in the ledger who is still there, and who was made public."""
        world = self.program.world
        roles = {owner.id: owner.role for owner in world.owners.values()}
        for owner in [o for o in self.private if roles.get(o) is not Role.PRIVATE]:
            del self.private[owner]
            self.bound = {session: o for session, o in self.bound.items() if o != owner}
        for owner, kept in self.private.items():
            now = frozenset(c.ref for c in world.owners[owner].checkpoints)
            assert now and now <= kept.refs, f"owner {owner} has gained a checkpoint"
            kept.refs = now
        self.shared = {
            o: frozenset(c.ref for c in world.owners[o].checkpoints) for o, r in roles.items() if r is Role.SHARED
        }

    # --- the comparison -------------------------------------------------------------------------------------------
    def compare(self, manager: ResourceManager) -> None:
        books = manager.books
        private = {entry.owner: entry for entry in books.private}
        assert {o: e.refs for o, e in private.items()} == {o: k.refs for o, k in self.private.items()}, (
            "private catalog"
        )
        assert {e.owner: e.refs for e in books.shared} == self.shared, "shared catalog"
        for owner, kept in self.private.items():
            digest = None if kept.session is None else session_digest(kept.session)
            assert (private[owner].session, private[owner].order) == (digest, kept.order)
            turns = {self.running[request].intent.session for request in self.placed}
            live = owner in self.bound.values() and kept.session not in turns
            expected = Retention.LIVE_SESSION if live else Retention.RECENT_PRIVATE
            assert private[owner].retention is (Retention.DISPOSABLE if kept.session is None else expected)
        assert {edge.request: edge.owner for edge in books.edges} == self.edges, "owner edges"
        bound = {session: books.sessions.owner_of(session_digest(session)) for session in self.highest}
        assert {s: o for s, o in bound.items() if o is not None} == self.bound, "SessionIndex"
        assert {r for r, running in manager._running.items() if running.cell is not None} == self.placed, "cells"
        assert manager._running.keys() == self.running.keys(), "running requests"
        assert books.demand.epoch == self.materialized, "materializations"
