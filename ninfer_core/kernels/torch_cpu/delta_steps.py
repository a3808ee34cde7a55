"""The gated delta rule for rows of one token: one recurrent step for all of them."""

from __future__ import annotations

import torch
from torch import Tensor

from ninfer_core.kernels.interface import DeltaInputs
from ninfer_core.kernels.scan_plan import Steps


def run(inputs: DeltaInputs, recurrent: Tensor, steps: Steps) -> Tensor:
    """Advance every step. Inputs are [steps, ...] in the order of `steps`; returns [steps, value_heads, value_dim]."""
    count, heads, value_dim = inputs.value.shape
    key_heads, key_dim = inputs.key.shape[1:]
    both = torch.stack((inputs.query, inputs.key)).float()
    both = both * torch.rsqrt((both * both).sum(dim=-1, keepdim=True) + 1e-6)
    if heads != key_heads:
        both = both.repeat_interleave(heads // key_heads, dim=2)
    query, key = both.reshape(2, count * heads, 1, key_dim)
    query = query * key_dim**-0.5
    beta = inputs.beta.reshape(-1, 1, 1).float()

    state = _decayed(inputs.decay.exp()[:, :, None, None], recurrent, steps)
    flat = state.view(count * heads, key_dim, value_dim)
    change = inputs.value.float().reshape(-1, 1, value_dim).sub(torch.bmm(key, flat)).mul_(beta)
    flat.addcmul_(key.transpose(1, 2), change)
    out = torch.bmm(query, flat)
    if steps.single is None:
        recurrent.index_copy_(0, steps.writes, state)
    for source, destination in steps.taps:
        recurrent[destination] = recurrent[source]
    return out.view(count, heads, value_dim).to(inputs.value.dtype)


def _decayed(factor: Tensor, recurrent: Tensor, steps: Steps) -> Tensor:
    """The states that the steps read, times their decay: the write slot itself for a single step, else a copy."""
    if steps.single is not None:
        read, write = steps.single
        target = recurrent[write : write + 1]
        return target.zero_() if read is None else torch.mul(recurrent[read : read + 1], factor, out=target)
    state = recurrent.index_select(0, steps.reads)
    if steps.fresh is not None:
        state.masked_fill_(steps.fresh[:, None, None, None], 0)
    return state.mul_(factor)
