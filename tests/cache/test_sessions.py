"""Sessions, edges and the demand window: small books, each with one rule."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_core.cache.catalog import CellId
from ninfer_core.cache.demand import Demand, DemandWindow
from ninfer_core.cache.edges import Edge, OwnerEdges
from ninfer_core.cache.sessions import SessionIndex, session_digest
from ninfer_core.contract.ids import OwnerId, RequestId

KEY = session_digest("a")


@pytest.mark.req("RET-3", "INV-14")
@settings(deadline=None)
@given(st.permutations(range(1, 7)))
def test_only_a_larger_publication_order_takes_a_binding(orders: list[int]) -> None:
    index = SessionIndex()
    highest = 0
    for order in orders:
        bound = index.bind(KEY, OwnerId(order), order)
        assert bound.accepted == (order > highest)
        assert bound.before == (OwnerId(highest) if bound.accepted and highest else None)
        highest = max(highest, order)
        assert index.owner_of(KEY) == OwnerId(highest)


@pytest.mark.req("RET-3", "INV-14")
def test_a_removed_owner_does_not_let_an_older_result_in() -> None:
    index = SessionIndex()
    index.bind(KEY, OwnerId(5), 5)
    index.forget(OwnerId(5))
    assert index.owner_of(KEY) is None
    assert not index.bind(KEY, OwnerId(4), 4).accepted, "it was submitted before"
    index.prune(6)
    assert index.bind(KEY, OwnerId(6), 6).accepted


@pytest.mark.req("VAL-1", "RET-3")
def test_of_a_session_key_only_a_digest_is_kept() -> None:
    assert session_digest("secret") == session_digest("secret") != session_digest("secret ")
    assert b"secret" not in session_digest("secret") and len(session_digest("secret" * 100)) == 16


@pytest.mark.req("AUT-4", "DEF-1")
def test_an_owner_is_protected_as_long_as_one_reader_runs() -> None:
    edges = OwnerEdges()
    edges.add(Edge(RequestId(1), OwnerId(7), CellId(0)))
    edges.add(Edge(RequestId(2), OwnerId(7), CellId(0)))
    edges.remove(RequestId(1))
    assert edges.protects(OwnerId(7)) and edges.owners() == {OwnerId(7)}
    edges.remove(RequestId(2))
    edges.remove(RequestId(2))
    assert not edges.protects(OwnerId(7)) and not list(edges)


@pytest.mark.req("VAL-1", "DEF-6")
def test_the_window_holds_the_last_32_and_counts_domains_once() -> None:
    window = DemandWindow()
    for domain in (b"a", b"b", b"b"):
        window.record(Demand(domain, frozenset({b"k"})))
    assert window.domains(b"k") == {b"a", b"b"} and window.domains(b"other") == frozenset()
    for _ in range(30):
        window.record(Demand(b"c", frozenset()))
    assert window.epoch == 33 and len(list(window)) == 32
    assert window.domains(b"k") == {b"b"}, "the first has left the window"
