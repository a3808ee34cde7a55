"""Commands that make another reply: /regen, /edit, /rewrite, /continue. The old one stays as a sibling."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ninfer_cli.repl.command import Outcome, shortened, whole_number
from ninfer_cli.repl.node import Author, Reply, Turn
from ninfer_cli.wording import span
from ninfer_core import UsageError

if TYPE_CHECKING:
    from ninfer_cli.repl.chat import Chat


def regen(chat: Chat, argument: str) -> Outcome:
    turn = _turn(chat, "regenerate")
    lanes = chat.engine.info.max_concurrency
    count = whole_number(argument or "1")
    if count is None or not 1 <= count <= lanes:
        more = "" if lanes >= 8 else "; --max-concurrency raises it"
        raise UsageError(f"/regen {shortened(argument)}: give how many replies to make, {span(1, lanes)}{more}")
    try:
        seeds = chat.sampling_seeds(count)
    except UsageError as error:
        raise UsageError(f"/regen: {error}") from None
    return Outcome(job=chat.job(chat.tree.parent(chat.tree.current), turn.asked, seeds))


def edit(chat: Chat, argument: str) -> Outcome:
    path = chat.tree.path()
    if not path:
        raise UsageError("/edit: there is no turn to edit yet, nothing was said")
    first, rest = _split(argument)
    number = whole_number(first)
    text = argument if number is None else rest
    k = len(path) if number is None else number
    if not 1 <= k <= len(path):
        raise UsageError(
            f"/edit: there is no turn {k} on this path: give {span(1, len(path))} and the new text, /edit [K] [TEXT]"
        )
    at = path[k - 1]
    turn = chat.tree.turn_at(at)
    if turn.user is None:
        raise UsageError(f"/edit {k}: no user spoke in that turn")
    if not text.strip():
        return _prefilled(chat, f"/edit {k}", turn.user.content)
    job = chat.job(chat.tree.parent(at), turn.with_user_text(text))
    return Outcome(job=replace(job, unsent=f"/edit {k} {text}"))


def rewrite(chat: Chat, argument: str) -> Outcome:
    turn = _turn(chat, "rewrite")
    if not argument.strip():
        return _prefilled(chat, "/rewrite", turn.reply.text)
    parent = chat.tree.parent(chat.tree.current)
    reply = Reply(argument, author=Author.PERSON, think=turn.reply.think)
    # a reply that the template does not take, or that fills the context, is refused before it stands in the tree
    chat.adopt(chat.tree.add(parent, Turn(turn.asked, reply)))
    tree = chat.tree
    branch = tree.branch(tree.current)
    text = f"rewritten: turn {branch.turn}, sibling {branch.sibling}/{branch.siblings}"
    return Outcome(text, {"turn": branch.turn, "sibling": branch.sibling, "siblings": branch.siblings}, show=True)


def continue_(chat: Chat, argument: str) -> Outcome:
    turn = _turn(chat, "continue")
    if turn.reply.tool_calls:
        raise UsageError("/continue: the reply calls tools: it ends there")
    if not (turn.reply.text or turn.reply.reasoning):
        raise UsageError("/continue: the reply is empty: /regen makes another")
    return Outcome(job=chat.continuation(chat.tree.current))


def _turn(chat: Chat, verb: str) -> Turn:
    turn = chat.tree.turn
    if turn is None:
        raise UsageError(f"there is no reply to {verb} yet")
    return turn


def _prefilled(chat: Chat, command: str, text: str) -> Outcome:
    if not chat.surface.prefills:
        raise UsageError(f"{command}: give the TEXT behind it")
    return Outcome(prefill=f"{command} {text}")


def _split(argument: str) -> tuple[str, str]:
    """The first word, and the rest."""
    first, *rest = argument.split(None, 1) or [""]
    return first, rest[0] if rest else ""
