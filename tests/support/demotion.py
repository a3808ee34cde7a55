"""The whole of an owner in main memory: an outcome that tests ask for at once."""

from __future__ import annotations

from ninfer_core.program.ledger.objects import Replicas
from ninfer_core.program.planning.outcome import Outcome


def demoted(outcome: Outcome) -> Outcome:
    """Everything that the owner keeps on Host only."""
    images, pages = outcome.needs
    return Outcome(outcome.kept, Replicas(host_images=images, host_pages=pages), outcome.needs)
