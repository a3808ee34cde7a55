"""Sessions through the Engine: exact counts in a fresh process, autosave after every turn, proof by replay."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from ninfer_core import (
    CacheIntent,
    CapacityError,
    Completion,
    ContextCacheOptions,
    Engine,
    EngineClosed,
    EngineOptions,
    FileOptions,
    GenerationRequest,
    Message,
    PreparedPrompt,
    PromptTooLong,
    SamplingParams,
    SessionError,
    SessionKey,
    SessionStore,
    open_session,
    open_text,
)
from ninfer_core.models import fingerprint
from ninfer_core.program import session_segments
from tests.support.hashing import Hashing

GREEDY = SamplingParams(temperature=0)
ROOT = Path(__file__).resolve().parents[2]
KEY = SessionKey(bytes(32))


def speak(engine: Engine, *said: str) -> tuple[list[Message], list[tuple[int, ...]], list[Completion]]:
    """A conversation turn by turn: its messages, the ledger of each turn, and the replies."""
    messages: list[Message] = []
    ledgers, replies = [], []
    for text in said:
        messages.append(Message("user", text))
        reply = engine.generate(messages, sampling=GREEDY, max_new=8, cache=CacheIntent(session="talk"))
        ledgers.append((*reply.prompt_token_ids, *reply.token_ids))
        messages.append(Message("assistant", reply.text, reply.reasoning or ""))
        replies.append(reply)
    return messages, ledgers, replies


def of_pages(model: Path, pages: int) -> EngineOptions:
    """A pool of so many pages of 64 tokens, states enough, and no Host tier."""
    cache = ContextCacheOptions(device_state_slots=8, host_state_slots=0, host_kv_capacity_bytes=0)
    return EngineOptions(model=model, max_concurrency=2, max_context=700, kv_capacity=64 * pages, cache=cache)


def say(engine: Engine, tokens: list[int]) -> tuple[int, ...]:
    """The ledger of a raw prompt and a short reply."""
    reply = engine.generate(engine.prepare_tokens(tokens), max_new=2, sampling=GREEDY)
    return (*tokens, *reply.token_ids)


@contextmanager
def nine_pages_promised(engine: Engine) -> Iterator[None]:
    """While a request runs that may take as many."""
    running = engine.submit(GenerationRequest(engine.prepare_tokens([3] * 64), GREEDY, 500, ignore_end=True))
    running.next_event()  # it is Active
    yield
    running.cancel()
    running.result(60)


FRESH = """
import json, sys
from pathlib import Path
from ninfer_core import *
model, where, messages = sys.argv[1:]
messages = [Message(**message) for message in json.loads(messages)]
greedy = SamplingParams(temperature=0)
with Engine(EngineOptions(model=Path(model), max_concurrency=2, max_context=1024, prefill_chunk=64)) as engine:
    engine.generate("Something that has nothing to do with it", sampling=greedy, max_new=6)
    restored = engine.restore_session(Path(where))
    rows = []
    for path in (messages, messages[:-1], [*messages[:-2], Message("user", "edited")]):
        done = engine.generate(path, sampling=greedy, max_new=8)
        usage = done.statistics.usage
        found = engine.verify(done.request_id)
        proofs = [found.state, found.kv, found.tokens]
        rows.append([usage.prompt_tokens, usage.reused_tokens, usage.prefill_tokens, *proofs])
    engine.audit()
print(json.dumps({"rows": rows, "frontiers": [[c.frontier for c in one] for one in restored.checkpoints]}))
"""


@pytest.mark.req("SES-3", "SES-4", "VER-1")
@pytest.mark.parametrize("form", ["file", "directory"])
def test_a_fresh_process_goes_on_from_the_saved_checkpoints(
    engine: Engine, tiny_directory: Path, tmp_path: Path, form: str
) -> None:
    messages, ledgers, _ = speak(engine, "Hello there", "What is my name?", "And now?")
    if form == "file":
        engine.save_session(tmp_path / "talk", ledgers, {})
    else:
        with SessionStore(tmp_path / "talk") as store:
            engine.autosave(store, ledgers, {})
    asked = [*messages[:-1], Message("assistant", "Mine."), Message("user", "Go on")]
    plain = [{"role": m.role, "content": m.content, "reasoning_content": m.reasoning_content} for m in asked]
    done = subprocess.run(
        [sys.executable, "-c", FRESH, str(tiny_directory), str(tmp_path / "talk"), json.dumps(plain)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    continuations = open_session(tmp_path / "talk").header.value["continuations"]
    saved = [[c["frontier"] for c in one["checkpoints"]] for one in continuations]
    assert result["frontiers"] == saved, "all of it found room"
    paths = (asked, asked[:-1], [*asked[:-2], Message("user", "edited")])
    turns = [engine.prepare(messages[:end]) for end in (1, 3, 5)]
    for number, (path, (prompt, reused, prefill, *proofs)) in enumerate(zip(paths, result["rows"], strict=True)):
        asking = engine.prepare(path)
        # The deepest saved state on the prompt: the same tokens, divided into the same messages (ID-1, ID-2).
        best = max(
            frontier
            for frontiers in saved
            for ledger, turn in zip(ledgers, turns, strict=True)
            for frontier in frontiers
            if frontiers[-1] == len(ledger) - 1  # that turn's own: the last token was drawn, not read
            and ledger[:frontier] == asking.token_ids[:frontier]
            and cuts(turn, frontier) == cuts(asking, frontier)
        )
        assert prompt == len(asking) and prefill == prompt - reused and proofs == [True, True, True]
        assert reused == best if number == 0 else reused >= best, "later ones may start from what those before left"


def cuts(prompt: PreparedPrompt, frontier: int) -> list[int]:
    return [cut for cut in prompt.boundaries.rewrite_execution_frontiers if cut <= frontier]


def test_prefill_reads_and_generates_nothing(engine: Engine) -> None:
    prompt = engine.prepare_prefix([Message("system", "Be brief.")], "A long document. " * 20)
    done = engine.prefill(prompt)
    assert (done.token_ids, done.text, done.error) == ((), "", None)
    assert done.statistics.usage.prefill_tokens == len(prompt) and done.statistics.timings.ttft_ms is None
    asked = [Message("system", "Be brief."), Message("user", "A long document. " * 20 + "\n\nWho?")]
    reply = engine.generate(asked, sampling=GREEDY, max_new=4)
    assert reply.statistics.usage.reused_tokens == len(prompt)
    again = engine.prefill(prompt)
    assert again.statistics.usage.reused_tokens == len(prompt) and again.statistics.usage.prefill_tokens == 0
    full = engine.prepare_tokens([1] * engine.info.max_context)
    assert engine.prefill(full).statistics.usage.prefill_tokens == engine.info.max_context
    with pytest.raises(PromptTooLong):
        engine.prefill(engine.prepare_tokens([1] * (engine.info.max_context + 1)))
    with pytest.raises(PromptTooLong):
        engine.submit(GenerationRequest(full))
    engine.audit()


@pytest.mark.parametrize("waiting", ["", "A text", "A text.\n", "Numbers 12", "中文", "trailing  spaces  "])
@pytest.mark.parametrize("question", ["Who?", "12", "\nindented", " spaced", "…", "(x)", "é"])
def test_a_prefix_is_one_of_every_question(engine: Engine, waiting: str, question: str) -> None:
    messages = [Message("user", "Hi"), Message("assistant", "Hello")]
    prefix = engine.prepare_prefix(messages, waiting)
    text = f"{waiting}\n\n{question}" if waiting else question
    whole = engine.prepare([*messages, Message("user", text)])
    assert whole.token_ids[: len(prefix)] == prefix.token_ids
    cuts = tuple(cut for cut in whole.boundaries.rewrite_execution_frontiers if cut <= len(prefix))
    assert prefix.boundaries.rewrite_execution_frontiers == cuts and prefix.mode == whole.mode


def test_autosave_writes_a_turn_once_and_a_restored_one_not_again(
    engine: Engine, tiny_directory: Path, tmp_path: Path
) -> None:
    _, ledgers, _ = speak(engine, "one", "two")
    with SessionStore(tmp_path / "d", KEY) as store:
        first = engine.autosave(store, ledgers, {"turns": 2})
        assert first.state_bytes < first.written < first.state_bytes + 20_000
        assert engine.autosave(store, ledgers, {"turns": 2}).written < 20_000
    with Engine(EngineOptions(model=tiny_directory, max_concurrency=2, max_context=1024)) as other:
        with SessionStore(tmp_path / "d", KEY) as store:
            restored = other.restore_session(store)
            assert restored.proven is True and restored.conversation == {"turns": 2} and not restored.left_out
            assert other.autosave(store, restored.paths, {"turns": 2}).written < 20_000
        other.audit()


def test_unproven_state_is_never_signed_until_it_is_replayed(
    engine: Engine, tiny_directory: Path, tmp_path: Path
) -> None:
    _, ledgers, _ = speak(engine, "one")
    theirs, mine = SessionKey(b"t" * 32), KEY
    engine.save_session(tmp_path / "theirs", ledgers, {}, FileOptions(key=theirs))
    restored = engine.restore_session(tmp_path / "theirs", mine)
    assert restored.proven is False
    engine.save_session(tmp_path / "own", ledgers, {}, FileOptions(key=mine))
    assert open_session(tmp_path / "own", mine).header.proven is True, "it was here already, to the byte"
    with Engine(EngineOptions(model=tiny_directory, max_concurrency=2, max_context=1024)) as other:
        restored = other.restore_session(tmp_path / "theirs", mine)
        assert restored.proven is False
        other.save_session(tmp_path / "a", ledgers, {}, FileOptions(key=mine))
        assert open_session(tmp_path / "a", mine).header.proven is None, "a save must not launder it"
        with SessionStore(tmp_path / "d", mine) as store:
            other.autosave(store, ledgers, {})
            assert open_session(tmp_path / "d", mine).header.proven is None
        found = other.verify_session(restored)
        assert all(v.done and not v.differs for one in found for v in one)
        other.save_session(tmp_path / "b", ledgers, {}, FileOptions(key=mine))
        assert open_session(tmp_path / "b", mine).header.proven is True


def test_a_disk_that_is_full_or_read_only(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, ledgers, _ = speak(engine, "one")
    for place in ("/proc/self/talk", "/proc/self/fd/none/talk"):
        with pytest.raises(SessionError, match="cannot be written"):
            engine.save_session(Path(place), ledgers, {})
        with pytest.raises(SessionError, match="cannot be written"):
            SessionStore(Path(place))
    with SessionStore(tmp_path / "d") as store:
        engine.autosave(store, ledgers, "old")
        _, more, _ = speak(engine, "one", "two")

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(session_segments.os, "write", full)
            with pytest.raises(SessionError, match="No space left"):
                engine.autosave(store, [*ledgers, *more], "new")
        assert open_session(tmp_path / "d").header.value["conversation"] == "old"
        engine.autosave(store, [*ledgers, *more], "new")
    assert open_session(tmp_path / "d").header.value["conversation"] == "new"
    engine.audit()


@pytest.mark.req("SES-3")
def test_what_is_resident_already_is_not_restored_again(engine: Engine, tmp_path: Path) -> None:
    messages, ledgers, _ = speak(engine, "Who lives next door?", "And opposite?")
    engine.save_session(tmp_path / "talk", ledgers, {}, FileOptions(key=KEY))
    before = {row.owner: row.checkpoints for row in engine.cache_table().owners}
    restored = engine.restore_session(tmp_path / "talk", KEY)
    assert {row.owner: row.checkpoints for row in engine.cache_table().owners} == before
    saved = open_session(tmp_path / "talk").header.value["continuations"]
    assert [[c.frontier for c in one] for one in restored.checkpoints] == [
        [c["frontier"] for c in one["checkpoints"]] for one in saved
    ]
    assert set(restored.owners) <= before.keys() and restored.released == 0
    assert all(v.done and not v.differs for one in engine.verify_session(restored) for v in one)
    # so from a directory, which goes on being written
    with SessionStore(tmp_path / "store", KEY) as store:
        engine.autosave(store, ledgers, {})
    with SessionStore(tmp_path / "store", KEY) as store:
        again = engine.restore_session(store, KEY)
        assert set(again.owners) == set(restored.owners)
        messages.append(Message("user", "Thanks"))
        done = engine.generate(messages, sampling=GREEDY, max_new=4, cache=CacheIntent(session="talk"))
        kept = engine.autosave(store, [*ledgers, (*done.prompt_token_ids, *done.token_ids)], {})
        assert not kept.left_out
        held = open_session(tmp_path / "store").header.value["continuations"]
        assert len(held) == len(kept.checkpoints), "nothing is kept twice"
    engine.audit()


@pytest.mark.req("SES-3")
def test_room_is_made_for_every_checkpoint_before_one_is_dropped(
    engine: Engine, tiny_directory: Path, tmp_path: Path
) -> None:
    _, ledgers, _ = speak(engine, "What grows here?", "And there?")
    engine.save_session(tmp_path / "talk", ledgers, {})
    saved = open_session(tmp_path / "talk").header.value["continuations"]
    images = len({c["image"] for one in saved for c in one["checkpoints"]})
    assert images > len(saved), "there are optional ones"
    small = EngineOptions(
        model=tiny_directory, max_context=1024, cache=ContextCacheOptions(device_state_slots=images - 1)
    )
    with Engine(small) as other:
        speak(other, "Something else", "that fills", "all of the cache")
        restored = other.restore_session(tmp_path / "talk")
        assert not restored.dropped and not restored.left_out and restored.released > 0
        assert len(restored.checkpoints) == len(saved)
        other.audit()
    with Engine(replace(small, cache=ContextCacheOptions(device_state_slots=images - 2))) as tight:
        restored = tight.restore_session(tmp_path / "talk")
        assert restored.dropped and restored.advice == "--device-state-slots"


@pytest.mark.req("SES-3", "SES-4", "RET-2")
@pytest.mark.parametrize("why", ["no room for the session", "not finite"])
def test_nobody_is_released_for_a_session_that_is_refused(tiny_directory: Path, tmp_path: Path, why: str) -> None:
    """Ten pages are wanted. Of 16 a running request is promised nine; of 12 all could be had, and the state is bad."""
    pages = 16 if "room" in why else 12
    with Engine(of_pages(tiny_directory, 16)) as first:
        ledger = say(first, [5] * 600)
        if "finite" in why:
            for plane in first._worker._program.physical.images.planes.recurrent:
                plane.fill_(float("nan"))
        first.save_session(tmp_path / "talk", [ledger], {})
    with Engine(of_pages(tiny_directory, pages)) as engine:
        again = engine.prepare_tokens([*say(engine, [9] * 200), 1])
        before = engine.residency([again])
        assert before[0].frontier == 201
        with nine_pages_promised(engine) if "room" in why else nullcontext():
            with pytest.raises(SessionError, match=why):
                engine.restore_session(tmp_path / "talk")
            assert engine.residency([again]) == before
        engine.audit()


@pytest.mark.req("SES-3", "RET-2")
def test_what_is_here_stays_where_the_rest_of_its_session_finds_no_room(tiny_directory: Path, tmp_path: Path) -> None:
    """The older continuation wants five pages. Of 14 the newest holds four, and a running request is promised nine."""
    with Engine(of_pages(tiny_directory, 20)) as first:
        older, newest = say(first, [5] * 300), say(first, [6] * 200)
        first.save_session(tmp_path / "talk", [older, newest], {})
    with Engine(of_pages(tiny_directory, 14)) as engine:
        say(engine, [6] * 200)
        with nine_pages_promised(engine):
            restored = engine.restore_session(tmp_path / "talk")
        assert [one[-1].frontier for one in restored.checkpoints] == [201] and restored.released == 0
        assert [one[-1][1] for one in restored.left_out] == [301] and restored.advice == "--kv-capacity"
        engine.audit()
        again = engine.restore_session(tmp_path / "talk")
        assert [one[-1].frontier for one in again.checkpoints] == [201, 301] and not again.left_out
        engine.audit()


@pytest.mark.req("SES-3", "RET-2")
def test_nobody_is_released_any_more_once_all_that_can_fit_fits(tiny_directory: Path, tmp_path: Path) -> None:
    """Of 16 pages a running request is promised nine, and two others hold two each. The newest continuation wants four
    and finds them when one of those has gone; the older one wants five, and finds them in no way."""
    options = of_pages(tiny_directory, 16)
    with Engine(options) as first:
        first.save_session(tmp_path / "talk", [say(first, [5] * 300), say(first, [6] * 200)], {})
    with Engine(options) as engine:
        for token in (9, 10):
            say(engine, [token] * 90)
        with nine_pages_promised(engine):
            restored = engine.restore_session(tmp_path / "talk")
        assert [one[-1].frontier for one in restored.checkpoints] == [201] and restored.released == 1
        assert [one[-1][1] for one in restored.left_out] == [301]
        engine.audit()


@pytest.mark.req("SES-2")
def test_the_end_of_a_prefill_is_stored_once(engine: Engine, tmp_path: Path) -> None:
    prompt = engine.prepare_prefix([Message("system", "Be exact.")], "A report of some length. " * 9)
    engine.prefill(prompt)
    engine.save_session(tmp_path / "report", [prompt.token_ids], {})
    saved = open_session(tmp_path / "report").header.value["continuations"]
    held = [(c["frontier"], c["image"]) for one in saved for c in one["checkpoints"]]
    assert sum(frontier == len(prompt) for frontier, _ in held) == 2, "where it ends, and the endpoint"
    assert len(set(held)) == len({frontier for frontier, _ in held})
    with Engine(EngineOptions(model=engine.info.model_directory, max_context=1024)) as other:
        restored = other.restore_session(tmp_path / "report")
        assert all(v.done and not v.differs for one in other.verify_session(restored) for v in one)
        assert other.prefill(prompt).statistics.usage.prefill_tokens == 0
        other.audit()


def test_the_text_opens_where_segments_are_gone(engine: Engine, tmp_path: Path) -> None:
    _, ledgers, _ = speak(engine, "Who is there?")
    with SessionStore(tmp_path / "store", KEY) as store:
        engine.autosave(store, ledgers, {"said": "this"})
    first, *_ = sorted((tmp_path / "store").glob("*.segment"))
    first.unlink()
    with pytest.raises(SessionError, match="missing"):
        SessionStore(tmp_path / "store", KEY)
    assert open_text(tmp_path / "store", KEY).value["conversation"] == {"said": "this"}
    left = set((tmp_path / "store").glob("*.segment"))
    with SessionStore(tmp_path / "store", KEY, text_only=True) as store:
        assert store.header is not None and store.header.value["conversation"] == {"said": "this"}
        assert set((tmp_path / "store").glob("*.segment")) == left, "the old state goes when the new one is there"
        engine.autosave(store, ledgers, {"said": "more"})
    assert open_session(tmp_path / "store", KEY).header.value["conversation"] == {"said": "more"}
    assert not left & set((tmp_path / "store").glob("*.segment"))


# --- the fingerprint of the weights -----------------------------------------------------------------------------------
@pytest.mark.parametrize("sessions", [False, True])
def test_an_engine_reads_its_weights_once_for_all_sessions(
    tiny_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sessions: bool
) -> None:
    hashing = Hashing(monkeypatch)
    with Engine(EngineOptions(model=tiny_directory, max_context=1024, sessions=sessions)) as engine:
        _, ledgers, _ = speak(engine, "Who is there?")
        assert sessions or hashing.taken == 0, "without sessions nobody pays for it"
        engine.save_session(tmp_path / "talk", ledgers, {})
        assert hashing.taken == engine.info.weight_bytes
        with SessionStore(tmp_path / "store") as store:
            engine.autosave(store, ledgers, {})
        engine.restore_session(tmp_path / "talk")
        assert hashing.taken == engine.info.weight_bytes
    with Engine(EngineOptions(model=tiny_directory, max_context=1024, sessions=not sessions)) as other:
        assert other.restore_session(tmp_path / "talk").checkpoints


def test_an_engine_that_closes_waits_for_no_fingerprint(
    tiny_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its caller nor its worker, which asks for it while it copies a state."""
    monkeypatch.setattr(fingerprint, "_PIECE", 256)
    hashing, begun, go_on = Hashing(monkeypatch), threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert go_on.wait(60)

    hashing.seen = wait
    engine = Engine(EngineOptions(model=tiny_directory, max_context=1024, sessions=True))
    _, ledgers, _ = speak(engine, "Who is there?")
    told: list[Exception] = []

    def save() -> None:
        try:
            engine.save_session(tmp_path / "talk", ledgers, {})
        except EngineClosed as error:
            told.append(error)

    saver = threading.Thread(target=save)
    saver.start()
    assert begun.wait(60)
    closer = threading.Thread(target=engine.close)
    closer.start()
    assert engine._model._fingerprint._stopped.wait(60)
    go_on.set()
    closer.join(60)
    saver.join(60)
    assert not closer.is_alive() and len(told) == 1 and not (tmp_path / "talk").exists()
    assert hashing.taken <= 256


def test_an_engine_that_cannot_start_leaves_no_fingerprint_behind(
    tiny_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprint, "_PIECE", 256)
    hashing, never = Hashing(monkeypatch), threading.Event()
    hashing.seen = lambda: never.wait(2)
    with pytest.raises(CapacityError):
        Engine(EngineOptions(model=tiny_directory, kv_capacity=1 << 40, sessions=True))
    assert "ninfer-fingerprint" not in [thread.name for thread in threading.enumerate()]
    assert hashing.taken <= 256
