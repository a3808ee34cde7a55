"""The gated delta rule over a longer row, in chunks of 64 tokens (the WY form of arXiv 2412.06464, section 3.3).

Within a chunk, with G the running sum of the log decay and S the state before the chunk:

    A = beta_i (k_i . k_j) exp(G_i - G_j), strictly lower;   (1 + A) [u | w] = [beta v | beta exp(G) k]
    v' = u - w S;   o = (exp(G) q) S + ((q k^T) exp(G_i - G_j)) v';   S <- exp(G_last) S + (exp(G_last - G) k)^T v'

Everything that does not need S is computed for many chunks at once. A cut restarts the chunking, so that the state
behind it does not depend on what follows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ninfer_core.kernels.interface import DeltaInputs
from ninfer_core.kernels.scan_plan import CHUNK, Scan

_BLOCK = 16
"""Chunks prepared together: enough to keep the cores busy, few enough to bound the scratch memory."""


def run(inputs: DeltaInputs, recurrent: Tensor, scan: Scan, out: Tensor) -> None:
    """Scan one row; write `out` [tokens, value_heads, value_dim] at the row's tokens and the states it asks for."""
    shape = recurrent.shape[1:]
    state = torch.zeros(shape) if scan.read_slot is None else recurrent[scan.read_slot].clone()
    for stretch in scan.stretches:
        for begin in range(stretch.begin, stretch.end, _BLOCK * CHUNK):
            end = min(begin + _BLOCK * CHUNK, stretch.end)
            _block(inputs, slice(scan.first + begin, scan.first + end), state, out)
        for slot in stretch.slots:
            recurrent[slot] = state


def _block(inputs: DeltaInputs, tokens: slice, state: Tensor, out: Tensor) -> None:
    """Advance `state` [value_heads, key_dim, value_dim] in place over some whole chunks (the last may be short)."""
    length = tokens.stop - tokens.start
    chunks = -(-length // CHUNK)
    query = _unit(_chunked(inputs.query[tokens], chunks)).mul_(inputs.query.shape[-1] ** -0.5)
    key = _unit(_chunked(inputs.key[tokens], chunks))
    value = _chunked(inputs.value[tokens], chunks)
    beta = _chunked(inputs.beta[tokens, :, None], chunks)
    sums = _chunked(inputs.decay[tokens, :, None], chunks).cumsum(dim=2)  # G: [chunks, value_heads, 64, 1]

    _, heads, _, value_dim = value.shape
    key_heads, key_dim = key.shape[1], key.shape[3]
    later = torch.ones(CHUNK, CHUNK, dtype=torch.bool).triu_(1)
    pairs = (sums - sums.transpose(2, 3)).masked_fill_(later, float("-inf")).exp_()
    grouped = (chunks, key_heads, heads // key_heads)
    keys_t = key.transpose(2, 3)
    within = _spread(query @ keys_t, grouped).mul(pairs.view(*grouped, CHUNK, CHUNK)).view_as(pairs)
    system = _spread(key @ keys_t, grouped).mul(pairs.view(*grouped, CHUNK, CHUNK)).view_as(pairs).mul_(beta)

    grown = sums.exp()
    last = sums[:, :, -1:]
    sources = torch.empty(chunks, heads, CHUNK, value_dim + key_dim)
    torch.mul(value, beta, out=sources[..., :value_dim])
    _into(sources[..., value_dim:], key, beta * grown, grouped)
    solved = torch.linalg.solve_triangular(system, sources, upper=False, unitriangular=True)
    # w and exp(G) q are both multiplied by S: stacked, one product serves both.
    readers = torch.empty(chunks, heads, 2 * CHUNK, key_dim)
    readers[:, :, :CHUNK] = solved[..., value_dim:]
    _into(readers[:, :, CHUNK:], query, grown, grouped)
    writers = torch.empty(chunks, heads, CHUNK, key_dim)
    _into(writers, key, (last - sums).exp_(), grouped)
    fade = last.exp()

    results = torch.empty(chunks, heads, CHUNK, value_dim)
    for i in range(chunks):
        read = torch.bmm(readers[i], state)
        fresh = solved[i, :, :, :value_dim] - read[:, :CHUNK]
        torch.baddbmm(read[:, CHUNK:], within[i], fresh, out=results[i])
        state.mul_(fade[i]).baddbmm_(writers[i].transpose(1, 2), fresh)
    out[tokens] = results.transpose(1, 2).reshape(chunks * CHUNK, heads, value_dim)[:length]


def _chunked(x: Tensor, chunks: int) -> Tensor:
    """[length, heads, dim] -> [chunks, heads, 64, dim] fp32, padded with zeros: a padded token changes nothing."""
    length, heads, dim = x.shape
    padded = torch.empty(chunks, heads, CHUNK, dim)
    whole, rest = divmod(length, CHUNK)
    padded[:whole] = x[: whole * CHUNK].view(whole, CHUNK, heads, dim).transpose(1, 2)
    if rest:
        padded[whole, :, :rest] = x[whole * CHUNK :].transpose(0, 1)
        padded[whole, :, rest:] = 0
    return padded


def _unit(x: Tensor) -> Tensor:
    """l2-normalise the last dimension, in place."""
    return x.mul_(torch.rsqrt((x * x).sum(dim=-1, keepdim=True).add_(1e-6)))


def _spread(x: Tensor, grouped: tuple[int, int, int]) -> Tensor:
    """[chunks, key_heads, ...] as [chunks, key_heads, 1, ...], to meet value heads in groups."""
    return x.view(grouped[0], grouped[1], 1, *x.shape[2:])


def _into(target: Tensor, x: Tensor, factor: Tensor, grouped: tuple[int, int, int]) -> None:
    """target = x * factor, x having key heads and the others value heads."""
    torch.mul(_spread(x, grouped), factor.view(*grouped, CHUNK, 1), out=target.view(*grouped, *target.shape[2:]))
