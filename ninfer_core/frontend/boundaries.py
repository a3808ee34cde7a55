"""Finding Boundaries: the token frontiers of a rendering before which nothing depends on what follows.

The places come from the template itself. Added tokens that it wrote are certain edges between tokens; which of them
begin a message, which text depends on the tools alone, and where the assistant's opener starts is seen by comparing
renderings. A place that is no edge is moved back to the last frontier that no continuation can change.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from copy import copy

from ninfer_core.contract.ids import Frontier
from ninfer_core.contract.prompt import Boundaries
from ninfer_core.errors import TemplateError
from ninfer_core.frontend.composer import Composition, leading_systems
from ninfer_core.frontend.guard import Owner
from ninfer_core.frontend.messages import Message
from ninfer_core.frontend.probe import TemplateFacts
from ninfer_core.frontend.rendering import Rendering, shared_length
from ninfer_core.frontend.tokenizer import Tokenizer

# What may follow a frontier: each class of character that pre-tokenizers tell apart, and a mark that NFC composes.
_CONTINUATIONS = ("", "a", "1", " ", "\n", ".", " a", "\n\n", "\u0301", "\u4e2d", "\u2026\n")


class BoundaryFinder:
    """Finds the boundaries of one rendered Composition."""

    def __init__(
        self, composition: Composition, rendering: Rendering, facts: TemplateFacts, tokenizer: Tokenizer
    ) -> None:
        self._composition = composition
        self._rendering = rendering
        self._facts = facts
        self._tokenizer = tokenizer
        token = facts.opener_token
        self._starts = [cut.start for cut in rendering.cuts if token is not None and cut.token.content == token]
        self.opener_start = self._opener_start()

    def over(self, rendering: Rendering) -> BoundaryFinder:
        """The same places in a rendering of the same text and cuts with other ids."""
        other = copy(self)
        other._rendering = rendering
        return other

    def find(self, mode: bool | None) -> Boundaries:
        """The boundaries; mode is the thinking mode of the rendering."""
        g = self._frontier(self.opener_start)
        heads = [self._frontier(p) for p in self.assistant_starts()]
        first = self._first_start()
        ends = [self._frontier(p) for p in self._starts if first < p <= self.opener_start]
        return Boundaries(
            after_tools=self._after_tools(),
            after_leading_system=self._after_leading_system(),
            message_ends=tuple(sorted({*ends, g})),
            generation_opener=g,
            turn_closure=self._turn_closure(heads, g),
            # Where history does not show its openers, a cut at this one would never be found again.
            rewrite_execution_frontiers=tuple(sorted({*heads, g})) if self._starts else (),
            reproduces_history=self._facts.reproduces[mode],
        )

    def _opener_start(self) -> int:
        guarded = self._rendering.guarded
        try:
            closed = self._composition.render(self._composition.messages, opener=False)
        except TemplateError:
            closed = guarded
        shared = shared_length(guarded, closed)
        place = self._composition.real_length(guarded[:shared])
        if shared < len(closed) or shared == len(guarded):
            # The template changes more than the end: the last message start is the opener's, if it has any.
            before = [p for p in self._starts if p <= place]
            place = before[-1] if before else place
        return place

    def assistant_starts(self) -> list[int]:
        """The characters at which the assistant's messages start, as far as the template shows them."""
        head, text = self._facts.assistant_head, self._rendering.text
        return [p for p in self._starts if p < self.opener_start and text.startswith(head, p)]

    def _turn_closure(self, heads: Sequence[Frontier], g: Frontier) -> Frontier:
        messages = self._composition.messages
        assistants = [i for i, message in enumerate(messages) if message.role == "assistant"]
        if len(assistants) != len(heads):
            return g
        # A user's text never looks like a tool's response to the template: every user message is a query.
        query = max((i for i, message in enumerate(messages) if message.role == "user"), default=-1)
        first = bisect_right(assistants, query)
        return heads[first] if first < len(heads) else g

    def _first_start(self) -> int:
        """Where the first message starts: behind what the template writes of itself, tools included."""
        spans = self._rendering.spans or {}
        owner = Owner.SYSTEM if leading_systems(self._composition.messages) else Owner.REST
        if owner not in spans:
            return 0
        return max((p for p in self._starts if p <= spans[owner].start), default=-1)

    def _after_leading_system(self) -> Frontier | None:
        spans = self._rendering.spans or {}
        if Owner.SYSTEM not in spans:
            return None
        limit = spans[Owner.REST].start if Owner.REST in spans else self.opener_start
        ends = [span.end for owner, span in spans.items() if owner is not Owner.REST and span.end <= limit]
        end = max(ends, default=0)
        if end < spans[Owner.SYSTEM].end:
            return None
        place = next((p for p in self._starts if p >= end), end)
        return self._frontier(place) if place <= self.opener_start else None

    def _after_tools(self) -> Frontier | None:
        spans = self._rendering.spans or {}
        if Owner.TOOLS not in spans:
            return None
        variants = [self._rendering.guarded]
        for systems in (("Quillon",), ("Brantho",), ()):
            messages = [Message("system", text) for text in systems] + [Message("user", "Mostrec")]
            try:
                variants.append(self._composition.render(messages, opener=False))
            except TemplateError:
                continue
        guarded = self._rendering.guarded
        place = self._composition.real_length(guarded[: shared_length(*variants)])
        if len(variants) < 3 or place < spans[Owner.TOOLS].end:
            return None
        frontier = self._stable(place)  # a span may end here only because there is no system message
        return frontier if frontier > self._frontier(spans[Owner.TOOLS].start) else None

    def _frontier(self, place: int) -> Frontier:
        """The frontier at a character where a span ends, else the last stable one before it."""
        known = self._rendering.frontier_at.get(place)
        return self._stable(place) if known is None else Frontier(known)

    def _stable(self, place: int) -> Frontier:
        """The last frontier at or before a character that stays whatever text comes behind the character."""
        rendering = self._rendering
        edges = sorted(rendering.frontier_at)
        i = bisect_left(edges, place)
        if any(cut.end == place for cut in rendering.cuts) or i == 0:
            return Frontier(rendering.frontier_at[edges[i]])
        start, end = edges[i - 1], edges[i]
        base = rendering.frontier_at[start]
        if any(cut.start == start for cut in rendering.cuts):
            return Frontier(base)
        encode, normalize = self._tokenizer.encode, self._tokenizer.normalize
        kept = normalize(rendering.text[start:place])
        tokens = [encode(rendering.text[start:end]), encode(kept[: self._tokenizer.last_piece_start(kept)])]
        tokens += [encode(kept + more) for more in _CONTINUATIONS]
        return Frontier(base + shared_length(*tokens))
