"""Lack: what a target is short of, per axis, and what a step would give back (TGT-4, TGT-5). Guidance only (PLAN-1)."""

from __future__ import annotations

from dataclasses import dataclass

from ninfer_core.program.ledger.geometry import Geometry
from ninfer_core.program.ledger.objects import Replicas
from ninfer_core.program.planning.outcome import Outcome
from ninfer_core.program.planning.projection import Projection

Amounts = tuple[int, ...]
"""Device images, Host images, Host bytes, publication cells, then Device pages of each pool."""

HOST_AXES = (1, 2)
"""Of Amounts: those of the Host tier."""


@dataclass(frozen=True, slots=True)
class Lack:
    """Positive where something is missing, negative where something is left. A publication cell counts like an axis."""

    need: Amounts

    @classmethod
    def of(cls, projection: Projection, geometry: Geometry, *, cell: bool) -> Lack:
        over = projection.peaks[0].most(projection.peaks[1]) - geometry.capacity
        # Enough in total and yet no hole is large enough: as if the extents without a place were missing.
        host_bytes = projection.unplaceable or over.host_bytes
        return cls((over.device_images, over.host_images, host_bytes, int(cell), *over.pages))

    def __bool__(self) -> bool:
        return any(amount > 0 for amount in self.need)

    def without(self, relief: Amounts) -> Lack:
        return Lack(tuple(need - given for need, given in zip(self.need, relief, strict=True)))

    @property
    def missing(self) -> tuple[tuple[int, int], ...]:
        """(axis, how much) wherever something is missing."""
        return tuple((axis, need) for axis, need in enumerate(self.need) if need > 0)

    def share(self, relief: Amounts) -> float:
        """How much of what is missing a step gives back, as a share of each axis, summed; what it takes where too
        little is left counts against it."""
        total = 0.0
        for need, given in zip(self.need, relief, strict=True):
            if need > 0:
                total += (need - max(0, need - given)) / need
            elif given < need:
                total -= (need - given) / -given
        return total


def relief(before: Outcome, after: Outcome, sole: Replicas, geometry: Geometry, *, cell: bool) -> Amounts:
    """What going from one end state of an owner to another frees, by what the owner alone holds; negative is taken.

    Args:
        sole: the replicas that only one owner wishes.
        cell: it frees a publication cell.
    """
    had, has = before.wants, after.wants
    device_pages = _gone(had.device_pages, has.device_pages) & sole.device_pages
    device_images = (_gone(had.device_images, has.device_images) & sole.device_images).bit_count()
    host_images = host_bytes = 0
    if had.host_images or has.host_images:
        host_images = _change(had.host_images, has.host_images, sole.host_images)
    if had.host_pages or has.host_pages:
        lost = _gone(had.host_pages, has.host_pages) & sole.host_pages
        made = _gone(has.host_pages, had.host_pages)
        host_bytes = geometry.bytes_of(lost) - geometry.bytes_of(made)
    return (device_images, host_images, host_bytes, int(cell), *geometry.per_pool(device_pages))


def _gone(had: int, has: int) -> int:
    return had if not has else had ^ (had & has)


def _change(had: int, has: int, sole: int) -> int:
    return (_gone(had, has) & sole).bit_count() - _gone(has, had).bit_count()
