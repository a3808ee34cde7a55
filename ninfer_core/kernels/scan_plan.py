"""ScanPlan: how a batch's rows run through the state kernels, worked out once and used by every GDN layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ninfer_core.kernels.batch import ForwardBatch, Row

CHUNK = 64
"""Tokens in one chunk of the GDN scan."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Tokens between two cuts of a row: the scan's chunks start anew at `begin`.

    Attributes:
        begin, end: offsets in the row.
        slots: where the state at `end` goes: taps, and the row's write slot at its end.
    """

    begin: int
    end: int
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """One row of more than one token.

    Attributes:
        first: index of the row's first token in the batch.
        length: tokens in the row.
        read_slot: None for the zero state.
        stretches: cover [0, length) in order.
    """

    first: int
    length: int
    read_slot: int | None
    stretches: tuple[Stretch, ...]


@dataclass(frozen=True, slots=True)
class Steps:
    """All rows of one token, advanced together.

    Attributes:
        tokens: [steps] int64, index of each in the batch.
        reads: [steps] int64 slots; 0 where `fresh`.
        fresh: [steps] bool, rows that start from the zero state; None when no row does.
        writes: [steps] int64 slots.
        taps: (source, destination) slots copied after the step: taps behind a row's only token.
        single: (read slot or None, write slot) when there is exactly one step: no gathering is needed.
    """

    tokens: Tensor
    reads: Tensor
    fresh: Tensor | None
    writes: Tensor
    taps: tuple[tuple[int, int], ...]
    single: tuple[int | None, int] | None


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """Attributes:
    steps: the single-token rows, None when there is none.
    scans: the longer rows.
    hidden_tokens, hidden_slots: [n] int64: which token's final hidden row goes to which slot.
    """

    steps: Steps | None
    scans: tuple[Scan, ...]
    hidden_tokens: Tensor
    hidden_slots: Tensor

    @classmethod
    def build(cls, batch: ForwardBatch) -> ScanPlan:
        """Raises ValueError when a row's cuts are not ascending within (0, length]."""
        device = batch.token_ids.device
        singles: list[tuple[int, Row]] = []
        scans: list[Scan] = []
        hidden: list[tuple[int, int]] = []
        first = 0
        for row in batch.rows:
            length = len(row.token_ids)
            stretches = _stretches(row)
            hidden.extend((first + part.end - 1, slot) for part in stretches for slot in part.slots)
            if length == 1:
                singles.append((first, row))
            else:
                scans.append(Scan(first, length, row.read_slot, stretches))
            first += length
        tokens, slots = (torch.tensor(column, dtype=torch.int64, device=device) for column in zip(*hidden, strict=True))
        return cls(_steps(singles, device) if singles else None, tuple(scans), tokens, slots)


def _stretches(row: Row) -> tuple[Stretch, ...]:
    """Split a row at its cuts; taps at equal offsets share one stretch."""
    length = len(row.token_ids)
    ends: dict[int, list[int]] = {}
    previous = 0
    for cut in row.cuts:
        if not previous <= cut.offset or not 0 < cut.offset <= length:
            raise ValueError(f"cut at {cut.offset} in a row of {length} tokens, after one at {previous}")
        previous = cut.offset
        ends.setdefault(cut.offset, []).extend([] if cut.slot is None else [cut.slot])
    ends.setdefault(length, []).append(row.write_slot)
    begins = [0, *ends]
    return tuple(Stretch(begin, end, tuple(slots)) for begin, (end, slots) in zip(begins, ends.items(), strict=False))


def _steps(singles: list[tuple[int, Row]], device: torch.device) -> Steps:
    def i64(values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    rows = [row for _, row in singles]
    fresh = [row.read_slot is None for row in rows]
    return Steps(
        tokens=i64([token for token, _ in singles]),
        reads=i64([row.read_slot or 0 for row in rows]),
        fresh=torch.tensor(fresh, dtype=torch.bool, device=device) if any(fresh) else None,
        writes=i64([row.write_slot for row in rows]),
        taps=tuple((row.write_slot, cut.slot) for row in rows for cut in row.cuts if cut.slot is not None),
        single=(rows[0].read_slot, rows[0].write_slot) if len(rows) == 1 else None,
    )
