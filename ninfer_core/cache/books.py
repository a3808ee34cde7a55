"""Books: catalogs, edges, sessions, demand and paths, kept together (context-cache AUT-2).

They change in one place only, so that what depends on each other changes together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from ninfer_core.cache.beginnings import Beginnings
from ninfer_core.cache.catalog import Capability, Catalog, CellId, Entry
from ninfer_core.cache.demand import DemandWindow
from ninfer_core.cache.edges import OwnerEdges
from ninfer_core.cache.misses import Graveyard, Tombstone
from ninfer_core.cache.paths import PathIndex
from ninfer_core.cache.retention import Retention
from ninfer_core.cache.sessions import SessionIndex
from ninfer_core.cache.shelf import Shelf
from ninfer_core.contract.cache_limits import DEMAND_WINDOW, CacheLimits
from ninfer_core.contract.ids import CheckpointRef, OwnerId, RequestId
from ninfer_core.contract.plans import SequenceHandle
from ninfer_core.contract.results import CheckpointSummary, Ending, OwnerSummary, ResourceResult
from ninfer_core.program.planning.plan import ResourcePlan
from ninfer_core.program.program import Program
from ninfer_core.program.transactions.running import RunningTransaction


class AdoptionError(RuntimeError):
    """A transition's end is not one that was claimed, or none at all: the books can no longer be trusted (TXN-11)."""


class Books:
    """Logical state of the cache. Every verb leaves it consistent."""

    def __init__(self, program: Program, limits: CacheLimits) -> None:
        self._program = program
        self.private = Catalog(limits.private_cells)
        self.shared = Catalog(limits.shared_cells, shared=True)
        self.edges = OwnerEdges()
        self.sessions = SessionIndex()
        self.demand = DemandWindow()
        self.paths = PathIndex(program.is_prefix)
        self.shelf = Shelf()
        self.beginnings = Beginnings()
        self.graveyard = Graveyard()
        self._turns: dict[bytes, set[RequestId]] = {}
        self._claims: dict[OwnerId, Capability] = {}
        self._claiming = False

    # --- look-ups -------------------------------------------------------------------------------------------------
    def entries(self) -> Iterator[Entry]:
        yield from self.private
        yield from self.shared

    def get(self, owner: OwnerId) -> Entry | None:
        return self.private.get(owner) or self.shared.get(owner)

    def is_shared(self, owner: OwnerId) -> bool:
        return self.shared.get(owner) is not None

    def eligible(self, spared: Iterable[OwnerId] = ()) -> dict[OwnerId, Entry]:
        """Owners that pressure may change: catalogued, without an edge, none of those to be spared (TGT-2)."""
        found = {**self.private.entries, **self.shared.entries}
        for owner in (*self.edges.owners(), *self.claims, *spared):
            found.pop(owner, None)
        return found

    def ranking(self) -> list[OwnerId]:
        """Private and shared owners together, least recently hit or published first (PLAN-5)."""
        return [entry.owner for entry in sorted(self.entries(), key=lambda entry: entry.last_hit)]

    # --- publication ----------------------------------------------------------------------------------------------
    def publish_private(
        self, cell: CellId, owner: OwnerId, session: bytes | None, order: int, *, unreachable: bool = False
    ) -> Entry:
        """A finished continuation takes its cell, and its session's binding when no later one has it (RET-3)."""
        summaries = self._program.summaries(owner)
        entry = self.private.publish(cell, owner, summaries, self.demand.epoch)
        entry.session, entry.order = session, order
        if unreachable:
            entry.unreachable = frozenset({summaries[-1].ref})
        if session is None:
            entry.retention = Retention.DISPOSABLE
        else:
            bound = self.sessions.bind(session, owner, order)
            if bound.accepted:
                entry.retention = Retention.LIVE_SESSION
                before = None if bound.before is None else self.private.get(bound.before)
                if before is not None:
                    before.retention = Retention.RECENT_PRIVATE
        self._walk(owner, summaries)
        return entry

    def publish_shared(self, cell: CellId, owner: OwnerId, *, declared: bool) -> Entry:
        """A shared prefix takes its cell; declared evidence brings it one credit (VAL-5)."""
        summaries = self._program.summaries(owner)
        entry = self.shared.publish(cell, owner, summaries, self.demand.epoch)
        entry.automatic = not declared
        entry.credit_until = self.demand.epoch + DEMAND_WINDOW if declared else None
        self._walk(owner, summaries)
        return entry

    def age_credits(self, keys: frozenset[bytes]) -> None:
        """A later materialization was adopted: it consumes the credit of every shared owner that it matched exactly,
        selected or not; the oldest credits expire (DEF-7)."""
        for entry in self.shared:
            matched = any(self.shelf.keys[ref] in keys for ref in entry.refs)
            if entry.credit_until is not None and (matched or self.demand.epoch >= entry.credit_until):
                entry.credit_until = None

    # --- turns ----------------------------------------------------------------------------------------------------
    def begin_turn(self, session: bytes, request: RequestId) -> None:
        """A request that will take a session's binding over runs: nobody is expected at the old one meanwhile."""
        self._turns.setdefault(session, set()).add(request)
        self._expect(session)

    def end_turn(self, session: bytes, request: RequestId) -> None:
        """The request has ended, whatever way. Nothing happens when it had not begun a turn."""
        self._turns.get(session, set()).discard(request)
        self._expect(session)
        if not self._turns.get(session):
            self._turns.pop(session, None)

    def _expect(self, session: bytes) -> None:
        owner = self.sessions.owner_of(session)
        entry = None if owner is None else self.private.get(owner)
        if entry is not None:
            entry.retention = Retention.RECENT_PRIVATE if self._turns.get(session) else Retention.LIVE_SESSION

    # --- claims ---------------------------------------------------------------------------------------------------
    @property
    def claims(self) -> frozenset[OwnerId]:
        """The owners that an open transition may change."""
        return frozenset(self._claims)

    def claim(self, owners: Iterable[OwnerId]) -> None:
        """Mark what the one transition may change, before it starts (TXN-4).

        Raises:
            RuntimeError: another claim is open.
        """
        if self._claiming:
            raise RuntimeError("another transition holds its claim (INV-9)")
        found = [self.get(owner) for owner in owners]
        assert None not in found, "only catalogued owners are claimed"
        self._claims = {entry.owner: entry.capability for entry in found if entry is not None}
        self._claiming = True

    def unclaim(self) -> None:
        """The transition has been adopted, or nothing has come of it."""
        self._claims, self._claiming = {}, False

    @contextmanager
    def claimed(self, owners: Iterable[OwnerId]) -> Iterator[None]:
        """A claim for the length of a block."""
        self.claim(owners)
        try:
            yield
        finally:
            self.unclaim()

    # --- changes --------------------------------------------------------------------------------------------------
    def driven(self, transaction: RunningTransaction, plan: ResourcePlan) -> ResourceResult | SequenceHandle | None:
        """One piece of an open transition's work; its end, once it has come to it. Raises AdoptionError where Program
        cannot explain its state any more (TXN-11)."""
        try:
            return self._program.advance(transaction, plan)
        except BaseException as error:
            raise AdoptionError("a transition came to no stable end") from error

    def adopt(
        self,
        result: ResourceResult,
        request: RequestId,
        consumed: OwnerId | None = None,
        heir: OwnerId | None = None,
    ) -> CellId | None:
        """Take over the absolute end state of every claimed owner (TXN-9).

        Args:
            consumed: the claimed owner that has become the result's sequence.
            heir: a claimed owner that is gone and whose private cell stays reserved for the request.

        Returns:
            The heir's cell.

        Raises:
            AdoptionError: the end is not one that the claim allows. Nothing has changed then.
        """
        self._check(result, {consumed, heir} - {None})
        cell = None
        for owner, summary in result.owners.items():
            freed = self._adopt_owner(summary, request, bury=owner != consumed, reserve=owner == heir)
            cell = freed if owner == heir else cell
        for summary in result.placed:
            # What it shares lies elsewhere now: its checkpoints are the same.
            entry = self.get(summary.owner)
            if entry is not None and entry.checkpoints != summary.checkpoints:
                (self.shared if entry.shared else self.private).replace(entry.owner, summary.checkpoints)
        return cell

    def _check(self, result: ResourceResult, gone: Collection[OwnerId | None]) -> None:
        """Adoption cannot fail: so everything that could be wrong is looked at before the first mutation."""
        if result.owners.keys() != self._claims.keys() and (result.owners or result.ending is Ending.COMMITTED):
            raise AdoptionError("the result speaks of other owners than were claimed")
        for owner, summary in result.owners.items():
            entry = self.get(owner)
            if entry is None or entry.capability != self._claims[owner]:
                raise AdoptionError(f"owner {owner} is not the one that was claimed")
            if {c.ref for c in summary.checkpoints} != entry.refs - summary.deleted or summary.deleted - entry.refs:
                raise AdoptionError(f"owner {owner} did not end as it was claimed")
            if owner in gone and summary.checkpoints:
                raise AdoptionError(f"owner {owner} should be gone")
        for summary in result.placed:
            entry = self.get(summary.owner)
            if entry is not None and {c.ref for c in summary.checkpoints} != entry.refs:
                raise AdoptionError(f"owner {summary.owner} was not claimed and has changed")

    def _adopt_owner(
        self, now: OwnerSummary, request: RequestId, *, bury: bool = True, reserve: bool = False
    ) -> CellId | None:
        owner, checkpoints, deleted = now.owner, now.checkpoints, now.deleted
        entry = self.get(owner)
        assert entry is not None
        for summary in entry.checkpoints:
            if bury and summary.ref in deleted:
                shelf, ref = self.shelf, summary.ref
                self.graveyard.bury(Tombstone(summary.frontier, shelf.keys[ref], shelf.tails[ref], request))
        self._forget(deleted)
        catalog = self.shared if self.is_shared(owner) else self.private
        if checkpoints:
            catalog.replace(owner, checkpoints)
            return None
        self.sessions.forget(owner)
        self.beginnings.remove(owner)
        self.shelf.forget(owner)
        cell = catalog.remove(owner, reserve=reserve)
        return cell if reserve else None

    def refresh(self, owner: OwnerId) -> None:
        """A transition that claimed nothing has changed an owner's checkpoints (an explicit release)."""
        entry = self.get(owner)
        if entry is None:
            return
        now = self._program.summaries(owner)
        gone = entry.refs - {c.ref for c in now}
        self._adopt_owner(OwnerSummary(owner, now, gone), RequestId(0))

    def release(self, owner: OwnerId) -> None:
        """Release an owner at once, outside any plan (RET-2).

        Raises:
            RuntimeError: a running request leans on it, or a transition is open.
        """
        if self.edges.protects(owner):
            raise RuntimeError(f"a running request started from owner {owner}")
        if owner in self._claims:
            raise RuntimeError(f"a transition is changing owner {owner}")
        self._program.release(owner)
        self.refresh(owner)

    def audit(self, private: Collection[CellId], shared: Collection[CellId]) -> None:
        """Raises AssertionError where the books disagree with each other or with Program.

        Args:
            private, shared: the cells that running and opening requests have reserved.
        """
        self.private.audit(private)
        self.shared.audit(shared)
        known: dict[CheckpointRef, OwnerId] = {}
        for entry in self.entries():
            now = self._program.summaries(entry.owner)
            assert now == entry.checkpoints, f"owner {entry.owner} is not what the catalog says"
            known |= dict.fromkeys(entry.refs, entry.owner)
        assert known.keys() == self.paths.known(), "paths of other checkpoints than the catalogs'"
        self.shelf.audit(known)
        self.beginnings.audit(set(known.values()))
        for edge in self.edges:
            entry_of = self.get(edge.owner)
            assert entry_of is not None and entry_of.cell == edge.cell, f"request {edge.request} leans on nothing"
        for owner in self.sessions.owners():
            assert self.private.get(owner) is not None, f"a session is bound to owner {owner}, which is gone"

    # --- parts ----------------------------------------------------------------------------------------------------
    def _walk(self, owner: OwnerId, summaries: tuple[CheckpointSummary, ...]) -> None:
        self.beginnings.add(owner, self._program.record(summaries[0].ref).identity)
        for summary in summaries:
            record = self._program.record(summary.ref)
            self.shelf.add(summary.ref, record.digest, record.identity.tail, owner)
            self.paths.add(summary.ref)
            self.shelf.touch((summary.ref, *self.paths.descendants(summary.ref)))

    def _forget(self, refs: frozenset[CheckpointRef]) -> None:
        for ref in refs:
            self.shelf.touch((ref, *self.paths.descendants(ref)))
            self.paths.remove(ref)
            self.shelf.remove(ref)
