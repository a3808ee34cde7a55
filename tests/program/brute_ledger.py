"""The ledger once more, object by object and slow: what projection must agree with. Shares no algebra with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from ninfer_core.contract.ids import PAGE_SIZE
from ninfer_core.program.ledger.bits import members
from ninfer_core.program.ledger.world import World
from ninfer_core.program.planning.target import Activation, Capture, SourceMode, Target


@dataclass
class Replay:
    """Replays a target's stages. `peak` is the largest use seen on each axis, `stuck` a Host extent without a hole,
    `shrunk` the replaced extents (offset, size) with those that took their place."""

    world: World
    target: Target
    peak: Counter = field(default_factory=Counter)
    stuck: bool = False
    moved: bool = False
    copies: Counter = field(default_factory=Counter)
    shrunk: list[tuple[tuple[int, int], list[tuple[int, int]]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        w = self.world
        self.device_images = set(members(w.replicas.device_images))
        self.host_images = set(members(w.replicas.host_images))
        self.device_pages = set(members(w.replicas.device_pages))
        self.host_pages = set(members(w.replicas.host_pages))
        self.extents = {(e.offset, e.size): {p for p in e.pages if p in set(members(e.mask))} for e in w.extents}
        self.order = {(e.offset, e.size): (e.pool, e.pages) for e in w.extents}
        self.reserved: Counter = Counter()
        for owner in w.owners.values():
            for number, count in enumerate(owner.lane.promised if owner.lane else ()):
                self.reserved["pages", number] += count
        self.run()

    # --- bookkeeping ----------------------------------------------------------------------------------------------
    def pool(self, page: int) -> int:
        return next(i for i, p in enumerate(self.world.geometry.pools) if p.first <= page < p.first + p.ids)

    def note(self) -> None:
        use = Counter(self.reserved)
        use["device_images"] += len(self.device_images)
        use["host_images"] += len(self.host_images)
        for page in self.device_pages:
            use["pages", self.pool(page)] += 1
        use["host_bytes"] += sum(size for _, size in self.extents)
        for axis, count in use.items():
            self.peak[axis] = max(self.peak[axis], count)

    def fits(self) -> bool:
        c = self.world.geometry.capacity
        limits = {"device_images": c.device_images, "host_images": c.host_images, "host_bytes": c.host_bytes}
        limits.update({("pages", i): count for i, count in enumerate(c.pages)})
        return not self.stuck and all(self.peak[axis] <= limit for axis, limit in limits.items())

    def drop_host_page(self, page: int) -> None:
        self.host_pages.discard(page)
        for span, pages in list(self.extents.items()):
            pages.discard(page)
            if not pages:
                del self.extents[span]

    def holes(self) -> list[tuple[int, int]]:
        """(offset, size) of what no extent takes, ascending."""
        at, end, found = 0, self.world.geometry.capacity.host_bytes, []
        for offset, size in sorted(self.extents):
            if offset > at:
                found.append((at, offset - at))
            at = offset + size
        return [*found, (at, end - at)] if at < end else found

    def places(self, sizes: list[int]) -> list[tuple[int, int] | None]:
        """A span for each size in turn, the smallest hole that holds it; None where none does."""
        holes, found = self.holes(), []
        for size in sizes:
            hole = min((h for h in holes if h[1] >= size), key=lambda h: (h[1], h[0]), default=None)
            found.append(None if hole is None else (hole[0], size))
            if hole is not None:
                holes.remove(hole)
                holes += [(hole[0] + size, hole[1] - size)] if hole[1] > size else []
        return found

    def shrink(self, sizes: list[int]) -> None:
        """Replace extents that are partly dead, the fewest living bytes first, until a span for each size is found."""
        bytes_of = {s: len(p) * self.world.geometry.pools[self.order[s][0]].page_bytes for s, p in self.extents.items()}
        for span in sorted(self.extents, key=lambda s: (bytes_of[s], s[0])):
            if None not in self.places(sizes):
                return
            pool, pages = self.order[span]
            runs = consecutive_runs(pages, self.extents[span])
            if sum(map(len, runs)) == len(pages):
                continue
            page_bytes = self.world.geometry.pools[pool].page_bytes
            spans = self.places([len(run) * page_bytes for run in runs])
            if None in spans:
                continue
            for new, run in zip(spans, runs, strict=True):  # reserved and copied while the old one is there
                self.extents[new], self.order[new] = set(run), (pool, tuple(run))
            self.note()
            del self.extents[span]
            self.shrunk.append((span, spans))

    # --- the stages -----------------------------------------------------------------------------------------------
    def run(self) -> None:
        w, target = self.world, self.target
        source = target.demand.source if isinstance(target.demand, Activation) else None
        consumed = source is not None and source.mode is SourceMode.CONSUME
        needed_images, needed_pages = set(), set()
        wish = {name: set() for name in ("di", "hi", "dp", "hp")}
        survivors = []
        for owner in w.owners.values():
            kept = owner.checkpoints
            wants = None
            if consumed and owner.id == source.owner:
                kept = source.lineage
            elif owner.id in target.outcomes:
                kept, wants = target.outcomes[owner.id].kept, target.outcomes[owner.id].wants
            images = {c.image for c in kept}
            pages = {p for c in kept for pool in c.pages for p in pool}
            if owner.lane is not None:
                images |= {owner.lane.image} | ({owner.lane.reads} - {None})
                pages |= {p for pool in owner.lane.pages for p in pool}
            needed_images |= images
            needed_pages |= pages
            if wants is None:
                wish["di"] |= images & self.device_images
                wish["hi"] |= images & self.host_images
                wish["dp"] |= pages & self.device_pages
                wish["hp"] |= pages & self.host_pages
            else:
                for name, mask in zip(
                    ("di", "hi", "dp", "hp"),
                    (wants.device_images, wants.host_images, wants.device_pages, wants.host_pages),
                    strict=True,
                ):
                    wish[name] |= set(members(mask))
            survivors.append((owner, kept))
        new_host_images = wish["hi"] - self.host_images
        new_host_pages = wish["hp"] - self.host_pages

        reads, tails_copied, brought, image_source = set(), [], set(), None
        if source is not None:
            image_source = source.checkpoint.image
            self.moved = consumed and image_source not in needed_images
            for pool in source.checkpoint.pages:
                if pool and source.checkpoint.frontier % PAGE_SIZE and pool[-1] in needed_pages:
                    tails_copied.append(pool[-1])
                    reads |= set(pool[:-1])
                else:
                    reads |= set(pool)
            brought = reads - self.device_pages
        protected = reads | set(tails_copied)

        # 1 what nobody needs and no copy reads
        for image in list(self.device_images):
            if image not in wish["di"] and image not in new_host_images and image != image_source:
                self.device_images.discard(image)
        for image in list(self.host_images):
            if (image not in wish["hi"] and image != image_source) or (
                image not in wish["hi"] and image in self.device_images
            ):
                self.host_images.discard(image)
        for page in list(self.device_pages):
            if page not in wish["dp"] and page not in new_host_pages and page not in protected:
                self.device_pages.discard(page)
        for page in list(self.host_pages):
            if page not in wish["hp"] and (page not in protected or page in self.device_pages):
                self.drop_host_page(page)
        self.note()

        # 2 reserve Host destinations, one after the other
        left = set(new_host_pages)
        changed = sorted((o for o in survivors if o[0].id in target.outcomes), key=lambda o: o[0].id)
        runs = []
        for _, kept in changed:
            for checkpoint in sorted(kept, key=lambda c: -c.frontier):
                for number, pool in enumerate(checkpoint.pages):
                    for run in consecutive_runs(pool, left):
                        runs.append((len(run) * w.geometry.pools[number].page_bytes, run))
                        left -= set(run)
        assert not left
        sizes = [size for size, _ in runs]
        self.shrink(sizes)
        for (size, run), span in zip(runs, self.places(sizes), strict=True):
            self.stuck |= span is None
            self.extents[span or (-1 - len(self.extents), size)] = set(run)
            self.host_pages |= set(run)
            self.note()
        for image in new_host_images:
            self.host_images.add(image)
            self.copies["image to host"] += 1
            self.note()

        # 4 the Device replicas of what was demoted
        for image in new_host_images - wish["di"]:
            if image != image_source:
                self.device_images.discard(image)
        for page in new_host_pages - wish["dp"] - protected:
            self.device_pages.discard(page)
        self.note()

        # 5, 6 destinations of the activation or capture, all reserved before the first copy
        if isinstance(target.demand, Capture):
            self.reserved["device_images"] += target.demand.device_image
            self.reserved["host_images"] += target.demand.host_image
            for number, count in enumerate(target.demand.tail_pages):
                self.reserved["pages", number] += count
        if isinstance(target.demand, Activation):
            restores = source is not None and image_source not in self.device_images
            self.reserved["device_images"] += 0 if self.moved and not restores else 1
            for number, total in enumerate(target.demand.lifetime_pages):
                own = sum(self.pool(p) == number for p in reads)
                self.reserved["pages", number] += max(0, total - own)
            self.device_pages |= brought
        self.note()


def consecutive_runs(pages: Iterable[int], wanted: set[int]) -> list[list[int]]:
    """The wanted ones among pages, split wherever one between them is not."""
    found: list[list[int]] = [[]]
    for page in pages:
        if page in wanted:
            found[-1].append(page)
        elif found[-1]:
            found.append([])
    return [run for run in found if run]


def consecutive(offsets: list[tuple[int, int]]) -> bool:
    """No two spans overlap."""
    return all(a + n <= b for (a, n), (b, _) in pairwise(sorted(offsets)))
