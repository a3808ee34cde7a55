"""J and NetGain once more, written from the requirements alone: object by object, without sets as numbers or caches.

Physical facts (what lies where in the end, what was copied) come from the projection, which its own proof covers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ninfer_core.cache.domain import Option
from ninfer_core.contract.ids import CheckpointRef, OwnerId
from ninfer_core.program.ledger.bits import members
from ninfer_core.program.ledger.objects import Checkpoint, Replicas
from ninfer_core.program.planning.outcome import Outcome, successors
from ninfer_core.program.planning.projection import Projection
from ninfer_core.program.planning.target import Activation, Capture, Target
from ninfer_core.program.planning.work import Copies, Prefill
from tests.support.portfolios import Problem, WorldProgram

Outcomes = dict[OwnerId, Outcome]


@dataclass(frozen=True)
class Judged:
    """One adoptable target of the closure."""

    option: Option
    outcomes: Mapping[OwnerId, Outcome]
    value: float


class Naive:
    """The whole truth about one small problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.session = WorldProgram(problem.world).session()
        self.geometry = problem.world.geometry
        self.checkpoints = {c.ref: (o, c) for o in problem.entries for c in problem.world.owners[o].checkpoints}
        self._savings: dict[object, float] = {}
        self._bases: dict[int, Projection] = {}

    # --- the closure ----------------------------------------------------------------------------------------------
    def reachable(self, owner: OwnerId) -> list[Outcome]:
        """Every end state that one owner can degrade to, itself first."""
        capacity = self.geometry.capacity
        start = WorldProgram(self.problem.world).domain([owner])[owner]
        found, fresh = {start: None}, [start]
        while fresh:
            for step in successors(fresh.pop(), capacity.host_images > 0, capacity.host_bytes > 0):
                if step.outcome not in found:
                    found[step.outcome] = None
                    fresh.append(step.outcome)
        return list(found)

    def closure(self, option: Option, ways: Mapping[OwnerId, list[Outcome]]) -> Iterator[Outcomes]:
        owners = [owner for owner in self.problem.eligible if owner != option.source_owner]
        for chosen in itertools.product(*(ways[owner] for owner in owners)):
            yield {o: out for o, out in zip(owners, chosen, strict=True) if out is not ways[o][0]}

    def size(self, ways: Mapping[OwnerId, list[Outcome]]) -> int:
        total = 0
        for option in self.problem.options:
            product = 1
            for owner, outcomes in ways.items():
                product *= 1 if owner == option.source_owner else len(outcomes)
            total += product
        return total

    def judged(self, option: Option, outcomes: Outcomes) -> Judged | None:
        """None unless it fits and can be published."""
        projection = self._fitting(option, outcomes)
        return None if projection is None else Judged(option, outcomes, self.value(option, outcomes, projection))

    def fits(self, option: Option, outcomes: Outcomes) -> bool:
        """Whether it fits and can be published, whatever it costs."""
        return self._fitting(option, outcomes) is not None

    def _fitting(self, option: Option, outcomes: Outcomes) -> Projection | None:
        projection = self.session.assess(Target(option.demand, outcomes)).projection
        return projection if projection.feasible and self.publishable(option, outcomes) else None

    def publishable(self, option: Option, outcomes: Outcomes) -> bool:
        problem = self.problem
        if not option.needs_cell or problem.free_cell:
            return True
        holders = [o for o in problem.cell_owners if o != option.source_owner]
        if not holders and not isinstance(option.demand, Capture):
            return True  # it runs without a cell, and is discarded at its end (RET-4)
        return any(o in outcomes and not outcomes[o].kept for o in holders)

    # --- VAL ------------------------------------------------------------------------------------------------------
    def value(self, option: Option, outcomes: Outcomes, projection: Projection) -> float:
        """J of VAL-6; for a capture minus NetGain of VAL-7."""
        base = self._bases.get(option.ordinal)
        if base is None:
            base = self._bases[option.ordinal] = self.session.assess(Target(option.demand)).projection
        present = frozenset(self.checkpoints) - option.base_dead
        left = frozenset(
            ref
            for ref in present
            if self.checkpoints[ref][0] not in outcomes
            or self.checkpoints[ref][1] in outcomes[self.checkpoints[ref][0]].kept
        )
        before, after = (present, base.final), (left, projection.final)
        public = self.public(present, before) - self.public(present, after)
        private = 0.0
        for owner, entry in self.problem.entries.items():
            if owner not in self.problem.shared:
                losses = [
                    max(0.0, self.saving(ref, before) - self.saving(ref, after))
                    for ref in present
                    if self.checkpoints[ref][0] == owner and ref not in entry.unreachable
                ]
                private += entry.retention.weight * max(losses, default=0.0)
        now = self.now(option, projection)
        if isinstance(option.demand, Capture):
            return public + private + now * option.blocked - option.gain
        return now + max(0.0, public) + private

    def public(self, present: frozenset[CheckpointRef], state: tuple[frozenset[CheckpointRef], Replicas]) -> float:
        """VAL-3 and VAL-5."""
        problem, total = self.problem, 0.0
        for demand in problem.demands:
            total += max((self.saving(r, state) for r in present if problem.keys[r] in demand.keys), default=0.0)
        for owner in problem.shared:
            if problem.entries[owner].credit_until is not None:
                mine = [self.saving(r, state) for r in present if self.checkpoints[r][0] == owner]
                total += max(mine, default=0.0)
        return total

    def saving(self, ref: CheckpointRef, state: tuple[frozenset[CheckpointRef], Replicas]) -> float:
        """VAL-2 with DEF-11: from root, or from the best survivor on the path."""
        known = self._savings.get((ref, state))
        if known is not None:
            return known
        texts, (alive, replicas) = self.problem.texts, state
        cost, frontier = self.problem.cost, len(texts[ref])
        rebuild = cost.prefill(Prefill(0, frontier))
        ways = [rebuild]
        for other in alive:
            text = texts[other]
            if texts[ref][: len(text)] == text:
                fetched = self.fetch(self.checkpoints[other][1], replicas)
                ways.append(cost.to_device.price(fetched) + cost.prefill(Prefill(len(text), frontier - len(text))))
        saving = self._savings[ref, state] = max(0.0, rebuild - min(ways))
        return saving

    # --- COST -----------------------------------------------------------------------------------------------------
    def fetch(self, checkpoint: Checkpoint, replicas: Replicas) -> Copies:
        """Copies that bring a checkpoint to Device: one operation per page and plane (DEF-9)."""
        on_device = set(members(replicas.device_pages))
        operations = size = 0
        if checkpoint.image not in members(replicas.device_images):
            operations, size = 1, self.geometry.image_bytes
        for number, pool in enumerate(checkpoint.pages):
            shape = self.geometry.pools[number]
            missing = sum(page not in on_device for page in pool)
            operations += shape.planes * missing
            size += shape.page_bytes * missing
        return Copies(operations, size)

    def now(self, option: Option, projection: Projection) -> float:
        """COST-1."""
        cost, world = self.problem.cost, self.problem.world
        out = Copies(0, 0)
        for _ in members(projection.demoted.host_images):
            out += Copies(1, self.geometry.image_bytes)
        for extent in projection.extents:
            shape = self.geometry.pools[extent.pool]
            runs = 1 + sum(b != a + 1 for a, b in itertools.pairwise(extent.pages))
            out += Copies(runs * shape.planes, len(extent.pages) * shape.page_bytes)
        moved = Copies(0, 0)  # of extents that shrink: what is kept is copied into its new place
        for shrink in projection.shrinks:
            for extent in shrink.into:
                shape = self.geometry.pools[extent.pool]
                moved += Copies(shape.planes, len(extent.pages) * shape.page_bytes)
        total = cost.to_host.price(out) + cost.to_host.price(moved)
        source = option.demand.source if isinstance(option.demand, Activation) else None
        if source is None:
            return total + cost.prefill(Prefill(0, option.prompt_tokens))
        checkpoint, use = source.checkpoint, projection.source
        assert use is not None
        copied = Copies(0, 0)
        lying = world.replicas
        for number, tail in enumerate(use.copied):
            if tail is not None:
                shape = self.geometry.pools[number]
                copied += Copies(shape.planes, shape.page_bytes)
                # A tail that is copied is not brought to Device itself.
                lying |= Replicas(device_pages=1 << tail)
        total += cost.to_device.price(self.fetch(checkpoint, lying)) + cost.on_device.price(copied)
        return total + cost.prefill(Prefill(checkpoint.frontier, option.prompt_tokens - checkpoint.frontier))
