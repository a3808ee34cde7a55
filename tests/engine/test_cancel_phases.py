"""A request that is cancelled or interrupted at any call that the worker makes for it.

python -m tests.engine.test_cancel_phases       at every single call, both ways
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest

from ninfer_core.contract.ids import Frontier
from ninfer_core.contract.intent import CacheIntent
from ninfer_core.contract.prompt import Boundaries
from ninfer_core.engine import worker
from ninfer_core.engine.events import Completion, FinishReason
from ninfer_core.engine.handle import RequestHandle
from tests.engine.accounted import Accounted, Place
from tests.engine.test_worker_cache import LIMITS, expect, reused
from tests.support.bench_engine import BenchEngine

CELLS, PAGES = 12, 60
DECODING, ROUNDS = [5, 6, 7], 1_200
CUTS, SHARED = (500, 900), 700
TALK = CacheIntent(session="talk", markers=(Frontier(SHARED),))
SIBLING = replace(TALK, sibling=True)
"""It leaves the conversation that it starts from, and leans on it meanwhile."""
NEW = 6


@dataclass
class Scene:
    """Three lanes and a full cache over two tiers; one row decodes, and the next turn of a conversation comes.

    Attributes:
        prompt: that turn's. It goes on where the conversation ended. For it, and for two captures of its own and a
            shared one, others are evicted or copied into main memory.
    """

    engine: BenchEngine
    books: Accounted
    prompt: list[int]
    row: RequestHandle
    intent: CacheIntent = TALK

    def turn(self) -> RequestHandle:
        ends = tuple(Frontier(cut) for cut in CUTS)
        bounds = Boundaries(None, None, ends, ends[-1], ends[0], (ends[-1],), reproduces_history=False)
        return self.engine.submit(self.prompt, NEW, boundaries=bounds, cache=self.intent)

    def goes_on_serving(self) -> Completion:
        """The same turn again, once the books are as the account says."""
        self.books.compare()
        again = self.turn().result(120)
        expect(self.engine, self.prompt, again)
        assert again.finish_reason is FinishReason.LENGTH and again.error is None
        self.books.compare()
        return again

    def ends(self) -> None:
        self.row.interrupt()
        expect(self.engine, DECODING, self.row.result(120))
        self.books.compare()
        everything = [(i * 29 + 3) % 50 for i in range(PAGES * 64 - 6)]
        expect(self.engine, everything, self.engine.submit(everything, 3).result(120))
        self.books.compare()


@contextmanager
def scene(intent: CacheIntent = TALK) -> Iterator[Scene]:
    limits = replace(LIMITS, private_cells=CELLS, shared_cells=2, long_anchors=1, lanes=3)
    with BenchEngine(3, PAGES, 256, limits=limits, slots=(2, 5), host_pages=32) as engine:
        books = Accounted(engine, CELLS)
        first = [i % 50 for i in range(150)]
        said = engine.submit(first, 4, cache=CacheIntent(session="talk")).result(120)
        for number in range(6):
            engine.submit([(i * 7 + number) % 50 for i in range(200 + 64 * number)], 4).result(120)
        books.compare()
        more = [*first, *said.token_ids, 1, 2]
        row = engine.submit(DECODING, ROUNDS)
        books.rows.append(row._request)
        while not row._request.token_ids:
            time.sleep(0.001)
        books.compare()
        books.counts.clear()
        yield Scene(engine, books, [*more, *[(i * 17 + 5) % 50 for i in range(1_024 - len(more))]], row, intent)


def calls(intent: CacheIntent = TALK) -> Counter[str]:
    """How often each name is called for a turn that nobody disturbs."""
    with scene(intent) as here:
        result = here.turn().result(120)
        found = Counter(here.books.counts)
        expect(here.engine, here.prompt, result)
        assert reused(result) == 153
        captured = [c.frontier for c in result.statistics.captures if c.outcome == "captured"]
        assert captured == [CUTS[0], SHARED, CUTS[1]], result.statistics.captures
        here.books.compare()
        here.ends()
    return found


def disturbed(place: Place, how: str, intent: CacheIntent = TALK) -> FinishReason:
    """It is told to end before that call. Returns how it ended."""
    with scene(intent) as here:
        handles: list[RequestHandle] = []

        def tell() -> None:
            while not handles:
                time.sleep(0.0005)
            (handles[0].cancel if how == "cancel" else handles[0].interrupt)()

        here.books.before[place] = tell
        handles.append(here.turn())
        result = handles[0].result(120)
        assert place not in here.books.before, f"{place} was never reached"
        assert result.error is None
        expect(here.engine, here.prompt, result)
        kept = handles[0]._request.kept
        if result.finish_reason is FinishReason.INTERRUPTED:
            assert kept is (how == "interrupt" and bool(result.token_ids)), "a cancel gives all up (DEF-4)"
        else:
            assert result.finish_reason is FinishReason.LENGTH and len(result.token_ids) == NEW and kept, (
                "it was too late"
            )
        here.goes_on_serving()
        here.ends()
    return result.finish_reason


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "PIECE_NS", 10**15)


PHASES = {"plan", "seal", "start", "copy", "arm", "before_pass", "execute", "after_pass", "end", "finish"}
"""Planning, also in pieces; sealing; a transition's start and copies; room for captures, and its use; passes of the
prompt and rounds of the reply; publication."""


@pytest.mark.req("TXN-4", "TXN-6", "TXN-10", "INV-9", "INV-11", "INV-15", "INV-17", "AUT-2", "AUT-4", "RET-3", "DEF-4")
def test_cancelled_or_interrupted_at_any_phase_the_books_are_as_the_account_says(in_pieces: None) -> None:
    counts, ends = calls(), Counter[FinishReason]()
    assert counts.keys() == PHASES and min(counts[name] for name in ("plan", "copy", "before_pass")) >= 10, counts
    places = {(name, count) for name, count in counts.items()}
    places |= {(name, (1 + counts[name]) // 2) for name in ("plan", "copy", "before_pass", "execute", "after_pass")}
    places |= {("plan", 1), ("copy", 1), ("before_pass", 1)}
    for place in places:
        ends[disturbed(place, "cancel")] += 1
    for place in (("before_pass", 9), ("execute", counts["execute"] - 3), ("end", 1)):
        ends[disturbed(place, "interrupt")] += 1
    assert ends[FinishReason.INTERRUPTED] >= 12 and ends[FinishReason.LENGTH] >= 3, ends


@pytest.mark.req("DEF-1", "AUT-4", "TXN-10", "RET-3", "INV-15")
def test_who_leans_on_a_conversation_lets_go_of_it_at_any_phase(in_pieces: None) -> None:
    counts = calls(SIBLING)
    places = [
        ("copy", 2, "cancel"),  # its own opening's
        ("copy", counts["copy"], "cancel"),  # a capture's
        ("before_pass", (1 + counts["before_pass"]) // 2, "cancel"),
        ("after_pass", 2, "cancel"),
        ("execute", counts["execute"] - 3, "interrupt"),
    ]
    for name, number, how in places:
        assert disturbed((name, number), how, SIBLING) is FinishReason.INTERRUPTED


@pytest.mark.req("AUT-1", "RET-3", "INV-15")
@pytest.mark.parametrize("how", ["cancel", "interrupt"])
def test_a_request_that_only_waited_was_never_there(how: str) -> None:
    with scene() as here:
        others = [here.engine.submit([9, 8, n], ROUNDS // 4) for n in range(2)]
        here.books.rows += [handle._request for handle in others]
        while not all(handle._request.token_ids for handle in others):
            time.sleep(0.001)
        revision, epoch = here.engine.program.revision, here.engine.manager.books.demand.epoch
        waits = here.turn()
        while waits._request not in here.engine.worker._scheduler.waiting:
            time.sleep(0.001)
        (waits.cancel if how == "cancel" else waits.interrupt)()
        result = waits.result(120)
        assert result.finish_reason is FinishReason.INTERRUPTED and not result.token_ids
        here.books.compare()
        assert (here.engine.program.revision, here.engine.manager.books.demand.epoch) == (revision, epoch)
        for n, handle in enumerate(others):
            handle.cancel()
            expect(here.engine, [9, 8, n], handle.result(120))
        assert reused(here.goes_on_serving()) == 153, "the conversation is where it was"
        here.ends()


def main() -> None:
    worker.PIECE_NS = 10**15
    for name, count in calls().items():
        for how in ("cancel", "interrupt"):
            ends = Counter(disturbed((name, number), how).value for number in range(1, count + 1))
            print(f"{how} before each of {count} calls of {name}: {dict(ends)}", flush=True)


if __name__ == "__main__":
    main()
