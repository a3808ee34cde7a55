"""Owner edges: which catalogued owners running requests started from and still need (context-cache AUT-4, DEF-1).

An edge has no generation: another reader may move the owner between Device and Host meanwhile. It is made when a
retained source is adopted and goes when the request's end is adopted. Every count of active references derives from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ninfer_core.cache.catalog import CellId
from ninfer_core.contract.ids import OwnerId, RequestId


@dataclass(frozen=True, slots=True)
class Edge:
    request: RequestId
    owner: OwnerId
    cell: CellId


class OwnerEdges:
    """An owner with an edge is no victim and cannot be consumed; more readers may join."""

    def __init__(self) -> None:
        self._edges: dict[RequestId, Edge] = {}

    def __iter__(self) -> Iterator[Edge]:
        return iter(self._edges.values())

    def add(self, edge: Edge) -> None:
        self._edges[edge.request] = edge

    def remove(self, request: RequestId) -> None:
        """The request's end is adopted. Nothing happens when it had none."""
        self._edges.pop(request, None)

    def protects(self, owner: OwnerId) -> bool:
        return any(edge.owner == owner for edge in self._edges.values())

    def owners(self) -> frozenset[OwnerId]:
        return frozenset(edge.owner for edge in self._edges.values())
