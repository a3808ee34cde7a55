"""Deciding: where a request starts from is being chosen (context-cache PLAN-8, PLAN-11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ninfer_core.cache.admission import Ask, Passing
from ninfer_core.cache.budget import Budget
from ninfer_core.cache.candidates import Asker, Candidate, Match
from ninfer_core.cache.deliberation import Deliberation
from ninfer_core.cache.opening import Intent
from ninfer_core.cache.planner import Choice
from ninfer_core.contract.ids import Revision


@dataclass(slots=True)
class Deciding:
    """From the first look at a request until its plan is sealed, or it is blocked or refused. Nothing is claimed yet.

    Attributes:
        passing: the head that it would pass.
        candidates: what it may start from, each with its fallback.
        took_ns: what listing them took, and what was not part of the deliberation: for `planning_ms`. Who its request
            is belongs to preparing the prompt.
        revision: of the resources: at another one nothing of it counts (PLAN-7).
        intent: what was decided, where it is carried out with the next piece.
        unwanted: its caller does not want it any more.
    """

    ask: Ask
    asker: Asker
    passing: Passing | None
    matches: tuple[Match, ...]
    candidates: Sequence[tuple[Candidate, Candidate | None]]
    deliberation: Deliberation[Choice]
    took_ns: int
    revision: Revision
    budget: Budget
    intent: Intent | None = None
    unwanted: bool = False

    @property
    def planning_ms(self) -> float:
        """What it took so far; what ran between its pieces does not count."""
        return (self.took_ns + self.deliberation.spent_ns) / 1e6
