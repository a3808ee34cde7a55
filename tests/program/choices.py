"""Choices: what a random rule decides with, so that a shrunk example stays readable."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Choices:
    """Endless small numbers from a list: what a rule decides with."""

    numbers: list[int]
    at: int = 0

    def pick(self, limit: int) -> int:
        number = self.numbers[self.at % len(self.numbers)] + self.at
        self.at += 1
        return number % limit if limit > 0 else 0
