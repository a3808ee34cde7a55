"""Random histories of a whole Program, the audit after each step."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.program.history import History, drive
from tests.program.machine import machine


@pytest.mark.req("INV-2", "INV-7", "INV-9", "TXN-1", "TXN-10", "CKP-4")
class TestHistories(machine(History).TestCase):
    settings = settings(deadline=None, max_examples=40, stateful_step_count=50)


@pytest.mark.req("TXN-5", "TXN-6", "TXN-7", "TXN-9", "ST-2", "ST-3", "KV-3", "KV-4", "KV-7", "CKP-4", "SES-1", "INV-11")
def test_a_seeded_run_reaches_every_kind_of_step() -> None:
    """20,000 steps; through all of them one continuation, demoted and read at will, keeps its bytes."""
    history = drive(seed=1, steps=20_000, keeps=True)
    counts = history.counts
    assert history.keepsake in history.program.world.owners
    for what in ("admitted root", "admitted retain", "admitted consume", "tap", "freeze on device", "freeze on host"):
        assert counts.get(what, 0) >= 10, counts
    done = ("rearranged", "finished", "discarded", "released", "stale", "infeasible", "saved", "loaded")
    for what in (*done, "loaded in part", "no room to load"):
        assert counts.get(what, 0) >= 10, counts
    aborted = {name for name in counts if name.startswith("aborted")}
    for phase in ("host_releases", "copy_preparation", "copies_in_flight", "copy_publication", "activation"):
        assert any(phase in name for name in aborted), counts
