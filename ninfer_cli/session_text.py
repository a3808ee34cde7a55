"""SessionText: what a session says, as the commands read and write it. The chat keeps the same JSON (sessions.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ninfer_cli.inputs import joined
from ninfer_cli.repl.node import Author, Reply, Turn
from ninfer_cli.repl.transcript import as_path
from ninfer_cli.repl.tree import Tree
from ninfer_cli.sessions import Kept, conversation_json, read_conversation
from ninfer_core import Conversation, Message

if TYPE_CHECKING:
    from ninfer_core import Completion


@dataclass(frozen=True, slots=True)
class SessionText:
    """
    Attributes:
        kept: the tree, and the texts that the next message begins with.
        model: what the model was called that saved it, for people.
    """

    kept: Kept
    model: str | None = None

    @classmethod
    def of(cls, conversation: Conversation, documents: Sequence[str] = ()) -> SessionText:
        """A conversation as a path of turns. What the user said last without a reply waits for the next message.

        Raises:
            UsageError: it ends with a tool's result.
        """
        path = as_path(conversation, "the messages")
        tree = Tree.starting(path.start)
        for turn in path.turns:
            tree = tree.add(tree.current, turn)
        return cls(Kept(tree, tuple(text for text in (path.unanswered, *documents) if text.strip())))

    @classmethod
    def parse(cls, value: object, where: Path) -> SessionText:
        """Raises SessionError: a session without a conversation, or a damaged one."""
        kept = read_conversation(value, where)
        model = value.get("model") if isinstance(value, dict) else None
        return cls(kept, model if isinstance(model, str) else None)

    @property
    def waiting(self) -> str:
        """What the next message begins with, or nothing."""
        return joined(list(self.kept.files))

    @property
    def turns(self) -> int:
        """Of the current path."""
        return len(self.kept.tree.path())

    def json(self, model: str) -> dict[str, Any]:
        """Raises UsageError: too large for a session."""
        return conversation_json(replace(self.kept, open=False), model)

    def conversation(self) -> Conversation:
        """The current path as messages, and its tools."""
        tree = self.kept.tree
        return Conversation(tuple(tree.messages()), tree.start.tools)

    def answered(self, asked: Message, completion: Completion, think: bool | None) -> SessionText:
        """With one more turn at the current point."""
        reply = Reply(
            completion.text,
            completion.reasoning,
            completion.tool_calls or None,
            completion.finish_reason,
            Author.MODEL,
            think,
            completion.token_ids,
        )
        tree = self.kept.tree
        return replace(self, kept=Kept(tree.add(tree.current, Turn((asked,), reply))))
