"""Random histories of a whole Program, the audit after each step."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.program.history import Choices, History

CHOICES = st.lists(st.integers(0, 997), min_size=1, max_size=12).map(Choices)


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.history = History()

    @rule(number=st.integers(0, len(History.RULES) - 1), choices=CHOICES)
    def step(self, number: int, choices: Choices) -> None:
        History.RULES[number](self.history, choices)

    @invariant()
    def check(self) -> None:
        self.history.check()


@pytest.mark.req("INV-2", "INV-7", "INV-9", "TXN-1", "TXN-10", "CKP-4")
class TestHistories(Histories.TestCase):
    settings = settings(deadline=None, max_examples=40, stateful_step_count=50)


def drive(seed: int, steps: int) -> History:
    """The long run: the same rules from a seeded generator."""
    rng = random.Random(seed)
    history = History()
    for _ in range(steps):
        rng.choice(History.RULES)(history, Choices([rng.randrange(998) for _ in range(12)]))
        history.check()
    return history


@pytest.mark.req("TXN-5", "TXN-6", "TXN-7", "TXN-9", "ST-2", "ST-3", "KV-3", "KV-4", "KV-7", "INV-11")
def test_a_seeded_run_reaches_every_kind_of_step() -> None:
    counts = drive(seed=1, steps=4000).counts
    for what in ("admitted root", "admitted retain", "admitted consume", "tap", "freeze on device", "freeze on host"):
        assert counts.get(what, 0) >= 10, counts
    for what in ("rearranged", "finished", "discarded", "released", "stale", "infeasible"):
        assert counts.get(what, 0) >= 10, counts
    aborted = {name for name in counts if name.startswith("aborted")}
    for phase in ("host_releases", "copy_preparation", "copies_in_flight", "copy_publication", "activation"):
        assert any(phase in name for name in aborted), counts
