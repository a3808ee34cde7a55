"""Tree: a conversation with everything that was ever said in it, and the point where it stands.

Frozen: every verb gives another tree, so whatever fails leaves the old one in place. Nothing is ever taken out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NewType

from ninfer_cli.repl.node import Start, Turn
from ninfer_cli.result import Branch
from ninfer_cli.wording import span
from ninfer_core import Message

NodeId = NewType("NodeId", int)
"""A node's place in `Tree.nodes`: the number that /tree shows. It never changes."""

LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its parent, which is always an earlier node; a Start has none, a Turn always has one."""

    parent: NodeId | None
    value: Start | Turn


@dataclass(frozen=True, slots=True)
class Tree:
    """
    Attributes:
        nodes: in the order of their making; the first is a Start.
        current: the point: the path to it is what the model sees.
        names: branch name -> its tip.
        active: the branch that grows with what is said at its tip, or None.
        undone: points that /redo goes back to, the next one last; any other move forgets them.
    """

    nodes: tuple[Node, ...] = (Node(None, Start()),)
    current: NodeId = NodeId(0)
    names: Mapping[str, NodeId] = field(default_factory=dict)
    active: str | None = None
    undone: tuple[NodeId, ...] = field(default=(), compare=False)

    @classmethod
    def starting(cls, start: Start) -> Tree:
        return cls((Node(None, start),))

    # --- looking: nothing changes ---------------------------------------------------------------------------------
    @property
    def turn(self) -> Turn | None:
        """The turn at the current point; None where nothing was said yet."""
        value = self.nodes[self.current].value
        return value if isinstance(value, Turn) else None

    @property
    def start(self) -> Start:
        """The beginning of the current path."""
        value = self.nodes[self._root(self.current)].value
        assert isinstance(value, Start)
        return value

    def turn_at(self, at: NodeId) -> Turn:
        """The value of a node that is a turn."""
        value = self.nodes[at].value
        assert isinstance(value, Turn)
        return value

    def path(self, to: NodeId | None = None) -> list[NodeId]:
        """The turns from the beginning to a node (the current point), oldest first."""
        found, node = [], self.current if to is None else to
        while (parent := self.nodes[node].parent) is not None:
            found.append(node)
            node = parent
        return found[::-1]

    def parent(self, at: NodeId) -> NodeId:
        """Of a turn."""
        parent = self.nodes[at].parent
        assert parent is not None
        return parent

    def children(self, of: NodeId | None) -> list[NodeId]:
        """The turns behind a node, oldest first; of None: the beginnings."""
        return [NodeId(i) for i, node in enumerate(self.nodes) if node.parent == of]

    def messages(self, to: NodeId | None = None) -> list[Message]:
        """What the model sees on the path to a node: system messages, what was said, replies with their own ids."""
        to = self.current if to is None else to
        start = self.nodes[self._root(to)].value
        assert isinstance(start, Start)
        found = list(start.leading)
        for turn in map(self.turn_at, self.path(to)):
            found += [*turn.asked, turn.reply.message()]
        return found

    def branch(self, at: NodeId) -> Branch:
        """Where a turn stands."""
        siblings = self.children(self.parent(at))
        return Branch(len(self.path(at)), siblings.index(at) + 1, len(siblings), self.name(at))

    def name(self, at: NodeId) -> str | None:
        """A branch whose tip the node is; the active one before others."""
        if self.active is not None and self.names[self.active] == at:
            return self.active
        return next((name for name, tip in self.names.items() if tip == at), None)

    # --- verbs: another tree --------------------------------------------------------------------------------------
    def begin(self, start: Start) -> Tree:
        """Another beginning beside the others; the point moves there."""
        return replace(self, nodes=(*self.nodes, Node(None, start))).move(NodeId(len(self.nodes)))

    def add(self, parent: NodeId, turn: Turn) -> Tree:
        """A turn behind parent; the point moves there. The active branch grows if parent is its tip."""
        at = NodeId(len(self.nodes))
        grown = replace(self, nodes=(*self.nodes, Node(parent, turn)))
        if self.active is None or self.names[self.active] != parent:
            return grown.move(at)
        return replace(grown.move(at), names={**self.names, self.active: at}, active=self.active)

    def move(self, to: NodeId) -> Tree:
        """The point elsewhere. A branch stays active only while the point is at its tip."""
        active = self.active if self.active is not None and self.names[self.active] == to else None
        return replace(self, current=to, active=active, undone=())

    def undo(self, count: int) -> Tree:
        """The point before the last count user turns. ValueError without that many."""
        spoken = [at for at in self.path() if self.turn_at(at).user is not None]
        if not spoken:
            raise ValueError("there is nothing to undo, nothing was said yet")
        if not 1 <= count <= len(spoken):
            raise ValueError(f"give how many messages to go back, {span(1, len(spoken))}")
        to = self.parent(spoken[-count])
        return replace(self.move(to), undone=(*self.undone, self.current))

    def redo(self) -> Tree:
        """The point where it was before the last undo. ValueError when there was none."""
        if not self.undone:
            raise ValueError("there is nothing to redo: it goes back to where an /undo came from")
        return replace(self.switch(self.undone[-1]), undone=self.undone[:-1])

    def switch(self, to: NodeId) -> Tree:
        """The point at a node; the branch that ends there, if one does, becomes active."""
        return replace(self.move(to), active=self.name(to))

    def beside(self, step: int) -> Tree:
        """The point at the sibling before (-1) or after (1). ValueError when there is none."""
        if self.turn is None:
            raise ValueError("nothing was said yet")
        siblings = self.children(self.parent(self.current))
        place = siblings.index(self.current) + step
        if len(siblings) == 1:
            raise ValueError(f"turn {len(self.path())} has no siblings: /regen or /edit makes one, /tree shows all")
        if not 0 <= place < len(siblings):
            first = step < 0
            raise ValueError(
                f"this is the {'first' if first else 'last'} of {len(siblings)} siblings: "
                f"{'/next' if first else '/prev'} goes to another"
            )
        return self.switch(siblings[place])

    def call(self, name: str) -> Tree:
        """The current point gets a branch name, which is active from now on. ValueError when it will not do."""
        check_name(name)
        if self.names.get(name, self.current) != self.current:
            raise ValueError(f"there is a branch {name} already: /switch {name} goes there, or choose another name")
        return replace(self, names={**self.names, name: self.current}, active=name)

    def _root(self, of: NodeId) -> NodeId:
        while (parent := self.nodes[of].parent) is not None:
            of = parent
        return of


def check_name(name: str) -> None:
    """ValueError unless name can be a branch's."""
    if name.isdecimal() or name.lstrip("+-").isdecimal():
        raise ValueError("a branch name is not a number: numbers are the turns that /tree shows")
    if not name or len(name) > LONGEST_NAME or not name.isprintable() or any(c.isspace() for c in name):
        raise ValueError(f"a branch name is one word of at most {LONGEST_NAME} printable characters")
