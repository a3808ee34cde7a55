"""The one table of REPL commands: dispatch, help, completion and the man page come from it."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from ninfer_cli.repl import (
    branch_commands,
    cache_commands,
    file_commands,
    reply_commands,
    session_commands,
    setting_commands,
)
from ninfer_cli.repl.command import Outcome, ReplCommand
from ninfer_cli.repl.setting_commands import SETTABLE
from ninfer_cli.repl.submission import Command
from ninfer_core import UsageError

if TYPE_CHECKING:
    from ninfer_cli.repl.chat import Chat


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


def _exit(chat: Chat, argument: str) -> Outcome:
    return Outcome(leave=True)


COMMANDS: tuple[ReplCommand, ...] = (
    ReplCommand("help", "[COMMAND]", "what there is, or what one command does", _help),
    ReplCommand(
        "regen", "[N]", "another reply, or N at once, as siblings of the last", reply_commands.regen, aliases=("retry",)
    ),
    ReplCommand(
        "edit", "[K] [TEXT]", "say TEXT in turn K (the last) instead, and go on from there", reply_commands.edit
    ),
    ReplCommand("rewrite", "[TEXT]", "put TEXT in the place of the last reply, as a sibling", reply_commands.rewrite),
    ReplCommand("continue", "", "go on writing the last reply", reply_commands.continue_),
    ReplCommand("undo", "[N]", "go back to before the last N messages", branch_commands.undo),
    ReplCommand("redo", "", "go to where the last undo came from", branch_commands.redo),
    ReplCommand("branch", "[NAME]", "name this branch, or list the names", branch_commands.branch),
    ReplCommand("switch", "NAME|N", "go to a branch, or to node N of /tree", branch_commands.switch),
    ReplCommand("prev", "", "go to the sibling before this turn", branch_commands.previous),
    ReplCommand("next", "", "go to the sibling after this turn", branch_commands.next_),
    ReplCommand("tree", "", "everything that was said, with the numbers of its nodes", branch_commands.tree),
    ReplCommand("new", "", "begin a new conversation with the same system message", branch_commands.new),
    ReplCommand(
        "system",
        "[TEXT]",
        "show the system message, or start a branch with another; none has none",
        branch_commands.system,
        words=("none",),
    ),
    ReplCommand(
        "set", "[KEY [VALUE]]", "show or change settings; default goes back", setting_commands.set_, words=SETTABLE
    ),
    ReplCommand(
        "think",
        "on|off|default",
        "reasoning before the answer",
        setting_commands.think,
        words=("on", "off", "default"),
    ),
    ReplCommand("file", "PATH", "put the text of a UTF-8 file before the next message", file_commands.file, paths=True),
    ReplCommand(
        "save", "[PATH]", "write the conversation and its state to one file", session_commands.save, paths=True
    ),
    ReplCommand("restore", "PATH [--rebuild]", "go on with a saved conversation", session_commands.restore, paths=True),
    ReplCommand(
        "export", "FILE.md|.json", "write this path of the conversation to a file", file_commands.export, paths=True
    ),
    ReplCommand(
        "import", "FILE.md|.json", "read a conversation as another beginning", file_commands.import_, paths=True
    ),
    ReplCommand("copy", "", "the last reply to the terminal's clipboard", file_commands.copy),
    ReplCommand("stats", "", "what the last reply cost", setting_commands.stats),
    ReplCommand(
        "cache", "[audit]", "what the context cache holds, or a recount of it", cache_commands.cache, words=("audit",)
    ),
    ReplCommand("why", "", "for the last request: what was reused, and why the rest was not", cache_commands.why),
    ReplCommand("verify", "", "run the last request again without any reuse, and compare", cache_commands.verify),
    ReplCommand("exit", "", "leave", _exit, aliases=("quit", "bye")),
)
_BY_WORD = {word: row for row in COMMANDS for word in (row.name, *row.aliases)}

KEYS = (
    "",
    'Enter sends; Alt-Enter or Ctrl-J makes a new line, so does a line\'s end after \\ or within a pair of """.',
    "Ctrl-C ends a reply or clears the line; Ctrl-D leaves; Ctrl-X Ctrl-E opens $EDITOR; //text says /text.",
)
