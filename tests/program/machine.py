"""A history's rules as a hypothesis machine: it draws which rule, and the choices that the rule makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.program.choices import Choices

CHOICES = st.lists(st.integers(0, 997), min_size=1, max_size=12).map(Choices)


def machine(history: Callable[[], Any]) -> type[RuleBasedStateMachine]:
    """
    Args:
        history: a class with RULES and a `check` that holds after every rule.
    """
    rules = history.RULES  # type: ignore[attr-defined]

    class Histories(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.history = history()

        @rule(number=st.integers(0, len(rules) - 1), choices=CHOICES)
        def step(self, number: int, choices: Choices) -> None:
            rules[number](self.history, choices)

        @invariant()
        def check(self) -> None:
            self.history.check()

    return Histories
