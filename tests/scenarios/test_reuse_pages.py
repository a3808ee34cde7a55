"""Reuse down to images and pages, on the ledger model: a wrong one would change a reply. All numbers are literal.

A page holds 64 tokens. Images are numbered as they are taken: 0 is the first lane's. Six of them, twelve pages.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ninfer_core import CacheIntent
from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.ids import Frontier
from ninfer_core.contract.prompt import Boundaries
from ninfer_core.contract.statistics import RequestStatistics
from tests.support.bench_engine import BenchEngine

LIMITS = CacheLimits(private_cells=4, shared_cells=2, long_anchors=4, automatic_anchors=4, planning_ns=10**12)
SYSTEM = Boundaries(
    after_tools=None,
    after_leading_system=Frontier(64),
    message_ends=(Frontier(64), Frontier(140)),
    generation_opener=Frontier(140),
    turn_closure=Frontier(140),
    rewrite_execution_frontiers=(Frontier(140),),
    reproduces_history=False,
)
PLAIN = Boundaries(None, None, (Frontier(140),), Frontier(140), Frontier(140), (Frontier(140),), False)
FIRST, EDITED, OTHER = [1] * 100 + [2] * 50, [1] * 100 + [2] * 20 + [3] * 30, [4] * 150

Owners = dict[int, list[tuple[str, int, int, list[int]]]]


def ask(engine: BenchEngine, prompt: Sequence[int], bounds: Boundaries | None, **cache: object) -> RequestStatistics:
    intent = CacheIntent(**{"session": "a", **cache})  # type: ignore[arg-type]
    done = engine.submit(prompt, 4, boundaries=bounds, cache=intent).result(20)
    assert list(done.token_ids) == engine.model.greedy(list(prompt), 4)
    engine.worker.call(engine.manager.audit)
    return done.statistics


def owners(engine: BenchEngine) -> Owners:
    """owner -> (kind, frontier, image, pages) of each checkpoint."""
    return {
        int(owner.id): [
            (c.kind.value, c.frontier, int(c.image), [int(p) for p in c.pages[0]]) for c in owner.checkpoints
        ]
        for owner in engine.program.world.owners.values()
    }


@pytest.mark.req("KV-4", "CAN-9", "CAN-8", "VAL-9", "DEF-5")
def test_images_and_pages_of_a_branch_and_of_what_gives_way() -> None:
    with BenchEngine(lanes=1, pages=12, limits=LIMITS, slots=(5, 0)) as engine:
        # The anchor is aligned: page 0 is frozen in place. Of the page that the closure ends in it gets a copy, 2; the
        # sequence goes on in its own, 3. The shared prefix is the anchor's image and page once more.
        ask(engine, FIRST, SYSTEM)
        first: Owners = {
            1: [("LongAnchor", 64, 1, [0]), ("TurnClosure", 140, 2, [0, 1, 2]), ("SessionEndpoint", 153, 0, [0, 1, 3])],
            2: [("SharedStablePrefix", 64, 1, [0])],
        }
        assert owners(engine) == first
        # Regenerated: a fork of image 2, whose tail is copied to 4. Its points are the first one's again.
        again = ask(engine, FIRST, SYSTEM)
        assert (again.reuse.source.value, again.reuse.frontier, again.reuse.operation.value) == (
            "TurnClosure",
            140,
            "fork",
        )
        second: Owners = {
            3: [("LongAnchor", 64, 1, [0]), ("TurnClosure", 140, 2, [0, 1, 2]), ("SessionEndpoint", 153, 3, [0, 1, 4])]
        }
        assert owners(engine) == first | second
        # Edited at token 120: from the system message's end, with pages of its own from there.
        edited = ask(engine, EDITED, SYSTEM)
        assert (edited.reuse.source.value, edited.reuse.frontier) == ("SharedStablePrefix", 64)
        third: Owners = {
            4: [("LongAnchor", 64, 1, [0]), ("TurnClosure", 140, 5, [0, 5, 6]), ("SessionEndpoint", 153, 4, [0, 5, 7])]
        }
        assert owners(engine) == first | second | third
        # All six images are taken. Another conversation gets those of ends that no history shows: of the oldest owner
        # for its lane, of the next for its closure. Nothing that anybody could resume from is gone.
        ask(engine, OTHER, PLAIN, session="b")
        assert owners(engine) == {
            1: first[1][:2],
            2: first[2],
            3: second[3][:2],
            4: third[4],
            5: [("TurnClosure", 140, 3, [3, 8, 4]), ("SessionEndpoint", 153, 0, [3, 8, 9])],
        }
        assert engine.program.world.used().pages == (10,)


@pytest.mark.req("EVI-3", "EVI-4", "EVI-2")
def test_the_order_in_which_automatic_entries_are_reclaimed() -> None:
    """Two shared cells. P and Q come first; P is hit; R takes Q's place, and then nobody may take R's for its own."""
    limits = CacheLimits(private_cells=8, shared_cells=2, long_anchors=0, automatic_anchors=0, planning_ns=10**12)
    with BenchEngine(lanes=1, pages=48, limits=limits, slots=(16, 0)) as engine:
        outcomes = []
        for session, token in enumerate((1, 2, 1, 3, 3)):
            prompt = [token] * 100 + [10 + session] * 50
            statistics = ask(engine, prompt, SYSTEM, session=str(session))
            [shared] = [c for c in statistics.captures if c.kind.value == "SharedStablePrefix" and c.frontier == 64]
            outcomes.append((token, statistics.reuse.frontier, shared.outcome))
        assert outcomes == [
            (1, 0, "captured"),
            (2, 0, "captured"),
            (1, 64, "present"),
            (3, 0, "captured"),
            (3, 64, "present"),
        ]
        held = {
            int(engine.program.record(entry.checkpoints[0].ref).identity.tokens[0])
            for entry in engine.manager.books.shared
        }
        assert held == {1, 3}, "2 was the least recently used"


@pytest.mark.req("EVI-1", "EVI-4", "DEF-6")
def test_a_prompt_that_two_domains_show_is_published_beside_what_it_extends() -> None:
    """The whole prompt was seen in two sessions: it may use pressure, but not the entry that lies on its own path."""
    limits = CacheLimits(private_cells=8, shared_cells=1, long_anchors=0, automatic_anchors=0, planning_ns=10**12)
    with BenchEngine(lanes=1, pages=48, limits=limits, slots=(16, 0)) as engine:
        found = []
        for session in ("a", "a", "b"):
            statistics = ask(engine, FIRST, SYSTEM, session=session)
            found.append([(c.frontier, c.outcome) for c in statistics.captures if c.kind.value == "SharedStablePrefix"])
        assert found[0] == [(64, "captured")], "one domain alone publishes no whole prompt"
        assert found[1] == [(64, "present")], "the same domain again is no second one"
        assert found[2] == [(64, "present"), (150, "skipped")], "the only cell holds what it extends"


@pytest.mark.req("CAN-8", "RET-4")
def test_siblings_and_guests_leave_the_conversation_as_it_is() -> None:
    """An endpoint is consumed by the conversation that goes on, and by nobody else."""
    limits = CacheLimits(private_cells=8, shared_cells=0, long_anchors=0, automatic_anchors=0, planning_ns=10**12)
    prompt = [5] * 100
    with BenchEngine(lanes=1, pages=48, limits=limits, slots=(16, 0)) as engine:
        ask(engine, prompt, None)
        on = prompt + engine.model.greedy(prompt, 4) + [9] * 10
        for cache in ({"sibling": True}, {"publishes": False}, {"markers": (Frontier(103),)}, {"session": "b"}):
            reuse = ask(engine, on, None, **cache).reuse
            assert (reuse.source.value, reuse.frontier, reuse.operation.value) == ("SessionEndpoint", 103, "fork")
            assert owners(engine)[1], "it is there still"
        assert ask(engine, on, None).reuse.operation.value == "move"
        assert 1 not in owners(engine)


@pytest.mark.req("CAN-7", "CAN-8")
def test_the_endpoint_anchor_and_a_sibling_with_two_images() -> None:
    """One lane, one slot: after one continuation they hold its endpoint and the anchor where it was. A sibling rewrites
    the conversation from the anchor; whoever returns to the old branch starts there as well."""
    limits = CacheLimits(private_cells=4, shared_cells=0, long_anchors=4, automatic_anchors=4, planning_ns=10**12)
    prompt = [5] * 100
    with BenchEngine(lanes=1, pages=48, limits=limits, slots=(1, 0)) as engine:
        ask(engine, prompt, None)
        begin = prompt + engine.model.greedy(prompt, 4)
        old, new = begin + [9] * 10, begin + [8] * 10
        assert ask(engine, old, None).reuse.operation.value == "move"
        [kinds] = [[(kind, frontier) for kind, frontier, _, _ in held] for held in owners(engine).values()]
        assert kinds == [("LongAnchor", 103), ("SessionEndpoint", 117)]
        for branch in (new, old):
            reuse = ask(engine, branch, None).reuse
            assert (reuse.source.value, reuse.frontier, reuse.operation.value) == ("LongAnchor", 103, "fork")
            assert len(owners(engine)) == 1


@pytest.mark.req("CAN-7")
def test_an_endpoint_anchor_in_main_memory() -> None:
    """No slot on the device: the anchor is a snapshot of the endpoint's own image, before anything runs."""
    limits = CacheLimits(private_cells=4, shared_cells=0, long_anchors=4, automatic_anchors=0, planning_ns=10**12)
    prompt = [5] * 100
    with BenchEngine(lanes=1, pages=48, limits=limits, slots=(0, 2), host_pages=8) as engine:
        ask(engine, prompt, None)
        begin = prompt + engine.model.greedy(prompt, 4)
        statistics = ask(engine, begin + [9] * 10, None)
        assert statistics.reuse.operation.value == "move"
        assert [(c.kind.value, c.frontier, c.outcome) for c in statistics.captures] == [("LongAnchor", 103, "captured")]
        assert len(engine.model.batches) == 2 + 3 + 1 + 3, "no pass is split for it"
        reuse = ask(engine, begin + [8] * 10, None).reuse
        assert (reuse.source.value, reuse.frontier, reuse.operation.value) == ("LongAnchor", 103, "restore")


@pytest.mark.req("DEF-5")
def test_a_whole_prompt_that_was_executed_is_not_computed_again() -> None:
    limits = CacheLimits(private_cells=4, shared_cells=0, long_anchors=0, automatic_anchors=0, planning_ns=10**12)
    prompt = [5] * 100
    with BenchEngine(lanes=1, pages=48, limits=limits, slots=(2, 0)) as engine:
        ask(engine, prompt, None)
        executed = prompt + engine.model.greedy(prompt, 3)
        passes = len(engine.model.batches)
        usage = ask(engine, executed, None).usage
        assert (usage.reused_tokens, usage.prefill_tokens) == (103, 0)
        assert len(engine.model.batches) == passes + 3, "four tokens drawn, the first from the state that was there"


@pytest.mark.req("CAN-5", "CAP-3")
def test_a_continuation_never_has_more_anchors_than_it_may() -> None:
    """Two anchors at most: the shallowest gives way, turn by turn."""
    limits = CacheLimits(private_cells=1, shared_cells=0, long_anchors=2, automatic_anchors=3, planning_ns=10**12)
    with BenchEngine(lanes=1, pages=48, limits=limits, slots=(16, 0)) as engine:
        prompt: list[int] = []
        for turn in range(1, 6):
            prompt = prompt + [turn] * 20
            ends = tuple(Frontier(20 * i) for i in range(1, turn + 1))
            bounds = Boundaries(None, None, ends, ends[-1], ends[-1], (), True)
            ask(engine, prompt + [60] * 5, bounds)
            [held] = owners(engine).values()
            anchors = [frontier for kind, frontier, _, _ in held if kind == "LongAnchor"]
            assert anchors == [20 * i for i in range(1, turn)][-2:]
