"""SharedPublication: prefixes that a running request leaves for everybody (context-cache CAN-9, EVI, VAL-7)."""

from __future__ import annotations

from dataclasses import replace

from ninfer_core.cache.books import Books
from ninfer_core.cache.catalog import CellId, Entry
from ninfer_core.cache.desk import Desk
from ninfer_core.cache.evidence import Power, SharedCandidate
from ninfer_core.cache.lineage import Lineage
from ninfer_core.cache.room import Need, NoRoom, Room
from ninfer_core.cache.running import Intended, RunningRequest
from ninfer_core.cache.split import split_cost
from ninfer_core.cache.steps import Steps
from ninfer_core.cache.value import Portfolio
from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.ids import OwnerId
from ninfer_core.contract.results import Grant
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.program.program import Program

SHARED = SourceKind.SHARED_STABLE_PREFIX
FULL = "the shared catalog is full"
NOBODY = "whoever asked for it is served as well without it"
TOO_DEAR = "a pass of its own would cost more than it may save"


class SharedPublication:
    """Optional throughout: the private-only course is the baseline, and nothing here changes it (ACT-4)."""

    def __init__(self, program: Program, books: Books, limits: CacheLimits, desk: Desk, room: Room) -> None:
        self._program = program
        self._books = books
        self._limits = limits
        self._desk = desk
        self._room = room

    def selected(self, running: RunningRequest, lineage: Lineage) -> list[tuple[SharedCandidate, Power]]:
        """The first of two steps: the candidates that are worth a try, by an optimistic bound; a promise to nobody.

        At best a tap captures it, which costs no split: what a candidate may gain has to be above nothing. Whether the
        pass has to end for it comes out at its frontier, and is charged there. Candidates that may only use surplus are
        as many as there are cells for them: free ones and those that could be reclaimed; the deepest first (EVI-3,
        EVI-5).
        """
        asker, books = running.asker, self._books
        if not books.shared.cells:
            return []
        portfolio = self._desk.portfolio()
        surplus = books.shared.free_cells + len(self._reclaimable(lineage))
        chosen: list[tuple[SharedCandidate, Power]] = []
        for shared in reversed(asker.shared):
            power = shared.power(len(books.demand.domains(shared.key)))
            if power is Power.NONE:
                continue
            if lineage.is_shared(shared.frontier):
                chosen.append((shared, power))  # it is there: noted, and it takes no cell
            elif _gain(portfolio, shared) <= 0:
                running.note(SHARED, shared.frontier, "skipped", NOBODY)
            elif power is Power.SPARE and surplus <= 0:
                running.note(SHARED, shared.frontier, "skipped", FULL)
            else:
                surplus -= 1
                chosen.append((shared, power))
        return chosen[::-1]

    def at_or_below_base(self, running: RunningRequest, intended: Intended, lineage: Lineage) -> None:
        """Promoted from an exact source without prefill, else demand only: nothing is computed again (CAN-9)."""
        shared = intended.shared
        assert shared is not None
        if lineage.is_shared(shared.frontier):
            running.note(SHARED, shared.frontier, "present")
            return
        own, found = lineage.own_at(shared.frontier), lineage.elsewhere(shared.frontier)
        if own is not None:
            self._promote(running, intended, running.owner, lineage, promoted=True)
        elif found is not None:
            self._promote(running, intended, found.entry.owner, lineage, promoted=True)
        else:
            running.note(SHARED, shared.frontier, "skipped", "no exact source: noted as demand")

    def offer(
        self, running: RunningRequest, intended: Intended, lineage: Lineage, until: int, blocked: int
    ) -> Steps[bool]:
        """The second step: get a cell and room for a prefix that no private capture brings along, proved now.

        Args:
            until: where the next pass ends if it is full.
            blocked: requests that wait meanwhile (DEF-12).

        Returns:
            Whether the pass must end at the prefix, since only main memory has spare room for its image.
        """
        shared = intended.shared
        assert shared is not None
        if lineage.is_shared(shared.frontier):  # somebody else was faster
            running.note(SHARED, shared.frontier, "present")
            intended.shared = None
            return False
        gain = _gain(self._desk.portfolio(), shared)
        is_dear = False
        if gain > 0 and self._needs_pass(running, intended):
            is_dear = gain <= self._split(running, shared, until)
            if not is_dear:
                return True
        need = Need(shared.frontier, gain, blocked, needs_cell=True, spared=lineage.extended)
        found = (yield from self._grant(running, intended, need, lineage)) if gain > 0 else NoRoom(NOBODY)
        if isinstance(found, NoRoom):
            # Who may press others for room was refused that: it is not the pass that would have cost too much.
            is_pass = is_dear and intended.power is not Power.PRESSURE
            running.note(SHARED, shared.frontier, "skipped", TOO_DEAR if is_pass else found.reason)
            intended.shared = None
            return False
        intended.shared_cell = self._books.shared.reserve()
        assert intended.shared_cell is not None
        self._program.arm(running.handle, shared.frontier, SHARED, found)
        intended.armed_shared = True
        return False

    def settle(self, running: RunningRequest, intended: Intended, lineage: Lineage) -> None:
        """A captured checkpoint becomes a shared owner; one that was captured privately stays that, too."""
        shared = intended.shared
        assert shared is not None
        if intended.armed and lineage.is_shared(shared.frontier):
            running.note(SHARED, shared.frontier, "present")
            return
        self._promote(running, intended, running.owner, lineage, promoted=not intended.armed_shared)

    def abandon(self, running: RunningRequest) -> None:
        """The request has ended: cells that were to be used go back."""
        for intended in running.intended:
            self.give_back(intended)

    def give_back(self, intended: Intended) -> None:
        """Nothing comes of it: the cell that was to be used, if any, is free again."""
        if intended.shared_cell is not None:
            self._books.shared.give(intended.shared_cell)
            intended.shared_cell = None

    # --- parts ----------------------------------------------------------------------------------------------------
    def _grant(
        self, running: RunningRequest, intended: Intended, need: Need, lineage: Lineage
    ) -> Steps[Grant | NoRoom]:
        """Spare room first; then an automatic entry's place; then, with the power for it, whatever is worth less."""
        shared = intended.shared
        assert shared is not None
        full = not self._books.shared.free_cells
        here = self._program.sequence(running.handle).frontier == shared.frontier
        found: Grant | NoRoom = NoRoom(FULL)
        if not full:
            found = yield from self._room.spare(running, need, self._beside(running, intended))
        if isinstance(found, NoRoom) and not full and here and self._room.has_host:
            found = yield from self._room.spare(running, replace(need, on_device=False))
        if full and isinstance(found, NoRoom) and not shared.declared:
            for victim in self._reclaimable(lineage)[:1]:
                found = yield from self._room.instead_of(running, need, victim.owner)
        if isinstance(found, NoRoom) and intended.power is Power.PRESSURE:
            found = yield from self._room.worth(running, need)
        return found

    def _needs_pass(self, running: RunningRequest, intended: Intended) -> bool:
        """Inside a pass only free Device images can be written; a snapshot on Host needs its end."""
        here = self._program.sequence(running.handle).frontier == intended.frontier
        if here or not self._room.has_host or not self._books.shared.free_cells:
            return False
        if intended.frontier == running.prompt_end:
            return False
        need = Need(intended.frontier, gain=0.0)
        if self._room.is_spare(running, need, self._beside(running, intended)):
            return False
        return self._room.is_spare(running, replace(need, on_device=False))

    def _split(self, running: RunningRequest, shared: SharedCandidate, until: int) -> float:
        """What it costs that the next pass ends at it: once it has, nobody pays for that again (VAL-7)."""
        now = self._program.sequence(running.handle).frontier
        return split_cost(self._desk.cost, now, shared.frontier, running.prompt_end, until - now)

    def _beside(self, running: RunningRequest, intended: Intended) -> int:
        """Images that a candidate without power must leave free."""
        return running.rewrites_ahead + self._room.other_lanes if intended.power is Power.SPARE else 0

    def _promote(
        self, running: RunningRequest, intended: Intended, source: OwnerId, lineage: Lineage, *, promoted: bool
    ) -> None:
        """Publish an existing checkpoint. Image and pages are shared: it takes a cell and nothing else."""
        shared = intended.shared
        assert shared is not None
        cell, intended.shared_cell = intended.shared_cell, None
        if cell is None:
            cell = self._cell(shared, intended.power, lineage)
        if cell is None:
            running.note(SHARED, shared.frontier, "skipped", FULL)
            return
        ref = next(c.ref for c in self._program.summaries(source) if c.frontier == shared.frontier)
        owner = self._program.share(source, ref, keep=promoted)
        self._books.publish_shared(cell, owner, declared=shared.declared)
        running.note(SHARED, shared.frontier, "promoted" if promoted else "captured")

    def _cell(self, shared: SharedCandidate, power: Power, lineage: Lineage) -> CellId | None:
        """A free cell, a reclaimed one, or that of an entry that is worth less."""
        if not self._books.shared.free_cells:
            victim = None if shared.declared else next(iter(self._reclaimable(lineage)), None)
            if victim is None and power is Power.PRESSURE:
                victim = self._worth_less(shared, lineage)
            if victim is not None:
                self._books.release(victim.owner)
        return self._books.shared.reserve()

    def _reclaimable(self, lineage: Lineage) -> list[Entry]:
        """Automatic entries that nobody leans on and this request does not extend, the least recently used first
        (EVI-3, EVI-4)."""
        spared = lineage.extended
        free = [
            entry
            for entry in self._books.shared
            if entry.automatic
            and entry.credit_until is None
            and entry.owner not in spared
            and not self._books.edges.protects(entry.owner)
        ]
        return sorted(free, key=lambda entry: (entry.last_hit, entry.published))

    def _worth_less(self, shared: SharedCandidate, lineage: Lineage) -> Entry | None:
        """The entry whose place gives the largest net gain, if it is positive."""
        portfolio, spared = self._desk.portfolio(), lineage.extended
        gain = _gain(portfolio, shared)
        best, victim = 0.0, None
        for entry in self._books.shared:
            if entry.owner in spared or self._books.edges.protects(entry.owner):
                continue
            gone = portfolio.alone(entry.refs, 0, 0)
            net = gain - portfolio.signed_loss((entry.owner,), gone, portfolio.base())
            if net > best:
                best, victim = net, entry
        return victim


def _gain(portfolio: Portfolio, shared: SharedCandidate) -> float:
    """What it would add to the public value."""
    return portfolio.public_gain(shared.key, shared.frontier, credit=shared.declared)
