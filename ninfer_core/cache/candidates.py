"""Candidates: where a request may start from (context-cache CAN-1, CAN-8, CAN-10). Choosing one reserves nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from msgspec import Struct

from ninfer_core.cache.books import Books
from ninfer_core.cache.catalog import Entry
from ninfer_core.cache.edges import OwnerEdges
from ninfer_core.cache.evidence import SharedCandidate, shared_candidates
from ninfer_core.cache.retention import Retention
from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.ids import CheckpointRef, OwnerId
from ninfer_core.contract.intent import CacheIntent
from ninfer_core.contract.plans import RequestWork
from ninfer_core.contract.results import CheckpointSummary
from ninfer_core.contract.statistics import Placement, SourceKind
from ninfer_core.program.identity import Identity
from ninfer_core.program.ledger.objects import Checkpoint
from ninfer_core.program.planning.target import Activation, SourceMode
from ninfer_core.program.program import Program

MOST = 8
"""CAN-1: a bounded set; root comes beside them."""


class Candidate(Struct, frozen=True):
    """One root or exact checkpoint source.

    Attributes:
        ordinal: stable order for ties: the deepest is 0.
        activation: Program's handle of source and demand.
        base_dead: checkpoints that its own source disposition removes: a transfer, no loss (VAL-8, DEF-13).
        lost: checkpoints that it removes from a conversation that is not its own: no transfer, a loss like any other.
        needs_cell: a continuation to come needs a private cell that the source does not bring along (RET-4).
        bound: its owner is what the request's session is bound to.
    """

    ordinal: int
    activation: Activation
    frontier: int = 0
    kind: SourceKind = SourceKind.ROOT
    placement: Placement = Placement.NONE
    owner: OwnerId | None = None
    ref: CheckpointRef | None = None
    base_dead: frozenset[CheckpointRef] = frozenset()
    lost: frozenset[CheckpointRef] = frozenset()
    needs_cell: bool = False
    bound: bool = False

    @property
    def consumes(self) -> bool:
        source = self.activation.source
        return source is not None and source.mode is SourceMode.CONSUME


@dataclass(frozen=True, slots=True)
class Match:
    """A catalogued checkpoint whose identity Program found to be exactly that of a prefix of the prompt."""

    entry: Entry = field(compare=False)
    summary: CheckpointSummary
    checkpoint: Checkpoint
    shared: bool


@dataclass(frozen=True, slots=True)
class Asker:
    """Who wants to start: the request's work, what it may do, and its session's digest.

    Attributes:
        shared: where it may write for others (CAN-2).
    """

    work: RequestWork
    identity: Identity
    intent: CacheIntent
    session: bytes | None
    shared: tuple[SharedCandidate, ...]
    _keys: dict[int, bytes] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(
        cls, work: RequestWork, identity: Identity, intent: CacheIntent, session: bytes | None, limits: CacheLimits
    ) -> Asker:
        """Digests are worked out here: they belong to preparing the prompt, not to planning."""
        asker = cls(work, identity, intent, session, ())
        return replace(asker, shared=shared_candidates(work.prompt, intent, limits, asker.key))

    def key(self, frontier: int) -> bytes:
        """The short-list digest of the prompt's first frontier tokens, worked out once."""
        known = self._keys.get(frontier)
        if known is None:
            known = self._keys[frontier] = self.identity.until(frontier).digest()
        return known


def find_matches(program: Program, asker: Asker, books: Books) -> tuple[Match, ...]:
    """Every exact match, deepest first. Beginnings narrow the list; Program verifies each (ID-1)."""
    found = []
    for owner, checkpoint in program.matching(books.beginnings.shared_with(asker.identity), asker.identity):
        entry = books.get(owner)
        assert entry is not None, "only catalogued owners have a beginning"
        summary = next(summary for summary in entry.checkpoints if summary.ref == checkpoint.ref)
        found.append(Match(entry, summary, checkpoint, entry.shared))
    return tuple(sorted(found, key=lambda match: (-match.summary.frontier, match.summary.ref)))


def must_retain(match: Match, asker: Asker, edges: OwnerEdges) -> bool:
    """CAN-8: sources that a request may not consume, whatever the memory is like."""
    intent, owner_session = asker.intent, match.entry.session
    return (
        match.shared
        or intent.sibling
        or not intent.writes
        or match.summary.frontier in intent.markers
        or (owner_session is not None and owner_session != asker.session)
        or edges.protects(match.entry.owner)
    )


def build(
    program: Program, matches: Iterable[Match], asker: Asker, edges: OwnerEdges, bound: OwnerId | None
) -> list[tuple[Candidate, Candidate | None]]:
    """Candidates, deepest first, root last; each with the one to fall back to.

    An endpoint that may be consumed is consumed. Any other source is retained, and consumed only where the cache
    cannot hold the branch beside the conversation: which of the two holds is Program's word (CAN-8). A stranger's is
    retained, and to consume it is one more candidate where it does not hold so.
    Equally deep matches are the same state: the one that costs least to take is kept.
    """
    chosen: dict[int, Match] = {}
    for match in matches:
        rival = chosen.get(match.summary.frontier)
        if rival is None or _preference(match, asker, edges, bound) < _preference(rival, asker, edges, bound):
            chosen[match.summary.frontier] = match
    made: list[tuple[Candidate, Candidate | None]] = []
    ordinal = 0
    for match in sorted(chosen.values(), key=lambda m: -m.summary.frontier)[:MOST]:
        retained = _candidate(program, ordinal, match, asker, SourceMode.RETAIN, bound)
        if must_retain(match, asker, edges):
            made.append((retained, None))
        elif _is_strangers(match):
            made.append((retained, _candidate(program, ordinal + 1, match, asker, SourceMode.CONSUME, bound)))
            ordinal += 1
        else:
            consumed = _candidate(program, ordinal, match, asker, SourceMode.CONSUME, bound)
            endpoint = match.summary.kind is SourceKind.SESSION_ENDPOINT
            made.append((consumed, None) if endpoint else (retained, consumed))
        ordinal += 1
    root = Candidate(ordinal, program.activation(None, asker.work), needs_cell=asker.intent.writes)
    return [*made, (root, None)]


def _is_strangers(match: Match) -> bool:
    """Without a session every request is a domain of its own (VAL-1): who rewrites what such a one has left is a
    stranger to it, and what he would take from it is no transfer. Who goes on from its endpoint goes on with it."""
    disposable = match.entry.retention is Retention.DISPOSABLE
    return disposable and match.summary.kind is not SourceKind.SESSION_ENDPOINT


def _preference(
    match: Match, asker: Asker, edges: OwnerEdges, bound: OwnerId | None
) -> tuple[bool, bool, bool, bool, bool, int]:
    """What is vouched for first; then Device, what can be moved instead of forked, what is there for everybody, the
    session's own, the newest."""
    return (
        not match.entry.proven,
        match.summary.placement is not Placement.DEVICE,
        must_retain(match, asker, edges) or match.summary.kind is not SourceKind.SESSION_ENDPOINT,
        not match.shared,
        match.entry.owner != bound,
        -match.entry.published,
    )


def _candidate(
    program: Program, ordinal: int, match: Match, asker: Asker, mode: SourceMode, bound: OwnerId | None
) -> Candidate:
    source = program.source(match.entry.owner, match.checkpoint, mode)
    gone: frozenset[CheckpointRef] = frozenset()
    if mode is SourceMode.CONSUME:
        gone = match.entry.refs - {checkpoint.ref for checkpoint in source.lineage}
    return Candidate(
        ordinal=ordinal,
        activation=program.activation(source, asker.work),
        frontier=match.summary.frontier,
        kind=match.summary.kind,
        placement=match.summary.placement,
        owner=match.entry.owner,
        ref=match.summary.ref,
        base_dead=frozenset() if _is_strangers(match) else gone,
        lost=gone if _is_strangers(match) else frozenset(),
        needs_cell=asker.intent.writes and mode is SourceMode.RETAIN,
        bound=match.entry.owner == bound,
    )
