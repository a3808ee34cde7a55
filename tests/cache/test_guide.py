"""The guide: what it says that nobody can give back, nobody can. Only so may a search for it be spared (PLAN-6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from ninfer_core.cache.graph import OutcomeGraph, Vertex
from ninfer_core.cache.lack import Lack
from ninfer_core.cache.node import Node
from ninfer_core.cache.search import Search
from ninfer_core.contract.ids import OwnerId
from ninfer_core.program.ledger.objects import Replicas
from ninfer_core.program.planning.outcome import EVICTED, Outcome
from ninfer_core.program.planning.target import SourceMode, Target, source_of
from tests.support.portfolios import ProblemMaker

Answer = tuple[bool, bool]
"""(what the guide says, whether some end state does it)."""


def identities(count: int) -> Iterator[tuple[int, Search, Node]]:
    """(seed, search, identity) for every option of so many random problems."""
    for seed in range(count):
        problem = ProblemMaker(seed).problem()
        if problem is None:
            continue
        search = problem.planner().planner._search
        for node in [node for option in problem.options for node in search.identities(option)]:
            yield seed, search, node


def below(graph: OutcomeGraph, top: Vertex) -> list[Vertex]:
    """Every end state of an owner below one, its eviction aside, the nearest first."""
    found = [top]
    for vertex in found:
        found += [step for step in graph.steps(vertex) if not step.evicted and step not in found]
    return found


def answers(search: Search, node: Node, owner: OwnerId, top: Vertex) -> Counter[Answer]:
    """For what a target lacks, and for each axis of it; and by Program's word, for the whole."""
    guide, missing, told = search.guide_at(node), search.lack(node), Counter[Answer]()
    states = below(search.graph, top)
    for axis, need in missing.missing:
        part = Lack(tuple(need if at == axis else min(0, n) for at, n in enumerate(missing.need)))
        told[guide.may_cover(top, part), any(not part.without(guide.relief(top, state)) for state in states)] += 1
    said = guide.may_cover(top, missing)
    told[said, any(not missing.without(guide.relief(top, state)) for state in states)] += 1
    if not said and node.chosen.get(owner) is top:
        fits = any(search.assess(node.option, {**node.chosen, owner: state}).adoptable for state in states)
        told[said, fits] += 1
    return told


@pytest.mark.req("PLAN-1", "PLAN-6", "TGT-4")
def test_what_is_given_up_unseen_could_not_have_been_kept() -> None:
    told: Counter[Answer] = Counter()
    for seed, search, identity in identities(400):
        nodes, victims = [identity], list(search.victims(identity.option))
        for other in victims[:2]:  # and with another one degraded a step, as a construction has it
            steps = [step for step in search.graph.steps(search.graph.identity(other)) if not step.evicted]
            if steps:
                nodes.append(search.assess(identity.option, {other: steps[seed % len(steps)]}))
        for node in nodes:
            for owner in victims if search.lack(node) else ():
                told += answers(search, node, owner, node.chosen.get(owner) or search.graph.identity(owner))
    assert told[False, True] == 0
    assert told[True, True] > 100 and told[False, False] > 300, "both answers are given"
    assert told[True, False] < told[False, False] // 4, "a no is told in most cases"


@pytest.mark.req("TGT-5", "CAP-8", "CAN-8")
def test_what_victims_could_let_go_of_together_is_told_for_consumed_and_for_retained_sources() -> None:
    consuming = 0
    for seed, search, node in identities(300):
        guide, victims = search.guide(node.option), list(search.victims(node.option))
        source = source_of(Target(node.option.demand))
        consuming += source is not None and source.mode is SourceMode.CONSUME
        # One after the other goes, whoever they are, and what the last one holds alone comes back with it.
        held, gone = Replicas(), dict[OwnerId, Outcome]()
        for victim in victims:
            held |= search._session.sole(Target(node.option.demand, gone)) & search._domain.outcomes[victim].wants
            gone[victim] = EVICTED
        assert not held.without(guide._releasable), f"seed {seed}: it comes back, and is told as staying"
    assert consuming > 20
