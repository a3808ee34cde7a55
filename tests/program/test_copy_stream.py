"""The order of a transaction's copies on a stream of their own, as a recording stand-in for CUDA sees it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from ninfer_core.contract.results import Ending, ResourceResult
from ninfer_core.program.copy_stream import CopyStream, CudaCopyStream
from ninfer_core.program.planning.outcome import Step
from ninfer_core.program.planning.target import SourceMode, Target
from ninfer_core.program.program import Program
from ninfer_core.program.transactions.running import CopyError
from tests.program.test_program import finished, make, step, work

DEVICE = torch.device("cuda")


class Recorder:
    """Stands in for torch.cuda. Copies land when `pending` queries of an event have been answered with no."""

    def __init__(self, pending: int = 0) -> None:
        self.log: list[str] = []
        self.pending = pending
        self.inside = False

    def Stream(self, device: torch.device) -> Recorder:  # noqa: N802
        assert device == DEVICE
        return self

    def current_stream(self, device: torch.device) -> str:
        assert device == DEVICE
        return "the model's"

    def wait_stream(self, stream: str) -> None:
        assert stream == "the model's" and not self.inside
        self.log.append("wait")

    @contextmanager
    def stream(self, stream: Recorder) -> Iterator[None]:
        assert stream is self
        self.inside = True
        try:
            yield
        finally:
            self.inside = False

    def record_event(self) -> Recorder:
        self.log.append("event")
        return self

    def query(self) -> bool:
        self.pending -= 1
        return self.pending < 0

    def synchronize(self) -> None:
        self.log.append("landed")
        self.pending = 0


def watched(program: Program, cuda: Recorder) -> None:
    """Program's copies and publications go into the recorder's log."""
    physical = program.physical
    physical.copies = CudaCopyStream(DEVICE, cuda)

    def logged(name: str, verb):
        def call(*arguments) -> None:
            if name == "copy":
                assert cuda.inside, "a copy outside its stream"
            else:
                assert not cuda.inside
            cuda.log.append(name)
            verb(*arguments)

        return call

    images, pool = physical.images, physical.pools[0]
    for store, verbs in ((images, ("copy_to_host", "copy_to_device")), (pool, ("copy_to_host", "copy_to_device"))):
        for verb in verbs:
            setattr(store, verb, logged("copy", getattr(store, verb)))
    pool.copy_tail = logged("copy", pool.copy_tail)  # type: ignore[method-assign]
    pool.publish = logged("publish", pool.publish)  # type: ignore[method-assign]
    pool.drop_device = logged("release", pool.drop_device)  # type: ignore[method-assign]
    images.device_slots.give = logged("release", images.device_slots.give)  # type: ignore[method-assign]


@pytest.mark.req("TXN-5", "TXN-7", "CAP-9")
def test_the_event_passes_before_publication_and_release() -> None:
    program, cuda = make(device=6, pages=12), Recorder()
    owner = finished(program, 130, taps=())
    both = step(program, owner, Step.DEMOTE_IMAGE).outcomes[owner]
    watched(program, cuda)
    assert program.transition(Target(None, {owner: both})).ending is Ending.COMMITTED
    assert cuda.log == ["wait", "copy", "event", "landed", "release"]
    cuda.log.clear()
    assert program.transition(step(program, owner, Step.DEMOTE_PAGES)).ending is Ending.COMMITTED
    assert cuda.log == ["wait", "copy", "event", "landed", "publish", *["release"] * 3]
    program.audit()


@pytest.mark.req("TXN-5", "CKP-6")
def test_a_restored_source_has_landed_before_its_sequence_is_published() -> None:
    program, cuda = make(device=6, pages=12), Recorder()
    owner = finished(program, 130, taps=())
    for which in (Step.DEMOTE_IMAGE, Step.DEMOTE_PAGES):
        program.transition(step(program, owner, which))
    source = program.source(owner, program.checkpoints(owner)[-1], SourceMode.RETAIN)
    request = work([*(i % 60 for i in range(130)), 3])
    target = Target(program.activation(source, request))
    watched(program, cuda)
    plan = program.seal(target, request)
    transaction = program.start(plan)
    assert not isinstance(transaction, ResourceResult)
    while (done := program.advance(transaction, plan)) is None:
        assert all(o.lane is None for o in program.world.owners.values())
    assert not isinstance(done, ResourceResult)
    assert cuda.log == [*["wait", "copy", "event"] * 4, "landed"], "the image, two full pages, and the copied tail"
    program.audit()


@pytest.mark.req("TXN-7")
def test_decode_rounds_run_while_a_copy_is_in_flight() -> None:
    """Each call of advance gives the worker back; the source stays valid, and nothing is published."""
    program, cuda = make(device=6, pages=12), Recorder(pending=5)
    owner = finished(program, 130, taps=())
    watched(program, cuda)
    plan = program.seal(step(program, owner, Step.DEMOTE_PAGES))
    transaction = program.start(plan)
    assert not isinstance(transaction, ResourceResult)
    calls = 0
    while cuda.log.count("landed") == 0:
        calls += 1
        assert program.world.replicas.device_pages and not program.world.replicas.host_pages
        program.advance(transaction, plan)
    assert calls == 3 + 5 + 1, "release, reserve, copy; five looks at the event; then it has passed"
    while program.advance(transaction, plan) is None:
        pass
    assert not program.world.replicas.device_pages
    program.audit()


@pytest.mark.req("TXN-10")
@pytest.mark.parametrize("failing", [True, False])
def test_a_destination_is_not_given_back_before_its_copy_has_landed(failing: bool) -> None:
    program, cuda = make(device=6, pages=12), Recorder(pending=9)
    owner = finished(program, 130, taps=(64,))
    for number in (0, 0):
        program.transition(step(program, owner, Step.DEMOTE_IMAGE, number))
    watched(program, cuda)
    slots = program.physical.images.host_slots
    program.transition(step(program, owner, Step.DEMOTE_PAGES))
    source = program.source(owner, program.checkpoints(owner)[0], SourceMode.RETAIN)
    request = work([*(i % 60 for i in range(64)), 3])
    copies = 0

    def fault(phase) -> None:
        nonlocal copies
        copies += 1
        if failing and copies == 2:
            raise CopyError("injected")

    program.fault = fault
    cuda.log.clear()
    plan = program.seal(Target(program.activation(source, request)), request)
    transaction = program.start(plan)
    assert not isinstance(transaction, ResourceResult)
    cuda.pending = 9
    while (done := program.advance(transaction, plan)) is None:
        if not failing and cuda.log[-1:] == ["event"]:
            transaction.cancel()
    assert isinstance(done, ResourceResult) and done.ending is Ending.ABORTED
    assert cuda.log.index("landed") < cuda.log.index("release"), cuda.log
    assert len(slots) == 2 and not program.world.held
    program.audit()


def test_a_processor_has_nothing_to_wait_for() -> None:
    stream = CopyStream.of(torch.device("cpu"))
    assert type(stream) is CopyStream and stream.landed()
    with stream.copying():
        pass
    stream.settle()


def test_a_copy_that_raises_half_way_is_waited_for() -> None:
    cuda = Recorder(pending=1)
    stream = CudaCopyStream(DEVICE, cuda)
    assert stream.landed() and cuda.pending == 1, "without a copy there is no event to ask"
    with pytest.raises(CopyError), stream.copying():
        raise CopyError("the second plane")
    assert cuda.log == ["wait", "event"] and not stream.landed()
    stream.settle()
    stream.settle()
    assert cuda.log == ["wait", "event", "landed"] and stream.landed()
