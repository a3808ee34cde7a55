"""Report: what a request is told of where it starts, and why not further (context-cache STAT-1, STAT-2)."""

from __future__ import annotations

from ninfer_core.cache.books import Books
from ninfer_core.cache.candidates import Asker, Candidate
from ninfer_core.cache.misses import Lookup, explain
from ninfer_core.cache.planner import Choice
from ninfer_core.contract.intent import CacheMode
from ninfer_core.contract.statistics import Miss, MissReason, Reuse, SourceOperation
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
        common, other = candidate.frontier, False
        for entry in self._books.entries():
            deepest = self._program.record(entry.checkpoints[-1].ref).identity
            if deepest.shares_more(asker.identity, common):
                common = deepest.common(asker.identity)
                other = not deepest.until(common).matches(asker.identity)
        passed = max((option.reused for option in choice.passed_over), default=0)
        tomb = self._books.graveyard.deepest(candidate.frontier, len(asker.work.prompt), asker.key)
        if tomb is not None:
            common = max(common, tomb.frontier)
        return Lookup(candidate.frontier, common, other, passed, tomb)


def _operation(projection: Projection) -> SourceOperation:
    use = projection.source
    if use is None:
        return SourceOperation.NONE
    if use.image_from_host or projection.restored:
        return SourceOperation.RESTORE
    return SourceOperation.MOVE if use.moves else SourceOperation.FORK
