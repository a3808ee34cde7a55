"""Ids: StateImages and pages of a ledger that a test makes up, the lowest free ones first."""

from __future__ import annotations

from ninfer_core.contract.ids import ImageId, LogicalPage
from ninfer_core.program.ledger.bits import lowest_clear
from ninfer_core.program.ledger.geometry import Geometry


class Ids:
    """No more are given than have a place on Device.

    Attributes:
        images, pages: those that are taken, as sets.
    """

    geometry: Geometry
    images: int = 0
    pages: int = 0

    def new_image(self) -> ImageId | None:
        found = lowest_clear(self.images, self.geometry.image_ids)
        if found < 0 or self.images.bit_count() >= self.geometry.capacity.device_images:
            return None
        self.images |= 1 << found
        return ImageId(found)

    def new_pages(self, pool: int, count: int) -> tuple[LogicalPage, ...] | None:
        found = []
        for _ in range(count):
            p = self.geometry.pools[pool]
            page = lowest_clear(self.pages, p.mask)
            if page < 0 or (self.pages & p.mask).bit_count() >= p.device_pages:
                return None
            self.pages |= 1 << page
            found.append(LogicalPage(page))
        return tuple(found)
