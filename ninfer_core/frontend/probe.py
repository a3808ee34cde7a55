"""TemplateFacts: what a chat template does, found out once by rendering small conversations of plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ninfer_core.errors import TemplateError
from ninfer_core.frontend.composer import Composer
from ninfer_core.frontend.rendering import shared_length
from ninfer_core.frontend.template import ChatTemplate
from ninfer_core.frontend.thinking import ThinkingSupport

THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"
MODES = (None, True, False)
"""Values of enable_thinking that are probed; None is the template's default."""

# Plain words: no template writes them, no tokenizer treats them specially.
_ASK, _REPLY, _REASON, _ASK_AGAIN, _RULE = "Quillon", "Brantho", "Verdimal", "Mostrec", "Haldune"


@dataclass(frozen=True, slots=True)
class TemplateFacts:
    """What the Frontend needs to know about a template.

    Attributes:
        thinking: the thinking switch.
        opener_token: the added token that begins every message and the generation opener, or None.
        assistant_head: text that begins the assistant's messages and the generation opener alike; "" if there is none.
        takes_developer: whether the role `developer` is rendered.
        takes_later_system: whether a system message after the first is rendered.
        thinking_close: text from the end of reasoning to the start of the answer, "" without think tokens.
        reproduces: per mode, whether history shows a closed reply exactly as it was generated (DEF-3).
    """

    thinking: ThinkingSupport
    opener_token: str | None
    assistant_head: str
    takes_developer: bool
    takes_later_system: bool
    thinking_close: str
    reproduces: Mapping[bool | None, bool]

    @classmethod
    def probe(cls, composer: Composer) -> TemplateFacts:
        """Render the probes. A template that refuses one of them has no fact to show there; nothing is raised."""
        template = composer.template
        openers = {mode: _opener(template, mode) for mode in MODES}
        has_switch = _render(template, [_user(_ASK)], True, True) != _render(template, [_user(_ASK)], True, False)
        # Reasoning can be told from the answer only where think tags are tokens.
        thinks = composer.tokenizer.think_open is not None and composer.tokenizer.think_close is not None
        default = thinks and opens_thinking(openers[None])
        close = _thinking_close(template) if thinks else ""
        head = _assistant_head(template, openers)
        first = next(composer.finder.find(head), None)
        return cls(
            thinking=ThinkingSupport(has_switch, default and not has_switch, default),
            opener_token=first.token.content if first is not None and first.start == 0 else None,
            assistant_head=head,
            takes_developer=_render(template, [_message("developer", _RULE), _user(_ASK)]) is not None,
            takes_later_system=_takes_later_system(template),
            thinking_close=close,
            reproduces={mode: _reproduces(template, mode, openers[mode], close) for mode in MODES},
        )


def opens_thinking(opener: str) -> bool:
    """Whether text leaves a think block open."""
    return opener.rfind(THINK_OPEN) > opener.rfind(THINK_CLOSE)


def _render(
    template: ChatTemplate, messages: Sequence[Mapping[str, Any]], opener: bool = False, mode: bool | None = None
) -> str | None:
    try:
        return template.render(messages, opener=opener, thinking=mode)
    except TemplateError:
        return None


def _message(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _user(content: str) -> dict[str, Any]:
    return _message("user", content)


def _assistant(content: str, reasoning: str = "") -> dict[str, Any]:
    return {"role": "assistant", "content": content, "reasoning_content": reasoning}


def _opener(template: ChatTemplate, mode: bool | None) -> str:
    closed, opened = (_render(template, [_user(_ASK)], opener, mode) for opener in (False, True))
    if closed is None or opened is None:
        return ""
    return opened[shared_length(closed, opened) :]


def _assistant_head(template: ChatTemplate, openers: Mapping[bool | None, str]) -> str:
    """What generation openers and the assistant's messages in history begin with, whether or not reasoning is shown."""
    asked = _render(template, [_user(_ASK)])
    heads = [opener for opener in openers.values() if opener]
    for tail in ([], [_user(_ASK_AGAIN)]):
        for reply in (_assistant(_REPLY), _assistant(_REPLY, _REASON)):
            text = _render(template, [_user(_ASK), reply, *tail])
            if text is not None and asked is not None and text.startswith(asked):
                heads.append(text[len(asked) :])
    head = heads[0][: shared_length(*heads)] if heads else ""
    head = head.partition(_REPLY)[0]
    return head if asked is None or (head and head not in asked) else ""


def _takes_later_system(template: ChatTemplate) -> bool:
    text = _render(template, [_user(_ASK), _assistant(_REPLY), _message("system", _RULE), _user(_ASK_AGAIN)])
    return text is not None and _RULE in text


def _thinking_close(template: ChatTemplate) -> str:
    text = _render(template, [_user(_ASK), _assistant(_REPLY, _REASON)]) or ""
    between = text.partition(_REASON)[2].partition(_REPLY)[0]
    return between if THINK_CLOSE in between and _REPLY in text else f"\n{THINK_CLOSE}\n\n"


def _reproduces(template: ChatTemplate, mode: bool | None, opener: str, close: str) -> bool:
    before = _render(template, [_user(_ASK)], True, mode)
    reasoning = _REASON if opens_thinking(opener) else ""
    after = _render(template, [_user(_ASK), _assistant(_REPLY, reasoning), _user(_ASK_AGAIN)], False, mode)
    if before is None or after is None:
        return False
    return after.startswith(before + (reasoning and reasoning + close) + _REPLY)
