"""The Scheduler alone: order, protection of the head, and what makes it look again."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_core.contract.ids import RequestId, Revision
from ninfer_core.engine.active import ActiveRequest, Wish
from ninfer_core.engine.scheduler import MOST_PASSES, Scheduler

NOW = Revision(1)


def requests(count: int, first: int = 1) -> list[ActiveRequest]:
    return [ActiveRequest(RequestId(first + n), None, None, None) for n in range(count)]  # type: ignore[arg-type]


def blocked(lanes: int = 3) -> tuple[Scheduler, list[ActiveRequest]]:
    """Request 1 runs, 2 is the blocked head, 3 and 4 wait behind it."""
    scheduler, made = Scheduler(lanes), requests(4)
    scheduler.waiting.extend(made)
    scheduler.start(made[0])
    scheduler.block(made[1], NOW)
    return scheduler, made


@pytest.mark.req("ACT-5", "PLAN-11")
def test_a_head_that_is_decided_in_pieces_keeps_its_protection_when_somebody_behind_it_leaves() -> None:
    scheduler, (run, head, third, fourth) = blocked()
    scheduler._passes = 5
    scheduler.open(head)
    scheduler.leave(third)
    assert scheduler.put_back(head), "nobody was to be passed"
    scheduler.block(head, NOW)
    assert (scheduler.donors, scheduler._passes, list(scheduler.waiting)) == ((run,), 5, [head, fourth])
    scheduler.open(fourth)
    scheduler.leave(head)
    assert not scheduler.put_back(fourth), "the head that it was to pass is gone"
    assert scheduler.next(NOW) is fourth


@pytest.mark.req("PRO-3", "AUT-1", "INV-1")
def test_the_head_is_tried_first_and_never_beside_an_open_transition() -> None:
    scheduler, (first, second) = Scheduler(2), requests(2)
    scheduler.waiting.extend((first, second))
    assert scheduler.next(NOW) is first and scheduler.passed_by(first) is None
    scheduler.open(first)
    assert scheduler.next(NOW) is None
    scheduler.start(first)
    assert scheduler.next(NOW) is second
    scheduler.start(second)
    scheduler.waiting.extend(requests(1, 3))
    assert scheduler.next(NOW) is None, "every lane is taken"


@pytest.mark.req("PLAN-11", "ACT-5")
def test_a_blocked_head_is_looked_at_again_only_when_something_named_has_changed() -> None:
    scheduler, (running, head, third, fourth) = blocked()
    assert scheduler.donors == (running,)
    assert scheduler.next(NOW) is third and scheduler.passed_by(third) is head
    scheduler.block(third, NOW)
    assert scheduler.next(NOW) is fourth
    scheduler.block(fourth, NOW)
    assert scheduler.next(NOW) is None and scheduler.has_work(NOW), "a request runs"
    newcomer = requests(1, 5)[0]
    scheduler.waiting.append(newcomer)
    assert scheduler.next(NOW) is newcomer, "the head is not tried again because somebody came"
    scheduler.block(newcomer, NOW)
    assert scheduler.next(NOW) is None
    assert scheduler.next(Revision(2)) is head, "the resources have changed"
    scheduler.block(head, Revision(2))
    assert scheduler.next(Revision(2)) is third, "and everybody behind it is looked at once more"
    scheduler.leave(running)
    assert scheduler.next(Revision(2)) is head, "a lane is free"


def test_a_transition_that_came_to_nothing_is_news_for_the_head() -> None:
    scheduler, (_, head, third, _) = blocked()
    scheduler.open(third)
    scheduler.reopen(third)
    assert scheduler.next(NOW) is head


def test_who_was_passed_keeps_its_place_when_the_other_comes_back() -> None:
    scheduler, (_, head, third, fourth) = blocked()
    scheduler.open(fourth)
    scheduler.leave(third)
    scheduler.reopen(fourth)
    assert list(scheduler.waiting) == [head, fourth]
    scheduler.open(head)
    scheduler.reopen(head)
    assert list(scheduler.waiting) == [head, fourth] and scheduler.donors, "still protected"


def test_nobody_passes_without_something_that_the_head_waits_for() -> None:
    scheduler, made = Scheduler(2), requests(2)
    scheduler.waiting.extend(made)
    scheduler.block(made[0], NOW)
    assert scheduler.next(NOW) is None


def test_only_so_many_pass_one_head_and_those_who_leave_do_not_count() -> None:
    scheduler, (running, head, *_) = blocked()
    number = 0
    for number in range(3 * MOST_PASSES):
        newcomer = requests(1, 10 + number)[0]
        scheduler.waiting.append(newcomer)
        if number % 3 == 0:
            scheduler.leave(newcomer)
            continue
        if scheduler.next(NOW) is head:
            scheduler.block(head, NOW)
        if scheduler.next(NOW) is None:
            break
        scheduler.start(newcomer)
        scheduler.leave(newcomer)
    assert number == 3 * MOST_PASSES // 2 + 1
    scheduler.leave(head)
    scheduler.block(scheduler.waiting[0], NOW)
    assert scheduler.next(NOW) is scheduler.waiting[1], "the next head begins its own count"
    assert running in scheduler.running


def test_wishes_of_waiting_and_running_requests_are_found() -> None:
    scheduler, (running, head, third, _) = blocked()
    assert scheduler.stopping() == []
    running.wish, third.wish = Wish.INTERRUPT, Wish.CANCEL
    assert scheduler.stopping() == [third, running]
    assert scheduler.everyone[0] is running and len(scheduler.everyone) == 4 and head in scheduler.everyone


@dataclass
class Memory:
    """Units that running requests hold for their whole life, and an adversary who knows how long."""

    units: int
    lanes: int
    held: dict[ActiveRequest, int] = field(default_factory=dict)
    rounds: dict[ActiveRequest, int] = field(default_factory=dict)
    needs: dict[ActiveRequest, int] = field(default_factory=dict)
    revision: int = 1

    def fits(self, request: ActiveRequest) -> bool:
        return sum(self.held.values()) + self.needs[request] <= self.units

    def may_pass(self, request: ActiveRequest, head: ActiveRequest, donors: tuple[ActiveRequest, ...]) -> bool:
        staying = sum(held for running, held in self.held.items() if running not in donors)
        return self.fits(request) and staying + self.needs[request] + self.needs[head] <= self.units


@pytest.mark.req("ACT-5", "INV-1", "PRO-3")
@settings(deadline=None, max_examples=30)
@given(st.integers(0, 1 << 30), st.integers(1, 8))
def test_no_stream_of_requests_starves_the_head(seed: int, lanes: int) -> None:
    """Each head starts as soon as its donors are gone, at the latest; and at most MOST_PASSES start before it."""
    rng, scheduler, memory = random.Random(seed), Scheduler(lanes), Memory(12, lanes)
    started: list[ActiveRequest] = []
    number, waits_since, small = 0, dict[ActiveRequest, int](), rng.random() < 0.7
    donors: dict[ActiveRequest, tuple[ActiveRequest, ...]] = {}  # what ran when each was first blocked as the head
    for round_ in range(150):
        if round_ < 100:
            for _ in range(rng.randint(0, 3)):
                number += 1
                new = requests(1, number)[0]
                memory.needs[new] = rng.choice([1, 1, 2, 12]) if small else rng.randint(1, 12)
                memory.rounds[new] = rng.randint(1, 12)
                scheduler.waiting.append(new)
        while (request := scheduler.next(Revision(memory.revision))) is not None:
            head = scheduler.passed_by(request)
            if head is None:
                waits_since.setdefault(request, len(started))
            able = memory.fits(request) if head is None else memory.may_pass(request, head, scheduler.donors)
            if not able:
                scheduler.block(request, Revision(memory.revision))
                if head is None:
                    donors.setdefault(request, tuple(scheduler.running))
                continue
            scheduler.start(request)
            started.append(request)
            if head is None:
                passes = len(started) - 1 - waits_since[request]
                assert passes <= MOST_PASSES, f"{passes} requests passed request {request.id}"
            memory.held[request] = memory.needs[request]
            memory.revision += 1
        if scheduler.waiting and len(scheduler.running) < lanes:
            head = scheduler.waiting[0]
            left = tuple(donor for donor in donors[head] if donor in scheduler.running)
            assert left, "the head waits for nobody"
            assert scheduler.donors == left, "who started later is no donor"
        for running in list(scheduler.running):
            memory.rounds[running] -= 1
            if memory.rounds[running] == 0:
                del memory.held[running]
                scheduler.leave(running)
                memory.revision += 1
    while scheduler.waiting:  # nobody comes any more
        for running in list(scheduler.running):
            del memory.held[running]
            scheduler.leave(running)
        memory.revision += 1
        while (request := scheduler.next(Revision(memory.revision))) is not None:
            if not memory.fits(request):
                scheduler.block(request, Revision(memory.revision))
                if scheduler.passed_by(request) is None:
                    break
                continue
            scheduler.start(request)
            memory.held[request] = memory.needs[request]
            memory.revision += 1
    assert not scheduler.waiting, "everybody was served"
