"""Model directories with one small random model and a byte vocabulary: a token is a byte, so that places can be counted
by hand. What the model says is put into its mouth; what it would have said must not depend on the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.person import Alone
from tests.support.checkpoints import Tiny
from tests.support.talk import Cold, Talk
from tests.support.tokenizers import write_bytes


@pytest.fixture(scope="session")
def directories(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    @cache
    def make(template: str) -> Path:
        place = tmp_path_factory.mktemp("models") / template
        Tiny(changes={"vocab_size": 272, "eos_token_id": 258}).write(place)
        return write_bytes(place, None if template == "published" else template)

    return make


@pytest.fixture(scope="session")
def colds(directories: Callable[[str], Path]) -> Iterator[Callable[[str], Cold]]:
    made: dict[str, Cold] = {}

    def get(template: str) -> Cold:
        if template not in made:
            made[template] = Cold(directories(template))
        return made[template]

    yield get
    for cold in made.values():
        cold.engine.close()


@pytest.fixture
def talk(directories: Callable[[str], Path], colds: Callable[[str], Cold]) -> Callable[..., Talk]:
    """Start a Talk with a template and cache options."""

    def start(template: str = "published", **options: Any) -> Talk:
        return Talk(directories(template), colds(template), **options)

    return start


@pytest.fixture(scope="session")
def cold() -> Iterator[Alone]:
    """The demo model without a cache."""
    made = Alone()
    yield made
    made.engine.close()
