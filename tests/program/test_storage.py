"""The stores by themselves: slots, pages with epochs and coverage, the arena's geometry, and the sets of bits."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ninfer_core.contract.ids import ImageId, LogicalPage
from ninfer_core.program.ledger.arena import Arena, Hole
from ninfer_core.program.ledger.bits import lowest_clear, mask_of, members, minus
from ninfer_core.program.ledger.objects import Extent
from ninfer_core.program.storage.image_store import ImageStore
from ninfer_core.program.storage.page_store import Content, PageStore
from tests.support.ledger_model import LedgerModel

LAYOUT = LedgerModel().layout
CPU = torch.device("cpu")
PAGE = PageStore.bytes_per_page(LAYOUT)


@given(st.sets(st.integers(0, 300)), st.sets(st.integers(0, 300)))
def test_sets_of_bits_are_sets(a: set[int], b: set[int]) -> None:
    assert members(mask_of(a)) == sorted(a)
    assert members(minus(mask_of(a), mask_of(b))) == sorted(a - b)
    assert lowest_clear(mask_of(a), mask_of(b)) == min(b - a, default=-1)


@given(st.lists(st.integers(1, 40), max_size=12), st.data())
def test_the_arena_gives_back_what_it_gave(sizes: list[int], data: st.DataObject) -> None:
    """Against a map of bytes: nothing overlaps, the best hole is taken, neighbours join, all of it comes back."""
    arena, owner, spans = Arena.empty(120), [None] * 120, {}
    for number, size in enumerate(sizes):
        found = arena.allocate(size)
        free = "".join("." if byte is None else "#" for byte in owner)
        holes = [len(hole) for hole in free.split("#") if hole]
        if found is None:
            assert all(hole < size for hole in holes)
        else:
            offset, arena = found
            assert owner[offset : offset + size] == [None] * size
            hole = next(h for h in _holes(owner) if h[0] <= offset < h[0] + h[1])
            assert hole[1] == min(length for length in holes if length >= size), "best fit"
            owner[offset : offset + size] = [number] * size
            spans[number] = (offset, size)
        if spans and data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(sorted(spans)))
            offset, size = spans.pop(gone)
            arena = arena.release(offset, size)
            owner[offset : offset + size] = [None] * size
        assert [tuple(hole) for hole in arena.holes] == _holes(owner)
        assert arena.free == owner.count(None)


def _holes(owner: list[int | None]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for at, byte in enumerate(owner):
        if byte is None and found and sum(found[-1]) == at:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        elif byte is None:
            found.append((at, 1))
    return found


def test_bytes_are_not_released_twice() -> None:
    with pytest.raises(ValueError, match="free already"):
        Arena((Hole(0, 10),)).release(5, 10)


@pytest.fixture
def store() -> PageStore:
    return PageStore(LAYOUT, 4, torch.zeros(6 * PAGE, dtype=torch.uint8), CPU)


def fill(store: PageStore, page: int, tokens: int, value: int) -> LogicalPage:
    name = LogicalPage(page)
    store.born(name)
    store.place(name, LogicalPage(page - 1))
    for plane in store.bytes_of(name, 64):
        plane.fill_(value)
    store.cover(name, tokens)
    return name


@pytest.mark.req("KV-7", "CKP-5")
def test_a_replica_serves_only_its_own_epoch_and_coverage(store: PageStore) -> None:
    page = fill(store, 0, 30, 1)
    extent = Extent(0, 0, PAGE, (page,))
    store.copy_to_host(extent)
    store.publish(extent)
    store.drop_device(page)
    store.place(page, None)
    store.copy_to_device(page, page)
    store.cover(page, 40)
    with pytest.raises(RuntimeError, match="does not hold its content"):
        store.copy_to_device(page, page)  # the writer went on: ten tokens are missing
    store.publish(extent)
    store.copy_to_device(page, page)
    store.rewind(page, 20)
    with pytest.raises(RuntimeError, match="does not hold its content"):
        store.copy_to_device(page, page)  # more tokens, but of another content
    assert Content(1, 64).serves(Content(1, 30)) and not Content(1, 29).serves(Content(1, 30))
    assert not Content(2, 64).serves(Content(1, 30))


@pytest.mark.req("KV-6", "DEF-8", "DEF-9")
def test_an_extent_holds_its_pages_plane_by_plane(store: PageStore) -> None:
    pages = tuple(fill(store, i, 64, 10 + i) for i in range(3))
    assert [store.device_page(page) for page in pages] == [0, 1, 2], "side by side: one run"
    extent = Extent(0, PAGE, 3 * PAGE, pages)
    store.copy_to_host(extent, 0, 2)
    store.copy_to_host(extent, 2, 1)
    store.publish(extent)
    arena = store._arena.view(-1, store.plane_bytes)
    assert arena[:, 0].tolist() == [0, 0, 10, 11, 12, 10, 11, 12, 0, 0, 0, 0], "keys of all pages, then values"
    for page in pages:
        store.drop_device(page)
    assert [int(store.bytes_of(page, 1)[1][0]) for page in pages] == [10, 11, 12]


@pytest.mark.req("KV-4", "CAP-8")
def test_a_tail_copy_takes_the_covered_tokens_and_no_more(store: PageStore) -> None:
    source = fill(store, 0, 40, 5)
    copy = fill(store, 1, 64, 9)
    store.copy_tail(source, copy, 33)
    size = store.plane_bytes // 64
    for plane in store.bytes_of(copy, 64):
        assert plane[: 33 * size].eq(5).all() and plane[33 * size :].eq(9).all()
    assert store.content(copy).coverage == 33 and store.content(source).coverage == 40


@pytest.mark.req("ST-1", "ST-2", "DEF-9")
def test_an_image_is_copied_whole_and_slots_are_not_paired() -> None:
    store = ImageStore(LAYOUT, device_slots=2, host_slots=1, device=CPU)
    a, b = ImageId(0), ImageId(1)
    store.born(a)
    store.device_slots.take(a)
    store.bytes_of(a).copy_(torch.arange(store.image_bytes) % 251)
    store.host_slots.take(a)
    store.copy_to_host(a)
    expected = store.bytes_of(a).clone()
    store.device_slots.give(a)
    assert torch.equal(store.bytes_of(a), expected), "read from Host now"
    store.born(b)
    store.device_slots.take(b)
    assert store.slot(b) == 0, "the slot that a had"
    store.device_slots.take(a)
    store.copy_to_device(a, a)
    assert store.slot(a) == 1 and torch.equal(store.bytes_of(a), expected)
    with pytest.raises(RuntimeError, match="no place"):
        store.device_slots.take(ImageId(2))
    before = store.generation(a)
    store.born(a)
    assert store.generation(a) == before + 1
