"""OutcomeGraph: what may become of each eligible owner in one planning session, every end state once (TGT-4).

Program generates the steps. Here they are only told apart, so that a target is a few small numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ninfer_core.contract.ids import CheckpointRef, OwnerId
from ninfer_core.program.ledger.objects import Replicas
from ninfer_core.program.planning.outcome import EVICTED, Outcome, successors, without_checkpoint


class Vertex(Struct, eq=False):
    """One end state of one owner. Two vertices of a session are the same end state only if they are the same object.

    Attributes:
        number: unique in the session.
        loss: what it alone would add to J, predicted; None until it is asked for.
    """

    owner: OwnerId
    number: int
    outcome: Outcome
    loss: float | None = None
    _steps: tuple[Vertex, ...] | None = None

    @property
    def evicted(self) -> bool:
        return self.outcome.evicted

    def __repr__(self) -> str:
        return f"Vertex({self.number}, owner {self.owner}, {self.outcome})"  # without everything below it


_Key = tuple[OwnerId, tuple[CheckpointRef, ...], int, int, int, int]


class OutcomeGraph:
    """The vertices of one session, made when they are reached."""

    def __init__(self, identities: Mapping[OwnerId, Outcome], *, host_images: bool, host_pages: bool) -> None:
        """
        Args:
            identities: every eligible owner as it is.
            host_images, host_pages: whether there is a Host tier for them.
        """
        self._tiers = (host_images, host_pages)
        self._known: dict[_Key, Vertex] = {}
        self._made = 0
        self._identities = identities
        self._tops: dict[OwnerId, Vertex] = {}
        self._bottoms: dict[OwnerId, Vertex] = {}

    def identity(self, owner: OwnerId) -> Vertex:
        """The owner as it is."""
        found = self._tops.get(owner)
        if found is None:
            # No step leads back up to it: it need not be found by its end state.
            found = self._tops[owner] = self._add(owner, self._identities[owner])
            found.loss = 0.0
        return found

    def on_host(self, owner: OwnerId) -> Vertex:
        """The owner with everything that it keeps on Host only, as far as there is a Host tier for it."""
        outcome, (images, pages) = self.identity(owner).outcome, self._tiers
        wants, needs = outcome.wants, outcome.needs
        wants = Replicas(
            device_images=0 if images else wants.device_images,
            host_images=needs[0] if images else wants.host_images,
            device_pages=0 if pages else wants.device_pages,
            host_pages=needs[1] if pages else wants.host_pages,
        )
        if wants == outcome.wants:
            return self.identity(owner)
        return self.vertex(owner, Outcome(outcome.kept, wants, needs))

    def evicted(self, owner: OwnerId) -> Vertex:
        found = self._bottoms.get(owner)
        if found is None:
            found = self._bottoms[owner] = self._add(owner, EVICTED)
        return found

    def without(self, vertex: Vertex, pages: int) -> Vertex:
        """The end state with every checkpoint deleted that needs one of the pages."""
        outcome = vertex.outcome
        for checkpoint in outcome.kept:
            if checkpoint.page_mask & pages:
                outcome = without_checkpoint(outcome, checkpoint.ref)
        return self.vertex(vertex.owner, outcome)

    def vertex(self, owner: OwnerId, outcome: Outcome) -> Vertex:
        """The one vertex of an end state."""
        if outcome.evicted:
            return self.evicted(owner)
        wants = outcome.wants
        refs = tuple([checkpoint.ref for checkpoint in outcome.kept])
        key = (owner, refs, wants.device_images, wants.host_images, wants.device_pages, wants.host_pages)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._add(owner, outcome)
        return found

    def steps(self, vertex: Vertex) -> tuple[Vertex, ...]:
        """Every end state one step further down."""
        if vertex._steps is None:
            made = (self.vertex(vertex.owner, s.outcome) for s in successors(vertex.outcome, *self._tiers))
            vertex._steps = tuple(dict.fromkeys(made))
        return vertex._steps

    def _add(self, owner: OwnerId, outcome: Outcome) -> Vertex:
        self._made += 1
        return Vertex(owner, self._made, outcome)
