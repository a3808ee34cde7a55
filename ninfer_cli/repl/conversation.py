"""The conversation: a tree of turns, of which the path to the current one is what the model sees.

A turn is never changed and never removed: /undo moves the current point up, and what is said next becomes a sibling.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ninfer_cli.result import Branch
from ninfer_core import Completion, FinishReason, Message


@dataclass(frozen=True, slots=True, eq=False)
class Root:
    """Where a tree begins: its system message, or none. Two roots are two trees."""

    system: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """One node: what the user said, and the reply.

    Attributes:
        parent: the turn before it, or the root.
        user: the user's message.
        completion: the reply with its token ids, seed and statistics.
    """

    parent: Turn | Root
    user: Message
    completion: Completion

    @property
    def reply(self) -> Message:
        """The reply as the next prompt holds it. Reasoning is always a string: without one, a template looks for
        `</think>` in the content, and an answer that quotes it would lose what stands before."""
        return Message(
            role="assistant",
            content=self.completion.text,
            reasoning_content=self.completion.reasoning or "",
            tool_calls=self.completion.tool_calls,
        )

    @property
    def interrupted(self) -> bool:
        return self.completion.finish_reason is FinishReason.INTERRUPTED


@dataclass(slots=True)
class Conversation:
    """The tree and the current point in it."""

    root: Root = field(default_factory=Root)
    current: Turn | None = None
    _children: dict[Turn | Root, list[Turn]] = field(default_factory=dict)

    @property
    def point(self) -> Turn | Root:
        return self.current or self.root

    def path(self) -> list[Turn]:
        """The turns from the root to the current point."""
        turns: list[Turn] = []
        node: Turn | Root = self.point
        while isinstance(node, Turn):
            turns.append(node)
            node = node.parent
        return turns[::-1]

    def messages(self, user: Message | None = None) -> list[Message]:
        """What the model sees: system message, the path, and what the user says now."""
        found = [Message(role="system", content=self.root.system)] if self.root.system else []
        for turn in self.path():
            found += [turn.user, turn.reply]
        return found if user is None else [*found, user]

    def add(self, user: Message, completion: Completion) -> Turn:
        """A new turn below the current point, which moves to it."""
        turn = Turn(self.point, user, completion)
        self._children.setdefault(turn.parent, []).append(turn)
        self.current = turn
        return turn

    def undo(self, count: int) -> list[Turn]:
        """Move the current point up; the turns left behind, oldest first. ValueError without that many."""
        path = self.path()
        if count < 1:
            raise ValueError("the number of turns must be at least 1")
        if count > len(path):
            raise ValueError(f"give a number from 1 to {len(path)}" if path else "there is nothing to undo")
        left = path[-count:]
        parent = left[0].parent
        self.current = parent if isinstance(parent, Turn) else None
        return left

    def branch(self, turn: Turn) -> Branch:
        """Where a turn on the current path stands."""
        siblings = self._children[turn.parent]
        return Branch(turn=self.path().index(turn) + 1, sibling=siblings.index(turn) + 1, siblings=len(siblings))

    def new(self) -> None:
        """A new tree with the same system message."""
        self.root, self.current = Root(self.root.system), None

    def set_system(self, text: str | None) -> None:
        """The current path again, under another system message: a sibling of the whole conversation so far."""
        path = self.path()
        self.root, self.current = Root(text), None
        for turn in path:
            self.add(turn.user, turn.completion)
