"""ForwardBatch: what one pass over the model computes, as plain arrays. One form for CPU and CUDA.

A batch is a list of rows; a row is the next tokens of one sequence. Decode is a batch whose rows have one token
each, prefill is a batch of (usually) one row of many; they may be mixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ninfer_core.contract.ids import PAGE_SIZE


@dataclass(frozen=True, slots=True)
class Cut:
    """A point inside a row where the GDN scan and the convolution history are cut; a tap is a cut with a slot.

    Attributes:
        offset: tokens of the row before the cut, in (0, length]. offset == length is legal for a tap.
        slot: where the complete state at that point (and the final hidden row of token offset-1) is written, or
            None for a cut that stores nothing.
    """

    offset: int
    slot: int | None


@dataclass(frozen=True, slots=True)
class Row:
    """The next tokens of one sequence.

    Attributes:
        token_ids: at least one.
        start: the frontier before this row: tokens [0, start) are already in state and KV.
        read_slot: the slot that holds the state at `start`, or None for the zero state (start == 0).
        write_slot: the slot that receives the state after the row. May equal read_slot; if it does not, read_slot's
            bytes are never changed (a Fork costs no copy).
        pages: physical pages that cover tokens [0, start + len(token_ids)), in order.
        cuts: ascending by offset.
    """

    token_ids: Sequence[int]
    start: int
    read_slot: int | None
    write_slot: int
    pages: Sequence[int]
    cuts: tuple[Cut, ...] = ()


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """The arrays that paged attention consumes, in the form FlashInfer documents. int32, on the model's device.

    Attributes:
        qo_indptr: [rows + 1]: query tokens of row i are [qo_indptr[i], qo_indptr[i + 1]).
        kv_indptr: [rows + 1]: pages of row i are kv_indices[kv_indptr[i] : kv_indptr[i + 1]].
        kv_indices: [sum of pages] physical page ids.
        last_page_len: [rows] tokens in each row's last page, 1..64.
    """

    qo_indptr: Tensor
    kv_indptr: Tensor
    kv_indices: Tensor
    last_page_len: Tensor


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """One pass, ready for the kernels.

    Attributes:
        rows: the rows as given (host side; kernels that loop on the CPU read them).
        token_ids: [tokens] int64.
        positions: [tokens] int64, absolute.
        kv_slots: [tokens] int64, page * 64 + offset: where each token's key and value go.
        last: [rows] int64: index of each row's last token.
        attention: the paged-attention arrays.
    """

    rows: tuple[Row, ...]
    token_ids: Tensor
    positions: Tensor
    kv_slots: Tensor
    last: Tensor
    attention: AttentionPlan

    @classmethod
    def build(cls, rows: Sequence[Row], device: torch.device | str = "cpu") -> ForwardBatch:
        """Lay rows out one after the other. Raises ValueError when a row's pages do not cover its tokens."""
        tokens: list[int] = []
        positions: list[int] = []
        kv_slots: list[int] = []
        qo_indptr, kv_indptr = [0], [0]
        kv_indices: list[int] = []
        last_page_len: list[int] = []
        for row in rows:
            end = row.start + len(row.token_ids)
            used = -(-end // PAGE_SIZE)
            if not row.token_ids or len(row.pages) < used:
                raise ValueError(f"row of {len(row.token_ids)} tokens at {row.start} has {len(row.pages)} pages")
            tokens.extend(row.token_ids)
            span = range(row.start, end)
            positions.extend(span)
            kv_slots.extend(row.pages[p // PAGE_SIZE] * PAGE_SIZE + p % PAGE_SIZE for p in span)
            qo_indptr.append(len(tokens))
            kv_indices.extend(row.pages[:used])
            kv_indptr.append(len(kv_indices))
            last_page_len.append(end - (used - 1) * PAGE_SIZE)

        def i32(values: list[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.int32, device=device)

        def i64(values: list[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.int64, device=device)

        return cls(
            rows=tuple(rows),
            token_ids=i64(tokens),
            positions=i64(positions),
            kv_slots=i64(kv_slots),
            last=i64([end - 1 for end in qo_indptr[1:]]),
            attention=AttentionPlan(i32(qo_indptr), i32(kv_indptr), i32(kv_indices), i32(last_page_len)),
        )
