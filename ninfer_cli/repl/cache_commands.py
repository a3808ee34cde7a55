"""/cache, /why, /verify: what the engine keeps, what became of the last request's tokens, and whether it is right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ninfer_cli.cache_view import table_json, table_text, verification_json, verification_text, why_text
from ninfer_cli.repl.command import Outcome
from ninfer_cli.result import reuse_json
from ninfer_core import ReplyError, UsageError

if TYPE_CHECKING:
    from ninfer_cli.repl.chat import Chat
    from ninfer_core import Completion


def cache(chat: Chat, argument: str) -> Outcome:
    if argument not in ("", "audit"):
        raise UsageError(f"/cache does not know {argument!r}: use /cache, or /cache audit to recount everything")
    if argument == "audit":
        chat.engine.audit()
        return Outcome("recounted from nothing: everything is as the ledger says", {"audit": True})
    table = chat.engine.cache_table()
    return Outcome(table_text(table), table_json(table))


def why(chat: Chat, argument: str) -> Outcome:
    completion = _last(chat)
    return Outcome(why_text(completion), reuse_json(completion))


def verify(chat: Chat, argument: str) -> Outcome:
    found = chat.engine.verify(_last(chat).request_id)
    if found.differs:
        raise ReplyError(f"{verification_text(found)}: please report it, with the session")
    return Outcome(verification_text(found), verification_json(found))


def _last(chat: Chat) -> Completion:
    if chat.last is None:
        raise UsageError("no request was made yet: say something first")
    return chat.last.completion
