"""Start an Engine from Settings, with progress on standard error from the first moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from ninfer_cli.collector import settle
from ninfer_cli.config import calibration_file
from ninfer_cli.options import BY_NAME, CACHE
from ninfer_cli.output import Streams
from ninfer_cli.settings import SAMPLING_FIELDS
from ninfer_core import size_text

if TYPE_CHECKING:
    from ninfer_cli.settings import Settings
    from ninfer_core import DownloadProgress, Engine, EngineOptions, LoadProgress

DEMO_NOTICE = (
    "using the bundled demo model, a small one that knows little: choose another with --model PATH or owner/name"
)


@contextmanager
def started_engine(
    settings: Settings, streams: Streams, *, default_concurrency: int = 1, sessions: bool = False
) -> Iterator[Engine]:
    """A running Engine; closed at the end.

    Args:
        sessions: see EngineOptions.

    Raises:
        UsageError, ModelError, CapacityError: as resolve_model and Engine do.
    """
    if settings.model is None:
        streams.note_once(DEMO_NOTICE)
    with progress_bar(streams) as progress:
        options = engine_options(settings, streams, progress, default_concurrency, sessions=sessions)
        from ninfer_core import Engine

        engine = Engine(options)
    settle()
    with engine:
        for notice in engine.info.notices:
            streams.warn(notice)
        if settings.verbose:
            describe(settings, engine, streams)
        check_thinking(engine, settings.think, settings.thinking_budget)
        yield engine


def engine_options(
    settings: Settings,
    streams: Streams,
    progress: Callable[[LoadProgress], None] | None,
    default_concurrency: int = 1,
    *,
    sessions: bool = False,
) -> EngineOptions:
    """What an Engine is started with; the model is looked for, and downloaded if need be.

    Raises:
        UsageError, ModelError: as EngineOptions and resolve_model do.
    """
    from ninfer_core import EngineOptions

    options = EngineOptions(  # a bad value is named before a model is looked for
        device=settings.device,
        dtype=settings.dtype,
        max_context=settings.max_context,
        max_concurrency=settings.max_concurrency or default_concurrency,
        kv_capacity=settings.kv_capacity,
        cache=settings.cache_options(),
        calibration=calibration_file(),
        progress=progress,
        sessions=sessions,
    )
    if settings.model is None:
        return options
    from ninfer_core import resolve_model

    model = resolve_model(settings.model, offline=settings.offline, progress=_Download(streams, progress))
    return replace(options, model=model)


class _Download:
    """A download's progress: its size and place once, in words, then the bar."""

    def __init__(self, streams: Streams, bar: Callable[[LoadProgress], None] | None) -> None:
        self._streams = streams
        self._bar = bar
        self._said = False

    def __call__(self, step: DownloadProgress) -> None:
        from ninfer_core import LoadProgress

        if not self._said:
            self._said = True
            self._streams.note(f"downloading {step.bytes_total / 2**20:,.0f} MiB to {step.place}")
        if self._bar:
            self._bar(LoadProgress("download", step.bytes_done, step.bytes_total, step.file))


def check_thinking(engine: Engine, think: bool | None, budget: int | None) -> None:
    """Refuse what the model's template cannot do, before anything is generated."""
    if think is not None or budget is not None:
        engine.check_thinking(think, budget)


@contextmanager
def progress_bar(streams: Streams) -> Iterator[Callable[[LoadProgress], None] | None]:
    """A bar on a styled terminal, a line on a plain one, nothing elsewhere or with -q."""
    if streams.quiet or not streams.err.terminal:
        yield None
        return
    if not streams.err.styled:
        streams.note("loading the model")
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(file=streams.err.file, highlight=False)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[bytes]}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("loading", total=None, bytes="")

        def show(step: LoadProgress) -> None:
            done = f"{size_text(step.done)} of {size_text(step.total)}" if step.total else ""
            bar.update(task, description=step.stage, completed=step.done, total=step.total or None, bytes=done)

        yield show


def describe(settings: Settings, engine: Engine, streams: Streams) -> None:
    """-v: what was resolved, and who said so."""
    info = engine.info
    facts = [fact for fact in fields(info) if fact.name != "notices"]  # said already
    for fact in facts:
        origin = settings.origins.get(fact.name)
        value = f"{fact.name.replace('_', '-')} = {getattr(info, fact.name)}"
        streams.warn(value + (f" ({origin})" if origin else ""))
    sampling = settings.sampling(engine.default_sampling)
    for name in SAMPLING_FIELDS:
        origin = settings.origins.get(name) or ("greedy" if name == "temperature" and settings.greedy else "model")
        streams.warn(f"{name.replace('_', '-')} = {getattr(sampling, name)} ({origin})")
    policies = [o.key for o in BY_NAME.values() if o.panel == CACHE and o.key not in {fact.name for fact in facts}]
    for name in (*policies, "max_new", "stop", "think", "thinking_budget"):
        origin = settings.origins.get(name, "default")
        streams.warn(f"{name.replace('_', '-')} = {getattr(settings, name)} ({origin})")
