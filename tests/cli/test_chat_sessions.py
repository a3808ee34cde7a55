"""Sessions of a chat on the demo model: kept by themselves, brought back, and what stands in the way."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ninfer_cli.repl.chat import Chat
from ninfer_cli.repl.tree import Tree
from ninfer_cli.sessions import Kept, conversation_json, crashed, read_conversation
from ninfer_core import Engine, EngineOptions, SessionStore
from tests.cli import killing
from tests.cli.killing import kept_tree, kill_many


@pytest.fixture(scope="module")
def shared_engine() -> Iterator[Engine]:
    with Engine(EngineOptions(dtype="float32", max_context=1024, max_concurrency=2)) as engine:
        yield engine


def sessions(home: Path) -> list[Path]:
    return sorted((home / "state/ninfer/sessions").glob("*"))


@pytest.mark.req("SES-4")
def test_a_conversation_goes_on_in_another_process_without_reading_it_again(home: Path, chat) -> None:
    first = chat("I am Bela.", "I live in Zurich.")
    (kept,) = sessions(home)
    assert first.status == 0 and (kept / "manifest").stat().st_mode & 0o777 == 0o600
    later = chat("What is my name?", "/regen", "/why", options=("--continue", "--temperature", "0.5"))
    assert later.status == 0 and sessions(home) == [kept], later.err
    prompt, again = (reply["usage"] for reply in later.replies)
    before = first.replies[-1]["usage"]
    # From the generation opener of the turn before: its reply, the new message and the opener are computed.
    assert later.replies[0]["reuse"]["source"] == "TurnClosure"
    assert before["prompt_tokens"] - 12 < prompt["reused_tokens"] < before["prompt_tokens"]
    assert again["prefill_tokens"] < 12 and later.replies[1]["branch"]["sibling"] == 2
    tree = kept_tree(kept)
    assert tree is not None and [tree.turn_at(at).text for at in tree.path()][:2] == ["I am Bela.", "I live in Zurich."]


def test_save_is_portable_and_restore_and_session_read_it(home: Path, chat) -> None:
    path = home / "talk.ninfer"
    saved = chat("I am Bela.", "I live in Zurich.", f"/save {path}", "/save", options=("--no-autosave",))
    assert saved.status == 0 and saved.results["/save"]["result"]["checkpoints"] >= 2
    assert sessions(home) == [] and path.stat().st_mode & 0o777 == 0o600
    refused = chat("I am Tom.", f"/save {path}", options=("--no-autosave",))
    assert refused.status == 1 and "exists" in refused.err
    back = chat(f"/restore {path}", "What is my name?", "/verify", options=("--no-autosave",))
    assert back.status == 0 and back.replies[0]["usage"]["reused_tokens"] > 20, back.err
    assert back.results["/verify"]["result"] == {"state": True, "kv": True, "tokens": True, "detail": None}
    beside = chat("What is my name?", options=("--session", str(path)))
    assert beside.status == 0 and (home / "talk.ninfer.d/manifest").exists()
    text = chat("What is my name?", options=("--session", str(path), "--rebuild", "--no-autosave"))
    assert text.replies[0]["usage"]["reused_tokens"] == 0 and text.replies[0]["text"] == beside.replies[0]["text"]


def test_a_file_never_takes_the_place_of_an_earlier_chat_from_it(home: Path, chat) -> None:
    path = home / "talk.ninfer"
    chat("I am Bela.", f"/save {path}", options=("--no-autosave",))
    chat("I live in Oslo.", options=("--session", str(path)))
    before = kept_tree(home / "talk.ninfer.d")
    again = chat("I live in Rome.", options=("--session", str(path)))
    assert again.status == 0 and "an earlier chat from this file is kept in" in again.err
    assert kept_tree(home / "talk.ninfer.d") == before
    other = kept_tree(home / "talk.ninfer.d2")
    assert other is not None and other.turn is not None and other.turn.text == "I live in Rome."


def test_a_place_that_cannot_be_is_told_before_anything_is_said(home: Path, chat) -> None:
    (home / "plain").write_text("a file")
    (home / "link").symlink_to(home / "nowhere")
    for place, status in ((home / "plain" / "x", 1), (home / "link", 2), ("", 2)):
        done = chat("I am Bela.", options=("--session", str(place)))
        assert done.status == status and not done.replies, done.err
    text_only = chat("I am Bela.", f"/save {home / 'text'}", options=("--session-limit", "0", "--no-autosave"))
    assert text_only.status == 0 and text_only.results["/save"]["result"]["checkpoints"] == 0


def test_a_session_written_by_another_user_is_said_to_be_unproven(home: Path, chat) -> None:
    path = home / "talk.ninfer"
    chat("I am Bela.", f"/save {path}", options=("--no-autosave",))
    (home / "state/ninfer/session-key").unlink()
    back = chat("What is my name?", options=("--session", str(path), "--no-autosave"))
    assert back.status == 0 and back.err.count("unproven") == 1
    assert "\nninfer: the session's state is unproven" in back.err  # a line of its own


@pytest.mark.parametrize(
    ("options", "status", "says"),
    [
        (("--continue",), 2, "no conversation was kept"),
        (("--resume", "nobody"), 2, "there is no such conversation"),
        (("--resume",), 2, "nothing was kept yet"),
        (("--resume", "--continue"), 2, "exclude each other"),
        (("--rebuild",), 2, "name one with --session"),
        (("--session", "here", "--continue"), 2, "exclude each other"),
        (("--session", "{home}/junk"), 1, "is no session"),
    ],
)
def test_sessions_that_cannot_be_had_are_one_line(
    home: Path, chat, options: tuple[str, ...], status: int, says: str
) -> None:
    (home / "junk").write_bytes(b"\0" * 100)
    done = chat("hello", options=tuple(option.format(home=home) for option in options))
    lines = [line for line in done.err.splitlines() if "bundled demo model" not in line]
    assert done.status == status and len(lines) == 1 and says in lines[0], done.err


def test_two_processes_on_one_session(home: Path, chat) -> None:
    chat("I am Bela.", options=("--session", str(home / "one")))
    before = kept_tree(home / "one")
    with SessionStore(home / "one"):
        second = chat("I am Tom.", options=("--session", str(home / "one")))
    assert second.status == 1 and "is open in another ninfer" in second.err
    assert kept_tree(home / "one") == before


def test_a_chat_that_did_not_end_in_peace_is_offered(home: Path, chat) -> None:
    chat("I am Bela.")
    (kept,) = sessions(home)
    tree = kept_tree(kept)
    assert tree is not None
    with SessionStore(kept) as store:
        store.autosave(None, conversation_json(Kept(tree, (), True), "demo"))
    assert f"{kept.name} did not end in peace" in chat("hello", options=("--no-autosave",)).err + chat("hello").err
    assert "did not end in peace" not in chat("hello", options=("--continue",)).err


def test_looking_for_a_crash_changes_nothing(home: Path, chat) -> None:
    chat("I am Bela.")
    (kept,) = sessions(home)
    stray = kept / "00000999.segment"
    stray.write_bytes(b"a writer would sweep it away")
    before = {path.name: path.stat().st_mtime_ns for path in kept.iterdir()}
    assert crashed() is None
    with SessionStore(kept) as store:
        store.autosave(None, conversation_json(Kept(kept_tree_of(store), (), True), "demo"))
        assert crashed() is None, "it is being written"
    before = {path.name: path.stat().st_mtime_ns for path in kept.iterdir()}
    found = crashed()
    assert found is not None and found.path == kept
    assert {path.name: path.stat().st_mtime_ns for path in kept.iterdir()} == before


def kept_tree_of(store: SessionStore) -> Tree:
    assert store.header is not None
    return read_conversation(store.header.value["conversation"], store.path).tree


def test_a_new_conversation_is_kept_for_itself(home: Path, chat) -> None:
    done = chat("I am Bela.", "/new", "/tree", "I am Tom.", "/new")
    assert done.status == 0, done.err
    assert len(done.results["/tree"]["result"]) == 1, "another tree"
    trees = [kept_tree(path) for path in sessions(home)]
    assert sorted(tree.turn.text for tree in trees if tree is not None and tree.turn) == ["I am Bela.", "I am Tom."]
    assert crashed() is None
    # where it cannot be kept nothing is lost either
    alone = chat("I am Bela.", "/new", "/tree", "/switch 1", options=("--no-autosave",))
    assert alone.status == 0 and len(alone.results["/tree"]["result"]) == 3 and len(sessions(home)) == 2


def test_rebuild_reads_the_text_where_a_segment_is_gone(home: Path, chat) -> None:
    chat("I am Bela.", options=("--session", str(home / "one")))
    next((home / "one").glob("*.segment")).unlink()
    refused = chat("Who am I?", options=("--session", str(home / "one")))
    assert refused.status == 1 and "missing" in refused.err and "--rebuild reads its text" in refused.err
    back = chat("Who am I?", "/tree", options=("--session", str(home / "one"), "--rebuild"))
    assert back.status == 0 and [row["turn"] for row in back.results["/tree"]["result"]] == [None, 1, 2], back.err
    again = chat("And now?", options=("--session", str(home / "one")))
    assert again.status == 0 and again.replies[0]["usage"]["reused_tokens"] > 0, again.err


def test_the_tree_names_what_only_the_disk_has(home: Path, chat) -> None:
    chat("I am Bela.", "I live in Zurich, in a house with a garden.", options=("--session", str(home / "one")))
    # two states: the endpoint of the newest turn finds room, and one more
    small = ("--session", str(home / "one"), "--device-state-slots", "1", "--max-concurrency", "1")
    done = chat("/tree", options=small)
    states = [row["resume"] for row in done.results["/tree"]["result"]][1:]
    assert done.status == 0 and "found no room: raise --device-state-slots" in done.err, done.err
    assert any(state.startswith("disk ") or ", disk " in state for state in states), states
    more = chat("/tree", options=("--session", str(home / "one")))
    assert all("disk" not in row["resume"] for row in more.results["/tree"]["result"][1:])


def test_a_full_disk_is_a_warning_and_the_chat_goes_on(home: Path, chat, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    done = chat("I am Bela.", "What is my name?")
    assert done.status == 0 and len(done.replies) == 2
    assert done.err.count("was not kept") == 1 and "No space left" in done.err


def test_a_state_directory_that_cannot_be_written(home: Path, chat) -> None:
    (home / "state").write_text("a file stands there")
    done = chat("I am Bela.", "What is my name?")
    assert done.status == 0 and len(done.replies) == 2 and done.err.count("was not kept") == 1


def test_ledgers_are_rendered_once(shared_engine: Engine) -> None:
    from ninfer_cli.settings import resolve

    chat = Chat.start(shared_engine, resolve({"greedy": True}), None, [])

    class Silent:
        prefilled = reasoning = text = staticmethod(lambda *_: None)
        finish = staticmethod(lambda: None)

    for text in ("I am Bela.", "What is my name?"):
        chat.carry_out(chat.message(text), Silent(), lambda: False)  # type: ignore[arg-type]
    first = chat.ledgers()
    assert chat.ledgers() == first and len(first) == 2 and chat.ledgers()[0] is first[0]
    for answer, ledger in zip([chat.tree.turn_at(at).reply for at in chat.tree.path()], first, strict=True):
        assert tuple(ledger[-len(answer.token_ids) :]) == answer.token_ids
        assert answer.record is not None
        assert len(ledger) == answer.record.statistics.usage.prompt_tokens + len(answer.token_ids)


def test_killed_chats_keep_every_finished_turn() -> None:
    kill_many(3, seed=5)


def test_a_chat_that_does_not_start_is_no_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(killing.sys, "executable", "/bin/false")
    with pytest.raises(AssertionError, match="ended by itself, with status 1"):
        killing.kill_once(tmp_path, 1, 2, 1)
