"""Passes: run rows through the model inside what their sequences were promised; commit or fail them together."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass

import torch
from torch import Tensor

from ninfer_core.contract.ids import Frontier
from ninfer_core.contract.results import Grant
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.kernels.batch import Cut, ForwardBatch, Row
from ninfer_core.models.model import Model
from ninfer_core.program.execution.pending import PendingBatch, PendingRow
from ninfer_core.program.execution.sampling import NOT_FINITE, sample
from ninfer_core.program.identity import Unit
from ninfer_core.program.ledger.objects import Lane
from ninfer_core.program.sequence import ArmedCapture, Sequence, SequenceStatus
from ninfer_core.program.storage.page_store import pages_for
from ninfer_core.program.storage.physical import Physical
from ninfer_core.program.transactions.publish import Publisher


@dataclass(frozen=True, slots=True)
class _Part:
    """One sequence's share of a pass. `row` is None when it only draws from the state that it has."""

    sequence: Sequence
    row: Row | None
    unit: Unit | None
    draws: bool


class Passes:
    """Executes batches. Armed captures are taps of the row that reaches them: no pass is split for them."""

    def __init__(self, model: Model, physical: Physical, publisher: Publisher) -> None:
        self._model = model
        self._physical = physical
        self._publisher = publisher
        self._parts: dict[int, _Part] = {}

    @property
    def vocab_size(self) -> int:
        """What a sampler draws from."""
        return self._model.layout.vocab_size

    def arm(self, sequence: Sequence, frontier: Frontier, kind: SourceKind, grant: Grant) -> None:
        """See Sequences.arm."""
        if frontier < sequence.frontier or frontier > len(sequence.ledger):
            raise RuntimeError(f"frontier {frontier} cannot be reached from {sequence.frontier}")
        if sequence.schedule is not None and frontier not in sequence.schedule:
            raise RuntimeError(f"frontier {frontier} is not in the schedule that was sealed")
        if frontier == sequence.frontier:
            self._publisher.freeze(sequence, kind, grant)
            return
        if not grant.on_device:
            raise RuntimeError("a Host image is captured at the present frontier only: end the pass there first")
        sequence.armed.append(ArmedCapture(frontier, kind, grant))
        sequence.armed.sort(key=lambda armed: armed.frontier)

    @torch.inference_mode()
    def execute(self, work: Many[tuple[Sequence, int]]) -> PendingBatch:
        """See Sequences.execute."""
        for sequence, _ in work:
            sequence.status = SequenceStatus.PENDING
        try:
            parts = self._prepare(work)
            hidden = self._forward(parts)
            drawing = [i for i, part in enumerate(parts) if part.draws]
            tokens: dict[int, int] = {}
            if drawing:
                ends = torch.stack([hidden[i] for i in drawing])
                drawn = sample(self._model.logits(ends), [parts[i].sequence.sampler for i in drawing])
                tokens = dict(zip(drawing, drawn, strict=True))
        except BaseException:
            for sequence, _ in work:
                sequence.status = SequenceStatus.FAILED
            raise
        rows = []
        for i, part in enumerate(parts):
            self._parts[part.sequence.handle.id] = part
            count = 0 if part.row is None else len(part.row.token_ids)
            token, error = tokens.get(i), None
            if token == NOT_FINITE:
                token, error = None, "the model gave no finite logits"
            rows.append(PendingRow(part.sequence.handle, count, token, error))
        return PendingBatch(tuple(rows), self._settle)

    # --- parts ----------------------------------------------------------------------------------------------------
    def _prepare(self, work: Many[tuple[Sequence, int]]) -> list[_Part]:
        counts = [min(count, sequence.unexecuted) for sequence, count in work]
        lengths = tuple(count for count in counts if count)
        parts, at = [], 0
        for (sequence, _), count in zip(work, counts, strict=True):
            draws = count == sequence.unexecuted
            if count == 0:
                parts.append(_Part(sequence, None, None, draws))
                continue
            row = self._row(sequence, count)
            cuts = tuple(row.start + offset for offset in sorted({cut.offset for cut in row.cuts}))
            parts.append(_Part(sequence, row, Unit(row.start, count, cuts, lengths, at), draws))
            at += 1
        return parts

    def _row(self, sequence: Sequence, count: int) -> Row:
        start, end = int(sequence.frontier), sequence.frontier + count
        for number in range(len(self._physical.pools)):
            mapped = len(self._lane(sequence).pages[number])
            if pages_for(end) > mapped:
                self._physical.map_pages(sequence.owner, number, pages_for(end) - mapped)
        lane, images, store = self._lane(sequence), self._physical.images, self._physical.pools[0]
        taps = [Cut(a.frontier - start, images.slot(a.grant.image)) for a in self._reached(sequence, end)]
        plain = [Cut(cut - start, None) for cut in sequence.cuts if start < cut < end]
        return Row(
            token_ids=sequence.ledger[start:end],
            start=start,
            read_slot=None if start == 0 else images.slot(lane.image if lane.reads is None else lane.reads),
            write_slot=images.slot(lane.image),
            pages=[store.device_page(page) for page in lane.pages[0]],
            cuts=tuple(sorted((*taps, *plain), key=lambda cut: cut.offset)),
        )

    def _forward(self, parts: list[_Part]) -> dict[int, Tensor]:
        """The final hidden row of each part's last token."""
        running = [(i, part.row) for i, part in enumerate(parts) if part.row is not None]
        images, hidden = self._physical.images, {}
        if running:
            batch = ForwardBatch.build([row for _, row in running], self._model.device)
            out = self._model.forward(batch, images.planes, self._physical.pools[0].planes)
            hidden = {i: line for (i, _), line in zip(running, out, strict=True)}
        for i, part in enumerate(parts):
            if part.row is None:
                lane = self._lane(part.sequence)
                hidden[i] = images.planes.hidden[images.slot(lane.image if lane.reads is None else lane.reads)]
        return hidden

    def _settle(self, rows: tuple[PendingRow, ...], accepted: set[int]) -> None:
        for row in rows:
            part = self._parts.pop(row.handle.id)
            sequence = part.sequence
            if row.handle.id not in accepted or row.error is not None:
                sequence.status = SequenceStatus.FAILED
                continue
            if part.unit is not None:
                sequence.frontier = Frontier(sequence.frontier + row.executed)
                sequence.trace.append(part.unit)
                self._publisher.settle_fork(sequence)
            reached = self._reached(sequence, sequence.frontier)
            sequence.armed = sequence.armed[len(reached) :]
            for armed in reached:
                self._publisher.capture(sequence, armed)
            if row.token is not None:
                sequence.ledger.append(row.token)
                sequence.sampler.accept(row.token)
            sequence.status = SequenceStatus.ACTIVE

    @staticmethod
    def _reached(sequence: Sequence, end: int) -> list[ArmedCapture]:
        return [armed for armed in sequence.armed if armed.frontier <= end]

    def _lane(self, sequence: Sequence) -> Lane:
        lane = self._physical.world.owners[sequence.owner].lane
        assert lane is not None
        return lane
