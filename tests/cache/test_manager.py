"""ResourceManager step by step: sessions, edges, cells, demand and credit, and trouble that stays local."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ninfer_core.cache.admission import Admitted, Ask, Blocked, Failed, Transferring
from ninfer_core.cache.cost import CostModel
from ninfer_core.cache.manager import ResourceManager
from ninfer_core.cache.retention import Retention
from ninfer_core.cache.sessions import SessionIndex, session_digest
from ninfer_core.contract.cache_limits import DEMAND_WINDOW, CacheLimits
from ninfer_core.contract.ids import Frontier, OwnerId, RequestId
from ninfer_core.contract.intent import CacheIntent, CacheMode
from ninfer_core.contract.plans import RequestWork
from ninfer_core.contract.prompt import OutputStart, PreparedPrompt
from ninfer_core.contract.sampling import SamplingParams
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.program import Program
from tests.support.ledger_model import LedgerModel

GREEDY = SamplingParams(temperature=0)
LIMITS = CacheLimits(private_cells=4, shared_cells=2, long_anchors=0, automatic_anchors=0, planning_ns=10**12)
FIRST, SECOND = list(range(40)), list(range(10, 60))


class Stage:
    """A manager over the ledger model; requests are numbered as they are asked for."""

    def __init__(self, limits: CacheLimits = LIMITS, capacity: Vector | None = None) -> None:
        self.program = Program(LedgerModel(), capacity or Vector(6, 0, (20,), 0))
        self.manager = ResourceManager(self.program, limits, CostModel())
        self.books = self.manager.books
        self._asks: dict[RequestId, Ask] = {}

    def ask(self, prompt: list[int], most: int = 4, **intent: Any) -> RequestId:
        request = RequestId(len(self._asks) + 1)
        work = RequestWork(PreparedPrompt(tuple(prompt), None, OutputStart.ANSWER), len(prompt) + most, GREEDY)
        self._asks[request] = Ask(request, work, CacheIntent(**intent))
        return request

    def admit(self, request: RequestId) -> Any:
        admission = self.manager.admit(self._asks[request])
        while isinstance(admission, Transferring):
            admission = self.manager.advance()
        return admission

    def run(self, request: RequestId) -> list[int]:
        """To its last token. The ledger, ready to be continued."""
        handle = self.manager._running[request].handle
        sequence = self.program.sequence(handle)
        while len(sequence.ledger) < sequence.lifetime_tokens:
            if sequence.frontier < sequence.prompt_tokens:
                self.manager.before_pass(request, sequence.frontier + 64, 1)
            with self.program.execute([(handle, 64)]) as pending:
                pending.commit([handle])
            if sequence.frontier <= sequence.prompt_tokens:
                self.manager.after_pass(request)
        return list(sequence.ledger)

    def finish(self, request: RequestId) -> bool:
        self.program.end(self.manager._running[request].handle)
        kept = self.manager.finish(request)
        self.manager.audit()
        return kept

    def whole(self, prompt: list[int], **intent: Any) -> list[int]:
        """A request from its admission to its finish."""
        request = self.ask(prompt, **intent)
        assert isinstance(self.admit(request), Admitted)
        ledger = self.run(request)
        self.finish(request)
        return ledger

    def bound(self, session: str) -> OwnerId | None:
        return self.books.sessions.owner_of(session_digest(session))

    def credit(self) -> int | None:
        (entry,) = self.books.shared
        return entry.credit_until


# --- sessions ----------------------------------------------------------------------------------------------------
@pytest.mark.req("RET-3", "INV-14")
def test_an_older_request_that_ends_late_becomes_anonymous_cache() -> None:
    stage = Stage()
    older, newer = stage.ask(FIRST, session="talk"), stage.ask(SECOND, session="talk")
    for request in (older, newer):
        stage.admit(request)
        stage.run(request)
    assert stage.finish(newer)
    bound = stage.bound("talk")
    assert bound is not None and stage.finish(older)
    assert stage.bound("talk") == bound, "the binding accepts only a larger order"
    kinds = {entry.owner: entry.retention for entry in stage.books.private}
    assert kinds.pop(bound) is Retention.LIVE_SESSION and [*kinds.values()] == [Retention.RECENT_PRIVATE]


@pytest.mark.req("RET-3", "INV-14")
def test_a_request_that_waited_while_others_passed_cannot_take_a_session_back() -> None:
    """Its order is below that of a request that came, ended, and whose continuation is gone again."""
    stage = Stage(capacity=Vector(2, 0, (4,), 0))
    runs = stage.ask(FIRST, most=80)
    assert isinstance(stage.admit(runs), Admitted)
    waits = stage.ask(FIRST, most=180, session="talk")
    assert isinstance(stage.admit(waits), Blocked)
    passes = stage.ask(SECOND, session="talk")
    assert isinstance(stage.admit(passes), Admitted)
    stage.run(passes)
    stage.finish(passes)
    bound = stage.bound("talk")
    assert bound is not None
    stage.books.release(bound)
    stage.manager.discard(runs)
    assert isinstance(stage.admit(waits), Admitted)
    stage.run(waits)
    stage.finish(waits)
    assert stage.bound("talk") is None


def test_orders_are_forgotten_once_nobody_can_undercut_them() -> None:
    index = SessionIndex()
    assert index.bind(b"a", OwnerId(1), 5).accepted
    index.forget(OwnerId(1))
    index.prune(5)
    assert not index.bind(b"a", OwnerId(2), 4).accepted
    index.prune(6)
    assert index.bind(b"a", OwnerId(2), 4).accepted


# --- edges and cells ---------------------------------------------------------------------------------------------
@pytest.mark.req("DEF-1", "AUT-4", "RET-3")
def test_an_owner_with_an_edge_has_more_readers_and_is_neither_consumed_nor_released() -> None:
    stage = Stage()
    ledger = stage.whole(FIRST, session="talk")
    (owner,) = (entry.owner for entry in stage.books.private)
    sibling = stage.ask([*ledger, 1], sibling=True)
    assert isinstance(stage.admit(sibling), Admitted) and stage.books.edges.owners() == {owner}
    own = stage.ask([*ledger, 2], session="talk")
    admission = stage.admit(own)
    assert admission.reuse.frontier == len(ledger) - 1, "further readers are allowed"
    assert stage.books.get(owner) is not None, "what may be consumed otherwise is forked while somebody leans on it"
    with pytest.raises(RuntimeError, match="started from"):
        stage.books.release(owner)
    assert owner not in stage.books.eligible()
    for request in (sibling, own):
        stage.run(request)
        stage.finish(request)
    assert not stage.books.edges.owners()
    stage.books.release(owner)
    stage.manager.audit()


@pytest.mark.req("RET-4", "INV-15")
def test_without_a_cell_a_request_runs_and_its_end_is_discarded() -> None:
    stage = Stage(replace(LIMITS, private_cells=1))
    first, second = stage.ask(FIRST), stage.ask(SECOND)
    stage.admit(first), stage.admit(second)
    stage.run(first), stage.run(second)
    assert not stage.finish(second) and stage.finish(first)
    assert len(stage.books.private) == 1


@pytest.mark.req("RET-4")
def test_the_cell_of_an_evicted_continuation_goes_to_the_request_that_evicted_it() -> None:
    stage = Stage(replace(LIMITS, private_cells=1, shared_cells=0))
    stage.whole(FIRST)
    (before,) = stage.books.private
    request = stage.ask(SECOND)
    assert isinstance(stage.admit(request), Admitted)
    assert len(stage.books.private) == 0 and stage.books.private.free_cells == 0, "its cell is taken, not free"
    stage.run(request)
    assert stage.finish(request)
    (after,) = stage.books.private
    assert (after.cell, after.owner == before.owner) == (before.cell, False)
    assert after.generation > before.generation


@pytest.mark.req("PRO-4", "INV-8")
def test_what_a_running_request_was_promised_is_lent_to_nobody() -> None:
    stage = Stage(capacity=Vector(4, 0, (6,), 0))
    long = stage.ask(FIRST, most=200)
    assert isinstance(stage.admit(long), Admitted)
    for number in range(3):
        other = stage.ask([number, *SECOND], most=70)
        admission = stage.admit(other)
        assert isinstance(admission, Admitted) == (number == 0), "two pages are left, and no more"
    ledger = stage.run(long)
    assert len(ledger) == 240 and stage.finish(long)


# --- demand and credit -------------------------------------------------------------------------------------------
@pytest.mark.req("DEF-6", "REQ-1")
def test_a_domain_is_a_session_and_without_one_each_request_is_its_own() -> None:
    stage = Stage()
    stage.whole(FIRST, session="talk")
    stage.whole(FIRST, session="talk")
    key = next(iter(set.intersection(*(set(demand.keys) for demand in stage.books.demand))))
    assert len(stage.books.demand.domains(key)) == 1, "one conversation that asks twice is one domain"
    stage.whole(FIRST)
    stage.whole(FIRST)
    assert len(stage.books.demand.domains(key)) == 3
    epoch = stage.books.demand.epoch
    stage.whole(FIRST, mode=CacheMode.DISABLED)
    assert stage.books.demand.epoch == epoch, "a Disabled request leaves no record"


def with_credit() -> tuple[Stage, list[int]]:
    """A prefix of FIRST is shared on request, in a cache with room for everything. And the ledger that it lies in."""
    stage = Stage(replace(LIMITS, private_cells=40), Vector(50, 0, (80,), 0))
    ledger = stage.whole(FIRST, markers=(Frontier(20),))
    assert stage.credit() is not None
    return stage, ledger


@pytest.mark.req("DEF-7")
def test_credit_is_consumed_by_the_first_later_request_that_matches_selected_or_not() -> None:
    stage, ledger = with_credit()
    stage.whole([60, *SECOND])
    assert stage.credit() is not None, "it matched nothing"
    request = stage.ask([*ledger, 7, 7])
    admission = stage.admit(request)
    assert admission.reuse.frontier > 20, "the shared prefix matched and was not selected"
    assert stage.credit() is None


@pytest.mark.req("DEF-7")
def test_credit_expires_at_the_thirty_second_later_materialization() -> None:
    stage, _ = with_credit()
    for number in range(DEMAND_WINDOW - 1):
        stage.whole([50, number, *SECOND])
    stage.whole([51, *SECOND], mode=CacheMode.DISABLED)
    assert stage.credit() is not None
    stage.whole([52, *SECOND])
    assert stage.credit() is None


@pytest.mark.req("DEF-7", "TXN-4")
def test_an_abort_consumes_no_credit_and_leaves_no_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, ledger = with_credit()
    epoch, request = stage.books.demand.epoch, stage.ask([*ledger, 7])
    with monkeypatch.context() as patch:
        patch.setattr(stage.program, "start", lambda plan: stage.program._refused("injected"))
        assert stage.admit(request) == Failed("injected")
    assert stage.credit() is not None and stage.books.demand.epoch == epoch and not stage.books.claims
    stage.manager.audit()


# --- trouble stays local -----------------------------------------------------------------------------------------
@pytest.mark.req("TXN-4", "RET-4")
@pytest.mark.parametrize("place", ["seal", "start"])
def test_a_start_that_raises_gives_claim_and_cell_back(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    ledger = stage.whole(FIRST)

    def broken(*_: Any) -> None:
        raise MemoryError("no room")

    for _ in range(LIMITS.private_cells + 1):
        with monkeypatch.context() as patch:
            patch.setattr(stage.program, place, broken)
            with pytest.raises(MemoryError):
                stage.admit(stage.ask([*ledger, 1]))
        stage.manager.audit()
    assert stage.books.private.free_cells == LIMITS.private_cells - 1


@pytest.mark.req("INV-15")
def test_trouble_with_captures_does_not_lose_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(replace(LIMITS, long_anchors=2, automatic_anchors=2))
    ledger = stage.whole(FIRST)

    def broken(*_: Any) -> None:
        raise MemoryError("no room")

    request = stage.ask([*ledger, 1, 2, 3])
    with monkeypatch.context() as patch:
        patch.setattr(stage.program, "arm", broken)
        patch.setattr(stage.program, "alias", broken)
        admission = stage.admit(request)
    assert isinstance(admission, Admitted) and admission.reuse.frontier == len(ledger) - 1
    stage.run(request)
    assert stage.finish(request)


@pytest.mark.req("RET-2", "INV-9")
def test_an_owner_that_a_transition_may_change_is_not_released() -> None:
    stage = Stage()
    stage.whole(FIRST)
    (entry,) = stage.books.private
    with stage.books.claimed([entry.owner]):
        with pytest.raises(RuntimeError, match="a transition"):
            stage.books.release(entry.owner)
        with pytest.raises(RuntimeError, match="INV-9"):
            stage.books.claim([entry.owner])
        assert not stage.books.eligible()
    stage.books.release(entry.owner)
    stage.manager.audit()
