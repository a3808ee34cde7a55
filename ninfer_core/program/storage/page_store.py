"""PageStore: the memory of one typed KV pool: Device pages, and its part of the Host arena (context-cache KV-1..KV-7).

It knows where a logical page's replicas lie, what content epoch they hold and how many tokens of it, and copies pages.
Which pages live is the ledger's business.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from ninfer_core.contract.ids import PAGE_SIZE, LogicalPage, PageId
from ninfer_core.kernels.planes import KvPlanes
from ninfer_core.models.layout import ModelLayout
from ninfer_core.program.ledger.objects import Extent


def pages_for(tokens: int) -> int:
    """Pages that tokens tokens need."""
    return -(-tokens // PAGE_SIZE)


@dataclass(frozen=True, slots=True)
class Content:
    """What a replica holds: the page's content epoch, and its first `coverage` tokens."""

    epoch: int
    coverage: int

    def serves(self, wanted: Content) -> bool:
        """Whether a replica with this content can stand for a page with the wanted one (KV-7)."""
        return self.epoch == wanted.epoch and self.coverage >= wanted.coverage


@dataclass(slots=True)
class _Page:
    content: Content
    device: PageId | None = None
    host: tuple[Extent, int] | None = None
    host_content: Content | None = None


class PageStore:
    """One pool. `planes` are what kernels see; a Host extent holds, plane by plane, its pages side by side."""

    def __init__(self, layout: ModelLayout, pages: int, arena: Tensor, device: torch.device) -> None:
        shape = (pages, PAGE_SIZE, *layout.kv_shape)

        def planes() -> tuple[Tensor, ...]:
            return tuple(torch.empty(shape, dtype=layout.dtype, device=device) for _ in range(layout.attention_layers))

        self.planes = KvPlanes(keys=planes(), values=planes())
        self._flat = [plane.view(pages, -1).view(torch.uint8) for plane in (*self.planes.keys, *self.planes.values)]
        self._arena = arena
        self.plane_bytes = self._flat[0].shape[1] if self._flat else 0
        self.page_bytes = self.plane_bytes * len(self._flat)
        self._free = (1 << pages) - 1
        self._pages: dict[LogicalPage, _Page] = {}
        self._epoch = 0

    # --- look-ups: valid until the page's placement changes -------------------------------------------------------
    def device_page(self, page: LogicalPage) -> PageId:
        """The Device page of a logical page. Raises KeyError when it has no Device replica."""
        place = self._pages[page].device
        if place is None:
            raise KeyError(page)
        return place

    def content(self, page: LogicalPage) -> Content:
        return self._pages[page].content

    def host_content(self, page: LogicalPage) -> Content | None:
        """What the Host replica holds; None without one."""
        return self._pages[page].host_content

    def host_place(self, page: LogicalPage) -> tuple[Extent, int] | None:
        """(extent, place in it) of the Host replica; None without one."""
        return self._pages[page].host

    def on_device(self) -> set[LogicalPage]:
        return {page for page, state in self._pages.items() if state.device is not None}

    def on_host(self) -> set[LogicalPage]:
        return {page for page, state in self._pages.items() if state.host is not None}

    def bytes_of(self, page: LogicalPage, tokens: int) -> list[Tensor]:
        """The first tokens tokens of every plane, from any replica that covers them, Device first. Views."""
        state = self._pages[page]
        size = self.plane_bytes // PAGE_SIZE * tokens
        if state.device is not None:
            return [plane[state.device, :size] for plane in self._flat]
        assert state.host is not None
        return [self._host(state.host, number)[:size] for number in range(len(self._flat))]

    def finite(self, row: Tensor, tokens: int) -> bool:
        """Whether every number of a page's first tokens, given as [page_bytes] uint8, is finite."""
        size = self.plane_bytes // PAGE_SIZE * tokens
        return all(
            bool(torch.isfinite(row[begin : begin + size].view(plane.dtype)).all())
            for begin, plane in zip(
                range(0, self.page_bytes, max(1, self.plane_bytes)),
                (*self.planes.keys, *self.planes.values),
                strict=True,
            )
        )

    # --- placement ------------------------------------------------------------------------------------------------
    def born(self, page: LogicalPage) -> None:
        """The id means a new, empty page from now on."""
        self._epoch += 1
        self._pages[page] = _Page(Content(self._epoch, 0))

    def place(self, page: LogicalPage, behind: LogicalPage | None) -> PageId:
        """Give a page a Device place, beside the one before it where possible: a run needs no gather.

        Raises:
            RuntimeError: no place is free: the caller's capacity check was wrong.
        """
        if not self._free:
            raise RuntimeError("no Device page behind a passed capacity check")
        before = self._pages[behind].device if behind is not None and behind in self._pages else None
        place = before + 1 if before is not None and self._free >> (before + 1) & 1 else _longest_run(self._free)
        self._free &= ~(1 << place)
        self._pages[page].device = PageId(place)
        return PageId(place)

    def drop_device(self, page: LogicalPage) -> None:
        state = self._pages[page]
        if state.device is None:
            raise KeyError(page)
        self._free |= 1 << state.device
        state.device = None

    def drop_host(self, page: LogicalPage) -> None:
        self._pages[page].host = self._pages[page].host_content = None

    def died(self, page: LogicalPage) -> None:
        """No replica is left and nobody needs the page."""
        del self._pages[page]

    def cover(self, page: LogicalPage, tokens: int) -> None:
        """The page's one writer has filled it up to tokens."""
        state = self._pages[page]
        state.content = Content(state.content.epoch, tokens)

    def rewind(self, page: LogicalPage, tokens: int) -> None:
        """The writer goes back to tokens and will write other content behind: a new epoch (KV-7)."""
        self._epoch += 1
        self._pages[page].content = Content(self._epoch, tokens)

    # --- copies: on CUDA those between Device and Host are only enqueued, as in `CopyStream` ------------------------
    def copy_to_host(self, extent: Extent, first: int = 0, count: int | None = None) -> None:
        """Fill an extent, or its pages from the first-th on, so many, from their Device replicas. With `publish` they
        become Host replicas."""
        places = [self.device_page(page) for page in extent.pages[first:][:count]]
        for number, plane in enumerate(self._flat):
            begin = 0
            for end in range(1, len(places) + 1):
                if end == len(places) or places[end] != places[end - 1] + 1:  # one copy for each run (DEF-9)
                    held = plane[places[begin] : places[begin] + end - begin].view(-1)
                    self._host_run(extent, number, first + begin, first + end).copy_(held, non_blocking=True)
                    begin = end

    def publish(self, extent: Extent) -> None:
        """The extent's bytes are complete: its pages have Host replicas of their present content."""
        for i, page in enumerate(extent.pages):
            state = self._pages[page]
            state.host, state.host_content = (extent, i), state.content

    def copy_on_host(self, source: Extent, destination: Extent, first: int = 0, count: int | None = None) -> None:
        """Fill an extent, or its pages from the first-th on, so many, from another extent that holds them in the same
        order. They lie there with `moved`.

        Raises:
            RuntimeError: the Host replica of one of them is of another epoch, or does not cover the page.
        """
        pages = destination.pages[first:][:count]
        for page in pages:
            self._check_host(page)
        begin = source.pages.index(pages[0])
        for number in range(len(self._flat)):
            run = self._host_run(source, number, begin, begin + len(pages))
            self._host_run(destination, number, first, first + len(pages)).copy_(run)

    def moved(self, extent: Extent) -> None:
        """The extent's bytes are complete: its pages' Host replicas lie there now, with the content that they had."""
        for i, page in enumerate(extent.pages):
            self._pages[page].host = (extent, i)

    def copy_to_device(self, source: LogicalPage, destination: LogicalPage) -> None:
        """Fill destination's Device place from source's Host replica (often the same page).

        Raises:
            RuntimeError: the Host replica is of another epoch, or does not cover the page.
        """
        where = self._check_host(source)
        for number, plane in enumerate(self._flat):
            plane[self.device_page(destination)].copy_(self._host(where, number), non_blocking=True)
        if destination != source:
            self.cover(destination, self._pages[source].content.coverage)

    def copy_tail(self, source: LogicalPage, destination: LogicalPage, tokens: int) -> None:
        """COW of one page: the first tokens tokens of source become destination's content."""
        size = self.plane_bytes // PAGE_SIZE * tokens
        for number, part in enumerate(self.bytes_of(source, tokens)):
            self._flat[number][self.device_page(destination), :size].copy_(part)
        self.cover(destination, tokens)

    @staticmethod
    def bytes_per_page(layout: ModelLayout) -> int:
        """Bytes of one page over all attention layers, keys and values."""
        heads, width = layout.kv_shape
        return 2 * layout.attention_layers * PAGE_SIZE * heads * width * layout.dtype.itemsize

    def _check_host(self, page: LogicalPage) -> tuple[Extent, int]:
        """Where the Host replica lies, if it holds the page's content (KV-7)."""
        state = self._pages[page]
        held = state.host_content
        if state.host is None or held is None or not held.serves(state.content):
            raise RuntimeError(f"the Host replica of page {page} does not hold its content")
        return state.host

    def _host_run(self, extent: Extent, plane: int, begin: int, end: int) -> Tensor:
        first = extent.offset + (plane * len(extent.pages) + begin) * self.plane_bytes
        return self._arena[first : first + (end - begin) * self.plane_bytes]

    def _host(self, where: tuple[Extent, int], plane: int) -> Tensor:
        extent, index = where
        begin = extent.offset + (plane * len(extent.pages) + index) * self.plane_bytes
        return self._arena[begin : begin + self.plane_bytes]


def _longest_run(pages: int) -> int:
    """Where the longest run of a non-empty set begins, the lowest of equals."""
    runs = re.finditer("1+", f"{pages:b}"[::-1])
    return max(runs, key=lambda run: run.end() - run.start()).start()
