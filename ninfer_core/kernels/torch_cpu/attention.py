"""Paged attention through torch's fused kernel, without copying pages that lie side by side."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ninfer_core.contract.ids import PAGE_SIZE
from ninfer_core.kernels.batch import AttentionPlan


@dataclass(frozen=True, slots=True)
class _Span:
    """One row: its queries, and where its keys lie.

    Attributes:
        queries: the row's tokens in the batch.
        length: keys, old and new.
        first_page: set when the pages are one ascending run: the keys are a view of the pool.
        pages: [pages] int64, else.
    """

    queries: slice
    length: int
    first_page: int | None
    pages: Tensor


class PagedAttention:
    """Attention for one batch: spans and masks are worked out once, layers use them in turn."""

    def __init__(self, plan: AttentionPlan, kv_slots: Tensor) -> None:
        self._kv_slots = kv_slots
        self._spans = _spans(plan)
        self._masks: dict[int, Tensor] = {}

    def run(self, qkv: tuple[Tensor, Tensor, Tensor], keys: Tensor, values: Tensor) -> Tensor:
        """See `KernelPass.attend`."""
        query, key, value = qkv
        keys.flatten(0, 1).index_copy_(0, self._kv_slots, key)
        values.flatten(0, 1).index_copy_(0, self._kv_slots, value)
        groups = query.shape[1] // key.shape[1]
        out = torch.empty(query.shape, dtype=query.dtype)
        for span in self._spans:
            # [kv_heads, group, queries, dim]: each KV head serves its group without being repeated in memory.
            shape = (span.queries.stop - span.queries.start, -1, groups, query.shape[2])
            heads = query[span.queries].view(shape).permute(1, 2, 0, 3)
            mixed = self._attend(heads, _gather(keys, span), _gather(values, span), span)
            out[span.queries].view(shape).copy_(mixed.permute(2, 0, 1, 3))
        return out

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, span: _Span) -> Tensor:
        count = query.shape[2]
        if count == 1:
            # A lone query sees every key: the group's heads become the query rows of one head.
            shape = query.shape
            return F.scaled_dot_product_attention(query.transpose(1, 2), key[:, None], value[:, None]).view(shape)
        key, value = (x[:, None].expand(-1, query.shape[1], -1, -1) for x in (key, value))
        if count == span.length:
            return F.scaled_dot_product_attention(query, key, value, is_causal=True)
        mask = self._mask(span, count, query.dtype)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)

    def _mask(self, span: _Span, count: int, dtype: torch.dtype) -> Tensor:
        """[queries, keys], additive: the last query sees the last key (torch's is_causal would align the first)."""
        mask = self._masks.get(span.queries.start)
        if mask is None:
            mask = torch.full((count, span.length), float("-inf"), dtype=dtype).triu_(span.length - count + 1)
            self._masks[span.queries.start] = mask
        return mask


def _spans(plan: AttentionPlan) -> tuple[_Span, ...]:
    queries, pages = plan.qo_indptr.tolist(), plan.kv_indptr.tolist()
    spans = []
    for row, last in enumerate(plan.last_page_len.tolist()):
        ids = plan.kv_indices[pages[row] : pages[row + 1]].long()
        run = bool((ids.diff() == 1).all())
        length = (len(ids) - 1) * PAGE_SIZE + last
        spans.append(_Span(slice(queries[row], queries[row + 1]), length, int(ids[0]) if run else None, ids))
    return tuple(spans)


def _gather(plane: Tensor, span: _Span) -> Tensor:
    """The span's rows of [pages, 64, kv_heads, dim] as [kv_heads, length, dim]: a view when its pages are a run."""
    if span.first_page is None:
        held = plane.index_select(0, span.pages)
    else:
        held = plane[span.first_page : span.first_page + len(span.pages)]
    return held.flatten(0, 1)[: span.length].transpose(0, 1)
