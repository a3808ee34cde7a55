"""Verification where something is short: memory for the replay, lanes, the cache's room (context-cache VER-1)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ninfer_core import (
    CacheTable,
    ContextCacheOptions,
    Engine,
    EngineOptions,
    GenerationRequest,
    RequestHandle,
    SamplingParams,
    Verification,
)
from ninfer_core.program import verification
from ninfer_core.program.replay import Replay
from tests.engine.test_engine import ask

GREEDY = SamplingParams(temperature=0)
EQUAL = Verification(True, True, True)


@pytest.fixture
def small(tiny_directory: Path) -> Iterator[Engine]:
    """Two lanes whose cache has room for one state more than theirs."""
    cache = ContextCacheOptions(device_state_slots=1, host_state_slots=0, host_kv_capacity_bytes=0)
    options = EngineOptions(
        model=tiny_directory, max_concurrency=2, max_context=512, kv_capacity=1024, prefill_chunk=64, cache=cache
    )
    with Engine(options) as engine:
        yield engine
        engine.audit()


def kept(table: CacheTable) -> dict[int, Any]:
    """What is catalogued, owner by owner."""
    return {int(row.owner): row.checkpoints for row in table.owners if row.age is not None}


def free_memory(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(verification, "available_memory", lambda: size)


@pytest.mark.req("VER-1")
def test_without_room_for_the_replay_that_is_said_and_nothing_changes(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = ask(engine, "What is my name, and where do I live?")
    before = engine.cache_table()
    with monkeypatch.context() as patch:
        free_memory(patch, 1 << 10)
        found = engine.verify(done.request_id)
    assert not found.done and not found.differs
    assert found.detail.startswith("no room to verify: the replay needs ") and "\n" not in found.detail
    assert found.detail.endswith("MiB and 0.0 MiB are free for it: close other programs")
    assert engine.cache_table() == before
    assert ask(engine, "What is my name, and where do I live?").token_ids == done.token_ids, "it goes on serving"
    assert engine.verify(done.request_id) == EQUAL, "once there is room"


@pytest.mark.req("VER-1")
def test_what_it_asks_for_covers_what_it_takes(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "SHARE", 1.0)
    done = ask(engine, "Hello")
    low, high = 0, 1 << 30
    while low + 1 < high:
        middle = (low + high) // 2
        free_memory(monkeypatch, middle)
        low, high = (low, middle) if engine.verify(done.request_id).done else (middle, high)
    taken = _taken(engine, monkeypatch, done.request_id)
    assert taken <= high <= 2 * taken, "the least with which it was tried"


def _taken(engine: Engine, monkeypatch: pytest.MonkeyPatch, request: Any) -> int:
    """Bytes of the replay's stores and of what it is compared with."""
    sizes: list[int] = []
    made, left = Replay.__init__, verification.Left.of

    def counted(replay: Replay, *arguments: Any) -> None:
        made(replay, *arguments)
        state, planes = replay._images.planes, replay._store.planes
        tensors = [*state.recurrent, *state.conv, state.hidden, *planes.keys, *planes.values]
        sizes.append(sum(tensor.nbytes for tensor in tensors))

    def taken(*arguments: Any) -> verification.Left:
        found = left(*arguments)
        sizes.append(found.image.nbytes + sum(plane.nbytes for plane in found.planes))
        return found

    with monkeypatch.context() as patch:
        free_memory(patch, 1 << 40)
        patch.setattr(verification.Replay, "__init__", counted)
        patch.setattr(verification.Left, "of", taken)
        assert engine.verify(request) == EQUAL
    assert len(sizes) == 2
    return sum(sizes)


def _torch_says() -> BaseException:
    """What torch raises when the CPU has not got so much."""
    try:
        torch.empty(1 << 50, dtype=torch.uint8)
    except RuntimeError as error:
        return error
    pytest.skip("this machine has 2^50 bytes")


@pytest.mark.req("VER-1", "TXN-11")
@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory"), None])
def test_memory_that_runs_out_within_the_replay_is_no_room_either(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, error: BaseException | None
) -> None:
    done = ask(engine, "Hello")

    def exhausted(*_: Any) -> None:
        raise error or _torch_says()

    with monkeypatch.context() as patch:
        patch.setattr(verification.Replay, "_run", exhausted)
        found = engine.verify(done.request_id)
    assert not found.done and not found.differs
    assert found.detail.startswith("no room to verify") and "memory ran out: close other programs" in found.detail
    assert engine.verify(done.request_id) == EQUAL
    engine.audit()


@pytest.mark.req("VER-1")
def test_what_is_no_lack_of_memory_is_not_taken_for_one(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    done = ask(engine, "Hello")

    def broken(*_: Any) -> None:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(verification.Replay, "_run", broken)
    with pytest.raises(RuntimeError, match="the device is gone"):
        engine.verify(done.request_id)


@pytest.mark.req("VER-1", "REQ-1", "RET-2")
def test_a_full_cache_and_busy_lanes_neither_hinder_it_nor_lose_anything(
    small: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replay takes nothing of the pools: it needs no lane, no page and no slot."""
    for name in ("Bela", "Mira", "Tom"):
        done = ask(small, f"My name is {name}. " + "I live in a house with a garden. " * 3, most=8)
    worker, over = small._worker, threading.Event()
    execute = worker._program.execute

    def only_beside_calls(*arguments: Any) -> Any:
        """Once both reply, they go on only while somebody waits for a call: a slow test does not find their ends."""
        while len(running) == 2 and all(h._request.token_ids for h in running):
            if worker._errands or over.is_set():
                break
            time.sleep(0.001)
        return execute(*arguments)

    running: list[RequestHandle] = []
    monkeypatch.setattr(worker._program, "execute", only_beside_calls)
    for text in ("1" * 40, "2" * 40):
        running.append(small.submit(GenerationRequest(small.prepare_text(text), GREEDY, 200, ignore_end=True)))
    while not all(handle._request.token_ids for handle in running):
        time.sleep(0.001)
    table = small.cache_table()
    images = next(axis for axis in table.axes if axis.name == "Device states")
    assert images.used + images.reserved == images.capacity == 3, "no slot is free"
    assert kept(table), "there is something to lose"
    found = small.verify(done.request_id)
    after = small.cache_table()
    assert len(worker._scheduler.running) == 2, "no lane was free"
    assert kept(after) == kept(table), "nothing gave way"
    assert found.tokens and not found.differs
    over.set()
    for handle in running:
        handle.interrupt()
        assert handle.result(60).error is None
