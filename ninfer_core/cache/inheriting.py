"""Inheriting: the tail of a consumed source becomes the sequence's own without a copy once all others that hold it let
go of it (context-cache PLAN-2, CAP-8)."""

from __future__ import annotations

from ninfer_core.cache.budget import LEAST_GAIN_NS, Budget, Stop
from ninfer_core.cache.graph import Vertex
from ninfer_core.cache.node import Node
from ninfer_core.cache.search import Search
from ninfer_core.cache.steps import Steps
from ninfer_core.contract.ids import OwnerId
from ninfer_core.program.planning.projection import contested


class Inheriting:
    """Of one planning session: pressure that an option could use, also where it lacks nothing."""

    def __init__(self, search: Search) -> None:
        self._search = search

    def may_help(self, identity: Node) -> bool:
        """Whether letting go may make the option the best. No estimate (PLAN-2): even without its copies, and at no
        loss, it would have to beat the incumbent by more than LEAST_GAIN_NS. Reads no victims."""
        return bool(contested(identity.target, identity.projection)) and self._gain(identity) > LEAST_GAIN_NS

    def of(self, identity: Node, budget: Budget) -> Steps[Node | Stop | None]:
        """Look at the option with all checkpoints deleted that need the tail too. A running owner may hold it still:
        then Program's answer has the copy.

        Returns:
            The target, where that was looked at: it takes part in the search's comparison. Why it stopped early; None
            where there is none to look at.
        """
        if not self.may_help(identity):
            return None
        yield
        chosen = self._letting_go(identity)
        if not chosen:
            return None
        return (yield from self._search.tried(identity.option, chosen, budget, self._gain(identity)))

    def _gain(self, identity: Node) -> float:
        """At most, over the incumbent."""
        return self._search.incumbent - (identity.value - self._search.tail_copies(identity))

    def _letting_go(self, identity: Node) -> dict[OwnerId, Vertex]:
        """The victims that need the tails, each without what needs them; empty where one of them may not be evicted."""
        search, chosen = self._search, dict[OwnerId, Vertex]()
        graph, licensed = search.graph, search.licensed
        pages = contested(identity.target, identity.projection)
        for owner in search.victims(identity.option):
            vertex = graph.identity(owner)
            if not vertex.outcome.needs[1] & pages:
                continue
            chosen[owner] = graph.without(vertex, pages)
            if chosen[owner].evicted and licensed is not None and owner not in licensed:
                return {}
        return chosen
