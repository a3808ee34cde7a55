"""Causal depthwise convolution with SiLU, over the rows of a batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ninfer_core.kernels.scan_plan import Scan, ScanPlan, Steps


def run(inputs: Tensor, weight: Tensor, history: Tensor, plan: ScanPlan) -> Tensor:
    """See `KernelPass.convolve`."""
    if not plan.scans:
        assert plan.steps is not None
        return F.silu(_step(inputs, weight, history, plan.steps))
    out = torch.empty(inputs.shape, dtype=inputs.dtype)
    if plan.steps is not None:
        chosen = inputs.index_select(0, plan.steps.tokens)
        out.index_copy_(0, plan.steps.tokens, _step(chosen, weight, history, plan.steps))
    for scan in plan.scans:
        out[scan.first : scan.first + scan.length] = _scan(inputs, weight, history, scan)
    return F.silu(out, inplace=True)


def _step(inputs: Tensor, weight: Tensor, history: Tensor, steps: Steps) -> Tensor:
    """One token for each step: [steps, channels]."""
    past = history.index_select(0, steps.reads)
    if steps.fresh is not None:
        past = past.masked_fill_(steps.fresh[:, None, None], 0)
    window = torch.cat([past, inputs[:, :, None]], dim=2)
    history.index_copy_(0, steps.writes, window[:, :, 1:])
    for source, destination in steps.taps:
        history[destination] = history[source]
    return (window.float() * weight.float()).sum(dim=2).to(inputs.dtype)


def _scan(inputs: Tensor, weight: Tensor, history: Tensor, scan: Scan) -> Tensor:
    """One longer row: [length, channels]. Cuts do not change the sums; they only say which history is kept."""
    channels, kernel = weight.shape
    past = kernel - 1
    extended = torch.empty(past + scan.length, channels, dtype=inputs.dtype)
    extended[past:] = inputs[scan.first : scan.first + scan.length]
    if scan.read_slot is None:
        extended[:past] = 0
    else:
        extended[:past] = history[scan.read_slot].t()
    # Tokens as an image of height 1 in channels-last order. The strides are spelled out, those of the axes of size 1
    # too: oneDNN tells the order by them, and is 27 times slower when it has to transpose.
    size = extended.numel()
    image = extended.as_strided((1, channels, 1, len(extended)), (size, 1, size, channels))
    summed = F.conv2d(image, weight[:, None, None], groups=channels)
    for stretch in scan.stretches:
        kept = extended[stretch.end : stretch.end + past].t()
        for slot in stretch.slots:
            history[slot] = kept
    return summed[0, :, 0].t()
