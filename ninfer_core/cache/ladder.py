"""The recency ladder: the least sacrifice in order of last use that fits (context-cache PLAN-5)."""

from __future__ import annotations

from collections.abc import Sequence

from ninfer_core.cache.domain import Option
from ninfer_core.cache.search import Search
from ninfer_core.cache.steps import Steps
from ninfer_core.contract.ids import OwnerId


def climb(search: Search, options: Sequence[Option], ranking: Sequence[OwnerId]) -> Steps[frozenset[OwnerId] | None]:
    """Find the first rung on which some option is adoptable.

    Rung k evicts the k least recent owners and keeps all others, unchanged or, where Host can carry them, demoted.

    Returns:
        The owners that this rung evicts: from now on no other may be evicted whole. None when no rung fits.
    """
    graph = search.graph
    for k in range(len(ranking) + 1):
        tail = frozenset(ranking[:k])
        for option in options:
            yield
            victims = list(search.victims(option))
            evicted = {owner: graph.evicted(owner) for owner in victims if owner in tail}
            if search.assess(option, evicted).adoptable:
                return tail
            kept = {owner: graph.on_host(owner) for owner in victims if owner not in tail}
            if search.has_host and search.assess(option, evicted | kept).adoptable:
                return tail
    return None
