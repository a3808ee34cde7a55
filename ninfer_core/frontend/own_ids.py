"""Own ids: a reply in history keeps the ids that it was generated with, where the rendering shows exactly that reply.

A model may spell a text in other tokens than the tokenizer would. With its own ids the next prompt goes on from the
state that the reply ended in. They take the place of the rendering's ids only where nothing else can be told apart:
the text is the same, the reply begins and ends between two tokens, and every added token in it is one that the template
wrote at the same place. So ids from a file can never bring in an added token.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ninfer_core.frontend.rendering import Rendering
from ninfer_core.frontend.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class _Own:
    """One reply's ids as text: characters, and where in them its added tokens lie."""

    ids: tuple[int, ...]
    text: str
    added: tuple[tuple[int, int, int], ...]  # (character, index into ids, id)


def with_own_ids(
    rendering: Rendering, places: Sequence[int], replies: Sequence[Sequence[int] | None], tokenizer: Tokenizer
) -> Rendering:
    """The rendering with own ids in it wherever they fit.

    Args:
        places: for each assistant message the character behind its head, ascending.
        replies: its own ids, end tokens included or not; None where there are none.
    """
    edges = sorted(rendering.frontier_at)
    for place, ids in zip(reversed(places), reversed(replies), strict=True):  # from the end: earlier edges stay true
        own = None if ids is None else _read(ids, tokenizer)
        if own is not None:
            rendering = _placed(rendering, edges, place, own, tokenizer)
    return rendering


def without_end(ids: Sequence[int], tokenizer: Tokenizer) -> tuple[int, ...]:
    """A reply's ids without the end tokens behind it."""
    kept = tuple(ids)
    while kept and kept[-1] in tokenizer.stop_ids:
        kept = kept[:-1]
    return kept


def _read(ids: Sequence[int], tokenizer: Tokenizer) -> _Own | None:
    kept = without_end(ids, tokenizer)
    if not kept or not all(0 <= i < tokenizer.size and i not in tokenizer.stop_ids for i in kept):
        return None
    text, run, added = "", 0, []
    for index, token in enumerate(kept):
        if tokenizer.added_content(token) is not None:
            text += tokenizer.decode(kept[run:index])
            added.append((len(text), index, token))
            text += tokenizer.decode([token])
            run = index + 1
    return _Own(kept, text + tokenizer.decode(kept[run:]), tuple(added))


def _placed(rendering: Rendering, edges: Sequence[int], place: int, own: _Own, tokenizer: Tokenizer) -> Rendering:
    ends = (cut.start for cut in rendering.cuts if cut.start >= place and cut.token.id in tokenizer.stop_ids)
    end = next(ends, None)
    if end is None:
        return rendering
    start = end - len(own.text)
    if start < place or rendering.text[start:end] != own.text:
        return rendering
    written = [(c.start, c.end - c.start, c.token.id) for c in rendering.cuts if start <= c.start < end]
    if written != [(start + at, len(tokenizer.decode([token])), token) for at, _, token in own.added]:
        return rendering
    at = bisect_right(edges, start) - 1
    before = _until(rendering, edges[at], start, edges[at + 1], tokenizer)
    if before is None:
        return rendering
    frontier = dict(rendering.frontier_at)
    base, after = frontier[edges[at]] + len(before), frontier[end]
    for character, index, token in own.added:
        frontier[start + character] = base + index
        frontier[start + character + len(tokenizer.decode([token]))] = base + index + 1
    frontier |= {e: n - after + base + len(own.ids) for e, n in rendering.frontier_at.items() if e >= end}
    ids = rendering.token_ids
    ids = (*ids[: frontier[edges[at]]], *before, *own.ids, *ids[after:])
    return replace(rendering, token_ids=ids, frontier_at=frontier)


def _until(rendering: Rendering, edge: int, start: int, until: int, tokenizer: Tokenizer) -> tuple[int, ...] | None:
    """The tokens from an edge to start, or None where a token of the span [edge, until) lies across start."""
    if edge == start:
        return ()
    head, tail = rendering.text[edge:start], rendering.text[start:until]
    ids = tokenizer.encode(head)
    return ids if ids + tokenizer.encode(tail) == tokenizer.encode(head + tail) else None
