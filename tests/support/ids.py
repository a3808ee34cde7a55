"""Ids: StateImages and pages of a ledger that a test makes up: the lowest free images, and pages in any order."""

from __future__ import annotations

import random

from ninfer_core.contract.ids import ImageId, LogicalPage
from ninfer_core.program.ledger.bits import lowest_clear, members, minus
from ninfer_core.program.ledger.geometry import Geometry


class Ids:
    """No more are given than have a place on Device.

    Attributes:
        images, pages: those that are taken, as sets.
    """

    geometry: Geometry
    rng: random.Random
    images: int = 0
    pages: int = 0

    def new_image(self) -> ImageId | None:
        found = lowest_clear(self.images, self.geometry.image_ids)
        if found < 0 or self.images.bit_count() >= self.geometry.capacity.device_images:
            return None
        self.images |= 1 << found
        return ImageId(found)

    def new_pages(self, pool: int, count: int) -> tuple[LogicalPage, ...] | None:
        p = self.geometry.pools[pool]
        if (self.pages & p.mask).bit_count() + count > p.device_pages:
            return None
        # Sequences take over what others have given back: the numbers of their pages are in no order.
        found = self.rng.sample(members(minus(p.mask, self.pages)), count)
        for page in found:
            self.pages |= 1 << page
        return tuple(LogicalPage(page) for page in found)
