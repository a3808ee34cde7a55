"""Objective: J of a target, its tie-break, and estimates that order exploration (VAL-6, VAL-7, PLAN-9).

Program says what work a target takes; the price is ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ninfer_core.cache.cost import CostModel
from ninfer_core.cache.domain import Domain, Option
from ninfer_core.cache.graph import Vertex
from ninfer_core.cache.value import NONE, Base, Portfolio, Refs
from ninfer_core.contract.ids import CheckpointRef, OwnerId
from ninfer_core.program.ledger.bits import minus
from ninfer_core.program.ledger.objects import Replicas
from ninfer_core.program.planning.outcome import Outcome
from ninfer_core.program.planning.projection import Projection
from ninfer_core.program.planning.target import Capture, Target
from ninfer_core.program.planning.work import Copies, ImmediateWork

Work = Callable[[Target, Projection, int], ImmediateWork]


class Objective:
    """J(c, T) = Now + FutureLoss for an activation; minus NetGain for an optional capture. Less is better."""

    def __init__(
        self,
        work: Work,
        cost: CostModel,
        portfolio: Portfolio,
        domain: Domain,
    ) -> None:
        self._work = work
        self._cost = cost
        self._portfolio = portfolio
        self._domain = domain
        self._bases: dict[int, Base] = {}
        self._unmoved: dict[Refs, Base] = {}

    def identity(self, option: Option, projection: Projection) -> float:
        """J of an option's identity target, from which its other targets are measured: nobody is degraded in it, and
        what its source disposition takes from its own conversation is no loss."""
        target = Target(option.demand)
        if option.lost:
            return self.judge(option, target, projection, projection)
        now = self._now(option, target, projection)
        return now - option.gain if isinstance(option.demand, Capture) else now

    def judge(
        self, option: Option, target: Target, projection: Projection, identity: Projection, limit: float = math.inf
    ) -> float:
        """J in nanoseconds. Whether the target is feasible is not asked here.

        Args:
            identity: the projection of the option's identity target.
            limit: a J above it may be reported too small, but not as less than this.
        """
        now = self._now(option, target, projection)
        if now > limit and not isinstance(option.demand, Capture):
            return now  # no activation's loss is negative
        base = self._base(option, identity)
        end = self._portfolio.end((*self._dead(target), *option.base_dead, *option.lost), projection.final)
        if isinstance(option.demand, Capture):
            return self._portfolio.signed_loss(target.outcomes, end, base) + now - option.gain
        changed = [*target.outcomes]
        if option.lost and option.source_owner is not None:
            changed.append(option.source_owner)
        return now + self._portfolio.future_loss(changed, end, base, limit - now)

    def _base(self, option: Option, identity: Projection) -> Base:
        base = self._bases.get(option.ordinal)
        if base is None:
            base = self._portfolio.base(option.base_dead, self._portfolio.with_lost(identity.final, option.lost))
            self._bases[option.ordinal] = base
        return base

    def predict(self, vertex: Vertex, leaving: Replicas) -> float:
        """What this owner's end state alone would add to J. An estimate, worked out once: for whichever option asks.

        Args:
            leaving: what leaves Device where its owner alone lets go of it.
        """
        if vertex.loss is None:
            vertex.loss = self.together({vertex.owner: vertex.outcome}, leaving)
        return vertex.loss

    def together(self, outcomes: Mapping[OwnerId, Outcome], leaving: Replicas, gone: Refs = NONE) -> float:
        """What these end states would add to J beside each other. An estimate.

        Args:
            leaving: as in `predict`.
            gone: checkpoints that are no part of the portfolio any more (VAL-8).
        """
        dead = [*gone]
        images = pages = 0
        copying = 0.0
        for owner, outcome in outcomes.items():
            had, has = self._domain.outcomes[owner].wants, outcome.wants
            dead += self._deleted(owner, outcome)
            if outcome.kept:
                images |= minus(had.device_images, has.device_images) & leaving.device_images
                pages |= minus(had.device_pages, has.device_pages) & leaving.device_pages
            copying += self._copying(had, has)
        end = self._portfolio.alone(dead, images, pages)
        return copying + self._portfolio.future_loss(outcomes, end, self._now_base(gone))

    def _copying(self, had: Replicas, has: Replicas) -> float:
        """Price of what comes to Host."""
        if not has.host_images and not has.host_pages:
            return 0.0
        made = Replicas(0, minus(has.host_images, had.host_images), 0, minus(has.host_pages, had.host_pages))
        operations = made.host_images.bit_count() + bool(made.host_pages)
        return self._cost.to_host.price(Copies(operations, self._portfolio.size_of(made))) if made else 0.0

    def worths(self) -> dict[OwnerId, float]:
        """Quick measures of what each eligible owner's eviction alone would lose; 0 for who is not catalogued."""
        known = self._portfolio.worths.of(self._domain.entries.values())
        return {owner: known.get(owner, 0.0) for owner in self._domain.outcomes}

    def tail_copies(self, option: Option, target: Target, projection: Projection) -> float:
        """Nanoseconds of the copies that give a sequence tails of its own."""
        return self._cost.on_device.price(self._work(target, projection, option.prompt_tokens).on_device)

    def _now(self, option: Option, target: Target, projection: Projection) -> float:
        """Of a capture, the time that every request waits which it blocks (DEF-12)."""
        now = self._cost.immediate(self._work(target, projection, option.prompt_tokens))
        return now * option.blocked if isinstance(option.demand, Capture) else now

    def _now_base(self, gone: Refs) -> Base:
        base = self._unmoved.get(gone)
        if base is None:
            base = self._unmoved[gone] = self._portfolio.base(gone)
        return base

    def _deleted(self, owner: OwnerId, outcome: Outcome) -> list[CheckpointRef]:
        had = self._domain.outcomes[owner].kept
        if len(outcome.kept) == len(had):
            return []
        kept = {c.ref for c in outcome.kept}
        return [c.ref for c in had if c.ref not in kept]

    def _dead(self, target: Target) -> list[CheckpointRef]:
        return [ref for owner, outcome in target.outcomes.items() for ref in self._deleted(owner, outcome)]

    def rank(self, option: Option, target: Target, projection: Projection) -> tuple[float, ...]:
        """The tie-break of PLAN-9, in its order, up to the candidate's ordinal. Less is better."""
        entries = self._domain.entries if target.outcomes else {}
        touched = [entries[owner] for owner in target.outcomes if owner in entries]
        hits = sum(1 for entry in touched for summary in entry.checkpoints if entry.hits_of(summary.ref))
        latest = max((entry.last_hit for entry in touched if entry.hits), default=-1)
        work = self._work(target, projection, option.prompt_tokens)
        copies = work.on_host + work.to_host + work.to_device + work.on_device
        return (
            hits,
            latest,
            sum(outcome.evicted for outcome in target.outcomes.values()),
            len(self._dead(target)),
            copies.operations,
            copies.bytes,
            work.prefill.suffix,
            -option.reused,
            not option.bound,
            option.ordinal,
        )
