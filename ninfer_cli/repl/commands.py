"""The one table of REPL commands: dispatch, help, completion and the man page come from it."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ninfer_cli.inputs import read_text_file
from ninfer_cli.options import BY_NAME
from ninfer_cli.repl.submission import Command
from ninfer_cli.result import Branch, result_object, reuse_line
from ninfer_cli.settings import SAMPLING_FIELDS
from ninfer_core import NinferError, UsageError

if TYPE_CHECKING:
    from ninfer_cli.repl.chat import Chat


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command says: text for people, value for --json; leave ends the chat."""

    text: str
    value: object = None
    leave: bool = False


@dataclass(frozen=True, slots=True)
class ReplCommand:
    """One row of the table.

    Attributes:
        name: without the slash.
        argument: how help shows it, "" for none.
        summary: one line, no full stop.
        run: raises UsageError when the argument makes no sense; then nothing was changed.
        words: completions of the argument.
    """

    name: str
    argument: str
    summary: str
    run: Callable[[Chat, str], Outcome]
    aliases: tuple[str, ...] = ()
    words: tuple[str, ...] = field(default=())

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.argument}".rstrip()


def dispatch(chat: Chat, command: Command) -> Outcome:
    """Run a command.

    Raises:
        UsageError: unknown (with the nearest name), or its argument makes no sense.
    """
    row = _BY_WORD.get(command.name)
    if row is None:
        near = difflib.get_close_matches(command.name, _BY_WORD, n=1)
        hint = f"did you mean /{near[0]}?" if near else "/help lists what there is"
        raise UsageError(f"unknown command /{command.name}: {hint} (//{command.name} says it to the model)")
    if command.argument and not row.argument:
        raise UsageError(f"/{row.name} takes no argument")
    return row.run(chat, command.argument)


# --- the commands -----------------------------------------------------------------------------------------------------


def _help(chat: Chat, argument: str) -> Outcome:
    if argument:
        row = _BY_WORD.get(argument.removeprefix("/"))
        if row is None:
            raise UsageError(f"there is no command {argument}: /help lists what there is")
        also = f" (also {', '.join('/' + alias for alias in row.aliases)})" if row.aliases else ""
        return Outcome(f"{row.usage}{also}: {row.summary}", {"usage": row.usage, "summary": row.summary})
    width = max(len(row.usage) for row in COMMANDS)
    lines = [f"{row.usage:<{width}}  {row.summary}" for row in COMMANDS]
    return Outcome("\n".join([*lines, *KEYS]), {row.usage: row.summary for row in COMMANDS})


def _new(chat: Chat, argument: str) -> Outcome:
    chat.conversation.new()
    chat.files.clear()
    return Outcome("a new conversation")


def _system(chat: Chat, argument: str) -> Outcome:
    if not argument:
        system = chat.conversation.root.system
        return Outcome(f"system message: {system}" if system else "there is no system message", system)
    text = None if argument == "none" else argument
    before = chat.conversation.root, chat.conversation.current
    chat.conversation.set_system(text)
    try:
        tokens = chat.prompt_length()
    except NinferError:
        chat.conversation.root, chat.conversation.current = before
        raise
    again = f"; the next reply reads {tokens} tokens again" if tokens else ""
    return Outcome(f"system message {'set' if text else 'removed'}{again}", {"system": text, "tokens": tokens})


def _set(chat: Chat, argument: str) -> Outcome:
    key, _, text = argument.partition(" ")
    if not key:
        values = {name: _current(chat, name) for name in SETTABLE}
        return Outcome("\n".join(f"{name} = {_shown(value)}" for name, value in values.items()), values)
    option = BY_NAME.get(key)
    if option is None or key not in SETTABLE:
        near = difflib.get_close_matches(key, SETTABLE, n=1)
        raise UsageError(f"there is no setting {key}" + (f": did you mean {near[0]}?" if near else ": see /set"))
    if not text.strip():
        value = _current(chat, key)
        return Outcome(f"{key} = {_shown(value)}", {key: value})
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
    return Outcome(f"{key} = {_shown(value)}", {key: value})


def _current(chat: Chat, name: str) -> object:
    key = BY_NAME[name].key
    if key in SAMPLING_FIELDS:
        return getattr(chat.settings.sampling(chat.engine.default_sampling), key)
    value = getattr(chat.settings, key)
    return list(value) if isinstance(value, tuple) else value


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None or value == [] else str(value)


def _think(chat: Chat, argument: str) -> Outcome:
    wishes = {"on": True, "off": False, "default": None}
    if argument not in wishes:
        raise UsageError("/think wants on, off or default")
    wish = wishes[argument]
    if wish is not None:
        chat.engine.check_thinking(wish, chat.settings.thinking_budget if wish else None)
    chat.settings = chat.settings.with_values(think=wish)
    return Outcome(f"thinking: {argument}", {"think": wish})


def _undo(chat: Chat, argument: str) -> Outcome:
    try:
        count = int(argument or "1")
    except ValueError:
        raise UsageError(f"/undo wants a number of turns, not {argument!r}") from None
    try:
        left = chat.conversation.undo(count)
    except ValueError as error:
        raise UsageError(f"/undo {count}: {error}") from None
    turns = len(chat.conversation.path())
    first = " ".join(left[0].user.content.split())
    text = f"back before: {first if len(first) <= 60 else first[:59] + '…'}"
    return Outcome(f"{text} ({turns} turns are left)", {"undone": len(left), "turns": turns})


def _file(chat: Chat, argument: str) -> Outcome:
    if not argument:
        raise UsageError("/file wants a path")
    text = read_text_file(argument, "/file")
    chat.files.append(text)
    return Outcome(f"{argument}: {len(text)} characters go before the next message", {"characters": len(text)})


def _stats(chat: Chat, argument: str) -> Outcome:
    completion = chat.last
    if completion is None:
        raise UsageError("there is no reply yet")
    timings = completion.statistics.timings
    prefill = "" if timings.prefill_ms is None else f"prefill took {timings.prefill_ms:.1f} ms\n"
    text = (
        f"{reuse_line(completion)}\n{prefill}{completion.statistics.usage.completion_tokens} tokens generated, "
        f"finish {completion.finish_reason.value}, seed {_shown(completion.seed)}\n"
        f"context {chat.context_used()} of {chat.engine.info.max_context} tokens"
    )
    turn = chat.conversation.current
    if turn is None or turn.completion is not completion:
        return Outcome(text, {"usage": result_object(completion, "", Branch(), with_tokens=False)["usage"]})
    branch = chat.conversation.branch(turn)
    return Outcome(text, result_object(completion, chat.engine.info.model, branch, with_tokens=False))


def _exit(chat: Chat, argument: str) -> Outcome:
    return Outcome("", None, leave=True)


SETTABLE = (
    *(name.replace("_", "-") for name in SAMPLING_FIELDS),
    "greedy",
    "max-new",
    "stop",
    "thinking-budget",
    "reasoning",
)

COMMANDS: tuple[ReplCommand, ...] = (
    ReplCommand("help", "[COMMAND]", "what there is, or what one command does", _help),
    ReplCommand("new", "", "begin a new conversation with the same system message", _new),
    ReplCommand("system", "[TEXT]", "show or set the system message; none removes it", _system, words=("none",)),
    ReplCommand("set", "[KEY [VALUE]]", "show or change settings; default goes back", _set, words=SETTABLE),
    ReplCommand("think", "on|off|default", "reasoning before the answer", _think, words=("on", "off", "default")),
    ReplCommand("file", "PATH", "put the text of a UTF-8 file before the next message", _file),
    ReplCommand("undo", "[N]", "go back to before the last N messages", _undo),
    ReplCommand("stats", "", "what the last reply cost", _stats),
    ReplCommand("exit", "", "leave", _exit, aliases=("quit", "bye")),
)
_BY_WORD = {word: row for row in COMMANDS for word in (row.name, *row.aliases)}

KEYS = (
    "",
    'Enter sends; Alt-Enter or Ctrl-J makes a new line, so does a line\'s end after \\ or within a pair of """.',
    "Ctrl-C ends a reply or clears the line; Ctrl-D leaves; Ctrl-X Ctrl-E opens $EDITOR; //text says /text.",
)
