"""Session files: what was saved comes back bit for bit, and nothing else is ever taken for it."""

from __future__ import annotations

import json
import os
import random
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ninfer_core.contract.plans import SequenceHandle
from ninfer_core.contract.results import Ending
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.demo import demo_model_path
from ninfer_core.errors import SessionError
from ninfer_core.models.loader import load_model
from ninfer_core.program import session_file
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.planning.target import SourceMode, Target
from ninfer_core.program.program import Program
from ninfer_core.program.session_file import read, read_header, write
from ninfer_core.program.session_inspection import inspect_session
from ninfer_core.program.session_reader import open_session, open_text
from tests.program.checksum import checksum
from tests.program.test_exactness import begin, conversation, prove, run, tap, work
from tests.support.checkpoints import Tiny
from tests.support.ledger_model import LedgerModel

TALK = {"turns": [{"user": "Grüße 😀", "assistant": "hello"}]}


def ledger_program(host: int = 2, device: int = 6, pages: int = 20) -> Program:
    return Program(LedgerModel(), Vector(device, host, (pages,), 0))


def small(program: Program, tokens: int = 130) -> tuple[int, Path | None]:
    """A finished conversation with two checkpoints below its endpoint, in the ledger model."""
    handle = begin(program, [i % 60 for i in range(tokens)])
    for frontier in (40, 64):
        tap(program, handle, frontier)
    run(program, [handle], 3)
    program.end(handle)
    owner = program.finish(handle)
    assert owner is not None
    return owner


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    program = ledger_program()
    write(tmp_path / "talk.ninfer", program.save_continuations([small(program)], TALK), replace=False)
    return tmp_path / "talk.ninfer"


@pytest.mark.req("SES-1", "SES-2", "SES-3", "SES-4")
@pytest.mark.parametrize("which", ["float32", "bfloat16", "demo"])
def test_what_was_saved_resumes_bit_for_bit(tmp_path: Path, which: str) -> None:
    directory = demo_model_path() if which == "demo" else Tiny(dtype=which).write(tmp_path / "model")
    model = load_model(directory)
    first = Program(model, Vector(8, 2, (40,), 0))
    owner, checkpoints = conversation(first, (77, 128))
    branch = begin(first, [7] * 3, None)
    run(first, [branch], 2)
    first.end(branch)
    other = first.finish(branch)
    before = {c.frontier: checksum(first, c) for c in checkpoints}
    size = write(tmp_path / "s", first.save_continuations([owner, other], TALK), replace=False)
    assert size == (tmp_path / "s").stat().st_size
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600

    second = Program(load_model(directory), Vector(8, 2, (40,), 0))
    unrelated = begin(second, [1, 2, 3, 4])
    run(second, [unrelated], 4)
    revision = second.revision
    restored = second.restore_continuations(read(tmp_path / "s"))
    second.audit()
    assert second.revision == revision + 1 and len(restored.owners) == 2 and restored.dropped == ()
    back = second.world.owners[restored.owners[0]].checkpoints
    assert [(c.kind, c.frontier) for c in back] == [(c.kind, c.frontier) for c in checkpoints]
    assert {c.frontier: checksum(second, c) for c in back} == before
    for checkpoint in back:
        assert second.record(checkpoint.ref).trace == first.record(checkpoints[back.index(checkpoint)].ref).trace
        tokens = [int(t) for t in memoryview(second.record(checkpoint.ref).identity.tokens).cast("I")]
        verified = second.verify(restored.owners[0], checkpoint.ref, second.identity(work([*tokens, 5])))
        assert verified == checkpoint
        handle = begin(second, [*tokens, 5], second.source(restored.owners[0], checkpoint, SourceMode.RETAIN))
        run(second, [handle], 32)
        prove(second, handle)
        second.discard(handle)
    second.audit()


def test_the_header_is_readable_and_needs_no_model(saved: Path) -> None:
    header = read_header(saved).value
    assert header["conversation"] == TALK
    kinds = [(c["kind"], c["frontier"]) for c in header["continuations"][0]["checkpoints"]]
    assert kinds == [("LongAnchor", 40), ("LongAnchor", 64), ("SessionEndpoint", 133)]


def test_shared_images_and_pages_are_stored_once(tmp_path: Path) -> None:
    program = ledger_program()
    owner = small(program)
    base = program.world.owners[owner].checkpoints[1]
    fork = begin(program, [i % 60 for i in range(64)] + [1, 2], program.source(owner, base, SourceMode.RETAIN))
    run(program, [fork], 2)
    program.end(fork)
    content = program.save_continuations([owner, program.finish(fork)])
    assert len(content.tensors["images"]) == 4, "three of the first, one of the fork"
    pages = {p for o in program.world.owners.values() for c in o.checkpoints for p in c.pages[0]}
    assert len(content.tensors["pages.0"]) == len(pages)


def test_saving_changes_nothing(saved: Path) -> None:
    program = ledger_program()
    owner = small(program)
    world = program.world
    program.save_continuations([owner])
    assert program.world is world


@pytest.mark.req("SES-3")
def test_what_does_not_fit_is_dropped_and_named_the_endpoint_never(saved: Path) -> None:
    program = ledger_program(host=0, device=2)
    restored = program.restore_continuations(read(saved))
    assert restored.dropped == ((SourceKind.LONG_ANCHOR, 40),), "the deepest ones find a place"
    program.audit()
    full = ledger_program(host=0, device=1, pages=20)
    handle = begin(full, [1, 2])
    world = full.world
    with pytest.raises(SessionError, match="no room for the session"):
        full.restore_continuations(read(saved))
    assert full.world is world and full.sequence(handle)
    full.audit()


@pytest.mark.req("SES-3")
def test_the_endpoint_stays_the_last_of_two_checkpoints_at_its_frontier() -> None:
    program = ledger_program()
    handle = begin(program, [1, 2, 3])
    tap(program, handle, 3)
    program.execute([(handle, 3)]).commit([handle])
    program.end(handle)
    saved = program.save_continuations([program.finish(handle)])
    owner = program.restore_continuations(saved).owners[0]
    back = program.world.owners[owner].checkpoints
    assert [c.kind for c in back] == [SourceKind.LONG_ANCHOR, SourceKind.SESSION_ENDPOINT]


@pytest.mark.req("SES-3")
def test_an_image_without_a_device_slot_is_host_only(saved: Path) -> None:
    program = ledger_program(host=2, device=1)
    restored = program.restore_continuations(read(saved))
    placements = [s.placement.value for s in program.summaries(restored.owners[0])]
    assert placements == ["mixed", "mixed", "device"]
    program.audit()


# --- nothing else is taken for a session --------------------------------------------------------------------------
def refused(path: Path, words: str | None = None) -> str:
    program = ledger_program()
    world = program.world
    with pytest.raises(SessionError, match=words) as caught:
        program.restore_continuations(read(path))
    assert program.world is world
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.req("SES-4")
def test_any_flipped_byte_is_noticed(saved: Path, tmp_path: Path) -> None:
    data, rng = bytearray(saved.read_bytes()), random.Random(5)
    places = {*range(64), *rng.sample(range(len(data)), 500)}
    for place in sorted(places):
        damaged = bytearray(data)
        damaged[place] ^= 1 << rng.randrange(8)
        (tmp_path / "x").write_bytes(damaged)
        refused(tmp_path / "x")


@pytest.mark.req("SES-4")
def test_any_cut_is_noticed(saved: Path, tmp_path: Path) -> None:
    data = saved.read_bytes()
    for length in {0, 1, 7, 8, 9, len(data) - 1, *random.Random(6).sample(range(len(data)), 120)}:
        (tmp_path / "x").write_bytes(data[:length])
        refused(tmp_path / "x")
    (tmp_path / "x").write_bytes(data + b"\0")
    refused(tmp_path / "x")


def test_the_text_is_read_wherever_the_file_is_cut_behind_it(saved: Path, tmp_path: Path) -> None:
    data = saved.read_bytes()
    behind = 8 + int.from_bytes(data[:8], "little")
    for length in {behind, behind + 1, len(data) - 1, *random.Random(7).sample(range(behind, len(data)), 20)}:
        (tmp_path / "x").write_bytes(data[:length])
        assert open_text(tmp_path / "x").value["conversation"] == TALK
    for length in {0, 7, 8, 9, behind - 1, *random.Random(8).sample(range(behind), 60)}:
        (tmp_path / "x").write_bytes(data[:length])
        with pytest.raises(SessionError) as caught:
            open_text(tmp_path / "x")
        assert "\n" not in str(caught.value)
    with pytest.raises(SessionError, match="cut short within its text"):
        open_text(tmp_path / "x")
    for place in random.Random(9).sample(range(8, behind), 300):  # whatever of the text is changed is noticed
        damaged = bytearray(data)
        damaged[place] ^= 1
        (tmp_path / "x").write_bytes(damaged)
        try:
            assert open_text(tmp_path / "x").value == open_text(saved).value
        except SessionError as error:
            assert "\n" not in str(error)


def test_hostile_beginnings_of_a_file(tmp_path: Path) -> None:
    for head in (
        b"",
        b"[]",
        b'{"x":' + b"[" * 100_000,
        b"{",
        b'{"__metadata__":3}',
        b'{"__metadata__":{"header":3}}',
        b'{"x":"\xff"}',
    ):
        (tmp_path / "x").write_bytes(len(head).to_bytes(8, "little") + head)
        with pytest.raises(SessionError, match=r"is no session(, or damaged| \(format\)):"):
            open_text(tmp_path / "x")
    (tmp_path / "x").write_bytes((1 << 40).to_bytes(8, "little") + b"{}")
    with pytest.raises(SessionError, match="is no session, or damaged"):
        open_text(tmp_path / "x")


@pytest.mark.parametrize("how", [open_session, open_text, inspect_session, read_header])
def test_what_is_no_session_is_said_alike_and_without_a_librarys_words(
    tmp_path: Path, how: Callable[[Path], object]
) -> None:
    path, eight = tmp_path / "report.txt", (8).to_bytes(8, "little")
    said = f"{path} is no session, or damaged: check the path, or restore a copy"
    for data in (b"The report.\n" * 9, b"hi\n", b"\0" * 100, eight, eight + b"{" * 8):
        path.write_bytes(data)
        with pytest.raises(SessionError) as refused:
            how(path)
        assert str(refused.value) == said, data
    path.write_bytes(b"")
    with pytest.raises(SessionError) as refused:
        how(path)
    assert str(refused.value) == f"{path} is empty: it is no session, check the path or restore a copy"
    for metadata in (None, {"format": "pt"}):
        save_file({"weight": torch.zeros(2)}, path, metadata=metadata)
        with pytest.raises(SessionError, match=r"report.txt is no session \(format\): give one that ninfer has saved"):
            how(path)


def resaved(path: Path, target: Path, tensors: dict | None = None, **metadata: str) -> Path:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        facts = file.metadata()
    save_file(tensors or load_file(path), target, metadata={**facts, **metadata})
    return target


@pytest.mark.req("SES-4")
def test_swapped_foreign_and_newer_files_are_named(saved: Path, tmp_path: Path) -> None:
    tensors = load_file(saved)
    swapped = {**tensors, "tokens.0": tensors["tokens.0"].flip(0).contiguous()}
    refused(resaved(saved, tmp_path / "x", swapped), "checksum of tokens.0")
    images = tensors["images"].clone()
    images[[0, 1]] = images[[1, 0]]
    refused(resaved(saved, tmp_path / "x", {**tensors, "images": images}), "checksum of images")
    refused(resaved(saved, tmp_path / "x", {**tensors, "more": torch.zeros(1)}), "not those of the header")
    refused(resaved(saved, tmp_path / "x", version="2"), "a newer ninfer")
    refused(resaved(saved, tmp_path / "x", format="gguf"), "format")
    header = json.loads(read_text(saved))
    header["conversation"] = "another text"
    refused(resaved(saved, tmp_path / "x", header=json.dumps(header)), "checksum of the header")
    save_file({"a": torch.zeros(3)}, tmp_path / "x")
    refused(tmp_path / "x", "format")
    refused(tmp_path, "not a regular file")
    refused(tmp_path / "none", "no such session")


def read_text(path: Path) -> str:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return file.metadata()["header"]


@pytest.mark.req("SES-4")
def test_another_model_of_the_same_shape_and_another_dtype(tmp_path: Path) -> None:
    paths = {
        name: Tiny(**settings).write(tmp_path / name)
        for name, settings in {"one": {}, "two": {"seed": 1}, "half": {"dtype": "bfloat16"}}.items()
    }
    first = Program(load_model(paths["one"]), Vector(6, 0, (20,), 0))
    owner, _ = conversation(first, (77,))
    write(tmp_path / "s", first.save_continuations([owner]), replace=False)
    for name, words in (("two", "another model .fingerprint"), ("half", "another dtype")):
        other = Program(load_model(paths[name]), Vector(6, 0, (20,), 0))
        with pytest.raises(SessionError, match=words):
            other.restore_continuations(read(tmp_path / "s"))
        assert not other.world.owners


@pytest.mark.req("SES-4")
def test_a_directory_that_lies_is_refused_before_memory_is_touched(saved: Path, tmp_path: Path) -> None:
    def lie(change) -> None:
        content = read(saved)
        header = json.loads(json.dumps({k: v for k, v in content.header.items() if k not in ("checksums", "tensors")}))
        tensors = dict(content.tensors)
        change(header, tensors)
        write(tmp_path / "x", session_file.SessionContent(header, tensors), replace=True)
        refused(tmp_path / "x", "inconsistent|finite")

    def entry(header: dict) -> dict:
        return header["continuations"][0]["checkpoints"][1]

    lie(lambda h, t: entry(h).update(frontier=10**9))
    lie(lambda h, t: entry(h).update(frontier=63.5))
    lie(lambda h, t: entry(h).update(image=99))
    lie(lambda h, t: entry(h).update(image=True))
    lie(lambda h, t: entry(h).update(image=2))
    lie(lambda h, t: entry(h).update(pages=[[99]]))
    lie(lambda h, t: entry(h).update(pages=[]))
    lie(lambda h, t: entry(h).update(kind="Gift"))
    lie(lambda h, t: h["continuations"][0]["checkpoints"].reverse())
    lie(lambda h, t: h["continuations"][0].update(cuts=[-1]))
    lie(lambda h, t: t.update({"tokens.0": t["tokens.0"] + 1000}))
    lie(lambda h, t: t.update({"trace.0": t["trace.0"][:-1].contiguous()}))
    lie(lambda h, t: t.update({"trace.0": -t["trace.0"]}))
    lie(lambda h, t: t.update(images=t["images"][:, :-1].contiguous()))
    lie(lambda h, t: t.update(images=torch.full_like(t["images"], 255)))


# --- writing ------------------------------------------------------------------------------------------------------
def test_an_existing_or_odd_target_is_refused(saved: Path, tmp_path: Path) -> None:
    content = read(saved)
    before = saved.read_bytes()
    with pytest.raises(SessionError, match="exists"):
        write(saved, content, replace=False)
    (tmp_path / "link").symlink_to(saved)
    for target in (tmp_path / "link", tmp_path):
        with pytest.raises(SessionError, match="not a regular file"):
            write(target, content, replace=True)
    with pytest.raises(SessionError, match="cannot be written"):
        write(tmp_path / "no" / "where", content, replace=True)
    assert saved.read_bytes() == before


def test_a_full_disk_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    content = read(saved)
    monkeypatch.setattr(session_file, "save_file", full)
    with pytest.raises(SessionError, match="No space left on device"):
        write(saved, content, replace=True)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved], "no litter"


@pytest.mark.req("SES-4")
def test_killed_while_writing_two_hundred_times(tmp_path: Path) -> None:
    """At every moment the old file or the whole new one is there, and loads."""
    target, rng = tmp_path / "s", random.Random(9)
    program = ledger_program()
    old, new = (program.save_continuations([small(program, n)], n) for n in (100, 150))
    old.tensors["pad"] = torch.zeros(1 << 20, dtype=torch.uint8)
    new.tensors["pad"] = torch.ones(1 << 20, dtype=torch.uint8)
    write(target, old, replace=False)
    seen = {100: 0, 150: 0}
    longest = 0.01
    for _ in range(200):
        write(target, old, replace=True)
        told, tells = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(tells, b"!")
                write(target, new, replace=True)
            finally:
                os._exit(0)
        os.read(told, 1)
        time.sleep(rng.random() * longest)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(told)
        os.close(tells)
        found = read(target).header["conversation"]
        seen[found] += 1
        # Follow the machine's speed, so that the kills fall before, into and behind the replacement.
        longest *= 1.15 if found == 100 else 0.87
    assert min(seen.values()) >= 30, f"the kills did not hit the writing: {seen}"


def test_a_snapshot_of_an_active_sequence_is_refused() -> None:
    program = ledger_program()
    handle = begin(program, [1, 2, 3])
    assert isinstance(handle, SequenceHandle)
    with pytest.raises(ValueError, match="inactive"):
        program.save_continuations([program.sequence(handle).owner])


def test_nothing_is_saved_or_restored_while_a_transition_is_open(saved: Path) -> None:
    program = ledger_program()
    owner = small(program)
    request = work([1, 2, 3])
    plan = program.seal(Target(program.activation(None, request)), request)
    transaction = program.start(plan)
    for attempt in (lambda: program.save_continuations([owner]), lambda: program.restore_continuations(read(saved))):
        with pytest.raises(RuntimeError, match="transition is open"):
            attempt()
    while program.advance(transaction, plan) is None:
        pass
    assert transaction.result.ending is Ending.COMMITTED
