"""Schedule: where a request may leave checkpoints, chosen once its candidate is (context-cache PLAN-12, CAN-10)."""

from __future__ import annotations

from collections.abc import Iterable

from ninfer_core.cache.anchors import wishes
from ninfer_core.cache.candidates import Asker, Candidate, Match
from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.ids import Frontier
from ninfer_core.contract.plans import FinalScheduleIntent
from ninfer_core.contract.statistics import SourceKind


def schedule_of(
    asker: Asker, candidate: Candidate, matches: Iterable[Match], limits: CacheLimits
) -> FinalScheduleIntent:
    """Every frontier behind the candidate's at which the prefill may be tapped or end a pass: for a recovery point of
    the request's own, for a prefix that others may start from, and for the endpoint that it comes through (CAN-7).

    Which of them are worth it is settled at each, at the revision of then (INV-17): none may be added.
    """
    prompt = asker.work.prompt
    own = [wish.frontier for wish in wishes(prompt, asker.intent, limits)]
    shared = [found.frontier for found in asker.shared]
    ends = [m.summary.frontier for m in matches if not m.shared and m.summary.kind is SourceKind.SESSION_ENDPOINT]
    behind = {Frontier(at) for at in (*own, *shared, *ends) if candidate.frontier < at <= len(prompt)}
    return FinalScheduleIntent(tuple(sorted(behind)))
