"""`ninfer chat`: a conversation, at a terminal or from a script."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated

from ninfer_cli import inputs
from ninfer_cli.options import CHAT_OPTIONS, FILE, OPTIONS, own, takes
from ninfer_core import UsageError

NO_TERMINAL = "chat needs a terminal: for one answer use ninfer run, for a whole conversation ninfer chat --script FILE"
PANEL = "Chat"
CHAT_LANES = 4
"""Room for several replies to one message at the same time."""


@takes((*OPTIONS, FILE, *CHAT_OPTIONS))
def chat(
    given: Mapping[str, object],
    script: Annotated[
        str | None,
        own(
            "--script",
            metavar="FILE|-",
            text="Run the lines of a file, or of standard input, as if they were typed.",
            panel=PANEL,
        ),
    ] = None,
    session: Annotated[
        str | None,
        own(
            "--session", metavar="PATH", text="Go on with this session, or keep a new conversation there.", panel=PANEL
        ),
    ] = None,
    newest: Annotated[
        bool, own("--continue", text="Go on with the newest conversation, wherever it is kept.", panel=PANEL)
    ] = False,
    resume: Annotated[
        str | None,
        own(
            "--resume",
            metavar="[NAME]",
            text="Go on with the kept conversation of this name; without one, choose from a list.",
            panel=PANEL,
        ),
    ] = None,
    rebuild: Annotated[
        bool, own("--rebuild", text="Of a session take the text, and compute its state anew.", panel=PANEL)
    ] = False,
    keep_going: Annotated[bool, own("--keep-going", text="Go on after an error in a script.", panel=PANEL)] = False,
) -> int:
    """Talk with the model. /help lists what can be typed besides messages."""
    from ninfer_cli.output import is_dumb, is_terminal, open_streams
    from ninfer_cli.repl.held_input import HeldInput
    from ninfer_cli.repl.opening import Opening
    from ninfer_cli.settings import resolve
    from ninfer_cli.starting import started_engine

    settings = resolve(given)
    streams = open_streams(no_color=settings.no_color, quiet=settings.quiet)
    lines = None
    if script is not None:
        text = inputs.read_standard_input() if script == "-" else inputs.read_text_file(script, "--script")
        if text is None:
            raise UsageError("--script - reads standard input, which is a terminal or closed: pipe the lines in")
        lines = text.split("\n")
    elif not (is_terminal(sys.stdin) and streams.out.terminal):
        raise UsageError(NO_TERMINAL)
    elif settings.json:
        raise UsageError("--json needs --script: a terminal shows replies as text")
    elif keep_going:
        raise UsageError("--keep-going needs --script")
    opening = Opening(session, newest, resume, rebuild)
    asking = streams if lines is None and streams.err.terminal else None
    where = opening.path(asking)  # what cannot be found is told before the model is loaded
    system = None if settings.system is None else inputs.text_or_file(settings.system, "--system")
    files = inputs.read_documents(given)
    application = lines is None and not is_dumb()
    sessions = settings.autosave or where is not None
    with (
        HeldInput(sys.stdin, sys.stdout, wanted=application) as held,
        started_engine(settings, streams, default_concurrency=CHAT_LANES, sessions=sessions) as engine,
    ):
        from ninfer_cli.repl.chat import Chat
        from ninfer_cli.repl.leaving import farewell
        from ninfer_cli.repl.loop import plain_loop, script_loop

        conversation = Chat.start(engine, settings, system, files)
        opening.begin(conversation, where, streams)
        try:
            if lines is not None:
                return script_loop(conversation, lines, streams, keep_going=keep_going)
            if application:
                from ninfer_cli.repl.terminal import Terminal

                status = Terminal(conversation, streams).run(held)
            else:
                status = plain_loop(conversation, streams)
            if status == 0 and streams.err.terminal and (line := farewell(conversation)):
                streams.note(line)
            return status
        finally:
            conversation.keeper.close(conversation)
