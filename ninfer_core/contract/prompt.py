"""PreparedPrompt: what the Frontend hands to the Engine. Tokens, exact boundaries, and how the output opens."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from ninfer_core.contract.ids import Frontier


class OutputStart(Enum):
    """The channel in which the first generated token lies."""

    ANSWER = "answer"
    REASONING = "reasoning"


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Token frontiers of a rendered conversation that later recovery points may lie at.

    All are absolute positions in `PreparedPrompt.token_ids`, and each is exact: the tokens before it are the
    same whatever text follows. A boundary that does not fall between two tokens is left out.

    Attributes:
        after_tools: end of the part of the prompt that depends on the tools alone, or None.
        after_leading_system: end of the leading run of system messages (tools included), or None.
        message_ends: for each message the frontier right after its rendering, ascending (a message whose end is no
            token boundary is missing, so the list may be shorter than the messages).
        generation_opener: g, the end of the last message, before the assistant's opener.
        turn_closure: t, the start of the first assistant message after the last real user query, else g.
        rewrite_execution_frontiers: assistant openers of the whole rendering, the points where replay cuts the
            recurrent scan (context-cache ID-2). Ascending, last is g when the prompt ends with an opener.
        reproduces_history: whether the template renders a closed reply with reasoning, followed by another user
            message, exactly as it was generated (decides ResponseReplay or TurnClosure, DEF-3).
    """

    after_tools: Frontier | None
    after_leading_system: Frontier | None
    message_ends: tuple[Frontier, ...]
    generation_opener: Frontier
    turn_closure: Frontier
    rewrite_execution_frontiers: tuple[Frontier, ...]
    reproduces_history: bool


@dataclass(frozen=True, slots=True)
class PreparedPrompt:
    """One request's exact input.

    Attributes:
        token_ids: the whole prompt, generation opener included. Never empty.
        boundaries: None for a raw token prompt, which has no messages.
        output_start: the channel that the generation opener leaves open.
        thinking_close: token ids that end an open think block, whether the prompt or the model opened it; the Engine
            forces them when a thinking budget is spent. Empty where the tokenizer has no think tokens.
        mode: digestable facts of the rendering (template digest, thinking mode), part of exact identity.
        text: the rendering, for people and error messages; not part of identity.
    """

    token_ids: tuple[int, ...]
    boundaries: Boundaries | None
    output_start: OutputStart
    thinking_close: tuple[int, ...] = ()
    mode: tuple[tuple[str, str], ...] = ()
    text: str = field(default="", compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.token_ids)
