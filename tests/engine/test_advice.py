"""What a person is told to raise when the context is too short."""

from __future__ import annotations

from pathlib import Path

import pytest

from ninfer_core import Engine, EngineOptions, PromptTooLong


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"max_context": 128, "kv_capacity": 1024}, "raise --max-context"),
        ({"kv_capacity": 128}, "raise --kv-capacity and --max-context"),
        ({"max_context": 128, "kv_capacity": 128}, "raise --kv-capacity and --max-context"),
    ],
)
def test_the_pool_may_be_what_limits_the_context(tiny_directory: Path, options: dict[str, int], advice: str) -> None:
    with Engine(EngineOptions(model=tiny_directory, **options)) as engine:
        with pytest.raises(PromptTooLong) as error:
            engine.generate("x" * 200)
        assert str(error.value).endswith(advice) and advice.endswith(engine.info.context_options)
    # and what it says helps
    wider = {name: 1024 for name in ("max_context", "kv_capacity") if f"--{name.replace('_', '-')}" in advice}
    with Engine(EngineOptions(model=tiny_directory, **{**options, **wider})) as engine:
        assert engine.generate("x" * 200, max_new=1).token_ids
