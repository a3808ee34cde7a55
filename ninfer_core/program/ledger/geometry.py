"""Geometry: the capacity vector and the ranges of ids, fixed at start-up (context-cache CAP-1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import add, sub

from msgspec import Struct


class Vector(Struct, frozen=True):
    """One number per axis. Axes never cover for each other (CAP-2).

    Attributes:
        device_images, host_images: StateImage slots.
        pages: Device pages, per typed pool.
        host_bytes: bytes of the Host KV arena.
    """

    device_images: int
    host_images: int
    pages: tuple[int, ...]
    host_bytes: int

    def __add__(self, other: Vector) -> Vector:
        return Vector(
            self.device_images + other.device_images,
            self.host_images + other.host_images,
            tuple(map(add, self.pages, other.pages)),
            self.host_bytes + other.host_bytes,
        )

    def __sub__(self, other: Vector) -> Vector:
        return Vector(
            self.device_images - other.device_images,
            self.host_images - other.host_images,
            tuple(map(sub, self.pages, other.pages)),
            self.host_bytes - other.host_bytes,
        )

    def excess(self, capacity: Vector) -> Vector:
        """Per axis by how much this is above capacity, at least 0."""
        return Vector(
            max(0, self.device_images - capacity.device_images),
            max(0, self.host_images - capacity.host_images),
            tuple(max(0, a - b) for a, b in zip(self.pages, capacity.pages, strict=True)),
            max(0, self.host_bytes - capacity.host_bytes),
        )

    def most(self, other: Vector) -> Vector:
        """The larger of both, per axis."""
        return Vector(
            max(self.device_images, other.device_images),
            max(self.host_images, other.host_images),
            tuple(map(max, self.pages, other.pages)),
            max(self.host_bytes, other.host_bytes),
        )

    def __bool__(self) -> bool:
        return bool(self.device_images or self.host_images or any(self.pages) or self.host_bytes)


@dataclass(frozen=True, slots=True)
class Pool:
    """One typed KV pool.

    Attributes:
        first, ids: logical pages [first, first + ids) belong to it: as many as can have a replica at once.
        device_pages: its Device pages.
        page_bytes: bytes of one page over all its planes.
        planes: separate memory regions that one page's copy touches (layers, keys and values).
        mask: all its logical pages, as a set.
    """

    first: int
    ids: int
    device_pages: int
    page_bytes: int
    planes: int
    mask: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mask", ((1 << self.ids) - 1) << self.first)


@dataclass(frozen=True, slots=True)
class Geometry:
    """
    Attributes:
        capacity: the capacity vector.
        pools: the typed KV pools.
        image_bytes: bytes of one StateImage.
        image_ids: all StateImage ids, as a set: as many as there are slots.
    """

    capacity: Vector
    pools: tuple[Pool, ...]
    image_bytes: int
    image_ids: int

    @classmethod
    def of(cls, capacity: Vector, page_bytes: tuple[int, ...], planes: tuple[int, ...], image_bytes: int) -> Geometry:
        """Lay the ids out: every object that can have a replica has an id."""
        pools, first = [], 0
        for device, size, count in zip(capacity.pages, page_bytes, planes, strict=True):
            ids = device + (capacity.host_bytes // size if size else 0)
            pools.append(Pool(first, ids, device, size, count))
            first += ids
        images = capacity.device_images + capacity.host_images
        return cls(capacity, tuple(pools), image_bytes, (1 << images) - 1)

    def per_pool(self, pages: int) -> tuple[int, ...]:
        """How many of a set of logical pages there are, per pool."""
        if len(self.pools) == 1:  # the sets are long: no mask where there is nothing to tell apart
            return (pages.bit_count(),)
        return tuple((pages & pool.mask).bit_count() for pool in self.pools)

    def bytes_of(self, pages: int) -> int:
        """Bytes of a set of logical pages on Host."""
        if not pages:
            return 0
        if len(self.pools) == 1:
            return pages.bit_count() * self.pools[0].page_bytes
        return sum(count * pool.page_bytes for count, pool in zip(self.per_pool(pages), self.pools, strict=True))

    def zero(self) -> Vector:
        return Vector(0, 0, (0,) * len(self.pools), 0)
