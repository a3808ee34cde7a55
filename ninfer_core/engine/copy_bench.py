"""CopyBench: copies of StateImages and KV pages through the real stores, under a stopwatch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from ninfer_core.cache.fitting import Measured
from ninfer_core.contract.ids import PAGE_SIZE, ImageId, LogicalPage
from ninfer_core.engine.stopwatch import Stopwatch, medians
from ninfer_core.models.layout import ModelLayout
from ninfer_core.program.ledger.objects import Extent
from ninfer_core.program.planning.work import Copies
from ninfer_core.program.storage.image_store import ImageStore
from ninfer_core.program.storage.page_store import PageStore

ROUNDS = 9
IMAGES = (1, 2, 4)
"""Images of one batch."""
MOST_IMAGE_BYTES = 512 << 20
"""Batches of more images than this takes are left out."""
TOGETHER, SCATTERED, TAILS = (1, 4, 16, 64), (4, 16, 32), (1, 4, 16)
"""Pages of one batch: side by side, with gaps between them, and copied on the device."""


@dataclass(frozen=True, slots=True)
class CopySamples:
    """Medians, by direction."""

    to_host: list[Measured[Copies]]
    to_device: list[Measured[Copies]]
    on_device: list[Measured[Copies]]


@dataclass(frozen=True, slots=True)
class _Batch:
    work: Copies
    run: Callable[[], None]


class CopyBench:
    """Stores of its own, as small as the samples need. Work is counted as Program counts it (DEF-9): an operation is
    one image, or in one plane a contiguous run of pages to Host, a page to Device."""

    def __init__(self, layout: ModelLayout, device: torch.device) -> None:
        image_bytes = ImageStore.bytes_per_image(layout)
        self._counts = [n for n in IMAGES if n == 1 or n * image_bytes <= MOST_IMAGE_BYTES]
        self._images = ImageStore(layout, max(self._counts), max(self._counts), device)
        for number in range(max(self._counts)):
            self._images.born(ImageId(number))
            self._images.device_slots.take(ImageId(number))
            self._images.host_slots.take(ImageId(number))
        self._planes = 2 * layout.attention_layers
        sources = max(*TOGETHER, 2 * max(SCATTERED))
        arena_bytes = sources * PageStore.bytes_per_page(layout)
        arena = torch.zeros(arena_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
        self._pages = PageStore(layout, sources + max(TAILS), arena, device)
        for number in range(sources + max(TAILS)):
            self._pages.born(LogicalPage(number))
            self._pages.place(LogicalPage(number), LogicalPage(number - 1) if number else None)
            self._pages.cover(LogicalPage(number), PAGE_SIZE)
        self._tails = [LogicalPage(sources + i) for i in range(max(TAILS))]

    def measure(self, stopwatch: Stopwatch) -> CopySamples:
        """Every batch once, to touch its memory; then rounds of all of them."""
        kinds = [list(self._to_host()), list(self._to_device()), list(self._on_device())]
        batches = [batch for kind in kinds for batch in kind]
        for batch in batches:
            batch.run()
        rounds = [[stopwatch.ns(batch.work, batch.run) for batch in batches] for _ in range(ROUNDS)]
        found = iter(medians([batch.work for batch in batches], rounds))
        to_host, to_device, on_device = ([next(found) for _ in kind] for kind in kinds)
        return CopySamples(to_host, to_device, on_device)

    def _to_host(self) -> Iterable[_Batch]:
        for n in self._counts:
            yield _Batch(self._image_work(n), partial(self._demote_images, n))
        for runs, pages in self._page_sets():
            extent = Extent(0, 0, len(pages) * self._pages.page_bytes, tuple(pages))
            yield _Batch(self._page_work(runs, len(pages)), partial(self._demote_pages, extent))

    def _to_device(self) -> Iterable[_Batch]:
        for n in self._counts:
            yield _Batch(self._image_work(n), partial(self._restore_images, n))
        for _, pages in self._page_sets():
            yield _Batch(self._page_work(len(pages), len(pages)), partial(self._restore_pages, pages))

    def _on_device(self) -> Iterable[_Batch]:
        for tokens in (1, PAGE_SIZE) if self._planes else ():
            for n in TAILS:
                work = Copies(n * self._planes, n * self._pages.page_bytes * tokens // PAGE_SIZE)
                yield _Batch(work, partial(self._copy_tails, n, tokens))

    def _page_sets(self) -> Iterable[tuple[int, list[LogicalPage]]]:
        """Runs, and the pages that they consist of. A model without attention has none."""
        if self._planes:
            yield from ((1, [LogicalPage(i) for i in range(n)]) for n in TOGETHER)
            yield from ((n, [LogicalPage(2 * i) for i in range(n)]) for n in SCATTERED)

    def _demote_images(self, count: int) -> None:
        for number in range(count):
            self._images.copy_to_host(ImageId(number))

    def _restore_images(self, count: int) -> None:
        for number in range(count):
            self._images.copy_to_device(ImageId(number), ImageId(number))

    def _demote_pages(self, extent: Extent) -> None:
        self._pages.copy_to_host(extent)
        self._pages.publish(extent)

    def _restore_pages(self, pages: Sequence[LogicalPage]) -> None:
        for page in pages:
            self._pages.copy_to_device(page, page)

    def _copy_tails(self, count: int, tokens: int) -> None:
        for number, tail in enumerate(self._tails[:count]):
            self._pages.copy_tail(LogicalPage(number), tail, tokens)

    def _image_work(self, count: int) -> Copies:
        return Copies(count, count * self._images.image_bytes)

    def _page_work(self, runs: int, pages: int) -> Copies:
        return Copies(runs * self._planes, pages * self._pages.page_bytes)
