"""Sampling defaults from a model's generation_config.json."""

from __future__ import annotations

from pathlib import Path

from ninfer_core.contract.sampling import SamplingParams
from ninfer_core.errors import ModelError, UsageError
from ninfer_core.models.directory import ModelDirectory

NAME = "generation_config.json"
_NUMBERS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def sampling_defaults(directory: Path) -> SamplingParams:
    """What the model's makers recommend; the plain distribution when they say nothing.

    Raises:
        ModelError: the file is there and cannot be understood.
    """
    config = ModelDirectory.open(directory).json_object(NAME)
    if config is None:
        return SamplingParams()
    given = {name: config[name] for name in _NUMBERS if config.get(name) is not None}
    if config.get("do_sample") is False:
        given["temperature"] = 0.0
    try:
        return SamplingParams(**given)
    except (UsageError, TypeError) as error:
        raise ModelError(f"{directory / NAME}: {error}: correct the file, or fetch the model again") from error
