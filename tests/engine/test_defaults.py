"""generation_config.json: what is taken, and what is refused with the file's name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ninfer_core import ModelError, SamplingParams
from ninfer_core.engine.defaults import sampling_defaults


def write(directory: Path, text: str) -> Path:
    (directory / "generation_config.json").write_text(text)
    return directory


def test_what_the_makers_recommend(tmp_path: Path) -> None:
    assert sampling_defaults(tmp_path) == SamplingParams()
    config = {"do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": None, "eos_token_id": [1]}
    assert sampling_defaults(write(tmp_path, json.dumps(config))) == SamplingParams(0.7, top_k=20, top_p=0.8)
    assert sampling_defaults(write(tmp_path, '{"do_sample": false, "temperature": 0.6}')).greedy


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"temperature": 1%s}' % ("0" * 400),
        '{"temperature": "hot"}',
        '{"top_p": 7}',
        '{"top_k": [1]}',
        '{"temperature": NaN}',
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(ModelError, match="generation_config"):
        sampling_defaults(write(tmp_path, text))


def test_the_setting_that_cannot_be_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="temperature is hot: it must be a finite number"):
        sampling_defaults(write(tmp_path, '{"temperature": "hot"}'))
