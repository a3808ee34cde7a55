"""What a cache holds, down to images and pages, and who lost what for whom: short and literal, for tables in tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ninfer_core.cache.manager import ResourceManager
from ninfer_core.contract.ids import OwnerId, RequestId
from ninfer_core.contract.results import OwnerSummary
from ninfer_core.program.ledger.world import World

Held = dict[int, list[tuple[str, int, str, str]]]
"""owner -> (kind, frontier, image, pages) of each of its checkpoints, ascending.

An image or page is written with the places where it has a replica before its number: d is Device, h is Host. Pages of
one place whose numbers follow each other are one span: "d0-2 h5".
"""

Loss = tuple[int, int, str, str]
"""(request, owner, what became of it, which of its checkpoints)."""


def held(world: World) -> Held:
    replicas = world.replicas

    def image(number: int) -> str:
        return _place(number, replicas.device_images, replicas.host_images) + str(number)

    def pages(numbers: Iterable[int]) -> str:
        placed = [(_place(n, replicas.device_pages, replicas.host_pages), n) for n in numbers]
        return " ".join(_spans(placed))

    return {
        int(owner.id): [
            (c.kind.value, int(c.frontier), image(c.image), pages(map(int, c.pages[0]))) for c in owner.checkpoints
        ]
        for owner in world.owners.values()
    }


class Losses:
    """Watches the books: what inactive owners lost to others, in order. What a request takes over from its own source
    is no loss."""

    def __init__(self, manager: ResourceManager) -> None:
        self._books = manager.books
        self._adopt = self._books._adopt_owner
        self._rows: list[Loss] = []
        self._books._adopt_owner = self._watched  # type: ignore[method-assign]

    def _watched(self, now: OwnerSummary, request: RequestId, *, bury: bool = True, reserve: bool = False) -> Any:
        entry = self._books.get(now.owner)
        assert entry is not None
        if bury:
            before = {c.ref: c for c in entry.checkpoints}
            after = {c.ref: c for c in now.checkpoints}
            gone = [c for ref, c in before.items() if ref not in after]
            moved = [c for ref, c in after.items() if c.placement is not before[ref].placement]
            self._note(request, now.owner, "shortened" if after else "evicted", gone)
            for place in sorted({c.placement.value for c in moved}):
                self._note(request, now.owner, f"to {place}", [c for c in moved if c.placement.value == place])
        return self._adopt(now, request, bury=bury, reserve=reserve)

    def _note(self, request: RequestId, owner: OwnerId, what: str, checkpoints: Iterable[Any]) -> None:
        names = [f"{c.kind.value} {c.frontier}" for c in checkpoints]
        if names:
            self._rows.append((int(request), int(owner), what, ", ".join(names)))

    def told(self) -> list[Loss]:
        """Those since it was asked last."""
        rows, self._rows = self._rows, []
        return rows


def _place(number: int, device: int, host: int) -> str:
    return "d" * (device >> number & 1) + "h" * (host >> number & 1)


def _spans(placed: list[tuple[str, int]]) -> Iterator[str]:
    first = 0
    for i in range(1, len(placed) + 1):
        place, number = placed[i - 1]
        if i < len(placed) and placed[i] == (place, number + 1):
            continue
        start = placed[first][1]
        yield f"{place}{start}" if start == number else f"{place}{start}-{number}"
        first = i
