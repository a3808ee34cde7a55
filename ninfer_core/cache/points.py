"""RecoveryPoints: what a running request leaves for its own conversation (context-cache DEF-3, CAN-5, CAN-6, CAN-7)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ninfer_core.cache.anchors import (
    ENDPOINT_ANCHOR_DISTANCE,
    Wish,
    select_long_anchor_replacement,
    shallowest,
    wishes,
)
from ninfer_core.cache.cost import CostModel
from ninfer_core.cache.lineage import Lineage
from ninfer_core.cache.retention import Retention
from ninfer_core.cache.room import Need, NoRoom, Room
from ninfer_core.cache.running import Intended, RunningRequest
from ninfer_core.cache.steps import Steps, whole
from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.ids import Frontier
from ninfer_core.contract.results import CheckpointSummary, Grant
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.program.planning.work import Prefill
from ninfer_core.program.program import Program


@dataclass(frozen=True, slots=True)
class _Place:
    """A continuation's place for one more recovery point; `leaving` goes for it, if any does."""

    leaving: CheckpointSummary | None = None


class RecoveryPoints:
    """Private checkpoints. They are optional, and never more than a continuation may have (CAP-3)."""

    def __init__(self, program: Program, limits: CacheLimits, cost: CostModel, room: Room) -> None:
        self._program = program
        self._limits = limits
        self._cost = cost
        self._room = room

    def wanted(self, running: RunningRequest, lineage: Lineage) -> tuple[Wish, ...]:
        """All recovery points that the request would like to leave, ascending, one per frontier."""
        asker = running.asker
        found = {wish.frontier: wish for wish in wishes(asker.work.prompt, asker.intent, self._limits)}
        anchor = self._endpoint_anchor(running, lineage)
        if anchor is not None:
            found.setdefault(anchor.frontier, anchor)
        return tuple(found[frontier] for frontier in sorted(found))

    def inherit(self, running: RunningRequest, wanted: tuple[Wish, ...]) -> None:
        """Rewrite checkpoints of earlier turns stay as anchors, as many as may be kept (CAN-8)."""
        rewrites = {wish.frontier for wish in wanted if wish.rewrite}
        for checkpoint in self._program.summaries(running.owner):
            if checkpoint.kind is not SourceKind.LONG_ANCHOR and checkpoint.frontier not in rewrites:
                self._program.alias(running.owner, checkpoint.ref, running.owner, SourceKind.LONG_ANCHOR)
                self._program.drop_checkpoint(running.owner, checkpoint.ref)
        while len(anchors := self._anchors(running)) > self._limits.long_anchors:
            self._program.drop_checkpoint(running.owner, anchors[0].ref)

    def at_or_below_base(self, running: RunningRequest, wish: Wish, lineage: Lineage) -> None:
        """Nothing is computed again for a point that lies there: it needs an exact source (CAN-9)."""
        if lineage.own_at(wish.frontier) is not None:
            running.note(wish.kind, wish.frontier, "present")
        elif (found := lineage.elsewhere(wish.frontier)) is not None:
            place = self._place(running, wish)
            if isinstance(place, NoRoom):
                running.note(wish.kind, wish.frontier, "skipped", place.reason)
            else:
                self._clear(running, place)
                self._program.alias(found.entry.owner, found.summary.ref, running.owner, wish.kind)
                running.note(wish.kind, wish.frontier, "aliased")
        elif wish.frontier == running.base:
            if whole(self._take(running, wish, blocked=1)):
                running.note(wish.kind, wish.frontier, "captured")
        else:
            running.note(wish.kind, wish.frontier, "skipped", "it lies before the reuse base")

    def offer(self, running: RunningRequest, intended: Intended, blocked: int) -> Steps[bool]:
        """Try to make room for what the next pass reaches.

        Returns:
            Whether that pass must end at the point, since its image can be written there only.
        """
        wish = intended.wish
        assert wish is not None
        if self._needs_pass(running, wish):
            return True
        if (yield from self._take(running, wish, blocked)):
            intended.armed = True
        else:
            intended.wish = None  # why is noted: it is not asked for again
        return False

    # --- parts ----------------------------------------------------------------------------------------------------
    def _endpoint_anchor(self, running: RunningRequest, lineage: Lineage) -> Wish | None:
        """Where the deepest matching endpoint is, a recovery point for its siblings (CAN-7).

        Of a consumed one it is taken from its own image before anything runs. One above the reuse base is captured by
        the prefill that comes through it. At or below another base the endpoint's owner has it still.
        """
        candidate = running.candidate
        if not (self._limits.endpoint_anchors and self._limits.long_anchors):
            return None
        if candidate.consumes and candidate.kind is SourceKind.SESSION_ENDPOINT:
            frontier, owner = candidate.frontier, running.owner
        else:
            endpoint = lineage.deepest_endpoint()
            if endpoint is None or endpoint.summary.frontier <= running.base:
                return None
            frontier, owner = endpoint.summary.frontier, endpoint.entry.owner
        anchors = [c.frontier for c in self._program.summaries(owner) if c.kind is SourceKind.LONG_ANCHOR]
        near = frontier - max(anchors, default=0) < ENDPOINT_ANCHOR_DISTANCE
        return Wish(Frontier(frontier), SourceKind.LONG_ANCHOR, spare=near, by_coverage=True)

    def _take(self, running: RunningRequest, wish: Wish, blocked: int) -> Steps[bool]:
        """Make room for a recovery point and use it; or note why not."""
        place = self._place(running, wish)
        found = place if isinstance(place, NoRoom) else (yield from self._grant(running, wish, blocked))
        if isinstance(place, NoRoom) or isinstance(found, NoRoom):
            assert isinstance(found, NoRoom)
            running.note(wish.kind, wish.frontier, "skipped", found.reason)
            return False
        self._clear(running, place)
        self._program.arm(running.handle, wish.frontier, wish.kind, found)
        return True

    def _grant(self, running: RunningRequest, wish: Wish, blocked: int) -> Steps[Grant | NoRoom]:
        """Spare room on Device, else on Host, else what is worth less; at last the place of an older point."""
        need = self._need(running, wish, blocked)
        found = yield from self._room.spare(running, need, self._beside(running, wish))
        if isinstance(found, NoRoom) and self._is_here(running, wish) and self._room.has_host:
            found = yield from self._room.spare(running, replace(need, on_device=False))
        if isinstance(found, NoRoom) and not wish.spare:
            if not wish.rewrite and self._room.is_spare(running, need):
                return NoRoom("the last room is for the turn's own checkpoint")
            older = self._giving_way(running, wish, need)
            if older is None:
                return (yield from self._room.worth(running, need))
            less = replace(need, gain=min(need.gain, self._loss(running, older)))
            found = yield from self._room.worth(running, less)
            if isinstance(found, NoRoom):
                self._program.drop_checkpoint(running.owner, older.ref)
                found = yield from self._room.spare(running, need)
        return found

    def _giving_way(self, running: RunningRequest, wish: Wish, need: Need) -> CheckpointSummary | None:
        """The next turn starts at a TurnClosure for certain: an older point of the same conversation is worth less."""
        if wish.kind is not SourceKind.TURN_CLOSURE:
            return None
        return next((c for c in self._anchors(running) if self._room.fits_without(running, need, c.ref)), None)

    def _needs_pass(self, running: RunningRequest, wish: Wish) -> bool:
        """Inside a pass only free Device images can be written. A snapshot on Host needs its end, and so does an image
        that is free when the pass has read it.

        What that costs is not charged (VAL-7): one pass at most, and the point is worth the prefill of what lies
        between it and the one below, a pass and its tokens."""
        need = self._need(running, wish, blocked=1)
        if wish.spare or self._is_here(running, wish) or wish.frontier == running.prompt_end:
            return False
        if self._room.is_spare(running, need, self._beside(running, wish)):
            return False
        if self._room.has_host:
            return self._room.is_spare(running, replace(need, on_device=False))
        unread = running.candidate.consumes and self._program.sequence(running.handle).frontier == running.base
        return unread and wish.kind is SourceKind.TURN_CLOSURE and bool(self._anchors(running))

    def _beside(self, running: RunningRequest, wish: Wish) -> int:
        """Images that a wish must leave free: for what is surer to be used, and for what others may want."""
        if wish.rewrite and not wish.spare:
            return 0
        return running.rewrites_ahead + (self._room.other_lanes if wish.spare else 0)

    def _need(self, running: RunningRequest, wish: Wish, blocked: int) -> Need:
        """What the point is worth: the prefill from the one before it, as likely as the conversation is to go on."""
        return Need(wish.frontier, _retention(running).weight * self._from_below(running, wish.frontier), blocked)

    def _loss(self, running: RunningRequest, older: CheckpointSummary) -> float:
        """What an older point of the conversation is worth, now that it is no more where the next turn starts."""
        weight = min(Retention.RECENT_PRIVATE.weight, _retention(running).weight)
        return weight * self._from_below(running, older.frontier)

    def _from_below(self, running: RunningRequest, frontier: int) -> float:
        """Prefill from the conversation's next lower point, in nanoseconds."""
        points = {running.base, *(c.frontier for c in self._program.summaries(running.owner)), *_coming(running)}
        below = max((point for point in points if point < frontier), default=0)
        return self._cost.prefill(Prefill(below, frontier - below))

    def _is_here(self, running: RunningRequest, wish: Wish) -> bool:
        return self._program.sequence(running.handle).frontier == wish.frontier

    def _anchors(self, running: RunningRequest) -> list[CheckpointSummary]:
        """The continuation's anchors, ascending. This turn's rewrite checkpoints come beside them: two at most."""
        return [c for c in self._program.summaries(running.owner) if c.kind is SourceKind.LONG_ANCHOR]

    def _place(self, running: RunningRequest, wish: Wish) -> _Place | NoRoom:
        """The continuation's place for a wish: a free one, or that of an anchor that covers less (CAN-5, CAN-7)."""
        if wish.rewrite:
            return _Place()
        anchors = self._anchors(running)
        made = {anchor.frontier for anchor in anchors}  # what lay at the present frontier is one already
        armed = (i for i in running.intended if i.armed and i.wish is not None and not i.wish.rewrite)
        coming = [intended for intended in armed if intended.frontier not in made]
        if len(anchors) + len(coming) < self._limits.long_anchors:
            return _Place()
        frontiers, end = sorted({*(c.frontier for c in anchors), wish.frontier}), running.prompt_end
        leaving = select_long_anchor_replacement(frontiers, end) if wish.by_coverage else shallowest(frontiers)
        for anchor in anchors:
            if anchor.frontier == leaving:
                return _Place(anchor)
        return NoRoom("the conversation's other anchors cover more")

    def _clear(self, running: RunningRequest, place: _Place) -> None:
        if place.leaving is not None:
            self._program.drop_checkpoint(running.owner, place.leaving.ref)


def _retention(running: RunningRequest) -> Retention:
    """Of the continuation to come."""
    return Retention.DISPOSABLE if running.asker.session is None else Retention.LIVE_SESSION


def _coming(running: RunningRequest) -> list[int]:
    """Frontiers that a pass will write."""
    return [intended.frontier for intended in running.intended if intended.armed]
