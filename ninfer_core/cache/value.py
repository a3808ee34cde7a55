"""Portfolio: what the catalogued checkpoints are worth, now and in a target's end state (context-cache VAL).

Program says how much a way to recover a state takes; here the ways are priced with one immutable cost model, and the
least counts. Everything is nanoseconds of expected work.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from ninfer_core.cache.contents import Contents
from ninfer_core.cache.cost import CostModel
from ninfer_core.cache.paths import PathIndex
from ninfer_core.cache.worths import Worths
from ninfer_core.contract.ids import CheckpointRef, OwnerId
from ninfer_core.program.ledger.geometry import Geometry
from ninfer_core.program.ledger.objects import Checkpoint, Replicas
from ninfer_core.program.planning.work import Prefill, restore_of

Refs = frozenset[CheckpointRef]
NONE: Refs = frozenset()


class Point(Struct, eq=False):
    """One checkpoint in the portfolio.

    Attributes:
        weight: of its owner's private retention; 0 for a shared owner, or where its loss costs nothing (VAL-9).
        credit: its owner has explicit credit.
        demands: those in the window that match it.
        rebuild: price of its canonical prefill from root.
        above: every other catalogued checkpoint on its path, when it was first asked for.
    """

    ref: CheckpointRef
    checkpoint: Checkpoint
    owner: OwnerId
    weight: int
    credit: bool
    demands: Sequence[int]
    rebuild: float
    above: tuple[CheckpointRef, ...] | None = None


class End(Struct, frozen=True, eq=False):
    """An end state as the portfolio sees it.

    Attributes:
        dead: the checkpoints that are gone.
        images, pages: objects that have come to Device or left it since now.
    """

    dead: Refs
    replicas: Replicas
    images: int
    pages: int
    _restores: dict[CheckpointRef, float] = field(default_factory=dict)

    def restores(self, checkpoint: Checkpoint) -> dict[CheckpointRef, float] | None:
        """Prices known of bringing checkpoints to Device from here; None where it is as it is now."""
        moved = self.pages & checkpoint.page_mask or self.images & checkpoint.image_mask
        return self._restores if moved else None


class Base(Struct, frozen=True, eq=False):
    """The state that losses are measured from: a candidate's own identity target (DEF-13).

    Attributes:
        end: what the candidate's source disposition alone leaves. What it removes is no part of the portfolio (VAL-8).
        ways: by checkpoint, prices of recovering it with their sources, ascending; those below root's.
    """

    end: End
    ways: dict[CheckpointRef, tuple[tuple[float, Point], ...]] = field(default_factory=dict)
    savings: dict[CheckpointRef, float] = field(default_factory=dict)
    by_demand: dict[int, float] = field(default_factory=dict)


class Portfolio:
    """For one planning session, at one revision."""

    def __init__(self, geometry: Geometry, cost: CostModel, paths: PathIndex, contents: Contents) -> None:
        self._geometry = geometry
        self._cost = cost
        self._paths = paths
        self._contents = contents
        self._points: dict[CheckpointRef, Point] = {}
        self._by_owner: dict[OwnerId, tuple[Point, ...]] = {}
        self._by_demand: dict[int, tuple[Point, ...]] = {}
        self._restores: dict[CheckpointRef, float] = {}
        self._prefills: dict[tuple[CheckpointRef, CheckpointRef], float] = {}
        self.worths = Worths(geometry, cost, paths, contents)
        """Quick measures: they order exploration only."""

    # --- points ---------------------------------------------------------------------------------------------------
    def _of(self, owner: OwnerId) -> tuple[Point, ...]:
        """An owner's points, ascending; none when it is not catalogued."""
        found = self._by_owner.get(owner)
        if found is None:
            found = self._by_owner[owner] = self._read(owner)
            self._points.update((point.ref, point) for point in found)
        return found

    def _read(self, owner: OwnerId) -> tuple[Point, ...]:
        entry = self._contents.entry(owner)
        if entry is None:
            return ()
        weight, credit = self._contents.retained(entry)
        showing, keys = self._contents.demands.showing, self._contents.shelf.keys
        return tuple(
            Point(
                c.ref,
                c,
                owner,
                0 if c.ref in entry.unreachable else weight,
                credit,
                showing.get(keys[c.ref], ()),
                self._cost.rebuild(c.frontier),
            )
            for c in self._contents.checkpoints(owner)
        )

    def _point(self, ref: CheckpointRef) -> Point | None:
        """None for one that is not catalogued."""
        found = self._points.get(ref)
        if found is None and (owner := self._contents.shelf.owners.get(ref)) is not None:
            self._of(owner)
            found = self._points.get(ref)
        return found

    def _served(self, at: int) -> tuple[Point, ...]:
        """The points that match a demand."""
        found = self._by_demand.get(at)
        if found is None:
            holders = self._contents.shelf.holders
            points = (self._point(ref) for key in self._contents.demands.at(at).keys for ref in holders.get(key, ()))
            found = self._by_demand[at] = tuple(point for point in points if point is not None)
        return found

    # --- states ---------------------------------------------------------------------------------------------------
    def end(self, dead: Iterable[CheckpointRef], replicas: Replicas) -> End:
        """What a target leaves: the named checkpoints are gone, the rest lies where replicas say."""
        now = self._contents.now
        images = now.device_images ^ replicas.device_images
        pages = 0 if now.device_pages is replicas.device_pages else now.device_pages ^ replicas.device_pages
        return End(frozenset(dead), replicas, images, pages)

    def alone(self, dead: Iterable[CheckpointRef], left_images: int, left_pages: int) -> End:
        """What remains when only these checkpoints go, and only these objects leave Device. A prediction."""
        now, gone = self._contents.now, frozenset(dead)
        if not left_images and not left_pages:
            return End(gone, now, 0, 0)
        replicas = now.without(Replicas(device_images=left_images, device_pages=left_pages))
        return End(gone, replicas, left_images, left_pages)

    def base(self, dead: Refs = NONE, replicas: Replicas | None = None) -> Base:
        """A state to measure losses from; without replicas everything lies where it lies now."""
        return Base(self.end(dead, self._contents.now if replicas is None else replicas))

    def with_lost(self, replicas: Replicas, lost: Refs) -> Replicas:
        """An end state's replicas with those of these checkpoints, as they lie now: losses are measured from it."""
        images = pages = 0
        for point in map(self._point, lost):
            if point is not None:
                images |= point.checkpoint.image_mask
                pages |= point.checkpoint.page_mask
        return replicas | self._contents.now.only(images, pages) if lost else replicas

    def size_of(self, replicas: Replicas) -> int:
        """Bytes of Host replicas, for estimates."""
        geometry = self._geometry
        return replicas.host_images.bit_count() * geometry.image_bytes + geometry.bytes_of(replicas.host_pages)

    # --- savings --------------------------------------------------------------------------------------------------
    def saving(self, ref: CheckpointRef, end: End) -> float:
        """Saving(p, S) of VAL-2. Raises KeyError for a checkpoint that is not catalogued."""
        point = self._point(ref)
        if point is None:
            raise KeyError(ref)
        return _saved(point, self._ways(point, end))

    def _ways(self, point: Point, end: End) -> tuple[tuple[float, Point], ...]:
        """From itself and from each survivor on its path (DEF-11), where root is not as cheap."""
        ways = []
        for source in self._sources(point):
            if source.ref not in end.dead and (price := self._price(source, point, end)) < point.rebuild:
                ways.append((price, source))
        ways.sort(key=_price_of)
        return tuple(ways)

    def _later_saving(self, point: Point, end: End, base: Base) -> float:
        """The saving in an end state that only takes away from the base: no way has become shorter."""
        if self._is_at_hand(point, end):
            return point.rebuild
        least = point.rebuild
        for price, source in self._known(point, base):
            if price >= least:
                break
            if source.ref not in end.dead:
                restore = self._restore(source, end)
                if restore != self._restore(source, base.end):
                    price = restore if source is point else restore + self._prefill(source, point)
                least = min(least, price)
        return point.rebuild - least

    def _sources(self, point: Point) -> Iterator[Point]:
        """Itself, and every catalogued checkpoint on its path."""
        if point.above is None:
            refs = sorted(self._paths.ancestors(point.ref))
            # By name: two of the same text lie on each other's path, and should go without the garbage collector.
            point.above = tuple(ref for ref in refs if ref != point.ref and self._point(ref) is not None)
        yield point
        yield from map(self._points.__getitem__, point.above)

    def _price(self, source: Point, point: Point, end: End) -> float:
        """Of restoring the source and computing on to the point."""
        restore = self._restore(source, end)
        return restore if source is point else restore + self._prefill(source, point)

    def _restore(self, source: Point, end: End) -> float:
        """One source serves many points: what it takes to have it is worked out once."""
        known, replicas = end.restores(source.checkpoint), end.replicas
        if known is None:
            known, replicas = self._restores, self._contents.now
        price = known.get(source.ref)
        if price is None:
            copies = restore_of(self._geometry, source.checkpoint, replicas)
            price = known[source.ref] = self._cost.to_device.price(copies)
        return price

    def _prefill(self, source: Point, point: Point) -> float:
        key = (source.ref, point.ref)
        price = self._prefills.get(key)
        if price is None:
            base = source.checkpoint.frontier
            price = self._prefills[key] = self._cost.prefill(Prefill(base, point.checkpoint.frontier - base))
        return price

    def _known(self, point: Point, base: Base) -> tuple[tuple[float, Point], ...]:
        known = base.ways.get(point.ref)
        if known is None:
            known = base.ways[point.ref] = self._ways(point, base.end)
        return known

    def _is_at_hand(self, point: Point, end: End) -> bool:
        """It is recovered from itself, for nothing: most are, and no way need be looked at."""
        return point.ref not in end.dead and self._restore(point, end) <= 0

    def _base_saving(self, point: Point, base: Base) -> float:
        known = base.savings.get(point.ref)
        if known is None:
            at_hand = self._is_at_hand(point, base.end)
            known = base.savings[point.ref] = point.rebuild if at_hand else _saved(point, self._known(point, base))
        return known

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
        after: dict[CheckpointRef, float] = {}
        touched: set[int] = set()
        credited: set[OwnerId] = set()
        private = 0.0
        for owner, points in self._affected(changed, end, base):
            largest = 0.0
            for point in points:
                was, now = self._base_saving(point, base), self._later_saving(point, end, base)
                if now == was:
                    continue
                after[point.ref] = now
                if point.weight:
                    largest = max(largest, point.weight * (was - now))
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
                best = base.by_demand[at] = self._best(self._served(at), base, {})
            public += best - self._best(self._served(at), base, after)
        for owner in credited:
            mine = self._of(owner)
            public += self._best(mine, base, {}) - self._best(mine, base, after)
        return public, private

    def _affected(
        self, changed: Collection[OwnerId], end: End, base: Base
    ) -> Iterator[tuple[OwnerId, Collection[Point]]]:
        """Points whose saving may differ from the base's: of the changed owners, and what is recovered through them."""
        gone, owner_of = base.end.dead, self._contents.shelf.owners
        for owner in changed:
            yield owner, [point for point in self._of(owner) if point.ref not in gone]
        others: dict[OwnerId, dict[CheckpointRef, Point]] = {}
        for owner in changed:
            for point in self._of(owner):
                for ref in self._paths.descendants(point.ref):
                    other_owner = owner_of.get(ref)
                    if other_owner is None or other_owner in changed or ref in gone:
                        continue
                    other = self._point(ref)
                    assert other is not None
                    # What is recovered from itself, for nothing, does not need anybody else.
                    if ref in end.dead or self._price(other, other, end) > 0:
                        others.setdefault(other_owner, {})[ref] = other
        for owner, points in others.items():
            yield owner, points.values()

    def _best(self, points: Iterable[Point], base: Base, after: Mapping[CheckpointRef, float]) -> float:
        """The largest saving among points: one demand counts nested prefixes once (VAL-3)."""
        best = 0.0
        for point in points:
            if point.ref not in base.end.dead:
                known = after.get(point.ref)
                best = max(best, self._base_saving(point, base) if known is None else known)
        return best

    def public_gain(self, key: bytes, frontier: int, *, credit: bool) -> float:
        """What a new shared checkpoint would add to the public value: for each demand that it serves better than all
        present ones, and once for explicit credit (VAL-3, VAL-5)."""
        base, saving = self.base(), self._cost.rebuild(frontier)
        gain = saving if credit else 0.0
        for at in self._contents.demands.showing.get(key, ()):
            gain += max(0.0, saving - self._best(self._served(at), base, {}))
        return gain


def _price_of(way: tuple[float, Point]) -> float:
    return way[0]


def _saved(point: Point, ways: Sequence[tuple[float, Point]]) -> float:
    """By the cheapest of its ways, which come in ascending order."""
    return point.rebuild - ways[0][0] if ways else 0.0
