"""ResourceManager: the logical policy (context-cache AUT-2). Where a request starts from, what is kept, what goes.

It talks to Program through candidates, targets, plans and results only, and keeps no physical fact of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ninfer_core.cache.admission import (
    Admission,
    Admitted,
    Ask,
    Blocked,
    Failed,
    Passing,
    Transferring,
    Undecided,
)
from ninfer_core.cache.books import AdoptionError, Books
from ninfer_core.cache.budget import Budget
from ninfer_core.cache.capture import Captures, Offering
from ninfer_core.cache.catalog import CellId
from ninfer_core.cache.cost import CostModel
from ninfer_core.cache.deciding import Deciding
from ninfer_core.cache.decisions import Decisions
from ninfer_core.cache.deliberation import Deliberation
from ninfer_core.cache.demand import Demand
from ninfer_core.cache.desk import Desk
from ninfer_core.cache.edges import Edge
from ninfer_core.cache.opening import Destination, Intent, Opening, heir_of
from ninfer_core.cache.persistence import Persistence
from ninfer_core.cache.proofs import Proofs, Provable
from ninfer_core.cache.running import RunningRequest
from ninfer_core.cache.table import cache_table
from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.cache_table import CacheTable, Residency
from ninfer_core.contract.ids import RequestId
from ninfer_core.contract.intent import CacheMode
from ninfer_core.contract.plans import SequenceHandle
from ninfer_core.contract.prompt import PreparedPrompt
from ninfer_core.contract.results import ResourceResult
from ninfer_core.contract.statistics import Capture
from ninfer_core.contract.verification import Verification
from ninfer_core.program.program import Program


class ResourceManager:
    """One worker thread calls it. At most one materialization is open at a time (INV-9)."""

    def __init__(
        self,
        program: Program,
        limits: CacheLimits,
        cost: CostModel,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._program = program
        self._limits = limits
        self._clock = clock
        self.books = Books(program, limits)
        self._desk = Desk(program, self.books, cost, clock)
        self.persistence = Persistence(program, self.books)
        """Saving and restoring; only while the books are at rest."""
        self._captures = Captures(program, self.books, limits, self._desk)
        self._decisions = Decisions(program, self.books, limits, self._desk, clock)
        self._proofs = Proofs(program)
        self._running: dict[RequestId, RunningRequest] = {}
        self._deciding: Deciding | None = None
        self._open: Opening | None = None
        self._offering: Offering | None = None

    # --- admission ------------------------------------------------------------------------------------------------
    @property
    def waits_for_copies(self) -> bool:
        """Whether an open transition can only wait: its copies have been enqueued and have not landed."""
        if self._offering is not None:
            return self._offering.deliberation.waits
        return self._open is not None and self._open.transaction.waiting

    @property
    def at_rest(self) -> bool:
        """Whether the books may be changed: nobody is being admitted, and no captures are being offered."""
        return self._open is None and self._deciding is None and self._offering is None

    def at_rest_for(self, request: RequestId) -> bool:
        """Whether they are, but for captures of this request, which end with it."""
        return self.at_rest or self.offering == request

    def budget(self, runnable: int) -> Budget:
        """The optional planning of one admission boundary; runnable other requests wait meanwhile (PLAN-8)."""
        return Budget(self._limits.planning_targets, self._limits.planning_ns, runnable, self._clock)

    def admit(
        self, ask: Ask, budget: Budget | None = None, passing: Passing | None = None, *, most_ns: int | None = None
    ) -> Admission:
        """Try to make one request Active. Blocked and Refused change nothing.

        Args:
            budget: what is left of the boundary's optional planning.
            passing: the head that it would pass.
            most_ns: how long this piece of it may take, about; None to decide at once. Undecided where listing took it.
        """
        if not self.at_rest:
            return Blocked("another request is being admitted, or captures are being offered")
        return self._begun(ask, budget or self.budget(0), passing, most_ns)

    def advance(self, most_ns: int | None = None) -> Admission:
        """Go on with the request that is being admitted: another piece of its planning, or one piece of its open
        transition's work (TXN-7: decode rounds run between two calls).

        Args:
            most_ns: how long a piece of planning may take, about; None to decide at once.

        Raises:
            AdoptionError: a transition's end cannot be adopted. The Engine must not go on (TXN-11).
        """
        if self._deciding is not None:
            return self._deliberate(self._deciding, most_ns)
        opening = self._open
        assert opening is not None, "no transition is open"
        done = self.books.driven(opening.transaction, opening.plan)
        return Transferring() if done is None else self._settle(opening, done)

    def cancel(self, request: RequestId) -> None:
        """The caller of an opening request does not want it any more: what is being decided is dropped, an open
        transition is aborted at its next phase boundary (TXN-10)."""
        if self._deciding is not None and self._deciding.ask.request == request:
            self._deciding.unwanted = True
        elif self._open is not None and self._open.intent.ask.request == request:
            self._open.transaction.cancel()

    def forget(self, request: RequestId) -> None:
        """A waiting request has left."""
        self._decisions.forget(request)

    # --- progress and ends of a running request ----------------------------------------------------------------------
    def before_pass(self, request: RequestId, until: int, blocked: int, *, most_ns: int | None = None) -> int | None:
        """Offer the captures that the next pass reaches: proved now, at the present revision (INV-17).

        Args:
            until: the frontier that the pass ends at.
            blocked: running requests, this one included, that wait while room is made (DEF-12).
            most_ns: how long this piece of it may take, about; None to settle it at once.

        Returns:
            Where the pass should end: until, or before it for an image that only main memory has room for. None when
            it takes another piece, or there was no time for one: call again, and let nothing but rows that decode run
            while `offering` is theirs.
        """
        running = self._running[request]
        offering, self._offering = self._offering, None
        if most_ns is not None and most_ns <= 0 and self._captures.reaches(running, until):
            self._offering = offering
            return None
        if offering is None:
            offering = Offering(
                request, until, Deliberation(self._captures.offer(running, until, blocked), self._clock)
            )
        assert (offering.request, offering.until) == (request, until), "one pass's captures are offered at a time"
        if not offering.deliberation.go_on(most_ns):
            self._offering = offering
            return None
        return offering.deliberation.result

    @property
    def offering(self) -> RequestId | None:
        """Whose captures are being settled piece by piece, or None."""
        return None if self._offering is None else self._offering.request

    def runs_beside(self, request: RequestId, until: int) -> bool:
        """Whether a pass up to a frontier may run while another request's transition is open (TXN-7)."""
        running = self._running[request]
        return not self._captures.reaches(running, until) and self._program.runs_beside(running.handle, until)

    def after_pass(self, request: RequestId) -> None:
        """A pass was committed: publish what it captured for others."""
        self._captures.settle(self._running[request])

    def finish(self, request: RequestId, *, unreachable: bool = False) -> bool:
        """Publish an ended request's continuation, or discard it where it has no place (RET-4, INV-15).

        Args:
            unreachable: the Frontend says that no rendering of history reproduces its endpoint (VAL-9).

        Returns:
            Whether something was kept.
        """
        self._withdraw(request)
        running = self._running[request]
        if running.cell is None:
            self.discard(request)
            return False
        claim = self._program.claim(running.handle)
        owner = self._program.finish(running.handle)
        if owner is None:
            self._leave(running, give_cell=True)
            return False
        session = running.asker.session
        entry = self.books.publish_private(running.cell, owner, session, running.order, unreachable=unreachable)
        self._proofs.remember(request, Provable(claim, owner, entry.checkpoints[-1].ref))
        self._leave(running, give_cell=False)
        return True

    def discard(self, request: RequestId) -> None:
        """A cancelled or failed request: release everything, then free its cell."""
        self._withdraw(request)
        running = self._running[request]
        self._program.discard(running.handle)
        self._leave(running, give_cell=True)

    def captures(self, request: RequestId) -> tuple[Capture, ...]:
        """What became of the request's captures so far (STAT-1)."""
        running = self._running.get(request)
        return () if running is None else tuple(sorted(running.captures, key=lambda capture: capture.frontier))

    def residency(self, prompt: PreparedPrompt) -> Residency:
        """The deepest checkpoint that a request with this prompt would find now."""
        return self._decisions.residency(prompt)

    def table(self) -> CacheTable:
        """What the cache holds now (STAT-3)."""
        return cache_table(self._program, self.books, [running.owner for running in self._running.values()])

    def verify(self, request: RequestId) -> Verification:
        """Replay a finished request cold and compare (VER-1). Evicts nothing."""
        return self._proofs.verify(request)

    def audit(self) -> None:
        """Recount Program and the books. Raises AssertionError naming the first difference."""
        self._program.audit()
        waiting = () if self._open is None else (self._open.destination.cell,)
        private = [
            cell for cell in (*(running.cell for running in self._running.values()), *waiting) if cell is not None
        ]
        shared = [
            intended.shared_cell
            for running in self._running.values()
            for intended in running.intended
            if intended.shared_cell is not None
        ]
        self.books.audit(private, shared)
        leaning = {edge.request for edge in self.books.edges}
        assert leaning <= self._running.keys(), "an edge of a request that does not run"
        if self._offering is None:
            assert self.books.claims == (frozenset() if self._open is None else self._open.intent.claims)
        for running in self._running.values():
            assert self._program.sequence(running.handle).owner == running.owner

    # --- parts: planning --------------------------------------------------------------------------------------------
    def _begun(self, ask: Ask, budget: Budget, passing: Passing | None, most_ns: int | None) -> Admission:
        """List what a request may start from, and begin to choose. Where listing took all the time no step is begun
        that may be long: the next piece takes one in any case."""
        began = self._clock()
        deciding = self._decisions.begin(ask, budget, passing)
        left = None if most_ns is None else most_ns - (self._clock() - began)
        if left is not None and left <= 0:
            self._deciding = deciding
            return Undecided()
        return self._deliberate(deciding, left)

    def _deliberate(self, deciding: Deciding, most_ns: int | None) -> Admission:
        """Another piece. What is decided late in it is carried out with the next."""
        self._deciding = None
        if deciding.unwanted:
            deciding.deliberation.abandon()
            return Failed("nobody wants it any more", begun=False)
        if deciding.revision != self._program.revision:
            deciding.deliberation.abandon()
            return self._begun(deciding.ask, deciding.budget, deciding.passing, most_ns)
        intent, deliberation = deciding.intent, deciding.deliberation
        if intent is None:
            before = deliberation.spent_ns
            if not deliberation.go_on(most_ns):
                self._deciding = deciding
                return Undecided()
            decision = self._decisions.decision(deciding)
            if not isinstance(decision, Intent):
                return decision
            intent = decision
            if most_ns is not None and deliberation.spent_ns - before > most_ns // 2:
                self._deciding, deciding.intent = deciding, intent
                return Undecided()
        return self._start(intent)

    # --- parts: transition -------------------------------------------------------------------------------------------
    def _start(self, intent: Intent) -> Admission:
        """Claim, then seal and start; a plan that needs no copies is driven to its end at once."""
        private = self.books.private
        # Claims and cell come before Program is asked, so that adoption never has to search (TXN-4, RET-4).
        needs = intent.candidate.needs_cell
        cell = private.reserve() if needs else None
        heir = None
        if needs and cell is None:
            heir = heir_of(intent.target, {entry.owner: entry for entry in private})
        destination = Destination(cell, heir)
        self.books.claim(intent.claims)
        try:
            plan = self._program.seal(intent.target, intent.ask.work, intent.schedule)
            begun = self._program.start(plan)
        except BaseException:
            self._unclaim(destination)
            raise
        if isinstance(begun, ResourceResult):
            self._unclaim(destination)
            return Failed(begun.reason)
        self._open = Opening(intent, plan, begun, destination)
        while intent.ready:
            if not isinstance(admission := self.advance(), Transferring):
                return admission
        return Transferring()

    def _unclaim(self, destination: Destination) -> None:
        """Nothing has come of it: the whole claim is rolled back."""
        self.books.unclaim()
        if destination.cell is not None:
            self.books.private.give(destination.cell)

    def _settle(self, opening: Opening, done: ResourceResult | SequenceHandle) -> Admission:
        """Adopt a transition's end. Raises AdoptionError before anything has changed."""
        result = opening.transaction.result
        assert result is not None
        intent, destination = opening.intent, opening.destination
        if isinstance(done, ResourceResult):
            self.books.adopt(result, intent.ask.request)
            self._open = None
            self._unclaim(destination)
            return Failed(result.reason)
        heir = intent.consumed if destination.heir is None else destination.heir
        inherited = self.books.adopt(result, intent.ask.request, intent.consumed, heir)
        self._open = None
        self.books.unclaim()
        running = self._begin(intent, done, destination.cell if inherited is None else inherited)
        self._plan_captures(running)
        return Admitted(done, intent.reuse, intent.planning, result.transfer)

    def _begin(self, intent: Intent, handle: SequenceHandle, cell: CellId | None) -> RunningRequest:
        """The adopted sequence's place in the books: its edge, its cell, its demand."""
        ask, asker, candidate = intent.ask, intent.asker, intent.candidate
        domain = asker.session or b"request %d" % ask.request
        owner = self._program.sequence(handle).owner
        schedule = frozenset(intent.schedule.frontiers)
        running = RunningRequest(ask.request, ask.order, asker, domain, handle, owner, cell, candidate, schedule)
        self._running[ask.request] = running
        self._decisions.forget(ask.request)
        source = None if candidate.owner is None else self.books.get(candidate.owner)
        if source is not None and candidate.ref is not None:
            source.hit(candidate.ref, self.books.demand.epoch + 1)
            self.books.edges.add(Edge(ask.request, source.owner, source.cell))
        if asker.session is not None and cell is not None:
            self.books.begin_turn(asker.session, ask.request)
        if asker.intent.mode is CacheMode.READ_WRITE:
            # One more materialization: credits of exactly matched shared owners are consumed (DEF-7).
            self.books.demand.record(Demand(domain, intent.keys))
            self.books.age_credits(intent.keys)
        return running

    def _plan_captures(self, running: RunningRequest) -> None:
        """Captures are optional: trouble with them is no reason to lose the request (INV-15)."""
        if running.asker.intent.mode is CacheMode.DISABLED:
            return
        try:
            self._captures.plan(running)
        except AdoptionError:
            raise
        except Exception:
            self._captures.abandon(running)
            running.intended.clear()

    def _withdraw(self, request: RequestId) -> None:
        """What is being settled for the next pass of a request is not: it ends."""
        if self._offering is not None and self._offering.request == request:
            self._offering.deliberation.abandon()
            self._offering = None

    def _leave(self, running: RunningRequest, *, give_cell: bool) -> None:
        self._captures.abandon(running)
        if give_cell and running.cell is not None:
            self.books.private.give(running.cell)
        self.books.edges.remove(running.request)
        if running.asker.session is not None:
            self.books.end_turn(running.asker.session, running.request)
        del self._running[running.request]
        # Who waits may have been passed: its order still stands below those of requests that have ended.
        known = [*(r.order for r in self._running.values()), *map(int, self._decisions.waiting)]
        self.books.sessions.prune(min(known, default=running.order + 1))
