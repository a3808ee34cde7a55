"""Identity and execution trace of a state: what must be equal to reuse it, and what really ran (context-cache ID)."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ninfer_core.contract.ids import Frontier
from ninfer_core.contract.prompt import PreparedPrompt

TAIL = 16
"""Tokens of an identity's tail."""


class Unit(NamedTuple):
    """One pass that ran (ID-4): its share of a sequence, and the shape of the batch that it was in.

    Attributes:
        start, length: tokens [start, start + length).
        cuts: absolute frontiers inside it at which the scan was cut, ascending.
        rows: lengths of all rows of the pass, this one included.
        at: which of the rows this is.
    """

    start: int
    length: int
    cuts: tuple[int, ...]
    rows: tuple[int, ...]
    at: int


Trace = tuple[Unit, ...]


@dataclass(frozen=True, slots=True)
class Identity:
    """Everything that decides whether a state is that of a prompt (CKP-1, ID-1, ID-2). Compared exactly.

    Attributes:
        tokens: the covered token ids, four bytes each: one comparison of bytes instead of one per token.
        cuts: rewrite execution frontiers in (0, frontier].
        mode: template and runtime mode.
        media: digests of the media spans inside, with their places. Empty: this version reads text only, whose token
            types, positions and RoPE delta follow from the token ids.
    """

    tokens: bytes
    cuts: tuple[Frontier, ...]
    mode: tuple[tuple[str, str], ...]
    media: tuple[tuple[int, int, bytes], ...] = ()

    @classmethod
    def of(
        cls, tokens: Sequence[int], cuts: Sequence[int], mode: tuple[tuple[str, str], ...], frontier: int
    ) -> Identity:
        """The identity of a sequence's first frontier tokens."""
        inside = tuple(Frontier(cut) for cut in cuts if 0 < cut <= frontier)
        return cls(encode(tokens[:frontier]), inside, mode)

    @classmethod
    def of_prompt(cls, prompt: PreparedPrompt) -> Identity:
        """The identity of a whole prompt, to verify checkpoints with."""
        cuts = prompt.boundaries.rewrite_execution_frontiers if prompt.boundaries else ()
        return cls.of(prompt.token_ids, cuts, prompt.mode, len(prompt))

    @property
    def frontier(self) -> int:
        return len(self.tokens) // 4

    @property
    def tail(self) -> bytes:
        """The last tokens: as many as tell most prompts apart at once."""
        return self.tokens[-4 * TAIL :]

    def runs_through(self, tail: bytes, frontier: int) -> bool:
        """Whether the tokens in front of a frontier are these."""
        return self.tokens.endswith(tail, 0, 4 * frontier)

    def matches(self, prompt: Identity) -> bool:
        """Whether this is the identity of a prefix of prompt: token for token, cut for cut, in the same mode."""
        return (
            prompt.tokens.startswith(self.tokens)
            and self.cuts == tuple(cut for cut in prompt.cuts if cut <= self.frontier)
            and self.mode == prompt.mode
            and self.media == tuple(span for span in prompt.media if span[1] <= self.frontier)
        )

    def common(self, other: Identity) -> int:
        """How many leading tokens are the same; cuts and modes are not looked at."""
        low, high = 0, min(self.frontier, other.frontier)
        while low < high:
            middle = (low + high + 1) // 2
            if self.tokens[low * 4 : middle * 4] == other.tokens[low * 4 : middle * 4]:
                low = middle
            else:
                high = middle - 1
        return low

    def until(self, frontier: int) -> Identity:
        """The identity of the first frontier tokens."""
        return Identity(
            self.tokens[: 4 * frontier],
            tuple(cut for cut in self.cuts if cut <= frontier),
            self.mode,
            tuple(span for span in self.media if span[1] <= frontier),
        )

    def digest(self) -> bytes:
        """16 bytes for a short list. Equal digests prove nothing (ID-1)."""
        hasher = hashlib.blake2b(self.tokens, digest_size=16)
        hasher.update(repr((self.cuts, self.mode, self.media)).encode())
        return hasher.digest()


def encode(tokens: Sequence[int]) -> bytes:
    """Token ids as little-endian 32-bit numbers."""
    packed = array("I", tokens)
    assert packed.itemsize == 4
    return packed.tobytes()


def decode(tokens: bytes) -> list[int]:
    packed = array("I")
    packed.frombytes(tokens)
    return list(packed)


def trace_until(trace: Trace, frontier: int) -> Trace:
    """The units that a state at frontier depends on: a unit that reaches beyond it is kept whole (ID-4)."""
    return tuple(unit for unit in trace if unit.start < frontier)
