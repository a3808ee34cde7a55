"""Commands about settings and figures: /set, /think, /stats."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from ninfer_cli.options import BY_NAME
from ninfer_cli.repl.command import Outcome, shown
from ninfer_cli.result import Branch, branch_json, result_object, reuse_line
from ninfer_cli.settings import SAMPLING_FIELDS
from ninfer_cli.wording import counted
from ninfer_core import UsageError

if TYPE_CHECKING:
    from ninfer_cli.repl.chat import Chat

SETTABLE = (
    *(name.replace("_", "-") for name in SAMPLING_FIELDS),
    "greedy",
    "max-new",
    "stop",
    "thinking-budget",
    "reasoning",
)


def set_(chat: Chat, argument: str) -> Outcome:
    key, _, text = argument.partition(" ")
    if not key:
        values = {name: _current(chat, name) for name in SETTABLE}
        return Outcome("\n".join(f"{name} = {shown(value)}" for name, value in values.items()), values)
    option = BY_NAME.get(key)
    if option is None or key not in SETTABLE:
        near = difflib.get_close_matches(key, SETTABLE, n=1)
        raise UsageError(f"there is no setting {key}" + (f": did you mean {near[0]}?" if near else ": /set lists them"))
    if not text.strip():
        value = _current(chat, key)
        return Outcome(f"{key} = {shown(value)}", {key: value})
    back = text.strip() == "default"
    try:
        value = getattr(chat.initial, option.key) if back else option.kind.from_text(text.strip())
    except ValueError as error:
        raise UsageError(f"{key} is {text.strip()!r}: {error}, or default") from error
    changes: dict[str, object] = {option.key: value}
    if key == "temperature":
        changes["greedy"] = chat.initial.greedy if back else False
    if key == "thinking-budget" and isinstance(value, int):
        chat.engine.check_thinking(chat.settings.think, value)
    chat.settings = chat.settings.with_values(**changes)
    value = _current(chat, key)
    return Outcome(f"{key} = {shown(value)}", {key: value})


def think(chat: Chat, argument: str) -> Outcome:
    wishes = {"on": True, "off": False, "default": None}
    if argument not in wishes:
        raise UsageError("/think wants on, off or default")
    wish = wishes[argument]
    if wish is not None:
        chat.engine.check_thinking(wish, chat.settings.thinking_budget if wish else None)
    chat.settings = chat.settings.with_values(think=wish)
    return Outcome(f"thinking: {argument}", {"think": wish})


def stats(chat: Chat, argument: str) -> Outcome:
    if chat.last is None:
        raise UsageError("/stats: there is no reply yet, say something first")
    completion, node = chat.last.completion, chat.last.node
    timings = completion.statistics.timings
    prefill = "" if timings.prefill_ms is None else f"prefill took {timings.prefill_ms:.1f} ms\n"
    made = counted(completion.statistics.usage.completion_tokens, "token")
    text = (
        f"{reuse_line(completion)}\n{prefill}{made} generated, "
        f"finish {completion.finish_reason.value}, seed {shown(completion.seed)}\n"
        f"context {chat.context_used()} of {chat.engine.info.max_context} tokens"
    )
    value = result_object(completion, chat.engine.info.model, Branch(), with_tokens=False)
    return Outcome(text, {**value, "branch": None if node is None else branch_json(chat.tree.branch(node))})


def _current(chat: Chat, name: str) -> object:
    key = BY_NAME[name].key
    if key in SAMPLING_FIELDS:
        return getattr(chat.settings.sampling(chat.engine.default_sampling), key)
    value = getattr(chat.settings, key)
    return list(value) if isinstance(value, tuple) else value
