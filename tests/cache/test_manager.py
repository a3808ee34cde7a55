"""ResourceManager step by step: sessions, edges, cells, demand and credit, and trouble that stays local."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from ninfer_core.cache.admission import Admitted, Ask, Blocked, Failed, Transferring
from ninfer_core.cache.cost import CostModel
from ninfer_core.cache.domain import Option
from ninfer_core.cache.lineage import Lineage
from ninfer_core.cache.manager import ResourceManager
from ninfer_core.cache.objective import Objective
from ninfer_core.cache.retention import Retention
from ninfer_core.cache.sessions import SessionIndex, session_digest
from ninfer_core.contract.cache_limits import DEMAND_WINDOW, CacheLimits
from ninfer_core.contract.ids import Frontier, OwnerId, RequestId
from ninfer_core.contract.intent import CacheIntent, CacheMode
from ninfer_core.contract.plans import RequestWork
from ninfer_core.contract.prompt import OutputStart, PreparedPrompt
from ninfer_core.contract.results import Ending, ResourceResult
from ninfer_core.contract.sampling import SamplingParams
from ninfer_core.contract.statistics import Placement, SourceOperation
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.ledger.objects import Replicas
from ninfer_core.program.planning.outcome import Outcome
from ninfer_core.program.planning.projection import Projection
from ninfer_core.program.planning.target import Target
from ninfer_core.program.program import Program
from tests.support.demotion import demoted
from tests.support.ledger_model import LedgerModel
from tests.support.managed import PAGE_BYTES, Managed

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
        patch.setattr(stage.program, "start", lambda plan: ResourceResult.refused(stage.program.revision, "injected"))
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


@pytest.mark.req("TXN-9", "AUT-2")
def test_who_shares_pages_that_another_ones_demotion_copied_is_catalogued_where_it_lies_now() -> None:
    """Two continuations share a page. Of the first only the images go to main memory; when the second goes there whole,
    the shared page is copied with it, and a checkpoint of the first can be recovered from main memory alone."""
    managed = Managed(Vector(6, 6, (20,), 16 * PAGE_BYTES), replace(LIMITS, long_anchors=2))
    prefix = list(range(64))
    managed.run(prefix)
    assert managed.run([*prefix, *range(2000, 2064)], sibling=True).reuse.frontier == 64
    books, program = managed.manager.books, managed.program
    first, second = (entry.owner for entry in books.private)

    def degrade(owner: OwnerId, outcome: Outcome) -> list[Placement]:
        with books.claimed([owner]):
            result = program.transition(Target(None, {owner: outcome}))
            assert result.ending is Ending.COMMITTED
            books.adopt(result, RequestId(0))
        managed.manager.audit()
        entry = books.get(first)
        assert entry is not None
        return [checkpoint.placement for checkpoint in entry.checkpoints]

    whole = demoted(program.domain([first])[first])
    pages = whole.wants.host_pages
    only_images = Replicas(host_images=whole.wants.host_images, device_pages=pages)
    images_only = Outcome(whole.kept, only_images, whole.needs)
    assert degrade(first, images_only) == [Placement.MIXED]
    assert degrade(second, demoted(program.domain([second])[second])) == [Placement.HOST]


@pytest.mark.req("VAL-4", "RET-1")
def test_who_stays_away_for_a_demand_window_is_expected_one_class_less() -> None:
    assert [Retention.LIVE_SESSION.after(age) for age in (0, DEMAND_WINDOW - 1)] == [Retention.LIVE_SESSION] * 2
    assert Retention.LIVE_SESSION.after(DEMAND_WINDOW) is Retention.RECENT_PRIVATE
    assert Retention.LIVE_SESSION.after(2 * DEMAND_WINDOW) is Retention.DISPOSABLE
    assert Retention.LIVE_SESSION.after(99 * DEMAND_WINDOW) is Retention.DISPOSABLE
    stage = Stage(capacity=Vector(12, 0, (40,), 0))
    for number, session in enumerate(("talk", None)):
        request = stage.ask([100 * number + 1] * 20, session=session)
        stage.admit(request)
        stage.run(request)
        stage.finish(request)
    kept = {entry.session is not None: entry for entry in stage.books.private}
    epoch = stage.books.demand.epoch
    assert kept[True].prior(epoch) is Retention.LIVE_SESSION and kept[False].prior(epoch) is Retention.DISPOSABLE
    assert kept[True].prior(kept[True].last_hit + DEMAND_WINDOW) is Retention.RECENT_PRIVATE


@pytest.mark.req("CAN-8", "VAL-1", "VAL-8")
@pytest.mark.parametrize("session", [None, "talk"])
def test_what_a_stranger_would_take_with_its_source_is_a_loss(session: str | None) -> None:
    """Four images: one is for the running request, three hold a long conversation (its turn and its end) and a short
    one, all asked for without a session. Who begins like the long one starts from its first page. To consume it would
    destroy 600 tokens that are not its own: the short conversation gives way instead."""
    managed = Managed(Vector(3, 0, (40,), 0), LIMITS)
    prefix = list(range(64))
    managed.run([*prefix, *range(1000, 1600)], cuts=[64])
    managed.run([7, 8, 9])
    long, short = managed.manager.books.private
    assert [c.frontier for c in long.checkpoints] == [64, 664] and len(short.checkpoints) == 1
    kept = long.refs
    again = managed.run([*prefix, 2000, 2001], cuts=[64], session=session)
    assert again.reuse.frontier == 64 and again.reuse.operation is SourceOperation.FORK
    assert managed.manager.books.get(short.owner) is None
    entry = managed.manager.books.get(long.owner)
    assert entry is not None and entry.refs == kept


@pytest.mark.req("SES-3", "SES-4")
def test_a_genuine_session_is_restored_beside_a_changed_one_of_the_same_trace() -> None:
    """Equal traces prove nothing of a state that came from a file: what differs in one byte is not resident."""
    one = Stage(capacity=Vector(6, 0, (20,), 0))
    one.whole(list(range(40)))
    (entry,) = one.books.private
    good = one.program.save_continuations([entry.owner])
    bad = copy.deepcopy(good)
    bad.tensors["images"][:, 0] ^= 1
    two = Stage(capacity=Vector(6, 0, (20,), 0))
    proven = []
    for content in (bad, good, good):
        state = two.manager.persistence.restore(content)
        pairs = zip(state.owners, state.checkpoints, strict=True)
        found = [two.manager.persistence.verify(owner, c.ref) for owner, kept in pairs for c in kept]
        proven.append((bool(state.physical.owners), any(one.differs for one in found)))
    assert proven == [(True, True), (True, False), (False, False)], "changed; read in beside it; here already"


@pytest.mark.req("SES-3", "CAN-1")
@pytest.mark.parametrize("order", [(False, True), (True, False)])
def test_of_equal_states_the_one_that_somebody_vouches_for_is_taken(order: tuple[bool, bool]) -> None:
    one = Stage(capacity=Vector(6, 0, (20,), 0))
    ledger = one.whole(list(range(40)))
    (entry,) = one.books.private
    good = one.program.save_continuations([entry.owner])
    bad = copy.deepcopy(good)
    bad.tensors["images"][:, 0] ^= 1
    two, genuine = Stage(capacity=Vector(6, 0, (20,), 0)), OwnerId(0)
    for proven in order:
        state = two.manager.persistence.restore(good if proven else bad, proven=proven)
        genuine = state.owners[0] if proven else genuine
    request = two.ask([*ledger, 5])
    assert isinstance(two.admit(request), Admitted)
    running = two.manager._running[request]
    assert running.candidate.frontier > 0 and running.candidate.owner == genuine


@pytest.mark.req("VAL-8", "VAL-2")
def test_what_is_lost_is_priced_from_where_it_lies_now(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    identity = Objective.identity

    def spy(self: Objective, option: Option, projection: Projection) -> float:
        value = identity(self, option, projection)
        if option.lost and option.source_owner is not None:
            portfolio, now = self._portfolio, self._now(option, Target(option.demand), projection)
            end = portfolio.end(option.lost, projection.final)
            seen.append((value - now, portfolio.future_loss((option.source_owner,), end, portfolio.base())))
        return value

    monkeypatch.setattr(Objective, "identity", spy)
    managed = Managed(Vector(3, 0, (40,), 0), LIMITS)
    prefix = list(range(64))
    managed.run([*prefix, *range(1000, 1600)], cuts=[64])
    managed.run([7, 8, 9])
    managed.run([*prefix, 2000, 2001], cuts=[64])
    assert seen and all(found == pytest.approx(true) for found, true in seen)


@pytest.mark.req("CAN-7")
@pytest.mark.parametrize(
    ("ends", "spare"), [((1023,), True), ((1024,), False), ((700, 1723), True), ((700, 1724), False)]
)
def test_an_endpoint_far_above_the_anchors_is_kept_even_where_others_give_way(
    ends: tuple[int, ...], spare: bool
) -> None:
    managed = Managed(Vector(8, 0, (80,), 0), replace(LIMITS, long_anchors=2))
    for end in ends:  # each goes on from the endpoint before, which becomes an anchor
        managed.run(range(end), session="one")
    ask = managed.ask(range(ends[-1] + 3), intent=CacheIntent(session="one"))
    admitted = managed.admit(ask)
    assert isinstance(admitted, Admitted) and admitted.reuse.frontier == ends[-1]
    running, points = managed.manager._running[ask.request], managed.manager._captures._points
    kept = [anchor.frontier for anchor in points._anchors(running)]
    assert kept == [*ends], "and so does this one"
    managed.program.drop_checkpoint(running.owner, points._anchors(running)[-1].ref)
    wish = points._endpoint_anchor(running, Lineage(managed.program, managed.manager.books, running))
    assert wish is not None and (wish.frontier, wish.spare, wish.by_coverage) == (ends[-1], spare, True)


@pytest.mark.req("PLAN-5")
@pytest.mark.parametrize(("recency", "gone"), [(True, "old"), (False, "new")])
def test_with_recency_eviction_who_was_hit_longest_ago_goes_though_worth_more(recency: bool, gone: str) -> None:
    """The older conversation is long and its session may go on; the newer one is short and nobody's."""
    limits = replace(LIMITS, recency_eviction=recency, shared_cells=0)
    managed = Managed(Vector(2, 0, (40,), 0), limits)
    managed.run(range(1000, 1500), session="old")
    managed.run(range(5000, 5100))
    managed.run(range(9000, 9100), session="third")
    frontiers = {entry.checkpoints[-1].frontier for entry in managed.manager.books.private}
    assert frontiers == {"old": {100}, "new": {100, 500}}[gone]
    assert len(managed.manager.books.private) == 2
