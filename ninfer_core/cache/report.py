"""Report: what a request is told of where it starts, and why not further (context-cache STAT-1, STAT-2)."""

from __future__ import annotations

from collections.abc import Iterable

from ninfer_core.cache.beginnings import LENGTH
from ninfer_core.cache.books import Books
from ninfer_core.cache.candidates import Asker, Candidate
from ninfer_core.cache.misses import Lookup, PassedOver, explain
from ninfer_core.cache.planner import Choice
from ninfer_core.contract.ids import OwnerId
from ninfer_core.contract.intent import CacheMode
from ninfer_core.contract.statistics import Miss, MissReason, Reuse, SourceOperation
from ninfer_core.program.identity import Identity
from ninfer_core.program.planning.projection import Projection
from ninfer_core.program.program import Program


class Report:
    """Reads the books and Program; changes nothing."""

    def __init__(self, program: Program, books: Books) -> None:
        self._program = program
        self._books = books

    def reuse(self, asker: Asker, candidate: Candidate, choice: Choice) -> Reuse:
        """Where the chosen candidate starts; every token that is not reused has a reason."""
        assert choice.node is not None
        misses: tuple[Miss, ...]
        if asker.intent.mode is CacheMode.DISABLED:
            misses = (Miss(0, len(asker.work.prompt), MissReason.DISABLED, "the context cache is off"),)
        else:
            misses = explain(asker.work.prompt, self._look_up(asker, candidate, choice))
        if candidate.ref is None:
            return Reuse(misses=misses)
        operation = _operation(choice.node.projection)
        return Reuse(candidate.kind, candidate.frontier, candidate.placement, operation, misses)

    def _look_up(self, asker: Asker, candidate: Candidate, choice: Choice) -> Lookup:
        common, longest = self._common(asker, self._books.beginnings.shared_with(asker.identity), candidate.frontier)
        if common < LENGTH:  # none begins as the prompt does: what any shares with it is shorter
            everyone = [entry.owner for entry in self._books.entries()]
            common, other_longest = self._common(asker, everyone, common)
            longest = other_longest or longest
        other = longest is not None and not longest.until(common).matches(asker.identity)
        tomb = self._books.graveyard.deepest(candidate.frontier, asker.identity, asker.key)
        if tomb is not None:
            common = max(common, tomb.frontier)
        return Lookup(candidate.frontier, common, other, _passed_over(choice), tomb)

    def _common(self, asker: Asker, owners: Iterable[OwnerId], tokens: int) -> tuple[int, Identity | None]:
        entries = (self._books.get(owner) for owner in owners)
        deepest = (entry.checkpoints[-1].ref for entry in entries if entry is not None)
        return self._program.longest_common(deepest, asker.identity, tokens)


def _passed_over(choice: Choice) -> PassedOver | None:
    """Why the request does not start from the deepest checkpoint on its path."""
    if not choice.passed_over:
        return None
    option, fits = choice.passed_over[0]
    at = f"the checkpoint at {option.reused}"
    if fits is None and choice.stop.early:
        detail = f"planning ended ({choice.stop.value}) before room for {at} was found"
        return PassedOver(option.reused, MissReason.BUDGET, detail)
    detail = f"{at} does not fit beside what is running"
    if fits is not False:
        detail = f"room for {at} would take more from others than reading again costs"
    return PassedOver(option.reused, MissReason.CAPACITY, detail)


def _operation(projection: Projection) -> SourceOperation:
    use = projection.source
    if use is None:
        return SourceOperation.NONE
    if use.image_from_host or projection.restored:
        return SourceOperation.RESTORE
    return SourceOperation.MOVE if use.moves else SourceOperation.FORK
