"""World: every physical fact that planning depends on, as one frozen value. A change builds a new one beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ninfer_core.contract.ids import OwnerId, Revision
from ninfer_core.program.ledger.arena import Arena
from ninfer_core.program.ledger.geometry import Geometry, Vector
from ninfer_core.program.ledger.objects import NOTHING, Extent, Owner, Replicas


@dataclass(frozen=True, slots=True)
class World:
    """
    Attributes:
        owners: all of them; what is alive is what they need.
        replicas: which objects have which replica.
        extents: the Host spans in use, ascending by offset.
        arena: the free rest of the Host memory.
        held: Device and Host capacity that an open transaction has reserved for destinations (CAP-4).
        revision: see CAP-10.
    """

    geometry: Geometry
    owners: Mapping[OwnerId, Owner]
    replicas: Replicas
    extents: tuple[Extent, ...]
    arena: Arena
    held: Vector
    revision: Revision

    @classmethod
    def empty(cls, geometry: Geometry) -> World:
        arena = Arena.empty(geometry.capacity.host_bytes)
        return cls(geometry, {}, NOTHING, (), arena, geometry.zero(), Revision(0))

    # --- what is used ---------------------------------------------------------------------------------------------
    def allocated(self) -> Vector:
        """Unique allocations per axis."""
        return measure(self.geometry, self.replicas, sum(extent.size for extent in self.extents))

    def reserved(self) -> Vector:
        """Concrete reservations per axis: promised growth of active sequences and an open transaction's."""
        total = self.held
        for owner in self.owners.values():
            if owner.lane is not None:
                total += Vector(0, 0, owner.lane.promised, 0)
        return total

    def used(self) -> Vector:
        """Used_r(S) of CAP-4."""
        return self.allocated() + self.reserved()

    def exclusive(self, owner: Owner) -> Replicas:
        """What would settle if this owner alone went (CAP-5)."""
        images = pages = 0
        for other in self.owners.values():
            if other.id != owner.id:
                images |= other.needs_images
                pages |= other.needs_pages
        return self.replicas.only(owner.needs_images & ~images, owner.needs_pages & ~pages)

    # --- changes --------------------------------------------------------------------------------------------------
    def with_owner(self, owner: Owner) -> World:
        """Add or replace one owner. Replicas are the caller's to add."""
        return replace(self, owners={**self.owners, owner.id: owner})

    def without_owner(self, owner_id: OwnerId) -> World:
        """Remove an owner and every replica that nobody needs then."""
        owners = dict(self.owners)
        del owners[owner_id]
        return replace(self, owners=owners).collected()

    def with_replicas(self, replicas: Replicas) -> World:
        return replace(self, replicas=self.replicas | replicas)

    def collected(self) -> World:
        """Zero-reference objects released: their replicas go, and the extents whose last page went."""
        images = pages = 0
        for owner in self.owners.values():
            images |= owner.needs_images
            pages |= owner.needs_pages
        return self.with_only(self.replicas.only(images, pages))

    def with_only(self, replicas: Replicas) -> World:
        """Exactly these replicas, a subset of the present ones; emptied extents are given back to the arena."""
        kept, arena = [], self.arena
        for extent in self.extents:
            living = extent.mask & replicas.host_pages
            if living == extent.mask:
                kept.append(extent)
            elif living:
                # A page that died here may come back to Host, or its id to another page: in some other extent.
                kept.append(replace(extent, mask=living))
            else:
                arena = arena.release(extent.offset, extent.size)
        return replace(self, replicas=replicas, extents=tuple(kept), arena=arena)

    def advanced(self) -> World:
        """The next revision: global facts have changed."""
        return replace(self, revision=Revision(self.revision + 1))


def measure(geometry: Geometry, replicas: Replicas, host_bytes: int) -> Vector:
    """Allocations per axis of a set of replicas."""
    return Vector(
        replicas.device_images.bit_count(),
        replicas.host_images.bit_count(),
        geometry.per_pool(replicas.device_pages),
        host_bytes,
    )
