"""Lack: what a target is short of, per axis, and what a step would give back (TGT-4, TGT-5). Guidance only (PLAN-1)."""

from __future__ import annotations

from operator import sub

from msgspec import Struct

from ninfer_core.program.ledger.bits import minus
from ninfer_core.program.ledger.geometry import Geometry
from ninfer_core.program.ledger.objects import NOTHING, Replicas
from ninfer_core.program.planning.outcome import Outcome
from ninfer_core.program.planning.projection import Projection

Amounts = tuple[int, ...]
"""Device images, Host images, Host bytes, publication cells, then Device pages of each pool."""

DEVICE_IMAGES = 0
HOST_AXES = (1, 2)
"""Of Amounts: those of the Host tier."""


class Lack(Struct, frozen=True):
    """Positive where something is missing, negative where something is left. A publication cell counts like an axis."""

    need: Amounts

    @classmethod
    def of(cls, projection: Projection, geometry: Geometry, *, cell: bool) -> Lack:
        over = projection.peaks[0].most(projection.peaks[1]) - geometry.capacity
        # Enough in total and yet no hole is large enough: as if the extents without a place were missing.
        host_bytes = projection.unplaceable or over.host_bytes
        return cls((over.device_images, over.host_images, host_bytes, int(cell), *over.pages))

    def __bool__(self) -> bool:
        return max(self.need) > 0

    def without(self, relief: Amounts) -> Lack:
        return Lack(tuple(map(sub, self.need, relief)))

    @property
    def missing(self) -> tuple[tuple[int, int], ...]:
        """(axis, how much) wherever something is missing."""
        return tuple([(axis, need) for axis, need in enumerate(self.need) if need > 0])

    def share(self, relief: Amounts) -> float:
        """How much of what is missing a step gives back, as a share of each axis, summed; what it takes where too
        little is left counts against it."""
        total = 0.0
        for axis, given in enumerate(relief):
            if given:  # on most axes a step gives nothing
                need = self.need[axis]
                if need > 0:
                    total += 1.0 if given >= need else given / need
                elif given < need:
                    total -= (need - given) / -given
        return total


def relief(
    before: Outcome,
    after: Outcome,
    sole: Replicas,
    geometry: Geometry,
    *,
    cell: bool,
    ahead: Replicas = NOTHING,
) -> Amounts:
    """What going from one end state of an owner to another frees, by what the owner alone holds; negative is taken.

    Args:
        sole: the replicas that only one owner wishes.
        ahead: Host replicas that another owner wishes anyway: they take no room twice.
        cell: it frees a publication cell.
    """
    had, has = before.wants, after.wants
    device_images = (minus(had.device_images, has.device_images) & sole.device_images).bit_count()
    device_pages = minus(had.device_pages, has.device_pages) & sole.device_pages
    host_images = host_bytes = 0
    if had.host_images or has.host_images:
        lost = minus(had.host_images, has.host_images)
        made = minus(has.host_images, had.host_images | ahead.host_images)
        host_images = (lost & sole.host_images).bit_count() - made.bit_count()
    if had.host_pages or has.host_pages:
        lost = minus(had.host_pages, has.host_pages)
        made = minus(has.host_pages, had.host_pages | ahead.host_pages)
        host_bytes = geometry.bytes_of(lost & sole.host_pages) - geometry.bytes_of(made)
    return (device_images, host_images, host_bytes, int(cell), *geometry.per_pool(device_pages))
