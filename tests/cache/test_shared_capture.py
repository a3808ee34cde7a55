"""A prefix for others is captured in two steps: chosen at admission, proved and paid for at its frontier (EVI-5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from ninfer_core.cache.admission import Admitted, Ask
from ninfer_core.cache.capture import GAVE_WAY
from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.ids import Frontier, OwnerId
from ninfer_core.contract.intent import CacheIntent
from ninfer_core.contract.plans import SequenceHandle
from ninfer_core.contract.results import Ending, ResourceResult
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.planning.plan import ResourcePlan
from ninfer_core.program.planning.target import Target
from ninfer_core.program.transactions.running import RunningTransaction
from tests.support.managed import PAGE_BYTES, Managed

LIMITS = CacheLimits(
    private_cells=6,
    shared_cells=1,
    long_anchors=0,
    automatic_anchors=0,
    endpoint_anchors=False,
    shared_candidates=False,
    planning_ns=10**12,
)


class Stage:
    """Room for three images. A short conversation holds two of them: its end, and a prefix that it has published.

    Attributes:
        shared: the shared catalog's only entry.
        short: the conversation. Where its prefix is a checkpoint of its own too, both lean on one image.
    """

    def __init__(self, short: int, *, own: bool = True) -> None:
        self.managed = Managed(Vector(3, 0, (400,), 0), LIMITS)
        self.manager, self.program = self.managed.manager, self.managed.program
        self.managed.run(range(1000, 1000 + short + 8), cuts=[short] if own else (), markers=(Frontier(short),))
        (entry,) = self.manager.books.shared
        self.shared, self.short = entry.owner, next(iter(self.manager.books.private)).owner
        self.transitions: list[tuple[Target, ResourceResult]] = []
        advance = self.program.advance

        def noted(transaction: RunningTransaction, plan: ResourcePlan) -> ResourceResult | SequenceHandle | None:
            done = advance(transaction, plan)
            if isinstance(done, ResourceResult):
                self.transitions.append((plan.target, done))
            return done

        self.program.advance = noted  # type: ignore[method-assign]

    def admit(self, tokens: Sequence[int], marker: int) -> tuple[Ask, Admitted]:
        ask = self.managed.ask(tokens, intent=CacheIntent(markers=(Frontier(marker),), share_prompt=False))
        admitted = self.managed.admit(ask)
        assert isinstance(admitted, Admitted)
        return ask, admitted

    def owners(self) -> list[OwnerId]:
        return sorted(entry.owner for entry in self.manager.books.entries())


@pytest.mark.req("EVI-5", "INV-17", "CAN-10", "VAL-7", "PLAN-12")
def test_a_prefix_worth_more_takes_cell_and_image_in_one_transaction_at_its_frontier() -> None:
    stage = Stage(short=64)
    before = stage.owners()
    ask, admitted = stage.admit(range(6000), marker=5000)
    running = stage.manager._running[ask.request]
    (intended,) = running.intended
    assert running.schedule == {5000}, "sealed with the plan (PLAN-12)"
    assert intended.frontier == 5000 and intended.shared is not None, "chosen with the source"
    assert stage.transitions == [] and stage.owners() == before, "and nothing was made room for"
    assert stage.manager.books.shared.free_cells == 0 and not stage.program.sequence(admitted.handle).armed
    stage.manager.audit()

    assert stage.manager.before_pass(ask.request, 4999, 1) == 4999 and stage.transitions == [], "not yet reached"
    stage.managed.complete(ask, admitted)
    ((target, result),) = stage.transitions
    assert result.ending is Ending.COMMITTED
    assert target.outcomes[stage.shared].evicted, "its cell: the logical replacement"
    kept = {c.kind.value for c in target.outcomes[stage.short].kept}
    assert len(kept) < 2, "and the image, which falls with the last of the two that lean on it"
    (entry,) = stage.manager.books.shared
    assert [c.frontier for c in entry.checkpoints] == [5000] and entry.owner != stage.shared
    outcomes = [(c.frontier, c.outcome) for c in stage.manager.captures(ask.request)]
    assert outcomes == []  # it has ended
    stage.manager.audit()


@pytest.mark.req("EVI-5", "VAL-7", "INV-16", "ACT-4")
def test_a_prefix_worth_less_is_skipped_and_the_private_course_goes_on() -> None:
    stage = Stage(short=6000, own=False)
    before = stage.owners()
    ask, admitted = stage.admit(range(200), marker=100)
    assert [i.frontier for i in stage.manager._running[ask.request].intended] == [100]
    assert stage.manager.before_pass(ask.request, 200, 1) == 200, "the pass is not divided for it"
    assert stage.transitions == []
    ((frontier, outcome, reason),) = [(c.frontier, c.outcome, c.reason) for c in stage.manager.captures(ask.request)]
    assert (frontier, outcome) == (100, "skipped") and reason
    stage.managed.complete(ask, admitted)
    assert set(before) < set(stage.owners()), "everybody is there still, and its own continuation beside them"
    stage.manager.audit()


@pytest.mark.req("STAT-1", "EVI-6", "TXN-7")
@pytest.mark.parametrize("offered", [True, False])
@pytest.mark.parametrize(
    ("kind", "cuts", "markers", "share"),
    [
        (SourceKind.SHARED_STABLE_PREFIX, [], (), True),  # the full prompt
        (SourceKind.SHARED_STABLE_PREFIX, [], (Frontier(100),), False),
        (SourceKind.TURN_CLOSURE, [100], (), False),
    ],
)
def test_a_capture_at_the_end_of_the_prompt_is_decided_before_its_pass(
    kind: SourceKind, cuts: list[int], markers: tuple[Frontier, ...], share: bool, offered: bool
) -> None:
    """Both Device images are taken and Host ones are free. The pass that ends there draws the first token, so that no
    later one can write a Host image; and what is pending would keep the request from decoding beside a transition."""
    managed = Managed(Vector(2, 4, (40,), 64 * PAGE_BYTES), replace(LIMITS, lanes=1, shared_candidates=True))
    managed.run(range(500, 600))
    ask = managed.ask(range(100), 20, cuts, CacheIntent(markers=markers, share_prompt=share))
    admitted = managed.admit(ask)
    assert isinstance(admitted, Admitted)
    if offered:
        assert managed.manager.before_pass(ask.request, 100, 1) == 100
    with managed.program.execute([(admitted.handle, 100)]) as batch:
        batch.commit([admitted.handle])
    managed.manager.after_pass(ask.request)
    assert managed.program.unexecuted(admitted.handle) == 1, "the first token is drawn"
    noted = {c.frontier: c.outcome for c in managed.manager.captures(ask.request) if c.kind is kind}
    assert noted == {100: "captured" if offered else "skipped"}
    assert managed.manager.runs_beside(ask.request, 101)
    managed.manager.audit()


@pytest.mark.req("EVI-5", "INV-17")
def test_what_was_chosen_is_proved_again_when_the_cache_has_changed_meanwhile() -> None:
    """The prefix was worth its place at admission; until its frontier somebody else has published the same one."""
    stage = Stage(short=64)
    ask, admitted = stage.admit(range(3000), marker=2000)
    stage.manager.books.release(stage.short)
    stage.manager.books.release(stage.shared)
    other, running = stage.admit(range(2500), marker=2000)
    stage.managed.complete(other, running)
    (entry,) = stage.manager.books.shared
    assert [c.frontier for c in entry.checkpoints] == [2000]
    made = len(stage.transitions)
    stage.manager.before_pass(ask.request, 3000, 1)
    assert len(stage.transitions) == made
    assert [(c.frontier, c.outcome) for c in stage.manager.captures(ask.request)] == [(2000, "present")]
    stage.managed.complete(ask, admitted)
    stage.manager.audit()


@pytest.mark.req("STAT-1", "DEF-3", "INV-15", "EVI-5")
def test_a_point_for_others_that_gives_way_to_the_turn_s_own_is_told_as_skipped() -> None:
    # The pass ends at 100 for an image that only main memory has room for. Then the turn's own checkpoint, at 250,
    # needs the page and the image: the point at 100 was made, and is gone before anybody could publish it.
    limits = replace(LIMITS, private_cells=4, shared_cells=2, long_anchors=1, automatic_anchors=1)
    managed = Managed(Vector(3, 1, (6,), 0), limits)
    managed.run(range(5000, 5100), cuts=[60], session="another")
    intent = CacheIntent(session="this", markers=(Frontier(100),), share_prompt=False)
    ask = managed.ask(range(251), cuts=[100, 250], intent=intent)
    admitted = managed.admit(ask)
    assert isinstance(admitted, Admitted)
    for end in (100, 251):
        assert managed.manager.before_pass(ask.request, 251, 1) == end
        at = managed.program.sequence(admitted.handle).frontier
        managed.program.execute([(admitted.handle, end - at)]).commit({admitted.handle})
        managed.manager.after_pass(ask.request)
    told = [(c.frontier, c.kind, c.outcome, c.reason) for c in managed.manager.captures(ask.request)]
    assert told == [
        (100, SourceKind.LONG_ANCHOR, "skipped", GAVE_WAY),
        (100, SourceKind.SHARED_STABLE_PREFIX, "skipped", GAVE_WAY),
        (250, SourceKind.TURN_CLOSURE, "captured", None),
    ]
    managed.program.end(admitted.handle)
    managed.manager.finish(ask.request)
    assert not list(managed.manager.books.shared) and managed.manager.books.shared.free_cells == 2
    managed.manager.audit()


@pytest.mark.req("STAT-1", "EVI-6")
def test_who_finds_no_place_in_the_catalog_is_told() -> None:
    """Its only entry was asked for, and somebody who runs leans on it."""
    limits = replace(LIMITS, shared_cells=1, long_anchors=0, automatic_anchors=0, shared_candidates=False)
    managed = Managed(Vector(8, 0, (400,), 0), limits)
    managed.run(range(1000, 4000), markers=(Frontier(2900),), share_prompt=False)
    leans = managed.ask([*range(1000, 3900), *range(7000, 7100)], intent=CacheIntent(share_prompt=False))
    assert isinstance(managed.admit(leans), Admitted)
    ask = managed.ask(range(9000, 9100), intent=CacheIntent(markers=(Frontier(50),), share_prompt=False))
    assert isinstance(managed.admit(ask), Admitted)
    managed.manager.before_pass(ask.request, 100, 1)
    (told,) = managed.manager.captures(ask.request)
    assert told.outcome == "skipped" and told.reason == "no place of the catalog was found for it"


@pytest.mark.req("EVI-3", "DEF-1", "EVI-2")
def test_an_entry_that_a_running_request_started_from_is_not_reclaimed_however_old() -> None:
    """Two entries, and a request runs from the one that was hit longest ago: a third prefix takes the other's place."""
    limits = replace(LIMITS, shared_cells=2, prefix_grid=True)
    managed = Managed(Vector(16, 0, (400,), 0), limits)
    books, tails = managed.manager.books, iter(range(100_000, 200_000))

    def prompt(number: int) -> list[int]:
        return [*range(1000 * number, 1000 * number + 256), next(tails)]

    def shown_twice(number: int) -> OwnerId:
        before = {entry.owner for entry in books.shared}
        for who in ("one", "another"):
            managed.run(prompt(number), session=f"{number} {who}")
        (new,) = {entry.owner for entry in books.shared} - before
        return new

    older, newer = shown_twice(1), shown_twice(2)
    ask = managed.ask(prompt(1))
    running = managed.admit(ask)
    assert isinstance(running, Admitted) and books.edges.owners() == {older}
    assert managed.run(prompt(2)).reuse.source is SourceKind.SHARED_STABLE_PREFIX
    third = shown_twice(3)
    assert {entry.owner for entry in books.shared} == {older, third} and newer != third
    managed.complete(ask, running)
    managed.manager.audit()
