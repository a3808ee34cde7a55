"""One question to a running Engine, from its prompt to its exit status: what run and restore-session share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ninfer_core import Conversation

if TYPE_CHECKING:
    from ninfer_cli.output import Streams
    from ninfer_cli.settings import Settings
    from ninfer_core import Completion, Engine, GenerationRequest


def request_for(engine: Engine, asked: Conversation, settings: Settings) -> GenerationRequest:
    """Raises UsageError, TemplateError: what `Engine.prepare` refuses."""
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


def answer(engine: Engine, asked: Conversation, settings: Settings, streams: Streams) -> tuple[Completion, int]:
    """Show the reply as it comes, and everything that is asked for behind it.

    Returns:
        The completion and the exit status.
    """
    from ninfer_cli.generation import follow
    from ninfer_cli.interrupts import Interrupts
    from ninfer_cli.reply_view import view_for
    from ninfer_cli.result import Branch, json_line, result_object

    request = request_for(engine, asked, settings)
    with Interrupts() as interrupts:
        completion = follow(engine.submit(request), view_for(settings, streams), lambda: interrupts.number is not None)
    if settings.json:
        turn = sum(message.role == "user" for message in asked.messages)
        value = result_object(completion, engine.info.model, Branch(max(turn, 1)), with_tokens=settings.json_tokens)
        streams.out.write(json_line(value, terminal=streams.out.terminal))
    status = report(engine, completion, settings, streams)
    checked = proofs(engine, completion, settings, streams)
    return completion, interrupts.status or status or checked


def report(engine: Engine, completion: Completion, settings: Settings, streams: Streams) -> int:
    """Everything a finished reply still has to say on standard error. Returns the exit status."""
    from ninfer_cli.cache_view import statistics_lines
    from ninfer_cli.result import notices

    for line in notices(completion, settings, engine.info, "shorten the prompt"):
        streams.warn(line)
    if settings.stats:
        for line in statistics_lines(completion, verbose=settings.verbose):
            streams.dim_line(line)
    if completion.finish_reason.value == "error":
        streams.warn(completion.error or "the request failed without a message")
        return 1
    return 0


def proofs(engine: Engine, completion: Completion, settings: Settings, streams: Streams) -> int:
    """--verify-reuse and --cache-stats. Returns 1 when the replay gives something else."""
    from ninfer_cli.cache_view import table_json, table_text, verification_json, verification_text

    status = 0
    if settings.verify_reuse and completion.finish_reason.value != "error":
        found = engine.verify(completion.request_id)
        streams.warn(f"verify: {verification_text(found)}")
        status = int(found.differs)
        if settings.json:
            command_result(streams, "verify-reuse", verification_json(found), ok=not found.differs)
    if settings.cache_stats:
        table = engine.cache_table()
        for line in () if settings.json else table_text(table).split("\n"):
            streams.dim_line(line)
        if settings.json:
            command_result(streams, "cache-stats", table_json(table))
    return status


def command_result(streams: Streams, command: str, result: object, *, ok: bool = True) -> None:
    """The JSON object of something that is no reply."""
    from ninfer_cli.result import json_line

    streams.out.write(json_line({"command": command, "ok": ok, "result": result}, terminal=streams.out.terminal))
