"""SamplingParams: how the next token is drawn. Plain numbers, checked once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from types import MappingProxyType

from ninfer_core.errors import UsageError

MAX_BIAS = 1e30
"""Far beyond any logit, and far from where float32 ends: with every penalty on top the sum stays finite."""

_NO_BIAS: Mapping[int, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Settings of one request. The defaults sample the model's plain distribution.

    Order of application, as in the common implementations: logit bias, repetition penalty (prompt and output),
    presence and frequency penalty (output only), temperature, top-k, top-p, min-p.

    Attributes:
        temperature: 0 means greedy; else the logits are divided by it.
        top_k: keep the k likeliest tokens; 0 keeps all.
        top_p: keep the smallest set whose probability reaches p; 1 keeps all.
        min_p: drop tokens less likely than min_p times the likeliest; 0 drops none.
        presence_penalty: subtracted once from each token that the output already holds.
        frequency_penalty: subtracted once per occurrence in the output.
        repetition_penalty: divides positive and multiplies negative logits of tokens seen in prompt or output.
        logit_bias: token id -> value added to its logit.
        seed: None draws a fresh one; the request's statistics tell which.

    Raises:
        UsageError: a value outside its range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=lambda: _NO_BIAS)
    seed: int | None = None

    def __post_init__(self) -> None:
        def check(name: str, ok: bool, rule: str) -> None:
            if not ok:
                raise UsageError(f"{name.replace('_', '-')} is {getattr(self, name)}: it must be {rule}")

        numbers = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
        for name in numbers:
            check(name, _is_finite(getattr(self, name)), "a finite number")
        check("temperature", 0 <= self.temperature <= 100, "between 0 and 100")
        check("top_k", _is_whole(self.top_k) and 0 <= self.top_k < 2**63, "a whole number, 0 (off) or more")
        check("top_p", 0 < self.top_p <= 1, "above 0 and at most 1")
        check("min_p", 0 <= self.min_p < 1, "at least 0 and below 1")
        check("presence_penalty", -2 <= self.presence_penalty <= 2, "between -2 and 2")
        check("frequency_penalty", -2 <= self.frequency_penalty <= 2, "between -2 and 2")
        check("repetition_penalty", 0.01 <= self.repetition_penalty <= 100, "between 0.01 and 100")
        whole_seed = self.seed is None or (_is_whole(self.seed) and 0 <= self.seed < 2**64)
        check("seed", whole_seed, "a whole number between 0 and 2^64 - 1")
        bounded = all(_is_finite(v) and abs(v) <= MAX_BIAS for v in self.logit_bias.values())
        check("logit_bias", bounded, "finite, at most 1e30 in size")
        object.__setattr__(self, "logit_bias", MappingProxyType(dict(self.logit_bias)))

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


def _is_finite(value: object) -> bool:
    """A number that float holds: from JSON it may be text, a list, or an integer without end."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _is_whole(value: object) -> bool:
    return isinstance(value, Real) and _is_finite(value) and float(value).is_integer()
