"""Shared prefix candidates: where a request may write for others, and what speaks for it (context-cache CAN-2..4, EVI).

A boundary is a logical place, a candidate an optional opportunity to write at an exact frontier, an owner what Program
has published. The three are never mixed: nothing here proves a hit or reserves anything (CAN-10).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.ids import Frontier
from ninfer_core.contract.intent import CacheIntent
from ninfer_core.contract.prompt import PreparedPrompt

GRID_STRIDE = 256
GRID_POINTS = 8


class Evidence(Enum):
    """Why a prefix may be shared."""

    EXPLICIT_BOUNDARY = "explicit_boundary"
    REQUESTED_AUTOMATIC = "requested_automatic"
    DEFAULT_AUTOMATIC = "default_automatic"
    ENGINE_STRUCTURAL = "engine_structural"
    ENGINE_OBSERVED = "engine_observed"


DECLARED = frozenset({Evidence.EXPLICIT_BOUNDARY, Evidence.REQUESTED_AUTOMATIC})
"""Evidence that somebody gave on purpose: it brings credit (VAL-5) and may take part in pressure at first sight."""


class Power(Enum):
    """What a candidate may do to become an owner (EVI-1)."""

    NONE = "none"
    """Recorded as demand only."""
    SPARE = "spare"
    """Only where nothing else is degraded."""
    PRESSURE = "pressure"
    """May degrade other owners, with a strictly positive net gain."""


@dataclass(frozen=True, slots=True)
class SharedCandidate:
    """key: digest of the identity at the frontier, for short lists and demand."""

    frontier: Frontier
    evidence: frozenset[Evidence]
    key: bytes

    @property
    def declared(self) -> bool:
        return bool(self.evidence & DECLARED)

    def power(self, domains: int) -> Power:
        """The table of EVI-1; domains counts the distinct reuse domains that have shown the key, this one included."""
        if self.declared or domains >= 2:
            return Power.PRESSURE
        if Evidence.ENGINE_STRUCTURAL in self.evidence:
            return Power.SPARE
        return Power.NONE


def shared_candidates(
    prompt: PreparedPrompt, intent: CacheIntent, limits: CacheLimits, key_of: Callable[[int], bytes]
) -> tuple[SharedCandidate, ...]:
    """All candidates of a request, ascending; equal frontiers are one with all the evidence.

    At most four explicit markers, three of the engine (CAN-3) and eight of the grid (CAN-4).
    """
    found: dict[int, set[Evidence]] = {}

    def add(frontier: int | None, evidence: Evidence) -> None:
        if frontier is not None and 0 < frontier <= len(prompt):
            found.setdefault(frontier, set()).add(evidence)

    for marker in intent.markers:
        add(marker, Evidence.EXPLICIT_BOUNDARY)
    if intent.share_prompt:
        add(len(prompt), Evidence.REQUESTED_AUTOMATIC)
    elif intent.share_prompt is None and limits.shared_candidates:
        add(len(prompt), Evidence.DEFAULT_AUTOMATIC)
    bounds = prompt.boundaries
    if limits.shared_candidates and bounds is not None:
        add(bounds.after_tools, Evidence.ENGINE_STRUCTURAL)
        add(bounds.after_leading_system, Evidence.ENGINE_STRUCTURAL)
        add(len(prompt), Evidence.ENGINE_OBSERVED)
    if limits.prefix_grid:
        for frontier in grid(len(prompt)):
            add(frontier, Evidence.ENGINE_OBSERVED)
    return tuple(SharedCandidate(Frontier(f), frozenset(found[f]), key_of(f)) for f in sorted(found))


def grid(length: int) -> range:
    """Absolute multiples of a stride that starts at 256 and doubles until at most eight fit (CAN-4)."""
    stride = GRID_STRIDE
    while length // stride > GRID_POINTS:
        stride *= 2
    return range(stride, length + 1, stride)
