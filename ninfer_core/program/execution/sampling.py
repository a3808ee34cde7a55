"""Sampling over a whole batch: logits in, one token per row out. Row i never depends on the other rows.

Every reduction runs along a row whose length does not depend on its neighbours, and every row draws its own uniform
number from a counter-based generator keyed by (seed, output position). So the same logits row gives the same token
alone or in company, now or on replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ninfer_core.contract.sampling import SamplingParams

NARROW = 1024
"""Candidates that top-k and top-p look at before the whole vocabulary is sorted."""

NOT_FINITE = -1
"""Returned in place of a token when a row's logits hold no finite maximum."""


class SamplerRow:
    """One request's sampling state: its settings and what it has seen. Changed only by `accept`."""

    def __init__(self, params: SamplingParams, prompt: Sequence[int], vocab_size: int) -> None:
        self.params = params
        self.drawn = 0
        p = params
        # Dense tables, only for those who asked: a penalty over a long history is then a few vector operations.
        self.counts = torch.zeros(vocab_size) if p.presence_penalty or p.frequency_penalty else None
        self.seen: Tensor | None = None
        if p.repetition_penalty != 1:
            self.seen = torch.zeros(vocab_size, dtype=torch.bool)
            self.seen[torch.tensor(prompt, dtype=torch.int64)] = True

    def accept(self, token: int) -> None:
        """token joined the output."""
        self.drawn += 1
        if self.counts is not None:
            self.counts[token] += 1
        if self.seen is not None:
            self.seen[token] = True

    def uniform(self) -> float:
        """The next draw in [0, 1): Philox keyed by the seed, counted by the output position."""
        seed = self.params.seed
        assert seed is not None, "a sampling request has its seed before it is admitted"
        return float(np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 0, self.drawn])).random())


@dataclass(frozen=True, slots=True)
class _Settings:
    """Columns [rows, 1] of the rows that draw, float64."""

    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    uniform: Tensor

    @classmethod
    def of(cls, rows: Sequence[SamplerRow]) -> _Settings:
        def column(values: list[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float64).unsqueeze(1)

        return cls(
            column([float(r.params.top_k) for r in rows]),
            column([r.params.top_p for r in rows]),
            column([r.params.min_p for r in rows]),
            column([r.uniform() for r in rows]),
        )

    def pick(self, index: Tensor) -> _Settings:
        return _Settings(self.top_k[index], self.top_p[index], self.min_p[index], self.uniform[index])


def sample(logits: Tensor, rows: Sequence[SamplerRow]) -> list[int]:
    """Draw one token per row.

    Args:
        logits: [rows, vocab] fp32, on any device; not changed.
        rows: the sampling state of each row; not changed (`accept` follows at commit).

    Returns:
        One token id per row; NOT_FINITE for a row whose best logit is not a finite number.
    """
    logits = _adjusted(logits.cpu(), rows)
    best, greedy = logits.max(dim=1)
    tokens = torch.where(torch.isfinite(best), greedy, NOT_FINITE)
    drawing = [i for i, row in enumerate(rows) if not row.params.greedy and tokens[i] != NOT_FINITE]
    if drawing:
        index = torch.tensor(drawing)
        chosen = [rows[i] for i in drawing]
        heat = torch.tensor([row.params.temperature for row in chosen], dtype=torch.float64).unsqueeze(1)
        # Subtracting the maximum first keeps tiny temperatures from overflowing.
        weights = torch.exp((logits[index].double() - best[index].double().unsqueeze(1)) / heat)
        tokens[index] = _draw(weights, _Settings.of(chosen))
    return [int(t) for t in tokens]


def _adjusted(logits: Tensor, rows: Sequence[SamplerRow]) -> Tensor:
    """Logits with every row's bias and penalties applied; the same tensor when no row has any."""
    biased = [(i, token, value) for i, row in enumerate(rows) for token, value in row.params.logit_bias.items()]
    repeating = [(i, row.seen, row.params.repetition_penalty) for i, row in enumerate(rows) if row.seen is not None]
    counting = [(i, row.counts, row.params) for i, row in enumerate(rows) if row.counts is not None]
    if not (biased or repeating or counting):
        return logits
    logits = logits.clone()
    if biased:
        lines, tokens, values = zip(*biased, strict=True)
        logits.index_put_((torch.tensor(lines), torch.tensor(tokens)), torch.tensor(values), accumulate=True)
    if repeating:
        index, seen, penalties = zip(*repeating, strict=True)
        part, penalty = logits[list(index)], torch.tensor(penalties).unsqueeze(1)
        scaled = torch.where(part > 0, part / penalty, part * penalty)
        logits[list(index)] = torch.where(torch.stack(seen), scaled, part)
    if counting:
        index, tables, params = zip(*counting, strict=True)
        counts = torch.stack(tables)
        presence = torch.tensor([p.presence_penalty for p in params]).unsqueeze(1)
        frequency = torch.tensor([p.frequency_penalty for p in params]).unsqueeze(1)
        logits[list(index)] -= counts * frequency + (counts > 0) * presence
    return logits


def _draw(weights: Tensor, settings: _Settings) -> Tensor:
    """One index per row, [rows], from unnormalised weights [rows, vocab] whose maximum is 1."""
    tokens = torch.empty(len(weights), dtype=torch.int64)
    truncates = ((settings.top_k > 0) | (settings.top_p < 1)).squeeze(1)
    for mask, draw in ((~truncates, _draw_whole), (truncates, _draw_truncated)):
        index = mask.nonzero().squeeze(1)
        if len(index):
            tokens[index] = draw(weights[index], settings.pick(index))
    return tokens


def _draw_whole(weights: Tensor, settings: _Settings) -> Tensor:
    """Without top-k and top-p no order is needed."""
    return _invert(torch.where(weights >= settings.min_p, weights, 0), settings)


def _draw_truncated(weights: Tensor, settings: _Settings) -> Tensor:
    """Rank the likeliest few; the rare row that needs more of them is ranked whole."""
    narrow = min(NARROW, weights.shape[1])
    total = _total(weights)
    mass, order = weights.topk(narrow, dim=1)
    top_k, reached = settings.top_k.squeeze(1), mass.cumsum(1)[:, -1] >= settings.top_p.squeeze(1) * total
    enough = torch.where(top_k > 0, top_k <= narrow, reached)
    tokens = order.gather(1, _invert(_truncate(mass, total, settings), settings).unsqueeze(1)).squeeze(1)
    wide = (~enough).nonzero().squeeze(1)
    if len(wide):
        part = settings.pick(wide)
        mass, order = weights[wide].sort(dim=1, descending=True, stable=True)
        tokens[wide] = order.gather(1, _invert(_truncate(mass, total[wide], part), part).unsqueeze(1)).squeeze(1)
    return tokens


def _total(weights: Tensor) -> Tensor:
    """Sum of each row, [rows]. A running sum: torch's own reduction may split a lone long row differently."""
    return weights.cumsum(1)[:, -1]


def _truncate(ranked: Tensor, total: Tensor, settings: _Settings) -> Tensor:
    """Zero what top-k, top-p and min-p exclude in weights ranked from 1 downwards; total is over the vocabulary."""
    rank = torch.arange(ranked.shape[1]).unsqueeze(0)
    limited = settings.top_k > 0
    kept = torch.where(~limited | (rank < settings.top_k), ranked, 0)
    running = kept.cumsum(1)
    whole = torch.where(limited, running[:, -1:], total.unsqueeze(1))
    # A token stays while the mass before it has not yet reached p: the first token always stays.
    kept = torch.where(running - kept < settings.top_p * whole, kept, 0)
    return torch.where(kept >= settings.min_p, kept, 0)


def _invert(weights: Tensor, settings: _Settings) -> Tensor:
    """[rows]: the index at which the running sum passes the row's uniform share of the whole."""
    running = weights.cumsum(1)
    target = settings.uniform * running[:, -1:]
    index = torch.searchsorted(running, target, right=True)
    # Rounding may carry the target to the very end, behind the last token with any weight.
    last = (weights > 0).long().mul(torch.arange(weights.shape[1]) + 1).max(dim=1, keepdim=True).values - 1
    return torch.minimum(index, last).squeeze(1)
