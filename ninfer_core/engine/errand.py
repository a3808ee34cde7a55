"""Errand: something that a caller has the worker do between two units of work."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Errand(Generic[T]):
    """Made by a caller's thread, run once by the worker's. Its failure is the caller's, never the worker's."""

    def __init__(self, act: Callable[[], T]) -> None:
        self._act = act
        self._future: Future[T] = Future()

    def run(self) -> None:
        try:
            self._future.set_result(self._act())
        except BaseException as error:
            self._future.set_exception(error)

    def fail(self, cause: BaseException) -> None:
        """It will not be run any more."""
        self._future.set_exception(cause)

    def result(self) -> T:
        """Wait for it. Raises what it raised."""
        return self._future.result()
