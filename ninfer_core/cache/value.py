"""Portfolio: what the catalogued checkpoints are worth, now and in a target's end state (context-cache VAL).

Program enumerates how a state could be recovered; here the ways are priced with one immutable cost model, and the least
counts. Everything is nanoseconds of expected work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ninfer_core.cache.catalog import Entry
from ninfer_core.cache.cost import CostModel
from ninfer_core.cache.demand import Demand
from ninfer_core.cache.paths import PathIndex
from ninfer_core.contract.ids import CheckpointRef, OwnerId
from ninfer_core.program.ledger.geometry import Geometry
from ninfer_core.program.ledger.objects import Checkpoint, Replicas
from ninfer_core.program.planning.work import Prefill, recipe_from

Refs = frozenset[CheckpointRef]
NONE: Refs = frozenset()


@dataclass(slots=True, eq=False)
class Point:
    """One checkpoint in the portfolio.

    Attributes:
        bit: its place in sets of points.
        weight: of its owner's private retention; 0 for a shared owner, or where its loss costs nothing (VAL-9).
        credit: its owner has explicit credit.
        demands: positions of the demands in the window that match it.
        rebuild: price of its canonical prefill from root.
        sources: itself and every catalogued checkpoint on its path, when it was first asked for.
    """

    bit: int
    checkpoint: Checkpoint
    owner: OwnerId
    weight: int
    credit: bool
    demands: Sequence[int]
    rebuild: float
    sources: tuple[Point, ...] | None = None


@dataclass(frozen=True, slots=True)
class Contents:
    """
    Attributes:
        owners: every catalogued owner with its checkpoints, and whether it is shared.
        demands: the window, oldest first.
        keys: the short-list digest of every checkpoint.
        now: where everything lies at this revision.
    """

    owners: Sequence[tuple[Entry, tuple[Checkpoint, ...], bool]]
    demands: Sequence[Demand]
    keys: Mapping[CheckpointRef, bytes]
    now: Replicas


@dataclass(frozen=True, slots=True)
class End:
    """An end state as the portfolio sees it.

    Attributes:
        dead: the points that are gone, as a set.
        images, pages: objects that have come to Device or left it since now.
    """

    dead: int
    replicas: Replicas
    images: int
    pages: int


@dataclass(slots=True)
class Base:
    """The state that losses are measured from: a candidate's own identity target (DEF-13).

    Attributes:
        end: what the candidate's source disposition alone leaves. What it removes is no part of the portfolio (VAL-8).
    """

    end: End
    savings: dict[int, float] = field(default_factory=dict)
    by_demand: dict[int, float] = field(default_factory=dict)


class Portfolio:
    """Built once per planning session, for one revision."""

    def __init__(self, geometry: Geometry, cost: CostModel, paths: PathIndex, contents: Callable[[], Contents]) -> None:
        """
        Args:
            contents: read when something is first asked: most admissions ask nothing.
        """
        self._geometry = geometry
        self._cost = cost
        self._paths = paths
        self._contents = contents
        self._points: dict[CheckpointRef, Point] = {}
        self._by_owner: dict[OwnerId, tuple[Point, ...]] = {}
        self._by_demand: list[list[Point]] = []
        self._prices: dict[tuple[int, int], float] = {}
        self._worths: dict[OwnerId, float] = {}
        self._filled: Contents | None = None

    def _fill(self) -> Contents:
        if self._filled is not None:
            return self._filled
        contents = self._filled = self._contents()
        positions: dict[bytes, list[int]] = {}
        for at, demand in enumerate(contents.demands):
            for key in demand.keys:
                positions.setdefault(key, []).append(at)
        self._by_demand = [[] for _ in contents.demands]
        for entry, checkpoints, shared in contents.owners:
            credit = shared and entry.credit_until is not None
            weight = 0 if shared else entry.retention.weight
            mine = []
            for checkpoint in checkpoints:
                ref = checkpoint.ref
                point = Point(
                    1 << len(self._points),
                    checkpoint,
                    entry.owner,
                    0 if ref in entry.unreachable else weight,
                    credit,
                    positions.get(contents.keys[ref], ()),
                    self._cost.prefill(Prefill(0, checkpoint.frontier)),
                )
                self._points[ref] = point
                mine.append(point)
                for at in point.demands:
                    self._by_demand[at].append(point)
            self._by_owner[entry.owner] = tuple(mine)
        return contents

    # --- states ---------------------------------------------------------------------------------------------------
    def end(self, dead: Iterable[CheckpointRef], replicas: Replicas) -> End:
        """What a target leaves: the named checkpoints are gone, the rest lies where replicas say."""
        now, gone = self._fill().now, 0
        for ref in dead:
            if ref in self._points:
                gone |= self._points[ref].bit
        images = now.device_images ^ replicas.device_images
        pages = 0 if now.device_pages is replicas.device_pages else now.device_pages ^ replicas.device_pages
        return End(gone, replicas, images, pages)

    def alone(self, dead: Iterable[CheckpointRef], left_images: int, left_pages: int) -> End:
        """What remains when only these checkpoints go, and only these objects leave Device. A prediction."""
        now, gone = self._fill().now, 0
        for ref in dead:
            gone |= self._points[ref].bit
        if not left_images and not left_pages:
            return End(gone, now, 0, 0)
        replicas = now.without(Replicas(device_images=left_images, device_pages=left_pages))
        return End(gone, replicas, left_images, left_pages)

    def base(self, dead: Refs = NONE, replicas: Replicas | None = None) -> Base:
        """A state to measure losses from; without replicas everything lies where it lies now."""
        return Base(self.end(dead, self._fill().now if replicas is None else replicas))

    def size_of(self, replicas: Replicas) -> int:
        """Bytes of Host replicas, for estimates."""
        geometry = self._geometry
        size = replicas.host_images.bit_count() * geometry.image_bytes
        return size + sum((replicas.host_pages & pool.mask).bit_count() * pool.page_bytes for pool in geometry.pools)

    # --- savings --------------------------------------------------------------------------------------------------
    def saving(self, ref: CheckpointRef, end: End) -> float:
        """Saving(p, S) of VAL-2."""
        self._fill()
        return self._saving(self._points[ref], end)

    def _saving(self, point: Point, end: End) -> float:
        """From itself, from the best survivor on its path (DEF-11), or nothing where root is cheaper."""
        least = point.rebuild
        for source in self._sources(point):
            if not end.dead & source.bit:
                least = min(least, self._price(source, point, end))
                if least <= 0:
                    break
        return point.rebuild - least

    def _sources(self, point: Point) -> tuple[Point, ...]:
        found = point.sources
        if found is None:
            above = self._paths.ancestors(point.checkpoint.ref)
            found = (point, *(self._points[ref] for ref in sorted(above) if ref in self._points))
            point.sources = found
        return found

    def _price(self, source: Point, point: Point, end: End) -> float:
        """Of restoring the source and computing on to the point."""
        checkpoint = source.checkpoint
        if end.pages & checkpoint.page_mask or end.images & checkpoint.image_mask:
            recipe = recipe_from(self._geometry, point.checkpoint.frontier, checkpoint, end.replicas)
            return self._cost.recipe(recipe)
        key = (source.bit, point.bit)
        known = self._prices.get(key)
        if known is None:
            recipe = recipe_from(self._geometry, point.checkpoint.frontier, checkpoint, self._fill().now)
            known = self._prices[key] = self._cost.recipe(recipe)
        return known

    def _base_saving(self, point: Point, base: Base) -> float:
        known = base.savings.get(point.bit)
        if known is None:
            known = base.savings[point.bit] = self._saving(point, base.end)
        return known

    def worth(self, owner: OwnerId) -> float:
        """A quick measure of what an owner's eviction alone would lose. It orders exploration only (PLAN-1)."""
        known = self._worths.get(owner)
        if known is not None:
            return known
        now = End(0, self._fill().now, 0, 0)
        private = public = 0.0
        for point in self._by_owner[owner]:
            saving = point.rebuild
            for source in self._sources(point):
                if source.owner != owner and saving > 0:
                    saving = min(saving, self._price(source, point, now))
            private = max(private, point.weight * saving)
            public = max(public, saving * (len(point.demands) + point.credit))
        self._worths[owner] = private + public
        return private + public

    # --- loss and gain --------------------------------------------------------------------------------------------
    def future_loss(self, changed: Collection[OwnerId], end: End, base: Base, limit: float = math.inf) -> float:
        """FutureLoss of VAL-6.

        Args:
            changed: owners whose end state differs from the base's.
            limit: how much is of interest: a larger loss may be reported too small, but never as less than this.
        """
        public, private = self._losses(changed, end, base, limit)
        return max(0.0, public) + private

    def signed_loss(self, changed: Collection[OwnerId], end: End, base: Base) -> float:
        """PublicValue(Sb) - PublicValue(St) plus private losses, for VAL-7."""
        public, private = self._losses(changed, end, base, math.inf)
        return public + private

    def _losses(self, changed: Collection[OwnerId], end: End, base: Base, limit: float) -> tuple[float, float]:
        if not changed:
            return 0.0, 0.0
        self._fill()
        after: dict[int, float] = {}
        touched: set[int] = set()
        credited: set[OwnerId] = set()
        private = 0.0
        for owner, points in self._affected(changed, end, base).items():
            largest = 0.0
            for point in points:
                saving = after[point.bit] = self._saving(point, end)
                if point.weight:
                    largest = max(largest, point.weight * (self._base_saving(point, base) - saving))
                touched.update(point.demands)
                if point.credit:
                    credited.add(owner)
            private += largest
            if private > limit:
                return 0.0, private
        public = 0.0
        for at in touched:
            best = base.by_demand.get(at)
            if best is None:
                best = base.by_demand[at] = self._best(self._by_demand[at], base, {})
            public += best - self._best(self._by_demand[at], base, after)
        for owner in credited:
            mine = self._by_owner[owner]
            public += self._best(mine, base, {}) - self._best(mine, base, after)
        return public, private

    def _affected(self, changed: Collection[OwnerId], end: End, base: Base) -> dict[OwnerId, list[Point]]:
        """Points whose saving may differ from the base's: of the changed owners, and what is recovered through them."""
        found: dict[OwnerId, list[Point]] = {
            owner: [p for p in self._by_owner.get(owner, ()) if not p.bit & base.end.dead] for owner in changed
        }
        seen = 0
        for owner in changed:
            for point in self._by_owner.get(owner, ()):
                for ref in self._paths.descendants(point.checkpoint.ref):
                    other = self._points.get(ref)
                    if other is None or other.bit & (seen | base.end.dead) or other.owner in changed:
                        continue
                    seen |= other.bit
                    # What is recovered from itself, for nothing, does not need anybody else.
                    if end.dead & other.bit or self._price(other, other, end) > 0:
                        found.setdefault(other.owner, []).append(other)
        return found

    def _best(self, points: Iterable[Point], base: Base, after: Mapping[int, float]) -> float:
        """The largest saving among points: one demand counts nested prefixes once (VAL-3)."""
        best = 0.0
        for point in points:
            if not point.bit & base.end.dead:
                known = after.get(point.bit)
                best = max(best, self._base_saving(point, base) if known is None else known)
        return best

    def public_gain(self, key: bytes, frontier: int, *, credit: bool) -> float:
        """What a new shared checkpoint would add to the public value: for each demand that it serves better than all
        present ones, and once for explicit credit (VAL-3, VAL-5)."""
        demands, base = self._fill().demands, self.base()
        saving = self._cost.prefill(Prefill(0, frontier))
        gain = saving if credit else 0.0
        for at, demand in enumerate(demands):
            if key in demand.keys:
                gain += max(0.0, saving - self._best(self._by_demand[at], base, {}))
        return gain
