"""One small random model with a byte vocabulary, in float32: replies mean nothing, but every bit of them counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ninfer_core import Engine, EngineOptions
from tests.support.checkpoints import Tiny
from tests.support.tokenizers import write_bytes


@pytest.fixture(scope="session")
def tiny_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = Tiny(changes={"vocab_size": 272, "eos_token_id": 258}).write(tmp_path_factory.mktemp("tiny") / "model")
    return write_bytes(directory)


@pytest.fixture
def engine(tiny_directory: Path) -> Iterator[Engine]:
    with Engine(EngineOptions(model=tiny_directory, max_concurrency=4, max_context=1024, prefill_chunk=64)) as engine:
        yield engine
        worker = engine._worker
        engine.close()
        worker._manager.audit()
        assert all(owner.lane is None for owner in worker._program.world.owners.values()), "a sequence was left"
