"""Settings: what every common option is after flag, environment, config.toml and the model have been asked."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ninfer_cli.config import read_config
from ninfer_cli.options import ALL_OPTIONS, PREFIX, Option
from ninfer_core import UsageError

if TYPE_CHECKING:
    from ninfer_core import ContextCacheOptions, SamplingParams

SAMPLING_FIELDS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """One field per common option, in the options' order. None means: nobody said anything, the Engine decides.

    origins tells where each value that somebody gave came from: "flag", "environment" or "config.toml".
    """

    model: str | None = None
    offline: bool = False
    device: str = "auto"
    dtype: str = "auto"
    max_context: int | None = None
    max_concurrency: int | None = None
    kv_capacity: int | None = None
    cache: bool = True
    device_state_slots: int | None = None
    host_state_slots: int | None = None
    host_kv_capacity: int | None = None
    max_private_continuations: int | None = None
    max_shared_prefixes: int | None = None
    max_long_anchors: int | None = None
    automatic_anchors: int | None = None
    endpoint_anchors: bool = True
    automatic_shared_prefixes: bool = True
    prefix_grid: bool = False
    recency_eviction: bool = False
    kv_lease_growth: bool = False
    planning_targets: int | None = None
    planning_ms: float | None = None
    system: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    greedy: bool = False
    think: bool | None = None
    thinking_budget: int | None = None
    reasoning: str = "show"
    max_new: int = 4096
    stop: tuple[str, ...] = ()
    json: bool = False
    json_tokens: bool = False
    stats: bool = False
    raw: bool = False
    quiet: bool = False
    verbose: bool = False
    no_color: bool = False
    cache_stats: bool = False
    verify_reuse: bool = False
    no_history: bool = False
    autosave: bool = True
    autosave_limit: int | None = None
    session_limit: int | None = None
    force: bool = False
    origins: Mapping[str, str] = field(default_factory=dict)

    def sampling(self, model_defaults: SamplingParams | None = None) -> SamplingParams:
        """The model's defaults with what was given laid over them.

        Raises:
            UsageError: a value outside its range.
        """
        from ninfer_core import SamplingParams

        given: dict[str, Any] = {name: getattr(self, name) for name in SAMPLING_FIELDS}
        given = {name: value for name, value in given.items() if value is not None}
        if self.greedy:
            given["temperature"] = 0.0
        return replace(model_defaults or SamplingParams(), **given)

    def cache_options(self) -> ContextCacheOptions:
        """
        Raises:
            UsageError: a value outside its range.
        """
        from ninfer_core import ContextCacheOptions

        return ContextCacheOptions(
            enabled=self.cache,
            device_state_slots=self.device_state_slots,
            host_state_slots=self.host_state_slots,
            host_kv_capacity_bytes=self.host_kv_capacity,
            max_private_continuations=self.max_private_continuations,
            max_shared_prefixes=self.max_shared_prefixes,
            max_long_anchors_per_continuation=self.max_long_anchors,
            automatic_private_anchors=self.automatic_anchors,
            endpoint_anchors=self.endpoint_anchors,
            allow_engine_automatic_shared_prefixes=self.automatic_shared_prefixes,
            allow_engine_prefix_grid=self.prefix_grid,
            recency_eviction=self.recency_eviction,
            kv_lease_growth=self.kv_lease_growth,
            planning_targets=self.planning_targets,
            planning_ms=self.planning_ms,
        )

    def with_values(self, **values: Any) -> Settings:
        """Changed by /set: the same checks as at the start."""
        changed = replace(self, **values)
        changed.sampling()
        return changed


_RANK = {"flag": 0, "environment": 1, "config.toml": 2}


def resolve(given: Mapping[str, object], environment: Mapping[str, str] | None = None) -> Settings:
    """Look at flag, environment and config.toml, in this order; the first that says something wins.

    Raises:
        UsageError: a value of the wrong type or range, an unknown config key, or flags that exclude each other.
    """
    environment = os.environ if environment is None else environment
    config = read_config()
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for option in ALL_OPTIONS:
        if option.name in given:
            values[option.key], origins[option.key] = _flag(option, given[option.name]), "flag"
        elif environment.get(option.variable):
            values[option.key], origins[option.key] = _variable(option, environment), "environment"
        elif option.name in config:
            values[option.key], origins[option.key] = config[option.name], "config.toml"
    if values.get("greedy") and values.get("temperature"):
        complaint = f"greedy and temperature {values['temperature']:g} exclude each other: give one of them"
        _settle(values, origins, "greedy", "temperature", complaint)
    if values.get("json_tokens"):
        values["json"] = True
    if any(not stop for stop in values.get("stop", ())):
        raise UsageError("a --stop text is empty: give at least one character")
    if values.get("verify_reuse") and values.get("cache") is False:
        complaint = "--verify-reuse replays what --no-cache does not keep: leave out one of them"
        _settle(values, origins, "verify_reuse", "cache", complaint)
    settings = Settings(**values, origins=origins)
    settings.sampling()
    return settings


def unknown_variables(environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """A line for each variable that looks like an option's and is none's: nobody reads it.

    An error would be too much: unlike config.toml, the environment is not ninfer's alone.
    """
    environment = os.environ if environment is None else environment
    known = {option.variable.removeprefix(PREFIX): option.variable for option in ALL_OPTIONS}
    for name in sorted(environment):
        word = name.removeprefix(PREFIX)
        if word != name and word not in known and environment[name]:
            near = difflib.get_close_matches(word.upper(), known, n=1)
            hint = f"did you mean {known[near[0]]}?" if near else "unset it, ninfer run --help shows what there is"
            yield f"{name} is no option of ninfer's, it has no effect: {hint}"


def _flag(option: Option, value: object) -> object:
    if isinstance(value, bool):
        return value
    if isinstance(value, list):
        return tuple(_text(item, f"--{option.name}") for item in value)
    text = _text(str(value), f"--{option.name}")
    try:
        return option.kind.from_text(text)
    except ValueError as error:
        raise UsageError(f"--{option.name} is {text!r}: {error}") from error


def _variable(option: Option, environment: Mapping[str, str]) -> object:
    text = _text(environment[option.variable], option.variable)
    try:
        return option.kind.from_text(text)
    except ValueError as error:
        raise UsageError(f"{option.variable} is {text!r}: {error}") from error


def _text(value: str, where: str) -> str:
    """Refuse bytes that are no UTF-8: Python hands them on as lone surrogates, which no tokenizer takes."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(f"{where} is not valid UTF-8 (character {error.start})") from error
    return value


def _settle(values: dict[str, Any], origins: dict[str, str], one: str, other: str, complaint: str) -> None:
    """Two that exclude each other: the nearer origin wins, two of one origin are a mistake."""
    if _RANK[origins[one]] == _RANK[origins[other]]:
        raise UsageError(complaint)
    loser = one if _RANK[origins[one]] > _RANK[origins[other]] else other
    del values[loser], origins[loser]
