"""Room: one capture's place in the stores, made by at most one transition (context-cache VAL-7, EVI-3, ACT-4)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ninfer_core.cache.books import Books
from ninfer_core.cache.budget import LEAST_GAIN_NS, Budget
from ninfer_core.cache.desk import Desk
from ninfer_core.cache.domain import Option
from ninfer_core.cache.running import RunningRequest
from ninfer_core.cache.steps import Abandoned, Steps
from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.ids import CheckpointRef, OwnerId
from ninfer_core.contract.plans import SequenceHandle
from ninfer_core.contract.results import Ending, Grant, ResourceResult
from ninfer_core.program.planning.outcome import EVICTED
from ninfer_core.program.planning.target import Capture, Target
from ninfer_core.program.program import Program

LANES = "other lanes need the room"


@dataclass(frozen=True, slots=True)
class Need:
    """What a capture needs, and what it may do for it.

    Attributes:
        gain: what the checkpoint is worth, in nanoseconds of work saved.
        blocked: requests that wait meanwhile, the capturing one included (DEF-12).
        on_device: False is a snapshot on Host, of the present frontier only.
        needs_cell: it is a shared owner to come, which needs a cell of the shared catalog too.
        spared: owners that must not give way for it (EVI-4).
    """

    frontier: int
    gain: float
    blocked: int = 1
    on_device: bool = True
    needs_cell: bool = False
    spared: Collection[OwnerId] = ()


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Nothing has changed. reason is for people."""

    reason: str


class Room:
    """Every verb mutates only when its whole target fits."""

    def __init__(self, program: Program, books: Books, limits: CacheLimits, desk: Desk) -> None:
        self._program = program
        self._books = books
        self._limits = limits
        self._desk = desk

    @property
    def has_host(self) -> bool:
        """Whether StateImages may lie in main memory at all."""
        return self._program.geometry.capacity.host_images > 0

    def is_spare(self, running: RunningRequest, need: Need, beside: int = 0) -> bool:
        """Whether the need fits beside everything that is there. Mutates nothing."""
        return self._fits(self._target(running, need), beside)

    def fits_without(self, running: RunningRequest, need: Need, ref: CheckpointRef) -> bool:
        """Whether the need would fit if one of the request's own checkpoints were given up. Mutates nothing."""
        demand = self._program.capture_demand(running.handle, need.frontier, need.on_device)
        return self._program.fits_without(running.owner, ref, demand, self._limits.lanes)

    def spare(self, running: RunningRequest, need: Need, beside: int = 0) -> Steps[Grant | NoRoom]:
        """Room that degrades nobody, and leaves so many Device images beside it free."""
        target = self._target(running, need)
        if not self._fits(target, beside):
            return NoRoom("no spare room")
        return (yield from self._carry_out(running, target))

    @property
    def other_lanes(self) -> int:
        return self._limits.lanes - 1

    def instead_of(self, running: RunningRequest, need: Need, victim: OwnerId) -> Steps[Grant | NoRoom]:
        """Room by giving up one reclaimed owner. It goes in the same transition, so that a capture that cannot be
        completed costs nobody a place (EVI-3)."""
        target = self._target(running, need, victim)
        if not self._fits(target):
            return NoRoom("no room for its state")
        return (yield from self._carry_out(running, target))

    def worth(self, running: RunningRequest, need: Need) -> Steps[Grant | NoRoom]:
        """Room for which others may be degraded, with a strictly positive net gain (VAL-7)."""
        demand = self._target(running, need).demand
        assert demand is not None
        option = Option(ordinal=0, demand=demand, needs_cell=need.needs_cell, gain=need.gain, blocked=need.blocked)
        budget = Budget(self._limits.capture_targets, None, clock=self._desk.clock, least_gain=LEAST_GAIN_NS)
        choice = yield from self._desk.capture(option, budget, self._desk.portfolio(), need.spared)
        if choice.node is None:
            return NoRoom(choice.reason)
        if not self._leaves_lanes(choice.node.target):
            return NoRoom(LANES)
        return (yield from self._carry_out(running, choice.node.target))

    def _target(self, running: RunningRequest, need: Need, victim: OwnerId | None = None) -> Target:
        demand = self._program.capture_demand(running.handle, need.frontier, need.on_device)
        return Target(demand, {} if victim is None else {victim: EVICTED})

    def _fits(self, target: Target, beside: int = 0) -> bool:
        return self._leaves_lanes(target, beside) and self._program.session().project(target).feasible

    def _leaves_lanes(self, target: Target, beside: int = 0) -> bool:
        """A running request's checkpoints cannot be taken from it: they leave every idle lane its image (ST-1)."""
        assert isinstance(target.demand, Capture)
        return self._program.leaves_images(target.demand, self._limits.lanes, beside)

    def _carry_out(self, running: RunningRequest, target: Target) -> Steps[Grant | NoRoom]:
        """Piece by piece. Whoever stops half-way leaves no transition open behind."""
        program = self._program
        with self._books.claimed(target.outcomes):
            yield
            plan = program.seal(target)
            begun = program.start(plan)
            if isinstance(begun, ResourceResult):
                return NoRoom(begun.reason)
            done = None
            try:
                while (done := self._books.driven(begun, plan)) is None:
                    yield begun.waiting
            except Abandoned:
                begun.cancel()
                while done is None:
                    done = self._books.driven(begun, plan)
                self._adopt(running, done)
                raise
            return self._adopt(running, done)

    def _adopt(self, running: RunningRequest, done: ResourceResult | SequenceHandle) -> Grant | NoRoom:
        assert isinstance(done, ResourceResult), "a capture makes no sequence"
        self._books.adopt(done, running.request)
        if done.ending is Ending.COMMITTED and done.grant is not None:
            return done.grant
        return NoRoom(done.reason)
