"""The audit: recount everything from nothing and compare (context-cache INV). Callable at any stable point."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

from ninfer_core.contract.ids import ImageId, LogicalPage
from ninfer_core.program.ledger.bits import mask_of, members, minus
from ninfer_core.program.ledger.objects import Role
from ninfer_core.program.ledger.world import World
from ninfer_core.program.records import Records
from ninfer_core.program.sequence import Sequence
from ninfer_core.program.storage.page_store import pages_for
from ninfer_core.program.storage.physical import Physical


def audit(physical: Physical) -> None:
    """Raises AssertionError naming the first invariant that does not hold."""
    world = physical.world
    _owners(world)
    _replicas(world)
    _arena(world)
    _memory(physical)
    over = world.used().excess(world.geometry.capacity)
    assert not over, f"use exceeds the capacity by {over} (INV-5)"


def audit_records(world: World, records: Records) -> None:
    """Every checkpoint has its record, and no record outlives its checkpoint."""
    living = {c.ref for owner in world.owners.values() for c in owner.checkpoints}
    assert len(records) == len(living), "records of checkpoints that are gone, or none of living ones"
    for ref in living:
        assert records[ref].trace == () or records[ref].trace[0].start == 0, "a trace that does not begin at token 0"


def audit_sequences(world: World, sequences: Collection[Sequence], *, whole: bool) -> None:
    """
    Args:
        whole: every sequence was promised its whole life, no lease (ACT-3).
    """
    active = {owner.id for owner in world.owners.values() if owner.lane is not None}
    assert {s.owner for s in sequences} == active, "sequences and active owners differ"
    for s in sequences:
        lane = world.owners[s.owner].lane
        assert lane is not None
        assert s.frontier <= len(s.ledger) <= s.lifetime_tokens, "the ledger left its bounds"
        for pages, promised in zip(lane.pages, lane.promised, strict=True):
            assert len(pages) >= pages_for(s.frontier), "the frontier is not covered"
            if whole:
                assert len(pages) + promised >= pages_for(s.lifetime_tokens), "a guarantee is not whole (INV-8)"


def _owners(world: World) -> None:
    refs = [c.ref for owner in world.owners.values() for c in owner.checkpoints]
    assert len(set(refs)) == len(refs), "a checkpoint belongs to two owners"
    writers = frozen = 0
    for owner in world.owners.values():
        assert (owner.lane is not None) == (owner.role is Role.ACTIVE), "only active owners have a lane"
        assert owner.lane is not None or owner.checkpoints, "an inactive owner without a checkpoint"
        frontiers = [c.frontier for c in owner.checkpoints]
        assert frontiers == sorted(frontiers), "checkpoints out of order"
        if owner.lane is not None:
            mine = owner.lane.writable
            assert not mine & writers, "two writers of one page (INV-7)"
            assert not minus(mine, owner.lane.page_mask), "a writable page that is not mapped"
            writers |= mine
            assert all(count >= 0 for count in owner.lane.promised), "a negative promise (INV-8)"
    for owner in world.owners.values():
        for checkpoint in owner.checkpoints:
            assert not checkpoint.page_mask & writers, (
                f"checkpoint {checkpoint.ref} holds a page that somebody writes (INV-7)"
            )
            frozen |= checkpoint.image_mask
    images = [owner.lane.image for owner in world.owners.values() if owner.lane]
    assert len(set(images)) == len(images), "two sequences write one image"
    assert not frozen & mask_of(images), "a published image is written (INV-7)"


def _replicas(world: World) -> None:
    needed_images = needed_pages = 0
    for owner in world.owners.values():
        needed_images |= owner.needs_images
        needed_pages |= owner.needs_pages
    assert world.replicas.images == needed_images, "images that live and images that are needed differ"
    assert world.replicas.pages == needed_pages, "pages that live and pages that are needed differ"
    for owner in world.owners.values():
        images, pages = owner.device_needs
        assert not minus(images, world.replicas.device_images), "a running sequence's image is not on Device"
        assert not minus(pages, world.replicas.device_pages), "a running sequence's page is not on Device"


def _arena(world: World) -> None:
    spans = sorted((extent.offset, extent.size) for extent in world.extents)
    for (offset, size), (following, _) in pairwise(spans):
        assert offset + size <= following, "two extents overlap"
    hosted = 0
    for extent in world.extents:
        assert extent.mask, "an extent without a living page"
        assert not minus(extent.mask, world.replicas.host_pages), "an extent counts a page that has died in it"
        assert not minus(extent.mask, mask_of(extent.pages)), "an extent counts a page that it was not made for"
        assert not extent.mask & hosted, "a Host page lies in two extents"
        hosted |= extent.mask
        pool = world.geometry.pools[extent.pool]
        assert extent.size == len(extent.pages) * pool.page_bytes, "an extent of the wrong size"
    assert hosted == world.replicas.host_pages, "a Host page lies in no extent"
    taken = world.geometry.capacity.host_bytes - world.arena.free
    assert taken >= sum(size for _, size in spans), "the arena believes that used bytes are free"
    assert taken - sum(size for _, size in spans) <= world.held.host_bytes, "bytes of the arena belong to nobody"
    for hole in world.arena.holes:
        assert all(o + s <= hole.offset or hole.offset + hole.size <= o for o, s in spans), "a hole over an extent"


def _memory(physical: Physical) -> None:
    replicas, images = physical.world.replicas, physical.images
    held_images = {ImageId(i) for i in members(replicas.device_images)}
    assert held_images <= images.device_slots.holders(), "an image of the ledger has no Device slot"
    assert {ImageId(i) for i in members(replicas.host_images)} <= images.host_slots.holders(), "... no Host slot"
    spare = len(images.device_slots) - len(held_images)
    assert spare <= physical.world.held.device_images, "a Device slot is held by nobody"
    for pool, store in zip(physical.world.geometry.pools, physical.pools, strict=True):
        device = {LogicalPage(p) for p in members(replicas.device_pages & pool.mask)}
        host = {LogicalPage(p) for p in members(replicas.host_pages & pool.mask)}
        assert device <= store.on_device(), "a page of the ledger has no Device place"
        assert host <= store.on_host(), "a page of the ledger has no Host place"
        places = [store.device_page(p) for p in store.on_device()]
        assert len(set(places)) == len(places), "two pages in one place"
        for page in host:
            held = store.host_content(page)
            assert held is not None and held.serves(store.content(page)), "a Host replica of other content (KV-7)"
    for extent in physical.world.extents:
        store = physical.pools[extent.pool]
        for number in members(extent.mask):
            place = store.host_place(LogicalPage(number))
            assert place is not None and place[0] == extent and extent.pages[place[1]] == number, (
                "a Host page lies elsewhere than in its extent"
            )
