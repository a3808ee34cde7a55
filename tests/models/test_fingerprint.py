"""The fingerprint says which model it is, is taken once, beside loading if asked for, and never in anybody's way."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from ninfer_core import errors
from ninfer_core.contract.progress import LoadProgress
from ninfer_core.errors import EngineClosed, ModelError, SessionError
from ninfer_core.models import fingerprint as module
from ninfer_core.models.fingerprint import Fingerprint
from ninfer_core.models.loader import load_model
from tests.support.checkpoints import Tiny
from tests.support.hashing import Hashing

ROOT = Path(__file__).resolve().parents[2]
NAME = "ninfer-fingerprint"


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    for thread in threads():
        thread.join(60)
    assert not threads()


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> Hashing:
    return Hashing(monkeypatch)


@dataclass(frozen=True)
class Pair:
    first: torch.Tensor
    others: tuple[torch.Tensor, ...]


def pair() -> Pair:
    return Pair(torch.arange(12.0).view(3, 4), (torch.ones(4, dtype=torch.bfloat16), torch.zeros(2)))


@pytest.mark.req("SES-4")
def test_every_name_shape_dtype_byte_and_fact_counts() -> None:
    @dataclass(frozen=True)
    class Named:
        second: torch.Tensor
        others: tuple[torch.Tensor, ...]

    plain = pair()
    seen = [Fingerprint(plain, "facts").value(), Fingerprint(plain, "fact").value()]
    seen.append(Fingerprint(Named(plain.first, plain.others), "facts").value())
    for other in (plain.first.view(4, 3), plain.first.view(torch.int32)):
        seen.append(Fingerprint(replace(plain, first=other), "facts").value())
    seen.append(Fingerprint(replace(plain, others=plain.others[::-1]), "facts").value())
    seen.append(Fingerprint(replace(plain, others=plain.others[:1]), "facts").value())
    for tensor in (plain.first, *plain.others):
        for at in range(tensor.numel()):
            changed = pair()
            place = next(t for t in (changed.first, *changed.others) if torch.equal(t, tensor))
            place.view(-1)[at] = -7
            seen.append(Fingerprint(changed, "facts").value())
    assert len(set(seen)) == len(seen)
    assert Fingerprint(pair(), "facts").value() == seen[0]


LAYOUTS = [Tiny(), Tiny(tied=True, composite=True, shards=2), Tiny(moe=True), Tiny(moe=True, fused_experts=True)]


@pytest.mark.req("SES-4")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_beside_loading_it_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: Tiny, dtype: torch.dtype | None
) -> None:
    """Also where each tensor is taken at the very moment that loading calls it final."""
    directory = layout.write(tmp_path / "model")
    later = load_model(directory, "cpu", dtype).fingerprint()
    beside = load_model(directory, "cpu", dtype, for_sessions=True)
    assert beside.fingerprint() == later
    early: list[int] = []

    def take(self: Fingerprint, tensor: torch.Tensor) -> None:
        self._take(tensor)
        early.append(tensor.data_ptr())

    monkeypatch.setattr(Fingerprint, "offer", take)
    model = load_model(directory, "cpu", dtype, for_sessions=True)
    assert model.fingerprint() == later
    matrices = {tensor.data_ptr() for _, tensor in module._walk("", model._weights) if tensor.dim() > 1}
    assert matrices <= set(early) and len(set(early)) == len(early), "what is large, each once"


@pytest.mark.parametrize("beside", [False, True])
def test_it_is_taken_once_and_only_where_it_is_needed(tmp_path: Path, hashing: Hashing, beside: bool) -> None:
    directory = Tiny(tied=True).write(tmp_path / "model")
    model = load_model(directory, for_sessions=beside)
    if not beside:
        assert not threads() and hashing.taken == 0
    answers: list[str] = []
    callers = [threading.Thread(target=lambda: answers.append(model.fingerprint())) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(answers) == 4 and len(set(answers)) == 1
    assert hashing.taken == model.weight_bytes


def test_closing_does_not_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hashing: Hashing) -> None:
    """Whoever waits for the value is told, and the thread has ended when `close` returns."""
    monkeypatch.setattr(module, "_PIECE", 256)
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert go_on.wait(60)

    hashing.seen = wait
    model = load_model(Tiny().write(tmp_path / "model"), for_sessions=True)
    assert begun.wait(60)
    told: list[BaseException] = []

    def ask() -> None:
        try:
            model.fingerprint()
        except EngineClosed as error:
            told.append(error)

    caller = threading.Thread(target=ask)
    caller.start()
    closer = threading.Thread(target=model.close)
    closer.start()
    assert model._fingerprint._stopped.wait(60)
    go_on.set()
    closer.join(60)
    assert not threads()
    caller.join(60)
    assert len(told) == 1 and hashing.taken <= 256
    model.close()


def test_what_was_taken_before_closing_stays(tmp_path: Path) -> None:
    model = load_model(Tiny().write(tmp_path / "model"), for_sessions=True)
    value = model.fingerprint()
    model.close()
    assert model.fingerprint() == value


def test_loading_that_fails_ends_it(tmp_path: Path) -> None:
    directory = Tiny().write(tmp_path / "model")

    def shorten(progress: LoadProgress) -> None:
        assert threads()
        with (directory / "model.safetensors").open("rb+") as file:
            file.truncate(20_000)

    with pytest.raises(ModelError, match="the file ends early"):
        load_model(directory, progress=shorten, for_sessions=True)
    assert not threads()


def test_loading_goes_on_where_no_thread_may_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = Tiny().write(tmp_path / "model")

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        model = load_model(directory, for_sessions=True)
    assert model.fingerprint() == load_model(directory).fingerprint()
    model.close()


@pytest.mark.parametrize("beside", [False, True])
def test_a_failure_is_one_line_where_the_value_is_used(tmp_path: Path, hashing: Hashing, beside: bool) -> None:
    directory = Tiny().write(tmp_path / "model")

    def fail() -> None:
        raise MemoryError("out of memory\nand much more")

    hashing.seen = fail
    model = load_model(directory, for_sessions=beside)
    with pytest.raises(SessionError) as told:
        model.fingerprint()
    assert str(told.value) == (
        "the weights cannot be read for the fingerprint that a session needs (out of memory): "
        "free memory, or go on without a session"
    )
    assert isinstance(told.value, errors.NinferError)
    hashing.seen = lambda: None
    assert model.fingerprint() == load_model(directory).fingerprint(), "it may go well the next time"


def test_it_keeps_no_model(tmp_path: Path) -> None:
    model = load_model(Tiny().write(tmp_path / "model"), for_sessions=True)
    model.fingerprint()
    held = weakref.ref(model._weights.embedding)
    del model
    gc.collect()
    assert held() is None


EXIT = """
import sys, time
from pathlib import Path
from ninfer_core.models import fingerprint as module
from ninfer_core.models.loader import load_model
class Slow:
    AUTO = module.blake3.AUTO
    def __init__(self, *data, **how):
        pass
    def update(self, data):
        time.sleep(0.05)
module._PIECE = 64
module.blake3 = Slow
model = load_model(Path(sys.argv[1]), for_sessions=True)
print(len(model._fingerprint._digests), flush=True)
"""


def test_a_process_may_end_meanwhile(tmp_path: Path) -> None:
    """At twenty pieces of 64 bytes a second the whole would take many minutes."""
    directory = Tiny().write(tmp_path / "model")
    done = subprocess.run([sys.executable, "-c", EXIT, str(directory)], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert int(done.stdout) < 2
