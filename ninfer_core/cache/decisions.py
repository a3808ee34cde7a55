"""Decisions: where a request starts from, and at whose expense (context-cache CAN, PLAN-11, ACT-5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ninfer_core.cache.admission import Ask, Blocked, Passing, Refused
from ninfer_core.cache.books import Books
from ninfer_core.cache.budget import Budget
from ninfer_core.cache.candidates import Asker, Candidate, Match, build, find_matches
from ninfer_core.cache.deciding import Deciding
from ninfer_core.cache.deliberation import Deliberation
from ninfer_core.cache.desk import Desk
from ninfer_core.cache.domain import Option
from ninfer_core.cache.opening import Intent
from ninfer_core.cache.report import Report
from ninfer_core.cache.schedule import schedule_of
from ninfer_core.cache.sessions import session_digest
from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.cache_table import Residency
from ninfer_core.contract.ids import RequestId
from ninfer_core.contract.intent import CacheIntent, CacheMode
from ninfer_core.contract.plans import Readiness, RequestWork
from ninfer_core.contract.prompt import PreparedPrompt
from ninfer_core.contract.sampling import SamplingParams
from ninfer_core.contract.statistics import Placement, Planning
from ninfer_core.program.program import Program


class Decisions:
    """Reads the books and asks Program; changes neither. Who asked once is known until it is forgotten."""

    def __init__(
        self, program: Program, books: Books, limits: CacheLimits, desk: Desk, clock: Callable[[], int]
    ) -> None:
        self._program = program
        self._books = books
        self._limits = limits
        self._desk = desk
        self._clock = clock
        self._report = Report(program, books)
        self._askers: dict[RequestId, Asker] = {}

    @property
    def waiting(self) -> tuple[RequestId, ...]:
        """Who asked and is not Active yet."""
        return tuple(self._askers)

    def begin(self, ask: Ask, budget: Budget, passing: Passing | None) -> Deciding:
        """List what a request may start from: the choice is still to be made."""
        asker = self._asker(ask)
        began = self._clock()  # the identity belongs to preparing the prompt
        matches = self._matches(asker)
        bound = None if asker.session is None else self._books.sessions.owner_of(asker.session)
        candidates = build(self._program, matches, asker, self._books.edges, bound)
        options = [_option(candidate, asker, fallback) for candidate, fallback in candidates]
        ranking = self._books.ranking() if self._limits.recency_eviction else None
        steps = self._desk.materialize(options, budget, ranking)
        took = self._clock() - began
        deliberation = Deliberation(steps, self._clock, budget)
        return Deciding(ask, asker, passing, matches, candidates, deliberation, took, self._program.revision, budget)

    def decision(self, deciding: Deciding) -> Intent | Blocked | Refused:
        """What came of it, once its deliberation is done."""
        began = self._clock()
        ask, choice = deciding.ask, deciding.deliberation.result
        if choice.node is None:
            if choice.readiness is Readiness.PERMANENTLY_INFEASIBLE:
                return Refused(
                    f"prompt and output may take {ask.work.lifetime_tokens} tokens, which need {choice.reason}: "
                    "lower --max-new or raise --kv-capacity"
                )
            return Blocked(choice.reason)
        demand = choice.node.option.demand
        candidate = next(c for pair in deciding.candidates for c in pair if c is not None and c.activation is demand)
        if deciding.passing is not None and not self._may_pass(candidate, deciding.passing):
            return Blocked("it might delay the request before it")
        reuse = self._report.reuse(deciding.asker, candidate, choice)
        deciding.took_ns += self._clock() - began
        return Intent(
            ask=ask,
            asker=deciding.asker,
            candidate=candidate,
            target=choice.node.target,
            ready=choice.readiness is Readiness.READY,
            reuse=reuse,
            planning=Planning(deciding.planning_ms, choice.stop.value, choice.targets),
            keys=self._demand_keys(deciding.asker, deciding.matches),
            schedule=schedule_of(deciding.asker, candidate, deciding.matches, self._limits),
        )

    def forget(self, request: RequestId) -> None:
        """It is Active, or has left."""
        self._askers.pop(request, None)

    def residency(self, prompt: PreparedPrompt) -> Residency:
        """The deepest checkpoint that a request with this prompt would find now."""
        work = RequestWork(prompt, len(prompt) + 1, SamplingParams(temperature=0))
        asker = Asker(work, self._program.identity(work), self._allowed(CacheIntent()), None, ())
        deepest = next(iter(self._matches(asker)), None)
        if deepest is None:
            return Residency(0, Placement.NONE)
        return Residency(deepest.summary.frontier, deepest.summary.placement)

    # --- parts ----------------------------------------------------------------------------------------------------
    def _asker(self, ask: Ask) -> Asker:
        asker = self._askers.get(ask.request)
        if asker is None:
            session = None if ask.intent.session is None else session_digest(ask.intent.session)
            identity, intent = self._program.identity(ask.work), self._allowed(ask.intent)
            asker = Asker.of(ask.work, identity, intent, session, self._limits)
            self._askers[ask.request] = asker
        return asker

    def _allowed(self, intent: CacheIntent) -> CacheIntent:
        """With the cache off every request is a Disabled one (OPT-3)."""
        return intent if self._limits.enabled else replace(intent, mode=CacheMode.DISABLED)

    def _matches(self, asker: Asker) -> tuple[Match, ...]:
        if asker.intent.mode is CacheMode.DISABLED:
            return ()
        return find_matches(self._program, asker, self._books)

    def _demand_keys(self, asker: Asker, matches: tuple[Match, ...]) -> frozenset[bytes]:
        keys = {self._books.shelf.keys[match.summary.ref] for match in matches}
        return frozenset(keys | {shared.key for shared in asker.shared})

    def _may_pass(self, candidate: Candidate, passing: Passing) -> bool:
        head = self._program.activation(None, passing.head.work)
        protected = tuple(self._books.edges.owners())
        return self._program.backfill_proof(passing.donors, candidate.activation, head, protected) is not None


def _option(candidate: Candidate, asker: Asker, fallback: Candidate | None = None) -> Option:
    return Option(
        ordinal=candidate.ordinal,
        demand=candidate.activation,
        prompt_tokens=len(asker.work.prompt),
        source_owner=candidate.owner,
        base_dead=candidate.base_dead,
        lost=candidate.lost,
        needs_cell=candidate.needs_cell,
        reused=candidate.frontier,
        bound=candidate.bound,
        fallback=None if fallback is None else _option(fallback, asker),
    )
