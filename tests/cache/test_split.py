"""SplitCost: a pass that ends for an image in main memory costs a pass more, and is taken only where it pays."""

from __future__ import annotations

import random

import pytest

from ninfer_core.cache.admission import Admitted, Ask
from ninfer_core.cache.cost import CostModel, PrefillCost, TransferCost
from ninfer_core.cache.publication import TOO_DEAR
from ninfer_core.cache.split import split_cost
from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.ids import Frontier, RequestId
from ninfer_core.contract.intent import CacheIntent
from ninfer_core.contract.plans import RequestWork
from ninfer_core.contract.prompt import Boundaries, OutputStart, PreparedPrompt
from ninfer_core.contract.sampling import SamplingParams
from ninfer_core.contract.statistics import Capture
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.planning.work import Prefill
from tests.support.managed import PAGE_BYTES, Managed

PASS_NS, TOKEN_NS, PAIR_NS = 100_000_000.0, 1_000.0, 2.0
CHEAP = TransferCost(0.0, 1.0, 0.0)
COST = CostModel(CHEAP, CHEAP, CHEAP, PrefillCost(PASS_NS, TOKEN_NS, PAIR_NS))
NEAR, SHARED, END = 90, 100, 300
"""The prefix that may be there already, the one that the prompt proposes, and its end."""


def prefill_ns(stops: list[int], chunk: int) -> float:
    """The price of a prefill from the first stop to the last, in passes of at most a chunk that end at every stop."""
    total, at = 0.0, stops[0]
    for stop in stops[1:]:
        while at < stop:
            end = min(at + chunk, stop)
            total += COST.prefill(Prefill(at, end - at))
            at = end
    return total


# --- the exact price ---------------------------------------------------------------------------------------------
@pytest.mark.req("EVI-5", "VAL-7", "COST-3")
def test_it_is_what_the_passes_cost_more() -> None:
    rng, seen = random.Random(3), set()
    for _ in range(2_000):
        now, chunk = rng.randrange(5_000), rng.randint(1, 600)
        end = now + rng.randint(2, 2_500)
        at = rng.randint(now + 1, min(now + chunk, end - 1))
        found = split_cost(COST, now, at, end, chunk)
        assert found == prefill_ns([now, at, end], chunk) - prefill_ns([now, end], chunk)
        seen.add(found)
    assert seen == {0.0, PASS_NS}, "one pass, or none where the last has room for what moves into it"


# --- whether a pass ends for a prefix ----------------------------------------------------------------------------
def system_prompt(managed: Managed, prompt: range) -> Ask:
    """A request of which only its leading instructions are shared, should anybody else have the same."""
    ends = (Frontier(SHARED), Frontier(END))
    bounds = Boundaries(None, ends[0], ends, ends[-1], ends[-1], (), reproduces_history=True)
    prepared = PreparedPrompt(tuple(prompt), bounds, OutputStart.ANSWER)
    work = RequestWork(prepared, END + 1, SamplingParams(temperature=0))
    return Ask(RequestId(1_000), work, CacheIntent(publishes=False, share_prompt=False))


def offered(chunk: int, *, near: bool) -> tuple[int, list[Capture]]:
    """Where the first pass over a prompt ends, and what became of its captures. Device images are taken, Host ones are
    not.

    Args:
        near: a shared prefix ten tokens shorter is there already, and the request starts from it.
    """
    limits = CacheLimits(private_cells=4, shared_cells=2, long_anchors=0, automatic_anchors=0, lanes=1)
    managed = Managed(Vector(2 if near else 1, 4, (40,), 64 * PAGE_BYTES), limits, COST)
    if near:
        managed.run(range(NEAR + 5), markers=(Frontier(NEAR),), publishes=False, share_prompt=False)
    ask = system_prompt(managed, range(END))
    admitted = managed.admit(ask)
    assert isinstance(admitted, Admitted) and admitted.reuse.frontier == (NEAR if near else 0)
    at, ends = admitted.reuse.frontier, list[int]()
    while at < END:
        end = managed.manager.before_pass(ask.request, at + chunk, 1)
        assert end is not None
        with managed.program.execute([(admitted.handle, end - at)]) as batch:
            batch.commit([admitted.handle])
        managed.manager.after_pass(ask.request)
        at = managed.program.sequence(admitted.handle).frontier
        ends.append(at)
    captures = [c for c in managed.manager.captures(ask.request) if c.frontier == SHARED]
    managed.program.end(admitted.handle)
    managed.manager.finish(ask.request)
    managed.manager.audit()
    return ends[0], captures


@pytest.mark.req("EVI-5", "VAL-7", "STAT-1")
def test_a_pass_ends_for_a_prefix_that_saves_more_than_a_pass() -> None:
    end, (capture,) = offered(512, near=False)
    assert (end, capture.outcome) == (SHARED, "captured"), capture


@pytest.mark.req("EVI-5", "VAL-7", "INV-16", "ACT-4", "STAT-1", "EVI-6")
def test_no_pass_ends_for_one_that_saves_less() -> None:
    """Ten tokens more than what is there: whoever comes saves them, and this request would pay a pass for it."""
    end, (capture,) = offered(512, near=True)
    assert (end, capture.outcome, capture.reason) == (END, "skipped", TOO_DEAR)


@pytest.mark.req("EVI-5", "VAL-7", "STAT-1")
def test_where_as_many_passes_come_anyway_the_split_is_free() -> None:
    """210 tokens are to come in passes of 200: two, with the first ending after ten as well."""
    end, (capture,) = offered(200, near=True)
    assert (end, capture.outcome) == (SHARED, "captured"), capture
