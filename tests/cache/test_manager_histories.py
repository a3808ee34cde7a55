"""Random histories through ResourceManager: the audit, and an account kept beside it, after every step."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import settings

from tests.cache.history import History, drive
from tests.cache.machines import machines
from tests.program.choices import Choices
from tests.program.machine import machine


@pytest.mark.req("AUT-2", "AUT-4", "INV-2", "INV-9", "INV-11", "INV-14", "TXN-4", "TXN-9", "RET-3", "DEF-1")
class TestHistories(machine(History).TestCase):
    settings = settings(deadline=None, max_examples=15, stateful_step_count=40)


@pytest.mark.req("TXN-4", "TXN-9", "TXN-10", "TXN-11", "RET-2", "RET-3", "RET-4", "AUT-2", "AUT-4", "INV-8", "INV-11")
def test_machines_of_all_kinds_serve_through_every_kind_of_trouble() -> None:
    rng, counts = random.Random(5), Counter[str]()
    for _ in range(50):
        history = drive(History(machines(rng)), rng.randrange(1 << 30), 250)
        counts += history.counts
        _serves(history)
    sources = {
        "SessionEndpoint move",
        "SessionEndpoint fork",
        "SharedStablePrefix fork",
        "LongAnchor fork",
        "Root none",
    }
    troubles = {"injected start", "injected refused", "injected stale", "injected arm", "a pass failed"}
    ends = {"kept", "discarded", "finished without a place", "cancelled", "released", "release refused"}
    failures = {"failed: the plan is stale", "failed: a copy failed", "failed: cancelled", "decode beside a transition"}
    pieces = {"decode beside planning", "decode beside captures", "ended while captures were settled"}
    pieces |= {"blocked after pieces", "failed: nobody wants it any more"}
    for what in (*sources, *troubles, *ends, *failures, *pieces):
        assert counts[what] >= 1, f"{what} never happened: {counts}"


def _serves(history: History) -> None:
    """Once everything that runs has ended, a new request is admitted and ends as it should."""
    history._calm()
    while history.opening is not None or history.running:
        history._finish_transfer()
        if history.running:
            history._end(history.running[0], keep=False)
    for turn in history.waiting:
        history.manager.forget(turn.ask.request)
    history.waiting.clear()
    history.submit(Choices([5, 1, 2, 3, 5, 7, 9]))
    while history.opening is not None or history.running:
        history._finish_transfer()
        history.prefill(Choices([1]))
        history.decode(Choices([1]))
    assert not history.waiting
    history.check()
