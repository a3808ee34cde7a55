"""Directory: which continuations and checkpoints a session holds, and which of them find room. Needs no torch.

Everything in it is hostile until `parse` has held it against the sizes of what is stored.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ninfer_core.contract.ids import PAGE_SIZE
from ninfer_core.contract.statistics import SourceKind

_RANGES = re.compile(r"(?:\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is stored.

    Attributes:
        images: how many StateImages, and bytes of one.
        pages: per pool, how many pages, and bytes of one.
        tokens: per continuation, token ids.
    """

    images: tuple[int, int]
    pages: tuple[tuple[int, int], ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Room:
    """Continuations, StateImages and pages per pool that still find a place."""

    cells: int
    images: int
    pages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """image, pages: their places among the stored ones."""

    kind: SourceKind
    frontier: int
    image: int
    pages: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class SavedContinuation:
    """Attributes:
    place: among the session's continuations: names its token ids and trace.
    tokens: how many token ids it has, the frontier of its endpoint.
    checkpoints: ascending by frontier, the endpoint last.
    """

    place: int
    role: str
    tokens: int
    cuts: tuple[int, ...]
    mode: tuple[tuple[str, str], ...]
    checkpoints: tuple[SavedCheckpoint, ...]

    @property
    def endpoint(self) -> SavedCheckpoint:
        return self.checkpoints[-1]

    def named(self) -> tuple[tuple[SourceKind, int], ...]:
        return tuple((c.kind, c.frontier) for c in self.checkpoints)


@dataclass(frozen=True, slots=True)
class Fit:
    """
    Attributes:
        directory: what has room.
        dropped: optional checkpoints that have none.
        left_out: continuations that have none.
        lacks: what there was too little of: "places", "images", "pages".
    """

    directory: Directory
    dropped: tuple[tuple[SourceKind, int], ...] = ()
    left_out: tuple[SavedContinuation, ...] = ()
    lacks: frozenset[str] = frozenset()

    @property
    def complete(self) -> bool:
        return not self.dropped and not self.left_out


@dataclass(frozen=True, slots=True)
class Directory:
    """Continuations, the newest first."""

    continuations: tuple[SavedContinuation, ...]

    @classmethod
    def parse(cls, raw: Any, sizes: Sizes) -> Directory:
        """Raises ValueError and its kin (KeyError, TypeError, ...) at the first thing that does not fit together."""
        if not isinstance(raw, list) or len(raw) != len(sizes.tokens):
            raise ValueError("another number of continuations")
        found = cls(tuple(_continuation(entry, place, sizes) for place, entry in enumerate(raw)))
        frontiers = found.frontiers()
        if any(frontiers[c.image] != c.frontier for c in found.checkpoints()):
            raise ValueError("a state at two frontiers")
        return found

    def json(self, images: Sequence[int], pages: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
        """As `parse` reads it, for a session that stores only these images and pages, in this order."""
        image_at = {place: i for i, place in enumerate(images)}
        page_at = [{place: i for i, place in enumerate(pool)} for pool in pages]
        return [
            {
                "role": continuation.role,
                "mode": [list(pair) for pair in continuation.mode],
                "cuts": list(continuation.cuts),
                "checkpoints": [
                    {
                        "kind": c.kind.value,
                        "frontier": c.frontier,
                        "image": image_at[c.image],
                        "pages": [ranges(page_at[i][p] for p in held) for i, held in enumerate(c.pages)],
                    }
                    for c in continuation.checkpoints
                ],
            }
            for continuation in self.continuations
        ]

    def without(self, places: Collection[int]) -> Directory:
        return Directory(tuple(one for one in self.continuations if one.place not in places))

    def checkpoints(self) -> Iterable[SavedCheckpoint]:
        """All of them: first every endpoint, newest first, then the others, deepest first in each continuation."""
        for continuation in self.continuations:
            yield continuation.endpoint
        for continuation in self.continuations:
            yield from reversed(continuation.checkpoints[:-1])

    def images(self) -> list[int]:
        """The stored images that it needs, in the order of `checkpoints`."""
        return list(dict.fromkeys(c.image for c in self.checkpoints()))

    def frontiers(self) -> dict[int, int]:
        """The stored images that it needs -> the frontier that each is the state at."""
        return {c.image: c.frontier for c in self.checkpoints()}

    def pages(self, pool: int) -> dict[int, int]:
        """The stored pages of a pool that it needs -> tokens covered, in the same order."""
        covered: dict[int, int] = {}
        for checkpoint in self.checkpoints():
            for at, page in enumerate(checkpoint.pages[pool]):
                covered[page] = max(covered.get(page, 0), min(PAGE_SIZE, checkpoint.frontier - at * PAGE_SIZE))
        return covered

    def fit(self, room: Room) -> Fit:
        """What finds room: the newest continuations with their endpoints, then the other checkpoints of those."""
        counter = _Counter(room)
        kept: list[SavedContinuation] = []
        left_out = []
        for continuation in self.continuations:
            if len(kept) == room.cells:
                counter.lacks.add("places")
                left_out.append(continuation)
            elif counter.takes(continuation.endpoint):
                kept.append(continuation)
            else:
                left_out.append(continuation)
        dropped, fitting = [], []
        for continuation in kept:
            stay = [continuation.endpoint]
            for checkpoint in reversed(continuation.checkpoints[:-1]):
                if counter.takes(checkpoint):
                    stay.append(checkpoint)
                else:
                    dropped.append((checkpoint.kind, checkpoint.frontier))
            fitting.append(replace(continuation, checkpoints=tuple(reversed(stay))))
        return Fit(Directory(tuple(fitting)), tuple(dropped), tuple(left_out), frozenset(counter.lacks))


class _Counter:
    """Room that is left while checkpoints that share images and pages are taken one by one."""

    def __init__(self, room: Room) -> None:
        self._images_left, self._pages_left = room.images, list(room.pages)
        self._images: set[int] = set()
        self._pages: list[set[int]] = [set() for _ in room.pages]
        self.lacks: set[str] = set()

    def takes(self, checkpoint: SavedCheckpoint) -> bool:
        """Take it if it fits, whole or not at all."""
        fresh = [set(held) - have for held, have in zip(checkpoint.pages, self._pages, strict=True)]
        image = checkpoint.image not in self._images
        short_of_pages = any(len(f) > left for f, left in zip(fresh, self._pages_left, strict=True))
        if image > self._images_left or short_of_pages:
            self.lacks |= {"images"} if image > self._images_left else set()
            self.lacks |= {"pages"} if short_of_pages else set()
            return False
        self._images.add(checkpoint.image)
        self._images_left -= image
        for pool, pages in enumerate(fresh):
            self._pages[pool] |= pages
            self._pages_left[pool] -= len(pages)
        return True


def ranges(numbers: Iterable[int]) -> str:
    """0,1,2,7 -> "0-2,7": a page list is one JSON value instead of hundreds."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def expanded(text: Any, most: int) -> tuple[int, ...]:
    """The numbers of `ranges`. Raises ValueError for anything else, and before more than most are made."""
    if not isinstance(text, str) or not _RANGES.fullmatch(text):
        raise ValueError("a page list of another form")
    numbers: list[int] = []
    for run in text.split(",") if text else ():
        first, _, last = run.partition("-")
        begin, end = int(first), int(last or first)
        if end < begin or len(numbers) + end - begin + 1 > most:
            raise ValueError("a page list out of range")
        numbers += range(begin, end + 1)
    return tuple(numbers)


def _continuation(raw: Any, place: int, sizes: Sizes) -> SavedContinuation:
    tokens = sizes.tokens[place]
    checkpoints = tuple(_checkpoint(entry, tokens, sizes) for entry in raw["checkpoints"])
    frontiers = [c.frontier for c in checkpoints]
    if not checkpoints or frontiers != sorted(frontiers) or frontiers[-1] != tokens:
        raise ValueError("checkpoints out of order")
    cuts = tuple(_within(cut, tokens) for cut in raw["cuts"])
    mode = tuple((str(key), str(value)) for key, value in raw["mode"])
    return SavedContinuation(place, str(raw["role"]), tokens, cuts, mode, checkpoints)


def _checkpoint(raw: Any, tokens: int, sizes: Sizes) -> SavedCheckpoint:
    frontier = _within(raw["frontier"], tokens)
    need = -(-frontier // PAGE_SIZE)
    if frontier < 1 or not isinstance(raw["pages"], list) or len(raw["pages"]) != len(sizes.pages):
        raise ValueError("another number of pools")
    held = tuple(expanded(pages, need) for pages in raw["pages"])
    for pages, (count, _) in zip(held, sizes.pages, strict=True):
        if len(pages) != need or len(set(pages)) != need or max(pages) >= count:
            raise ValueError("pages do not cover a frontier")
    kind = SourceKind(raw["kind"])
    if kind is SourceKind.ROOT:
        raise ValueError("a checkpoint at the root")
    return SavedCheckpoint(kind, frontier, _within(raw["image"], sizes.images[0] - 1), held)


def _within(value: Any, limit: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= limit:
        raise ValueError("a number out of range")
    return value
