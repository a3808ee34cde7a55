"""Deliberation: planning in pieces, with decode rounds between them (context-cache PLAN-8, PLAN-11)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Generic, TypeVar

from ninfer_core.cache.budget import Budget, Clock
from ninfer_core.cache.steps import Abandoned, Steps

T = TypeVar("T")


class Deliberation(Generic[T]):
    """Drives steps for a bounded time, again and again. Nothing may change the resource revision meanwhile.

    Attributes:
        spent_ns: time of its own so far: what ran between two pieces does not count.
        done: it has come to its end.
        waits: the last piece ended because there is nothing to do but wait.
    """

    def __init__(self, steps: Steps[T], clock: Clock, budget: Budget | None = None) -> None:
        self._steps = steps
        self._budget = budget
        self._clock = clock
        self._result: T | None = None
        self.spent_ns = 0
        self.done = self.waits = self._abandoned = False

    @property
    def result(self) -> T:
        """What it came to. Raises RuntimeError before its end."""
        if not self.done:
            raise RuntimeError("the deliberation has not come to its end")
        return self._result  # type: ignore[return-value]

    def go_on(self, most_ns: int | None) -> bool:
        """One more piece of at least one step. Whatever a step raises ends it. Raises RuntimeError once abandoned.

        Args:
            most_ns: no further step is begun once so much time has gone; None goes on to the end.

        Returns:
            Whether it is done.
        """
        if self._abandoned:
            raise RuntimeError("the deliberation was abandoned")
        began = self._clock()
        with self._counted():
            try:
                self.waits = bool(next(self._steps))
                while not self.waits and (most_ns is None or self._clock() - began < most_ns):
                    self.waits = bool(next(self._steps))
            except StopIteration as end:
                self._result, self.done = end.value, True
            finally:
                self.spent_ns += self._clock() - began
        return self.done

    def abandon(self) -> None:
        """Nobody wants the result any more."""
        self._abandoned = True
        with self._counted(), suppress(Abandoned, StopIteration):
            self._steps.throw(Abandoned())

    def _counted(self) -> AbstractContextManager[None]:
        """A piece of the budget's time."""
        return nullcontext() if self._budget is None else self._budget.running()
