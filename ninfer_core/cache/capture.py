"""Captures: what a running request leaves behind, for itself and for others (context-cache CAN-5..9, EVI, VAL-7).

They are optional: none of them ever blocks or changes the request. A capture is planned when the request becomes
Active, and proved at its frontier: choosing it reserved nothing (INV-17).
"""

from __future__ import annotations

from dataclasses import dataclass

from ninfer_core.cache.books import Books
from ninfer_core.cache.deliberation import Deliberation
from ninfer_core.cache.desk import Desk
from ninfer_core.cache.lineage import Lineage
from ninfer_core.cache.points import RecoveryPoints
from ninfer_core.cache.publication import SharedPublication
from ninfer_core.cache.room import Room
from ninfer_core.cache.running import Intended, RunningRequest
from ninfer_core.cache.steps import Steps
from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.ids import RequestId
from ninfer_core.program.program import Program

MISSED = "no pass was left to capture it"
GAVE_WAY = "another point of the conversation took its place"


@dataclass(frozen=True, slots=True)
class Offering:
    """What a request's next pass may capture is being settled, in pieces."""

    request: RequestId
    until: int
    deliberation: Deliberation[int]


class Captures:
    """The captures of all running requests. Only one is planned at a time."""

    def __init__(self, program: Program, books: Books, limits: CacheLimits, desk: Desk) -> None:
        self._program = program
        self._books = books
        room = Room(program, books, limits, desk)
        self._points = RecoveryPoints(program, limits, desk.cost, room)
        self._shared = SharedPublication(program, books, limits, desk, room)

    def plan(self, running: RunningRequest) -> None:
        """List what the request would like to leave, of what its plan was sealed with, and settle what needs no
        prefill; nothing is reserved."""
        lineage = Lineage(self._program, self._books, running)
        found: dict[int, Intended] = {}
        if running.cell is not None:
            wanted = self._points.wanted(running, lineage)
            self._points.inherit(running, wanted)
            found = {wish.frontier: Intended(wish.frontier, wish) for wish in wanted}
        for shared, power in self._shared.selected(running, lineage):
            intended = found.setdefault(shared.frontier, Intended(shared.frontier))
            intended.shared, intended.power = shared, power
        intentions = [found[frontier] for frontier in sorted(found)]
        # What has come into the catalog since the plan was sealed opens no further place (PLAN-12).
        running.intended = [i for i in intentions if i.frontier in running.schedule]
        for intended in intentions:
            if intended.frontier <= running.base:
                if intended.wish is not None:
                    self._points.at_or_below_base(running, intended.wish, lineage)
                if intended.shared is not None:
                    self._shared.at_or_below_base(running, intended, lineage)

    def reaches(self, running: RunningRequest, until: int) -> bool:
        """Whether a pass up to a frontier has something to capture on its way."""
        return any(intended.frontier <= until for intended in running.intended)

    def offer(self, running: RunningRequest, until: int, blocked: int) -> Steps[int]:
        """Make room for what the next pass reaches. With the room, its taps write the checkpoints.

        Args:
            until: where the pass ends if it is full.
            blocked: requests that wait meanwhile (DEF-12).

        Returns:
            Where the pass should end: until, or before it for an image that can be written at its end only.
        """
        for intended in running.intended:
            if intended.frontier > until:
                break
            if intended.armed or intended.armed_shared:
                continue
            if intended.wish is not None and (yield from self._points.offer(running, intended, blocked)):
                return intended.frontier
            if intended.shared is not None and not intended.armed:
                lineage = Lineage(self._program, self._books, running)
                if (yield from self._shared.offer(running, intended, lineage, until, blocked)):
                    return intended.frontier
            yield
        return until

    def settle(self, running: RunningRequest) -> None:
        """Publish what the last pass captured. What is left at the prompt's end was missed: no pass comes for it. What
        was captured and is gone already, for another point of the conversation, is told as skipped."""
        reached = self._program.sequence(running.handle).frontier
        for intended in [i for i in running.intended if i.frontier <= reached]:
            captured = intended.armed or intended.armed_shared
            pending = bool(intended.kinds)
            if intended.frontier == reached < running.prompt_end and pending and not captured:
                continue  # the pass ended here for it
            running.intended.remove(intended)
            lineage = Lineage(self._program, self._books, running)
            if pending and not (captured and lineage.own_at(intended.frontier)):
                for kind in intended.kinds:
                    running.note(kind, intended.frontier, "skipped", GAVE_WAY if captured else MISSED)
                self._shared.give_back(intended)
                continue
            if intended.armed and intended.wish is not None:
                running.note(intended.wish.kind, intended.frontier, "captured")
            if intended.shared is not None:
                self._shared.settle(running, intended, lineage)

    def abandon(self, running: RunningRequest) -> None:
        """The request has ended: nothing stays reserved for it."""
        self._shared.abandon(running)
