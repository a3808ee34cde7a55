"""`ninfer run`: one answer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from ninfer_cli import inputs
from ninfer_cli.options import FILE, OPTIONS, takes
from ninfer_core import UsageError

if TYPE_CHECKING:
    from ninfer_cli.output import Streams
    from ninfer_cli.settings import Settings
    from ninfer_core import Completion, Conversation, Engine, GenerationRequest

NO_PROMPT = (
    "there is no prompt: give one as an argument or on standard input, or start a conversation with: ninfer chat"
)


@takes((*OPTIONS, FILE))
def run(
    given: Mapping[str, object],
    prompt: Annotated[str | None, typer.Argument(metavar="PROMPT", help="What to answer.", show_default=False)] = None,
    messages: Annotated[
        str | None,
        typer.Option(
            "--messages",
            metavar="FILE|-",
            help="A JSON list of messages, or an object with messages and tools.",
            rich_help_panel="Prompt",
            show_default=False,
        ),
    ] = None,
) -> int:
    """Print one answer. The prompt is the argument, standard input, or both: standard input comes first."""
    from ninfer_cli.output import open_streams
    from ninfer_cli.settings import resolve
    from ninfer_cli.starting import started_engine

    settings = resolve(given)
    asked = _ask(prompt, messages, given, settings)
    streams = open_streams(no_color=settings.no_color, quiet=settings.quiet)
    with started_engine(settings, streams) as engine:
        return _answer(engine, asked, settings, streams)


def _ask(prompt: str | None, messages: str | None, given: Mapping[str, object], settings: Settings) -> Conversation:
    """What to answer, read and checked as far as that goes without a model."""
    from ninfer_core import Conversation, Message, parse_messages

    system = None if settings.system is None else inputs.text_or_file(settings.system, "--system")
    leading = [Message(role="system", content=system)] if system else []
    if messages is not None:
        if prompt is not None or FILE.name in given:
            raise UsageError("--messages holds the whole conversation: leave out PROMPT and --file")
        text = inputs.read_standard_input() if messages == "-" else inputs.read_text_file(messages, "--messages")
        if text is None:
            raise UsageError("--messages - reads standard input, which is a terminal or closed: pipe the messages in")
        parsed = parse_messages(text)
        return Conversation((*leading, *parsed.messages), parsed.tools)
    if prompt is not None:
        _check_argument(prompt)
    text = inputs.joined([*inputs.read_documents(given), inputs.read_standard_input(), prompt])
    if not text:
        raise UsageError(NO_PROMPT if prompt is None else "the prompt is empty: say something")
    return Conversation((*leading, Message(role="user", content=text)), None)


def _check_argument(prompt: str) -> None:
    try:
        prompt.encode("utf-8")
    except UnicodeEncodeError:
        offset = _first_bad_byte(os.fsencode(prompt))
        raise UsageError(f"PROMPT is not valid UTF-8 (byte {offset}): check the terminal's encoding") from None


def _first_bad_byte(data: bytes) -> int:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return 0


def _answer(engine: Engine, asked: Conversation, settings: Settings, streams: Streams) -> int:
    from ninfer_cli.generation import follow
    from ninfer_cli.interrupts import Interrupts
    from ninfer_cli.reply_view import view_for
    from ninfer_cli.result import Branch, json_line, result_object

    request = _request(engine, asked, settings)
    with Interrupts() as interrupts:
        completion = follow(engine.submit(request), view_for(settings, streams), lambda: interrupts.number is not None)
    if settings.json:
        value = result_object(completion, engine.info.model, Branch(), with_tokens=settings.json_tokens)
        streams.out.write(json_line(value, terminal=streams.out.terminal))
    return interrupts.status or report(completion, settings, streams)


def _request(engine: Engine, asked: Conversation, settings: Settings) -> GenerationRequest:
    from ninfer_core import GenerationRequest

    prompt = engine.prepare(asked.messages, tools=asked.tools, thinking=settings.think)
    return GenerationRequest(
        prompt=prompt,
        sampling=settings.sampling(engine.default_sampling),
        max_new=settings.max_new,
        stop=settings.stop,
        thinking_budget=settings.thinking_budget,
        tools=asked.tools,
    )


def report(completion: Completion, settings: Settings, streams: Streams) -> int:
    """Everything a finished reply still has to say on standard error. Returns the exit status."""
    from ninfer_cli.result import notices, reuse_line

    for line in notices(completion, settings, "shorten the prompt"):
        streams.warn(line)
    if settings.stats:
        streams.dim_line(reuse_line(completion))
    if completion.finish_reason.value == "error":
        streams.warn(completion.error or "the request failed without a message")
        return 1
    return 0
