"""What one planning session may do at all: its options, and the owners that it may change (context-cache PLAN-14)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ninfer_core.cache.value import Refs
from ninfer_core.contract.ids import OwnerId
from ninfer_core.program.planning.outcome import Outcome
from ninfer_core.program.planning.target import Activation, Capture


@dataclass(frozen=True, slots=True)
class Option:
    """What a planning session may do at all: one per candidate, or the one capture.

    Attributes:
        ordinal: stable, for ties.
        demand: Program's handle of it.
        prompt_tokens: of the request, for its remaining prefill; 0 for a capture.
        source_owner: not among the victims.
        base_dead: what its own source disposition removes (VAL-8).
        reused: tokens that need no prefill.
        gain: value that it adds, for an optional capture (VAL-7).
        blocked: requests that wait while it is carried out, for an optional capture (DEF-12).
    """

    ordinal: int
    demand: Activation | Capture
    prompt_tokens: int = 0
    source_owner: OwnerId | None = None
    base_dead: Refs = frozenset()
    needs_cell: bool = False
    reused: int = 0
    bound: bool = False
    gain: float = 0.0
    blocked: int = 1


class Domain:
    """The eligible owners of one planning session.

    Attributes:
        free_cell: the publication to come has a cell already.
        cell_owners: owners whose eviction frees such a cell.
    """

    def __init__(
        self,
        outcomes: Callable[[], Mapping[OwnerId, Outcome]],
        cell_owners: frozenset[OwnerId],
        *,
        free_cell: bool,
    ) -> None:
        """
        Args:
            outcomes: the identity outcome of every eligible owner; read when pressure is first looked at.
        """
        self._read = outcomes
        self._outcomes: Mapping[OwnerId, Outcome] | None = None
        self.cell_owners = cell_owners
        self.free_cell = free_cell

    @property
    def outcomes(self) -> Mapping[OwnerId, Outcome]:
        if self._outcomes is None:
            self._outcomes = self._read()
        return self._outcomes

    def of(self, option: Option) -> Iterator[OwnerId]:
        """The owners that a target of the option may change: its source is structurally absent (PLAN-14)."""
        return (owner for owner in self.outcomes if owner != option.source_owner)
