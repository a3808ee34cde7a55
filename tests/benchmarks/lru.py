"""LRU: the policy that the planner is compared with."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ninfer_core.cache.budget import Budget, Stop
from ninfer_core.cache.catalog import Catalog
from ninfer_core.cache.desk import Desk
from ninfer_core.cache.domain import Option
from ninfer_core.cache.planner import Choice
from ninfer_core.cache.steps import Steps
from ninfer_core.cache.value import Portfolio
from ninfer_core.contract.ids import OwnerId
from ninfer_core.contract.plans import Readiness
from ninfer_core.program.planning.assessment import AssessmentSession
from ninfer_core.program.planning.outcome import EVICTED, Outcome
from ninfer_core.program.planning.projection import Projection
from ninfer_core.program.planning.target import Target
from tests.support.demotion import demoted


@dataclass(frozen=True)
class Pick:
    """What the manager reads of a chosen node."""

    option: Option
    target: Target
    projection: Projection
    readiness: Readiness
    reason: str


class LruDesk(Desk):
    """Deepest match first; room is made by evicting whole owners, least recently used first. With a Host tier owners
    are demoted there in the same order, and the oldest are evicted when it is full. Nothing is weighed."""

    def materialize(
        self, options: Sequence[Option], budget: Budget, ranking: Sequence[OwnerId] | None
    ) -> Steps[Choice]:
        yield
        session, assessed = self._program.session(), 0
        for option in options:
            pick, tried = self._make_room(session, option, self._books.private, ())
            assessed += tried
            if pick is not None:
                return Choice(pick, pick.readiness, "", Stop.NO_PRESSURE, assessed)  # type: ignore[arg-type]
        found = session.assess(Target(options[-1].demand))
        return Choice(None, found.readiness, found.reason, Stop.NO_PRESSURE, assessed)

    def capture(
        self, option: Option, budget: Budget, portfolio: Portfolio, spared: Collection[OwnerId]
    ) -> Steps[Choice]:
        yield
        pick, tried = self._make_room(self._program.session(), option, self._books.shared, spared)
        readiness = Readiness.TEMPORARILY_BLOCKED if pick is None else pick.readiness
        return Choice(pick, readiness, "no room", Stop.NO_PRESSURE, tried)  # type: ignore[arg-type]

    def _make_room(
        self, session: AssessmentSession, option: Option, catalog: Catalog, spared: Collection[OwnerId]
    ) -> tuple[Pick | None, int]:
        """Evict the `gone` oldest, demote those up to `down`, until it fits or nobody is left."""
        source = [] if option.source_owner is None else [option.source_owner]
        eligible = self._books.eligible([*spared, *source])
        order = [owner for owner in self._books.ranking() if owner in eligible]
        domain, capacity = self._program.domain(order), self._program.geometry.capacity
        order = [owner for owner in order if owner in domain]
        has_host, gone, down, tried = capacity.host_images > 0, 0, 0, 0
        placed = not option.needs_cell or catalog.free_cells > 0 or not any(catalog.get(owner) for owner in order)
        while True:
            outcomes: dict[OwnerId, Outcome] = dict.fromkeys(order[:gone], EVICTED)
            outcomes |= {owner: demoted(domain[owner]) for owner in order[gone:down]}
            target, tried = Target(option.demand, outcomes), tried + 1
            found = session.assess(target)
            fits = found.readiness in (Readiness.READY, Readiness.NEEDS_TRANSFER)
            if fits and (placed or any(catalog.get(owner) for owner in order[:gone])):
                return Pick(option, target, found.projection, found.readiness, found.reason), tried
            if gone == len(order):
                return None, tried
            lack = found.projection.deficit
            host_full = fits or lack.host_images or lack.host_bytes or found.projection.unplaceable
            if has_host and not host_full and down < len(order):
                down = max(down, gone) + 1
            else:
                gone += 1
                down = max(down, gone)
