"""`ninfer bench`: tokens per second, time to the first token, memory; and the calibration of the cost model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ninfer_cli.kinds import Choice
from ninfer_cli.options import CACHE, MODEL, OPTIONS, own, takes
from ninfer_core import CapacityError, ContextTooLong, NoRoomForContext, UsageError

if TYPE_CHECKING:
    from ninfer_cli.benchmark.plan import BenchTest
    from ninfer_cli.benchmark.reuse import ReuseTest
    from ninfer_cli.benchmark.sample import Sample
    from ninfer_cli.output import Streams
    from ninfer_cli.settings import Settings
    from ninfer_core import Engine, EngineInfo

BENCH_OPTIONS = tuple(o for o in OPTIONS if o.panel in (MODEL, CACHE) or o.name in ("quiet", "verbose", "no-color"))
_PANEL = "Benchmark"


@takes(BENCH_OPTIONS)
def bench(
    given: Mapping[str, object],
    tests: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEST",
            help="pp512, tg128, pp512@d4096; reuse, or one of its scenarios. Default: pp512 tg128.",
            show_default=False,
        ),
    ] = None,
    batch: Annotated[
        str, own("--batch", "-b", metavar="N,N", text="Sequences at the same time.", panel=_PANEL, default=True)
    ] = "1",
    repetitions: Annotated[
        str, own("--repetitions", "-r", metavar="N", text="After one warm-up.", panel=_PANEL, default=True)
    ] = "3",
    output: Annotated[
        str, own("--output", "-o", metavar="md|json|jsonl|csv", text="Form.", panel=_PANEL, default=True)
    ] = "md",
    random: Annotated[
        str | None,
        own(
            "--random",
            metavar="SHAPE",
            text="Random weights of a published shape (tiny, 0.8b, 9b, 27b), written to the cache directory once.",
            panel=_PANEL,
        ),
    ] = None,
    compare: Annotated[
        str | None,
        own(
            "--compare",
            metavar="transformers",
            text="Measure Hugging Face transformers beside it, each in processes of its own.",
            panel=_PANEL,
        ),
    ] = None,
    startup: Annotated[
        bool, own("--startup", text="Also the time to --help and to run's first token.", panel=_PANEL)
    ] = False,
    calibrate: Annotated[
        bool,
        own(
            "--calibrate",
            text="Instead of tests: measure what copies and prefill cost here, and keep it for later starts.",
            panel=_PANEL,
        ),
    ] = False,
) -> int:
    """Measure tokens per second. pp is prompt processing, tg token generation, @dN behind N tokens.

    reuse plays a conversation of 2,048 tokens (reuse@dN: of N) with the context cache and without: cold, append,
    regenerate, edit, branch, rewrite, shared-system, restore. Its tok/s are prompt tokens over the time to the first
    token, which for restore holds the time to read the session, too; "in steps" is that time, divided by what a token
    of the same reply takes to decode; the ratio is to the same without the cache.
    """
    from ninfer_cli.benchmark.plan import parse_batches, parse_tests
    from ninfer_cli.benchmark.report import FORMATS, formatted
    from ninfer_cli.benchmark.reuse import parse_reuse
    from ninfer_cli.output import open_streams
    from ninfer_cli.settings import resolve

    settings = resolve(given)
    streams = open_streams(no_color=settings.no_color, quiet=settings.quiet)
    if not repetitions.isdigit() or not 1 <= int(repetitions) <= 1000:
        raise UsageError(f"--repetitions is {repetitions!r}: it must be 1 to 1000")
    try:
        form = Choice(FORMATS).from_text(output)
    except ValueError as error:
        raise UsageError(f"--output is {output!r}: {error}") from error
    if compare not in (None, "transformers"):
        raise UsageError(f"--compare is {compare!r}: it can be transformers")
    if random is not None and settings.model is not None and "model" in given:
        raise UsageError("--random and --model exclude each other: give one of them")
    if calibrate:
        if tests or startup or compare or form != "md":
            raise UsageError("--calibrate measures no tests: leave out TEST, --output, --compare and --startup")
        from ninfer_cli.benchmark.calibration import run_calibration

        return run_calibration(_with_random(settings, random, streams), streams)
    scenarios, others = parse_reuse(tests or [])
    if compare and scenarios and not others:
        raise UsageError("--compare measures pp and tg tests only: add one, or leave it out")
    wanted = parse_tests(others or ([] if startup or scenarios else ["pp512", "tg128"]), parse_batches(batch))
    settings = _with_random(settings, random, streams)
    rows = _rows(wanted, settings, streams, int(repetitions), compare)
    rows += _reuse_rows(scenarios, settings, streams, int(repetitions))
    if startup:
        from ninfer_cli.benchmark.startup import startup_rows

        rows += startup_rows(int(repetitions))
    streams.out.write(formatted(rows, form))
    return 0


def _with_random(settings: Settings, shape: str | None, streams: Streams) -> Settings:
    if shape is None:
        return settings
    from ninfer_cli.config import directory
    from ninfer_cli.starting import progress_bar
    from ninfer_core import SHAPES

    if shape not in SHAPES:
        raise UsageError(f"there is no shape {shape!r}: use {', '.join(SHAPES)}")
    with progress_bar(streams) as progress:
        from ninfer_core import write_random_checkpoint  # imports torch: the bar is there by now

        path = write_random_checkpoint(shape, directory("XDG_CACHE_HOME", "cache"), progress)
    streams.note(f"random weights: {path}")
    return replace(settings, model=str(path))


def _rows(
    tests: Sequence[BenchTest], settings: Settings, streams: Streams, repetitions: int, other: str | None
) -> list[dict[str, Any]]:
    if not tests:
        return []
    from ninfer_cli.benchmark.compare import compare
    from ninfer_cli.benchmark.machine import installed
    from ninfer_cli.starting import started_engine

    if other and installed(other) is None:
        raise UsageError(f"--compare {other}: it is not installed: pip install {other}")
    longest = max(tests, key=lambda test: test.context)
    sizes = replace(
        settings,
        max_context=settings.max_context or longest.context,
        max_concurrency=settings.max_concurrency or max(test.batch for test in tests),
    )
    with _told_of(longest.name, longest.context, settings):
        if other is not None:
            return compare(tests, _order(sizes, streams), repetitions, streams.note)
        with started_engine(sizes, streams) as engine:
            return [_row(engine, test, repetitions) for test in tests]


@contextmanager
def _told_of(test: str, context: int, settings: Settings) -> Iterator[None]:
    """Within this context a test has chosen the context's length, unless somebody has given one: what is wrong with it
    is told in the test's name."""
    try:
        yield
    except (ContextTooLong, NoRoomForContext) as error:
        if settings.max_context is not None:
            raise
        needs = f"{test} needs a context of {context} tokens"
        if isinstance(error, ContextTooLong):
            raise UsageError(f"{needs} and the model's longest is {error.longest}: choose a shorter test") from error
        raise CapacityError(f"{needs}: {error}, or choose a shorter test") from error


def _reuse_rows(
    scenarios: Sequence[ReuseTest], settings: Settings, streams: Streams, repetitions: int
) -> list[dict[str, Any]]:
    from ninfer_cli.benchmark.reuse import run_reuse
    from ninfer_cli.starting import started_engine

    rows = []
    for tokens in dict.fromkeys(test.tokens for test in scenarios):
        context = 2 * tokens + 1024
        names = [test.name for test in scenarios if test.tokens == tokens]
        name = names[0] if len(set(names)) == 1 else "reuse"
        sizes = replace(settings, max_context=settings.max_context or context)
        info: list[EngineInfo] = []

        @contextmanager
        def engine(sizes: Settings = sizes, info: list[EngineInfo] = info) -> Iterator[Engine]:
            with started_engine(sizes, streams) as started:
                info[:] = [started.info]
                yield started

        with _told_of(f"{name}@d{tokens}", context, settings):
            found = run_reuse(engine, tokens, repetitions)
        for test in scenarios:
            if test.tokens == tokens:
                for name, samples in (
                    ("ninfer", [pair.on for pair in found[test.name]]),
                    ("cache off", [pair.off for pair in found[test.name]]),
                ):
                    rows.append(_summarised(test.label, samples, info[0], name))
    return rows


def _order(settings: Settings, streams: Streams) -> dict[str, Any]:
    """Model, device, dtype and threads as ninfer resolves them.

    The Engine is gone on return: its memory is the children's.
    """
    from ninfer_cli.starting import started_engine

    with started_engine(settings, streams) as engine:
        info = engine.info
        facts = {"device": info.device, "dtype": info.dtype, "threads": info.threads}
        return {"model": str(info.model_directory), **facts}


def _row(engine: Engine, test: BenchTest, repetitions: int) -> dict[str, Any]:
    from ninfer_cli.benchmark.measure import measure

    measure(engine, test, 0)  # the warm-up
    samples = [measure(engine, test, repetition + 1) for repetition in range(repetitions)]
    return _summarised(test.name, samples, engine.info, "ninfer", test.batch)


def _summarised(
    name: str, samples: Sequence[Sample], info: EngineInfo, implementation: str, batch: int = 1
) -> dict[str, Any]:
    from ninfer_cli.benchmark.machine import machine, peak_rss_bytes
    from ninfer_cli.benchmark.report import row_object
    from ninfer_cli.benchmark.sample import summary

    settings = {
        "implementation": implementation,
        "batch": batch,
        "model": info.model,
        "device": info.device,
        "dtype": info.dtype,
        "threads": info.threads,
        "max_context": info.max_context,
        "repetitions": len(samples),
        "peak_rss_bytes": peak_rss_bytes(),
    }
    steps = summary([sample.ttft_steps for sample in samples if sample.ttft_steps is not None])["mean"]
    if steps is not None:
        settings["ttft_steps"] = steps
    rates = summary([sample.tokens_per_s for sample in samples])
    ttft = summary([sample.ttft_ms for sample in samples if sample.ttft_ms is not None])
    tokens = (samples[-1].reused_tokens, samples[-1].prefill_tokens)
    return row_object(name, rates, ttft, tokens, settings, machine())
