"""Assessment: Program's judgement of a target; and the session in which a planner has many of them judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from ninfer_core.contract.ids import OwnerId
from ninfer_core.contract.plans import Readiness
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.ledger.objects import Replicas
from ninfer_core.program.ledger.world import World
from ninfer_core.program.planning.census import Census, Survivors
from ninfer_core.program.planning.ground import Ground
from ninfer_core.program.planning.outcome import Outcome
from ninfer_core.program.planning.pressure import Sole
from ninfer_core.program.planning.projection import Projection, complete, lineage
from ninfer_core.program.planning.target import Activation, Source, SourceMode, Target, source_of


class Assessment(Struct, frozen=True):
    """Program's judgement of one target at one revision."""

    readiness: Readiness
    projection: Projection
    reason: str = ""


def judge(world: World, target: Target, projection: Projection) -> Assessment:
    """The readiness of a projected target while no transition is open."""
    if projection.feasible:
        quiet = not (projection.demoted or projection.restored or _restores_or_copies(projection))
        quiet = quiet and not target.outcomes
        return Assessment(Readiness.READY if quiet else Readiness.NEEDS_TRANSFER, projection)
    if isinstance(target.demand, Activation):
        lifetime, capacity = target.demand.lifetime_pages, world.geometry.capacity
        if Vector(1, 0, lifetime, 0).excess(capacity):  # isolated root: one image and its whole life
            reason = f"{lifetime[0]} KV pages of {capacity.pages[0]}"
            return Assessment(Readiness.PERMANENTLY_INFEASIBLE, projection, reason)
    return Assessment(Readiness.TEMPORARILY_BLOCKED, projection, "active requests hold the capacity")


def _restores_or_copies(projection: Projection) -> bool:
    use = projection.source
    return use is not None and (use.image_from_host or any(tail is not None for tail in use.copied))


class AssessmentSession:
    """Judges many targets of one revision. What they share is counted once, and a target that differs from the one
    before in a few owners costs those few: tens of microseconds instead of a pass over the whole portfolio.
    """

    def __init__(self, world: Callable[[], World], blocked: Callable[[], str]) -> None:
        """
        Args:
            world: the published one of now.
            blocked: why nothing can start now, in a line; empty when something can. May raise RuntimeError.
        """
        self._world = world
        self._blocked = blocked
        self.revision = world().revision
        self._rebase(world())

    def assess(self, target: Target) -> Assessment:
        """Judge one complete target, exactly as Assessments.assess does. Mutates nothing outside the session.

        Raises:
            RuntimeError: the revision has advanced: open a new session.
        """
        blocked, projection = self._blocked(), self.project(target)
        if blocked:
            return Assessment(Readiness.TEMPORARILY_BLOCKED, projection, blocked)
        return judge(self._ground.world, target, projection)

    def project(self, target: Target) -> Projection:
        """The complete post-state, exactly as `projection.project` counts it from nothing. Raises like `assess`."""
        self._renew()
        return complete(self._ground, target, self._survivors(target))

    def sole(self, target: Target) -> Replicas:
        """What each survivor of a target alone holds: a hint at what a further step frees. Raises like `assess`."""
        self._renew()
        return self._sole.of(target)

    def staying(self, target: Target, victims: Iterable[OwnerId]) -> Replicas:
        """What no outcome of these owners frees, even together: a hint too. Raises like `assess`."""
        self._renew()
        return self._sole.staying(target, victims)

    def evictions(self, owners: Iterable[OwnerId]) -> dict[OwnerId, Vector]:
        """What the eviction of each owner would free while nobody else changes: a hint too. Raises like `assess`."""
        self._renew()
        return self._sole.evictions(owners)

    def _renew(self) -> None:
        world = self._world()
        if world.revision != self.revision:
            raise RuntimeError("the assessment session is stale: the revision has advanced")
        if world is not self._ground.world:
            self._rebase(world)  # a running sequence went on inside its promise (CAP-10)

    def _rebase(self, world: World) -> None:
        self._ground = Ground.of(world)
        self._census = Census(world)
        self._sole = Sole(world)
        self._lineage: tuple[Source, Outcome] | None = None

    def _survivors(self, target: Target) -> Survivors:
        return self._census.survivors(self._outcomes(target))

    def _outcomes(self, target: Target) -> Mapping[OwnerId, Outcome]:
        """The end states of all owners that change, the consumed source's included."""
        source = source_of(target)
        if source is None or source.mode is not SourceMode.CONSUME:
            return target.outcomes
        if self._lineage is None or self._lineage[0] is not source:
            self._lineage = (source, lineage(source, self._ground.world.replicas))
        return {**target.outcomes, source.owner: self._lineage[1]}
