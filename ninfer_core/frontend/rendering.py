"""Rendering: a conversation as text and tokens, with the places where the template, and only it, wrote added tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ninfer_core.frontend.guard import POOL, Guard, Owner
from ninfer_core.frontend.tokenizer import AddedToken, Tokenizer


class Cut(NamedTuple):
    """An added token in the text: characters [start, end)."""

    start: int
    end: int
    token: AddedToken


class Span(NamedTuple):
    """Where an owner's text lies: from its first to behind its last visible character."""

    start: int
    end: int


class AddedTokenFinder:
    """Finds added tokens in trusted text as the tokenizers library does: leftmost, longest, flags obeyed."""

    def __init__(self, added: Mapping[str, AddedToken]) -> None:
        self._added = {content: token for content, token in added.items() if content.strip()}
        choice = "|".join(re.escape(c) for c in sorted(self._added, key=len, reverse=True))
        self._pattern = re.compile(choice) if choice else None

    def find(self, text: str, real: str | None = None) -> Iterator[Cut]:
        """The added tokens of text, in order, without overlap. Tokens of white space alone are left as text.

        real, of the same length, is what text stands for: it decides whether a token stands alone as a word.
        """
        real = text if real is None or len(real) != len(text) else real
        done = 0
        for match in self._pattern.finditer(text) if self._pattern else ():
            token = self._added[match.group()]
            start, end = match.span()
            if start < done or (token.single_word and not _stands_alone(real, start, end)):
                continue
            if token.lstrip:
                start = max(done, len(text[:start].rstrip()))
            if token.rstrip:
                end = len(text) - len(text[end:].lstrip())
            yield Cut(start, end, token)
            done = end


@dataclass(frozen=True, slots=True)
class Rendering:
    """Text, tokens, and where they meet.

    Attributes:
        text: what the template wrote, with the real content.
        guarded: the same with stand-ins: what other renderings under the same guard are compared with.
        token_ids: added tokens at the cuts, plain tokens of the spans between.
        cuts: the added tokens that the template wrote.
        frontier_at: token frontier at every edge of a span: start and end of each cut, start and end of the text.
        spans: where each owner's text lies; None where the template treats veiled text differently.
    """

    text: str
    guarded: str
    token_ids: tuple[int, ...]
    cuts: tuple[Cut, ...]
    frontier_at: Mapping[int, int]
    spans: Mapping[Owner, Span] | None

    @classmethod
    def make(
        cls, guarded: str, veiled: str | None, guard: Guard, finder: AddedTokenFinder, tokenizer: Tokenizer
    ) -> Rendering:
        """Tokenise a guarded rendering.

        What `veiled`, the rendering of the veiled conversation, shows at an added token is the template's writing.
        Where the two renderings do not lie over each other, because the template looks into the content, the guarded
        one serves: in it no untrusted text begins or ends an added token.
        """
        text = guard.restore(guarded)
        spans = None if veiled is None else _overlay(text, veiled, guard)
        cuts = tuple(finder.find(guarded if spans is None or veiled is None else veiled, text))
        if len(text) != len(guarded):  # restore undid escapes: find the cuts' places again, piece by piece
            cuts = tuple(_moved(cuts, guarded, guard))
        ids: list[int] = []
        frontier_at = {0: 0}
        done = 0
        for cut in cuts:
            ids += tokenizer.encode(text[done : cut.start])
            frontier_at[cut.start] = len(ids)
            ids.append(cut.token.id)
            frontier_at[cut.end] = len(ids)
            done = cut.end
        ids += tokenizer.encode(text[done:])
        frontier_at[len(text)] = len(ids)
        return cls(text, guarded, tuple(ids), cuts, frontier_at, spans)


def _overlay(text: str, veiled: str, guard: Guard) -> dict[Owner, Span] | None:
    """Owners' spans if the veiled rendering equals text wherever it is not veiled, else None."""
    if len(text) != len(veiled):
        return None
    real, seen = _code_points(text), _code_points(veiled)
    written = (seen < POOL.start) | (seen >= POOL.stop)
    if not np.array_equal(real[written], seen[written]):
        return None
    places = {owner: np.flatnonzero(seen == ord(guard.veil_of(owner))) for owner in Owner}
    return {owner: Span(int(at[0]), int(at[-1]) + 1) for owner, at in places.items() if len(at)}


def _code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")


def _moved(cuts: tuple[Cut, ...], guarded: str, guard: Guard) -> Iterator[Cut]:
    shift = done = 0
    for cut in cuts:
        before = guarded[done : cut.start]
        shift += len(guard.restore(before)) - len(before)
        yield Cut(cut.start + shift, cut.end + shift, cut.token)
        done = cut.end


def _stands_alone(text: str, start: int, end: int) -> bool:
    before, after = text[start - 1 : start], text[end : end + 1]
    return not (_is_word(before) or _is_word(after))


def _is_word(char: str) -> bool:
    return bool(char) and (char.isalnum() or char == "_")


def shared_length(first: Sequence[object], *others: Sequence[object]) -> int:
    """How many leading elements all the sequences (of one type) have in common."""
    low, high = 0, min(map(len, (first, *others)))
    if all(other[:high] == first[:high] for other in others):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if all(other[low:middle] == first[low:middle] for other in others):
            low = middle
        else:
            high = middle
    return low
