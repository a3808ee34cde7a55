"""Conversations of small numbers: they grow, are edited and branch, and render like a chat template."""

from __future__ import annotations

from dataclasses import dataclass, field

from ninfer_core.contract.ids import Frontier
from ninfer_core.contract.prompt import Boundaries, OutputStart, PreparedPrompt

USER, CLOSE, ASSISTANT = 50, 51, 52
"""Tokens that open a user's message, end a message, and open the assistant's. Text is made of smaller ones."""


@dataclass
class Talk:
    """
    Attributes:
        system: tokens of the leading message.
        parts: users' and the assistant's messages in turn, the user's first.
    """

    system: list[int]
    parts: list[list[int]] = field(default_factory=list)

    def branch(self, parts: int) -> Talk:
        """The conversation up to so many messages."""
        return Talk(self.system, [list(part) for part in self.parts[:parts]])

    def prompt(self, *, reproduces: bool = True) -> PreparedPrompt:
        """With the assistant's opener at the end; the last message is the user's."""
        tokens = [*self.system, CLOSE]
        ends, cuts = [len(tokens)], []
        for number, part in enumerate(self.parts):
            if number % 2:
                cuts.append(len(tokens))
            tokens += [ASSISTANT if number % 2 else USER, *part, CLOSE]
            ends.append(len(tokens))
        opener = Frontier(len(tokens))
        cuts.append(opener)
        bounds = Boundaries(
            after_tools=None,
            after_leading_system=Frontier(ends[0]),
            message_ends=tuple(map(Frontier, ends)),
            generation_opener=opener,
            turn_closure=opener,
            rewrite_execution_frontiers=tuple(map(Frontier, cuts)),
            reproduces_history=reproduces,
        )
        return PreparedPrompt((*tokens, ASSISTANT), bounds, OutputStart.ANSWER)
