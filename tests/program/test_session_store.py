"""A session's directory: what a turn adds is written and nothing else, and whenever the process dies it loads."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ninfer_core.errors import SessionError, SessionInUse, SessionTooLarge
from ninfer_core.program import session_aside, session_header, session_lock, session_segments
from ninfer_core.program.planning.target import SourceMode
from ninfer_core.program.program import Program
from ninfer_core.program.session_key import SessionKey
from ninfer_core.program.session_place import is_new_session
from ninfer_core.program.session_reader import open_session
from ninfer_core.program.session_store import SessionStore
from tests.program.history import checksum
from tests.program.test_exactness import begin, run, tap
from tests.program.test_session_file import TALK, ledger_program, small

IMAGE, TOKEN = 192, 8
"""Bytes of one StateImage and of one token's KV in the ledger model."""


@pytest.fixture
def key() -> SessionKey:
    return SessionKey(bytes(32))


@pytest.fixture
def store(tmp_path: Path, key: SessionKey) -> Iterator[SessionStore]:
    with SessionStore(tmp_path / "talk", key) as store:
        yield store


def segments(path: Path) -> dict[str, int]:
    return {p.name: p.stat().st_size for p in path.iterdir() if p.name.endswith(".segment")}


def grown(program: Program, owner: int, tokens: int = 3) -> int:
    """The conversation goes on: its endpoint moves, its other checkpoints stay."""
    endpoint = program.world.owners[owner].checkpoints[-1]
    ledger = [int(t) for t in memoryview(program.record(endpoint.ref).identity.tokens).cast("I")]
    handle = begin(program, [*ledger, 7], program.source(owner, endpoint, SourceMode.CONSUME))
    run(program, [handle], tokens)
    program.end(handle)
    found = program.finish(handle)
    assert found is not None
    return found


def loaded(path: Path, key: SessionKey | None = None, **sizes: int) -> tuple[Program, object]:
    program = ledger_program(**sizes)
    source = open_session(path, key)
    fit = program.selection(source.header.value, source.sizes(), 100)
    return program, program.restore_continuations(source.load(fit.directory))


@pytest.mark.req("SES-2", "SES-3", "SES-4")
def test_what_was_autosaved_comes_back(store: SessionStore, key: SessionKey) -> None:
    program = ledger_program()
    owner = small(program)
    before = [(c.kind, c.frontier, checksum(program, c)) for c in program.world.owners[owner].checkpoints]
    saved = store.autosave(program.snapshot([owner], store), TALK)
    assert saved.left_out == () and saved.state_bytes == sum(segments(store.path).values())
    other, restored = loaded(store.path, key)
    back = other.world.owners[restored.owners[0]].checkpoints
    assert [(c.kind, c.frontier, checksum(other, c)) for c in back] == before
    other.audit()
    header = open_session(store.path, key).header
    assert header.proven is True and header.value["conversation"] == TALK
    modes = {stat.S_IMODE(p.stat().st_mode) for p in store.path.iterdir()}
    assert modes == {0o600} and stat.S_IMODE(store.path.stat().st_mode) == 0o700


def test_only_what_is_new_is_written(store: SessionStore) -> None:
    program = ledger_program()
    owner = small(program)
    store.autosave(program.snapshot([owner], store), TALK)
    first = segments(store.path)
    again = store.autosave(program.snapshot([owner], store), TALK)
    assert segments(store.path) == first and again.written == (store.path / "manifest").stat().st_size

    frontier = program.world.owners[owner].checkpoints[-1].frontier
    owner = grown(program, owner)
    endpoint = program.world.owners[owner].checkpoints[-1]
    snapshot = program.snapshot([owner], store)
    assert [len(image) for image in snapshot.images.values()] == [IMAGE]
    assert {(p.start, p.end) for p in snapshot.pieces.values()} == {(frontier % 64, endpoint.frontier % 64)}
    store.autosave(snapshot, TALK)
    now = segments(store.path)
    new = {name: size for name, size in now.items() if name not in first}
    trace = program.record(endpoint.ref).trace
    ledger = 4 * endpoint.frontier + 4 * sum(5 + len(unit.rows) + len(unit.cuts) for unit in trace)
    assert sorted(new.values()) == sorted([IMAGE, TOKEN * (endpoint.frontier - frontier) + ledger])
    gone = [size for name, size in first.items() if name not in now]
    assert gone == [IMAGE], "the endpoint that moved on has taken its segment with it"


def test_a_segment_that_is_mostly_dead_is_written_again(store: SessionStore) -> None:
    program = ledger_program(pages=40)
    big, little = small(program, 1000), small(program, 70)
    store.autosave(program.snapshot([little, big], store), TALK)
    before = sum(segments(store.path).values())
    store.autosave(program.snapshot([little], store), TALK)
    after = sum(segments(store.path).values())
    snapshot = program.snapshot([little], store)
    assert not snapshot.images and not snapshot.pieces, "it knows where everything has moved"
    saved = store.autosave(snapshot, TALK)
    assert after == saved.state_bytes < before / 4
    other, restored = loaded(store.path)
    one, two = (p.world.owners[o].checkpoints[-1] for p, o in ((program, little), (other, restored.owners[0])))
    assert checksum(program, one) == checksum(other, two)


def test_the_limit_leaves_out_the_oldest_state_and_never_text(tmp_path: Path) -> None:
    program = ledger_program(pages=40)
    old, new = small(program, 200), small(program, 130)
    path = tmp_path / "talk"
    with SessionStore(path, limit=4000) as store:
        saved = store.autosave(program.snapshot([new, old], store), TALK)
        assert [frontiers[-1][1] for frontiers in saved.left_out] == [203] and saved.state_bytes <= 4000
    with SessionStore(path, limit=10) as store:
        saved = store.autosave(program.snapshot([new, old], store), TALK)
        assert len(saved.left_out) == 2 and not segments(path)
    assert open_session(path).header.value["conversation"] == TALK


def test_a_restored_directory_is_not_written_again(store: SessionStore, key: SessionKey) -> None:
    program = ledger_program(pages=40)
    new, old = small(program, 130), small(program, 200)
    store.autosave(program.snapshot([new, old], store), TALK)
    store.close()
    before = segments(store.path)
    with SessionStore(store.path, key) as again:
        other = ledger_program(pages=4)
        source = again.source()
        content = source.load(other.selection(source.header.value, source.sizes(), 100).directory)
        restored = other.restore_continuations(content)
        assert len(restored.owners) == 1, "the older one has no pages"
        again.adopt(content.places, restored, other.origin)
        snapshot = other.snapshot(restored.owners, again)
        assert not snapshot.images and not snapshot.pieces
        again.autosave(snapshot, TALK)
        assert segments(store.path) == before, "what found no room stays where it is"
    assert len(open_session(store.path).header.value["continuations"]) == 2


@pytest.mark.req("SES-3")
def test_what_came_back_without_some_checkpoints_stays_whole_on_the_disk(store: SessionStore, key: SessionKey) -> None:
    program = ledger_program()
    owner = small(program)
    count = len(program.world.owners[owner].checkpoints)
    assert count > 1
    store.autosave(program.snapshot([owner], store), TALK)
    store.close()
    with SessionStore(store.path, key) as again:
        other = ledger_program(device=2, host=0)
        source = again.source()
        content = source.load(other.selection(source.header.value, source.sizes(), 100).directory)
        restored = other.restore_continuations(content)
        (back,) = restored.owners
        assert len(other.world.owners[back].checkpoints) < count
        again.adopt(content.places, restored, other.origin, restored.continuations)
        again.autosave(other.snapshot([back], again), TALK)
        again.autosave(other.snapshot([grown(other, back)], again), TALK)
    kept = open_session(store.path, key).header.value["continuations"]
    assert sorted(len(one["checkpoints"]) for one in kept)[-1] == count, "beside what it has grown to"
    whole, found = loaded(store.path, key)
    assert max(len(whole.world.owners[one].checkpoints) for one in found.owners) == count


@pytest.mark.req("SES-3")
def test_whole_continuations_are_left_out_and_named(store: SessionStore) -> None:
    program = ledger_program(pages=40)
    new, old = small(program, 130), small(program, 200)
    content = program.save_continuations([new, old])
    other = ledger_program(pages=20)
    assert len(other.restore_continuations(content, cells=1).left_out) == 1
    tight = ledger_program(pages=5)
    restored = tight.restore_continuations(content)
    assert [named[-1][1] for named in restored.left_out] == [203] and len(restored.owners) == 1
    with pytest.raises(SessionError, match="no room"):
        ledger_program(pages=5).restore_continuations(content, cells=0)


def test_two_writers_of_one_session(store: SessionStore) -> None:
    store.autosave(None, TALK)
    before = (store.path / "manifest").read_bytes()
    with pytest.raises(SessionError, match=rf"open in another ninfer .process {os.getpid()}."):
        SessionStore(store.path)
    assert (store.path / "manifest").read_bytes() == before
    store.close()
    SessionStore(store.path).close()


def test_a_full_disk_leaves_what_was_there(store: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    program = ledger_program()
    owner = small(program)
    store.autosave(program.snapshot([owner], store), "old")
    owner = grown(program, owner)
    before = {p.name: p.read_bytes() for p in store.path.iterdir()}
    real, left = os.write, [3]

    def full(handle: int, data: object) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, data)  # type: ignore[arg-type]

    for allowed in range(3):
        left[0] = allowed
        with monkeypatch.context() as patch:
            patch.setattr(session_segments.os, "write", full)
            with pytest.raises(SessionError, match="No space left on device"):
                store.autosave(program.snapshot([owner], store), "new")
        assert {p.name: p.read_bytes() for p in store.path.iterdir()} == before, "no litter, nothing lost"
    store.autosave(program.snapshot([owner], store), "new")
    assert open_session(store.path).header.value["conversation"] == "new"


def test_foreign_places_are_refused(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("Dear")
    with pytest.raises(SessionError, match="without a session"):
        SessionStore(tmp_path / "full")
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["letter.txt"]
    (tmp_path / "file").write_text("x")
    with pytest.raises(SessionError, match="is a file"):
        SessionStore(tmp_path / "file")
    with pytest.raises(SessionError, match="without a session"):
        open_session(tmp_path / "full")
    with pytest.raises(SessionError, match="cannot be written"):
        SessionStore(tmp_path / "file" / "below")


def test_killed_a_hundred_times(tmp_path: Path) -> None:
    """A child saves turn after turn and is killed: the last state that it told of, or the next one, is there."""
    rng, longest, seen = random.Random(3), 0.05, 0
    for round_number in range(100):
        path = tmp_path / str(round_number)
        told, tells = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                store, program = SessionStore(path), ledger_program()
                owner = small(program)
                for turn in range(1000):
                    store.autosave(program.snapshot([owner], store), turn)
                    os.write(tells, b".")
                    owner = grown(program, owner)
            finally:
                os._exit(0)
        os.close(tells)
        os.read(told, 1)  # the first turn is saved
        time.sleep(rng.random() * longest)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        turns = 1 + len(os.read(told, 4096))
        os.close(told)
        found = open_session(path).header.value["conversation"]
        assert found in (turns - 1, turns), "an announced turn is there, or one more"
        seen += found > 0
        # Follow the machine's speed, so that the kills fall before, into and behind the second turn.
        longest *= 0.9 if found else 1.2
        program, restored = loaded(path)
        owner = restored.owners[0]
        assert program.world.owners[owner].checkpoints[-1].frontier == 133 + 3 * found
        run_on = grown(program, owner)  # the ledger model notices every wrong byte
        assert program.world.owners[run_on].checkpoints[-1].frontier == 136 + 3 * found
        with SessionStore(path) as again:
            again.autosave(program.snapshot([run_on], again), "after")
        assert not [p for p in path.iterdir() if p.name.endswith(".part")], "the crash's litter is swept"
    assert 20 < seen < 95, "the kills came before anything happened"


@pytest.mark.req("SES-4")
def test_any_damage_is_noticed(store: SessionStore, key: SessionKey) -> None:
    program = ledger_program()
    tapped = begin(program, [i % 60 for i in range(70)])
    tap(program, tapped, 40)
    run(program, [tapped], 3)
    program.end(tapped)
    store.autosave(program.snapshot([program.finish(tapped)], store), TALK)
    rng = random.Random(8)
    for path in sorted(store.path.iterdir()):
        data = path.read_bytes()
        if path.name == "lock":
            continue
        for place in {0, len(data) - 1, *rng.sample(range(len(data)), min(len(data), 40))}:
            damaged = bytearray(data)
            damaged[place] ^= 1 << rng.randrange(8)
            for bad in (bytes(damaged), data[:place]):
                path.write_bytes(bad)
                try:
                    open_session(store.path, key)
                    loaded(store.path)
                except SessionError as error:
                    assert "\n" not in str(error)
                    continue
                assert path.name == "manifest" and open_session(store.path, key).header.proven is not True
        path.unlink()
        with pytest.raises(SessionError):
            loaded(store.path)
        path.symlink_to("/dev/zero")
        with pytest.raises(SessionError):
            loaded(store.path)
        path.unlink()
        path.write_bytes(data)
    assert loaded(store.path)[1].owners


def directory_of(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in path.iterdir() if p.name != "lock" and p.is_file()}


@pytest.mark.parametrize("state", ["old", "none"])
def test_what_the_text_alone_was_taken_of_stays_aside(store: SessionStore, key: SessionKey, state: str) -> None:
    program = ledger_program(pages=40)
    new, old = small(program, 130), small(program, 200)
    store.autosave(program.snapshot([new, old], store), TALK)
    store.close()
    before = directory_of(store.path)
    for name in ("talk.before", "talk.before2"):
        with SessionStore(store.path, key, text_only=True) as again:
            assert again.aside == store.path.with_name(name) and not again.aside.exists(), "nothing is said yet"
            other = ledger_program(pages=40)
            owner = small(other, 130)
            again.autosave(other.snapshot([owner], again) if state == "old" else None, "more")
            assert again.aside is None
            again.autosave(other.snapshot([owner], again), "more")
    aside = store.path.with_name("talk.before")
    assert directory_of(aside) == before and open_session(aside, key).header.proven is True
    assert len(loaded(aside, key)[1].owners) == 2 and len(loaded(store.path, key)[1].owners) == 1
    assert sorted(p.name for p in store.path.parent.iterdir()) == ["talk", "talk.before", "talk.before2"]
    with SessionStore(aside, key) as writer:
        writer.autosave(None, "and more")
    assert open_session(store.path).header.value["conversation"] == "more"


@pytest.mark.parametrize(("at", "path"), [(".", "."), ("below", ".."), (".", "below/..")])
def test_a_session_that_is_named_by_where_it_is_goes_beside_itself(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch, at: str, path: str
) -> None:
    store.autosave(None, "old")
    store.close()
    (store.path / "00000001.segment").write_bytes(b"state")
    (store.path / "below").mkdir()
    monkeypatch.chdir(store.path / at)
    aside = store.path.with_name("talk.before")
    with SessionStore(Path(path), text_only=True) as again:
        assert again.aside == aside
        again.autosave(None, "new")
    assert (aside / "00000001.segment").read_bytes() == b"state" and (store.path / "below").is_dir()


def test_what_cannot_be_set_aside_is_not_touched(
    store: SessionStore, key: SessionKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    program = ledger_program()
    store.autosave(program.snapshot([small(program)], store), TALK)
    store.close()
    before = directory_of(store.path)
    with SessionStore(store.path, key, text_only=True) as again:
        with monkeypatch.context() as patch:
            patch.setattr(os, "link", full)
            patch.setattr(session_aside.shutil, "copy2", full)
            with pytest.raises(
                SessionError, match=r"talk.before cannot be written .No space left.*, \S+ is unchanged: make room"
            ):
                again.autosave(None, "more")
        assert directory_of(store.path) == before and [p.name for p in store.path.parent.iterdir()] == ["talk"]
        with monkeypatch.context() as patch:
            patch.setattr(os, "link", full)
            again.autosave(None, "more")
    assert directory_of(store.path.with_name("talk.before")) == before, "copied where it cannot be linked"


def test_it_stays_within_where_nothing_can_be_made_beside_it(
    store: SessionStore, key: SessionKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = ledger_program()
    store.autosave(program.snapshot([small(program)], store), TALK)
    store.close()
    before, parent = directory_of(store.path), store.path.parent
    access, mkdir = os.access, Path.mkdir

    def made(self: Path, *arguments: object, **more: object) -> None:  # also where the tests are run by root
        if self.parent == parent and not self.exists():
            raise PermissionError(errno.EACCES, "Permission denied")
        mkdir(self, *arguments, **more)

    monkeypatch.setattr(Path, "mkdir", made)
    monkeypatch.setattr(os, "access", lambda path, mode, **more: Path(path) != parent and access(path, mode, **more))
    for name in ("before", "before2"):
        with SessionStore(store.path, key, text_only=True) as again:
            assert again.aside == store.path / name and not again.aside.exists()
            other = ledger_program()
            again.autosave(other.snapshot([small(other)], again), "more")
            again.autosave(None, "more and more")
    aside = store.path / "before"
    assert directory_of(aside) == before and len(loaded(aside, key)[1].owners) == 1
    with SessionStore(store.path, key) as again:
        assert again.header is not None and again.header.value["conversation"] == "more and more"
    assert len(loaded(store.path, key)[1].owners) == 1 and [p.name for p in parent.iterdir()] == ["talk"]
    assert directory_of(aside) == before, "nor does anything sweep it away"


def test_text_stays_where_it_and_the_state_are_too_much_for_one_header(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = ledger_program(pages=60, device=20)
    owners = [small(program, 130 + i) for i in range(4)]
    saved = store.autosave(program.snapshot(owners, store), TALK)
    assert not saved.left_out
    whole = len(json.dumps(open_session(store.path).header.value))
    monkeypatch.setattr(session_header, "MAX_BYTES", whole + 100)
    text_alone = store.autosave(None, "x" * (whole // 2))
    assert [len(one) for one in text_alone.left_out] and len(text_alone.left_out) < 4
    kept = open_session(store.path).header.value
    assert kept["conversation"] == "x" * (whole // 2) and len(kept["continuations"]) == 4 - len(text_alone.left_out)
    monkeypatch.setattr(session_header, "MAX_BYTES", 2 * whole)
    both = store.autosave(program.snapshot(owners, store), TALK)
    assert not both.left_out and len(loaded(store.path, pages=60, device=20)[1].owners) == 4
    monkeypatch.setattr(session_header, "MAX_BYTES", whole + 100)
    both = store.autosave(program.snapshot(owners, store), "x" * (whole // 2))
    assert 0 < len(both.left_out) < 4
    assert len(loaded(store.path, pages=60, device=20)[1].owners) == 4 - len(both.left_out)
    with pytest.raises(SessionTooLarge):
        store.autosave(None, "x" * (whole + 100))
    assert open_session(store.path).header.value["conversation"] == "x" * (whole // 2)


def test_a_directory_that_was_never_written_goes_again(tmp_path: Path) -> None:
    with SessionStore(tmp_path / "a" / "b") as store, pytest.raises(SessionError):
        store.autosave(None, float("nan"))
    assert not (tmp_path / "a" / "b").exists()
    (tmp_path / "mine").mkdir()
    for _ in range(2):
        SessionStore(tmp_path / "mine").close()
        assert not list((tmp_path / "mine").iterdir()), "it is not ours, and as it was"
    with SessionStore(tmp_path / "a" / "b") as store:
        store.autosave(None, "x")
    assert (tmp_path / "a" / "b" / "manifest").exists()


def test_what_a_process_left_that_died_before_its_first_save_goes_with_the_next(tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.mkdir()
    for name in ("lock", ".0123456789abcdef.part"):
        (left / name).touch()
    SessionStore(left).close()
    assert not left.exists()
    left.mkdir()
    for name in ("lock", "film.part", ".film.part"):  # a download of somebody's
        (left / name).touch()
    with pytest.raises(SessionError, match="without a session in it"):
        SessionStore(left)
    assert len(list(left.iterdir())) == 3
    with SessionStore(tmp_path / "mine") as store:
        store.autosave(None, "x")
        (tmp_path / "mine/.film.part").touch()
    SessionStore(tmp_path / "mine").close()
    assert (tmp_path / "mine/.film.part").exists()


def test_segments_whose_manifest_is_lost_are_never_overwritten(store: SessionStore, key: SessionKey) -> None:
    program = ledger_program(pages=40)
    store.autosave(program.snapshot([small(program, 130)], store), TALK)
    store.close()
    before = directory_of(store.path)
    manifest = store.path.parent / "manifest of talk"
    (store.path / "manifest").rename(manifest)
    assert is_new_session(store.path), "what a process leaves that died before its first save looks like that"
    aside = store.path.with_name("talk.before")
    with SessionStore(store.path, key) as again:
        assert again.aside == aside
    assert directory_of(store.path) == {k: v for k, v in before.items() if k != "manifest"}, "nothing was said"
    with SessionStore(store.path, key) as again:
        other = ledger_program(pages=40)
        again.autosave(other.snapshot([small(other, 200)], again), "more")
        assert again.aside is None and not set(directory_of(store.path)) & set(before) - {"manifest"}
    manifest.rename(aside / "manifest")
    assert directory_of(aside) == before and len(loaded(aside, key)[1].owners) == 1
    assert open_session(aside, key).header.value["conversation"] == TALK
    assert open_session(store.path, key).header.value["conversation"] == "more"


def test_a_directory_that_goes_while_it_is_waited_for_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its only other user leaves without a word, between the look at the directory and its lock."""
    path, first = tmp_path / "talk", SessionStore(tmp_path / "talk")
    take = session_lock._take

    def leaves(handle: int) -> None:
        first.close()
        assert not path.exists()
        monkeypatch.setattr(session_lock, "_take", take)
        take(handle)

    monkeypatch.setattr(session_lock, "_take", leaves)
    with SessionStore(path) as second:
        second.autosave(None, "x")
    assert open_session(path).header.value["conversation"] == "x"


def test_a_second_one_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SessionStore(tmp_path / "one") as store:
        for text_only in (False, True):
            with pytest.raises(SessionInUse):
                SessionStore(tmp_path / "one", text_only=text_only)
        store.autosave(None, "x")
    assert open_session(tmp_path / "one").header.value["conversation"] == "x"
    with monkeypatch.context() as patch:  # made here, and locked by nobody
        patch.setattr(session_lock, "_open", refuse)
        with pytest.raises(SessionError, match="cannot be locked"):
            SessionStore(tmp_path / "two")
    assert [p.name for p in tmp_path.iterdir()] == ["one"]


def refuse(*_: object) -> None:
    raise SessionError("it cannot be locked")


def test_a_lock_that_its_holder_takes_away_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two must not write because one of them holds a file that is gone."""
    first = SessionStore(tmp_path / "one")
    take = session_lock._take

    def taken(handle: int) -> None:
        first.close()  # between the second's look and its lock
        (tmp_path / "one").mkdir(exist_ok=True)
        take(handle)

    with monkeypatch.context() as patch:
        patch.setattr(session_lock, "_take", taken)
        second = SessionStore(tmp_path / "one")
    with pytest.raises(SessionInUse):
        SessionStore(tmp_path / "one")
    second.autosave(None, "x")
    second.close()
    assert open_session(tmp_path / "one").header.value["conversation"] == "x"


def test_what_was_set_aside_within_does_not_lock_the_place(tmp_path: Path, key: SessionKey) -> None:
    """As a process leaves it that died, or found no room, between the two."""
    (tmp_path / "talk" / "before2").mkdir(parents=True)
    (tmp_path / "talk" / "00000003.segment").write_bytes(b"state")
    assert is_new_session(tmp_path / "talk")
    with SessionStore(tmp_path / "talk", key) as again:
        assert again.aside == tmp_path / "talk.before"
        again.autosave(None, TALK)
    assert (tmp_path / "talk" / "before2").is_dir() and (tmp_path / "talk.before" / "00000003.segment").is_file()
    assert open_session(tmp_path / "talk", key).header.value["conversation"] == TALK


@pytest.mark.parametrize("name", ["before/mine.txt", "before", "before1/manifest"])
def test_what_a_person_calls_before_is_none_of_it(tmp_path: Path, key: SessionKey, name: str) -> None:
    (tmp_path / "talk" / name).parent.mkdir(parents=True)
    (tmp_path / "talk" / name).write_text("mine")
    assert not is_new_session(tmp_path / "talk")
    with pytest.raises(SessionError, match="a directory without a session in it"):
        SessionStore(tmp_path / "talk", key)
