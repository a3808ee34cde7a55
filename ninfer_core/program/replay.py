"""Cold replay of an execution trace: the proof that a state is what its trace says (context-cache ID-4, VER-1).

Every unit runs whole, in a batch of the shape that it had: torch's products with few rows differ in bits from those
with many, but which rows share a product does not matter. So the other rows are stand-ins of the recorded lengths.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ninfer_core.contract.ids import ImageId
from ninfer_core.kernels.batch import Cut, ForwardBatch, Row
from ninfer_core.models.model import Model
from ninfer_core.program.identity import Trace, Unit, trace_until
from ninfer_core.program.storage.image_store import ImageStore
from ninfer_core.program.storage.page_store import PageStore, pages_for


class BrokenTrace(ValueError):
    """The trace has a gap, does not reach the frontier, or was not cut where it was left: no run has it."""


class Replay:
    """Memory of its own, beside any Program's: it evicts nothing.

    Where a unit begins before the one before it ends, the run was resumed there from a tap: the earlier unit runs whole
    all the same. What stood behind the tap is not known any more and does not matter, so zeros stand in for it.

    Attributes:
        state: [image_bytes] uint8, the StateImage at the frontier.
        hidden: by frontier, the final hidden row where the run left each unit: what the token behind it was drawn from.
    """

    def __init__(self, model: Model, tokens: Sequence[int], trace: Trace, frontier: int) -> None:
        """Run a trace up to a frontier.

        Args:
            tokens: the ledger, at least up to the frontier.
            trace: units from token 0.

        Raises:
            BrokenTrace: before anything runs.
        """
        self._model, self._tokens = model, tokens
        units = trace_until(trace, frontier)
        if not units:
            raise BrokenTrace(f"the trace does not lead to token {frontier}")
        stops = [*(unit.start for unit in units[1:]), frontier]
        for unit, stop in zip(units, stops, strict=True):
            end = unit.start + unit.length
            if stop > end or (stop < end and stop not in unit.cuts) or (unit is units[0] and unit.start):
                raise BrokenTrace(f"the trace does not lead from token {unit.start} to {stop}")
        self._allocate(units)
        self._read: int | None = None
        self.hidden: dict[int, Tensor] = {}
        for unit, stop in zip(units, stops, strict=True):
            self._run(unit, stop)
        self.state: Tensor = self._images.bytes_of(ImageId(self._read or 0))

    @staticmethod
    def bytes_needed(model: Model, trace: Trace, frontier: int) -> int:
        """Memory that a replay takes beside the model."""
        units = trace_until(trace, frontier)
        rows = max((len(unit.rows) for unit in units), default=1)
        own = max((unit.start + unit.length for unit in units), default=0)
        others = max((sum(pages_for(n) for n in unit.rows) for unit in units), default=0)
        pages = (pages_for(own) + others) * PageStore.bytes_per_page(model.layout)
        return pages + (3 + rows) * ImageStore.bytes_per_image(model.layout)

    def kv(self, tokens: int) -> list[Tensor]:
        """The first tokens tokens of every plane, [tokens, bytes] uint8."""
        planes = (*self._store.planes.keys, *self._store.planes.values)
        return [plane.flatten(0, 1)[:tokens].flatten(1).view(torch.uint8) for plane in planes]

    def _allocate(self, units: Trace) -> None:
        """Slots 0, 1 and 2 are the run's own: it writes 0, taps go to 1 and 2 in turn. The rest is the stand-ins'."""
        others = [sum(pages_for(n) for i, n in enumerate(unit.rows) if i != unit.at) for unit in units]
        slots = 3 + max((len(unit.rows) for unit in units), default=1)
        self._pages = pages_for(max((unit.start + unit.length for unit in units), default=0))
        pages = self._pages + max(others, default=0)
        layout, device = self._model.layout, self._model.device
        self._images = ImageStore(layout, slots, 0, device)
        self._store = PageStore(layout, pages, torch.empty(0, dtype=torch.uint8), device)
        for slot in range(slots):
            self._images.device_slots.take(ImageId(slot))

    @torch.inference_mode()
    def _run(self, unit: Unit, stop: int) -> None:
        end = unit.start + unit.length
        tap = (2 if self._read == 1 else 1) if stop < end else None
        cuts = tuple(Cut(cut - unit.start, tap if cut == stop else None) for cut in unit.cuts)
        rows, page = [], self._pages
        for i, length in enumerate(unit.rows):
            if i == unit.at:
                ids = [*self._tokens[unit.start : stop], *[0] * (end - stop)]
                rows.append(Row(ids, unit.start, self._read, 0, range(pages_for(end)), cuts))
            else:
                need = pages_for(length)
                rows.append(Row([0] * length, 0, None, 3 + i, range(page, page + need)))
                page += need
        batch = ForwardBatch.build(rows, self._model.device)
        ends = self._model.forward(batch, self._images.planes, self._store.planes)
        self.hidden[stop] = ends[unit.at] if tap is None else self._images.planes.hidden[tap].clone()
        self._read = 0 if tap is None else tap
