"""The reference backend: token by token, head by head where that is plainer. Slow, obviously right, on any device.

It follows the definitions and nothing else, so that a fast path can be compared with it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ninfer_core.contract.ids import PAGE_SIZE
from ninfer_core.kernels.batch import ForwardBatch, Row
from ninfer_core.kernels.interface import DeltaInputs
from ninfer_core.kernels.scan_plan import ScanPlan


class Reference:
    """`Kernels`, plainly."""

    name = "reference"

    def linear(self, inputs: Tensor, weight: Tensor) -> Tensor:
        return F.linear(inputs, weight)

    def begin(self, batch: ForwardBatch, scan: ScanPlan) -> ReferencePass:
        del scan  # the rows say the same, plainly
        return ReferencePass(batch)


class ReferencePass:
    """`KernelPass`, plainly."""

    def __init__(self, batch: ForwardBatch) -> None:
        self._batch = batch

    def convolve(self, inputs: Tensor, weight: Tensor, history: Tensor) -> Tensor:
        out = torch.empty_like(inputs, memory_format=torch.contiguous_format)
        for row, tokens in self._rows():
            past = _read(history, row)
            for offset, token in enumerate(tokens):
                window = torch.cat([past, inputs[token][:, None]], dim=1)
                summed = (window.float() * weight.float()).sum(dim=1).to(inputs.dtype)
                out[token] = F.silu(summed)
                past = window[:, 1:]
                _write(history, row, offset + 1, past)
        return out

    def delta_rule(self, inputs: DeltaInputs, recurrent: Tensor) -> Tensor:
        out = torch.empty_like(inputs.value, memory_format=torch.contiguous_format)
        repeats = inputs.value.shape[1] // inputs.key.shape[1]
        for row, tokens in self._rows():
            state = _read(recurrent, row).clone()
            for offset, token in enumerate(tokens):
                query = _unit(inputs.query[token]).repeat_interleave(repeats, dim=0) * inputs.query.shape[-1] ** -0.5
                key = _unit(inputs.key[token]).repeat_interleave(repeats, dim=0)
                state = state * inputs.decay[token].exp()[:, None, None]
                remembered = torch.einsum("hkv,hk->hv", state, key)
                change = (inputs.value[token].float() - remembered) * inputs.beta[token].float()[:, None]
                state = state + torch.einsum("hk,hv->hkv", key, change)
                out[token] = torch.einsum("hkv,hk->hv", state, query).to(out.dtype)
                _write(recurrent, row, offset + 1, state)
        return out

    def attend(self, qkv: tuple[Tensor, Tensor, Tensor], keys: Tensor, values: Tensor) -> Tensor:
        query, key, value = qkv
        keys.flatten(0, 1)[self._batch.kv_slots] = key
        values.flatten(0, 1)[self._batch.kv_slots] = value
        out = torch.empty_like(query, memory_format=torch.contiguous_format)
        repeats = query.shape[1] // key.shape[1]
        for row, tokens in self._rows():
            for offset, token in enumerate(tokens):
                seen = [row.pages[p // PAGE_SIZE] * PAGE_SIZE + p % PAGE_SIZE for p in range(row.start + offset + 1)]
                k = keys.flatten(0, 1)[seen].float().repeat_interleave(repeats, dim=1)
                v = values.flatten(0, 1)[seen].float().repeat_interleave(repeats, dim=1)
                scores = torch.einsum("hd,lhd->hl", query[token].float(), k) * query.shape[-1] ** -0.5
                out[token] = torch.einsum("hl,lhd->hd", scores.softmax(dim=-1), v).to(out.dtype)
        return out

    def _rows(self) -> list[tuple[Row, range]]:
        found, first = [], 0
        for row in self._batch.rows:
            found.append((row, range(first, first + len(row.token_ids))))
            first += len(row.token_ids)
        return found


def _unit(x: Tensor) -> Tensor:
    """l2-normalise the last dimension in fp32."""
    x = x.float()
    return x * torch.rsqrt((x * x).sum(dim=-1, keepdim=True) + 1e-6)


def _read(plane: Tensor, row: Row) -> Tensor:
    return torch.zeros_like(plane[0]) if row.read_slot is None else plane[row.read_slot].clone()


def _write(plane: Tensor, row: Row, offset: int, value: Tensor) -> None:
    """Store the state after `offset` tokens wherever the row asks for it."""
    for cut in row.cuts:
        if cut.offset == offset and cut.slot is not None:
            plane[cut.slot] = value
    if offset == len(row.token_ids):
        plane[row.write_slot] = value
