"""Misses: why tokens of a prompt were not reused (context-cache STAT-2). Every one has a reason."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ninfer_core.contract.ids import RequestId
from ninfer_core.contract.prompt import PreparedPrompt
from ninfer_core.contract.statistics import Miss, MissReason
from ninfer_core.program.identity import Identity

REMEMBERED = 64
"""How many evicted checkpoints are remembered for explanations."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A checkpoint that was deleted to make room for a request.

    Attributes:
        key: the digest of its identity.
        tail: its last tokens, as an Identity encodes them: a prompt without them at that place is no path to it, and
            need not be digested.
    """

    frontier: int
    key: bytes
    tail: bytes
    request: RequestId


class Graveyard:
    """The last checkpoints that pressure deleted. For explanations only."""

    def __init__(self) -> None:
        self._tombs: deque[Tombstone] = deque(maxlen=REMEMBERED)

    def bury(self, tomb: Tombstone) -> None:
        self._tombs.append(tomb)

    def deepest(self, above: int, prompt: Identity, key_of: Callable[[int], bytes]) -> Tombstone | None:
        """The deepest one above a frontier that lay on a prompt's path.

        Args:
            key_of: the digest of the prompt's first so many tokens.
        """
        inside = [tomb for tomb in self._tombs if above < tomb.frontier <= prompt.frontier]
        for tomb in sorted(inside, key=lambda tomb: -tomb.frontier):
            if prompt.runs_through(tomb.tail, tomb.frontier) and key_of(tomb.frontier) == tomb.key:
                return tomb
        return None


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A verified checkpoint that was there, and why the request does not start from it."""

    frontier: int
    reason: MissReason
    detail: str


@dataclass(frozen=True, slots=True)
class Lookup:
    """What was found for a prompt.

    Attributes:
        reused: the frontier that it starts from.
        common: tokens that the prompt shares with the best of all catalogued continuations.
        other_identity: whether that one is the prompt's path but for mode or cuts.
        passed_over: the deepest verified checkpoint, where the request starts from another.
        tomb: the deepest deleted checkpoint on the path above the reused one.
    """

    reused: int
    common: int
    other_identity: bool
    passed_over: PassedOver | None
    tomb: Tombstone | None


def explain(prompt: PreparedPrompt, found: Lookup) -> tuple[Miss, ...]:
    """The reasons for [reused, len(prompt)), in order and without gaps."""
    length, at, misses = len(prompt), found.reused, []

    def add(end: int, reason: MissReason, detail: str) -> None:
        nonlocal at
        end = min(end, length)
        if end > at:
            misses.append(Miss(at, end, reason, detail))
            at = end

    if found.passed_over is not None:
        add(found.passed_over.frontier, found.passed_over.reason, found.passed_over.detail)
    if found.tomb is not None:
        tomb = found.tomb
        add(tomb.frontier, MissReason.EVICTED, f"its checkpoint made room for request {tomb.request}")
    if found.other_identity:
        add(found.common, MissReason.IDENTITY, "the same tokens in another template, mode or division into messages")
    add(found.common, MissReason.NO_CHECKPOINT, f"read before, but no checkpoint lies between {at} and {found.common}")
    where = _message(prompt, found.common)
    add(length, MissReason.DIVERGED, f"new from token {found.common} on, {where}")
    return tuple(misses)


def _message(prompt: PreparedPrompt, token: int) -> str:
    if prompt.boundaries is None:
        return "in the raw prompt"
    if token >= prompt.boundaries.generation_opener:
        return "in the reply's opener"
    ends: Sequence[int] = prompt.boundaries.message_ends  # of a beginning that a message goes on from, without its end
    return f"in message {bisect_right(ends, token) + 1}"
