"""What one planning session may do at all: its options, and the owners that it may change (context-cache PLAN-14)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from ninfer_core.cache.catalog import Entry
from ninfer_core.cache.value import Refs
from ninfer_core.contract.ids import OwnerId
from ninfer_core.program.planning.outcome import Outcome
from ninfer_core.program.planning.target import Activation, Capture


class Option(Struct, frozen=True):
    """What a planning session may do at all: one per candidate, or the one capture.

    Attributes:
        ordinal: stable, for ties.
        demand: Program's handle of it.
        prompt_tokens: of the request, for its remaining prefill; 0 for a capture.
        source_owner: not among the victims.
        base_dead: what its own source disposition removes (VAL-8).
        lost: what it removes from a conversation that is not its own.
        reused: tokens that need no prefill.
        gain: value that it adds, for an optional capture (VAL-7).
        blocked: requests that wait while it is carried out, for an optional capture (DEF-12).
        fallback: the same source consumed, where the branch does not hold beside the conversation (CAN-8): in the
            option's place, or, with an ordinal of its own, beside it.
    """

    ordinal: int
    demand: Activation | Capture
    prompt_tokens: int = 0
    source_owner: OwnerId | None = None
    base_dead: Refs = frozenset()
    lost: Refs = frozenset()
    needs_cell: bool = False
    reused: int = 0
    bound: bool = False
    gain: float = 0.0
    blocked: int = 1
    fallback: Option | None = None


class Eligible(Struct, frozen=True):
    """The owners that one planning session may change.

    Attributes:
        entries: them, with what the catalog knows.
        outcomes: each as it is.
        cell_owners: those whose eviction frees a cell for the publication to come.
    """

    entries: Mapping[OwnerId, Entry]
    outcomes: Mapping[OwnerId, Outcome]
    cell_owners: frozenset[OwnerId]


class Domain:
    """The eligible owners, read when pressure is first looked at: most admissions never do.

    Attributes:
        free_cell: the publication to come has a cell already.
    """

    def __init__(self, read: Callable[[], Eligible], *, free_cell: bool) -> None:
        self._read = read
        self._eligible: Eligible | None = None
        self.free_cell = free_cell

    @property
    def eligible(self) -> Eligible:
        if self._eligible is None:
            self._eligible = self._read()
        return self._eligible

    @property
    def entries(self) -> Mapping[OwnerId, Entry]:
        """What the catalogs know of them."""
        return self.eligible.entries

    @property
    def outcomes(self) -> Mapping[OwnerId, Outcome]:
        return self.eligible.outcomes

    @property
    def cell_owners(self) -> frozenset[OwnerId]:
        return self.eligible.cell_owners

    def of(self, option: Option) -> Iterator[OwnerId]:
        """The owners that a target of the option may change: its source is structurally absent (PLAN-14)."""
        return (owner for owner in self.outcomes if owner != option.source_owner)
