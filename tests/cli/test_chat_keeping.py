"""What a chat keeps when it becomes large, when the disk does not take it, and when somebody else has it."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ninfer_cli.repl.chat import Chat
from ninfer_cli.repl.keeping import Keeper
from ninfer_cli.repl.node import Reply as Said
from ninfer_cli.repl.node import Start, Turn
from ninfer_cli.repl.room import FULL
from ninfer_cli.repl.tree import Node, NodeId, Tree
from ninfer_cli.session_files import session_key
from ninfer_cli.sessions import Kept, conversation_json, read_conversation
from ninfer_core import Engine, EngineOptions, Message, SessionStore, UsageError, open_text
from tests.cli.killing import kept_tree
from tests.cli.test_chat_tree import RECORD

MIB = 1 << 20


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(EngineOptions(dtype="float32", max_context=1024, max_concurrency=1)) as engine:
        yield engine


class Silent:
    prefilled = reasoning = text = staticmethod(lambda *_: None)
    finish = staticmethod(lambda: None)


def say(chat: Chat, text: str) -> None:
    chat.carry_out(chat.message(text), Silent(), lambda: False)  # type: ignore[arg-type]
    chat.keeper.keep(chat)


def started(engine: Engine, lines: list[str], path: Path | None = None, tree: Tree | None = None) -> Chat:
    from ninfer_cli.settings import resolve

    chat = Chat.start(engine, resolve({"greedy": True, "max-new": "4"}), None, [])
    chat.keeper = Keeper(lines.append, path)
    chat.tree = tree or chat.tree
    return chat


def on_disk(path: Path) -> Tree:
    return read_conversation(open_text(path).value["conversation"], path).tree


def of_size(size: int) -> Tree:
    """A conversation of so many bytes, which the model does not see: it stands in another branch."""
    at, nodes = NodeId(0), [Node(None, Start())]
    while size > 0:
        nodes.append(Node(at, Turn((Message("user", "x" * min(size, MIB)),), Said("y"))))
        at, size = NodeId(len(nodes) - 1), size - MIB
    return Tree(tuple(nodes))


def test_a_conversation_of_several_thousand_turns_is_kept_and_opens(home: Path, engine: Engine) -> None:
    """Turns as a model makes them, records included, in many branches: the model's context holds few of them."""
    lines: list[str] = []
    chat = started(engine, lines, home / "long")
    say(chat, "I am Bela.")
    reply = chat.tree.turn_at(NodeId(1)).reply
    for i in range(5000):
        turn = Turn((Message("user", f"Turn {i}."),), replace(reply, record=replace(reply.record or RECORD, seed=i)))
        parent = chat.tree.current if i % 6 else NodeId(0)
        chat.tree = chat.tree.add(parent, turn)
    chat._looked_at = len(chat.tree.nodes)  # they were not generated: no state of theirs is looked for
    chat.tree = chat.tree.move(NodeId(1))
    say(chat, "Who am I?")
    before, second = chat.tree, chat.kept()
    assert not lines and len(before.nodes) == 5003
    chat.keeper.close(chat)
    assert kept_tree(home / "long") == before

    again = started(engine, lines)
    restored = again.restore(home / "long", rebuild=False)
    assert restored is not None and again.tree == before and again.kept() == second and restored.checkpoints
    say(again, "Thank you!")
    usage = again.tree.turn.reply.record.statistics.usage  # type: ignore[union-attr]
    assert usage.reused_tokens > 0 and not lines
    again.keeper.close(again)
    assert kept_tree(home / "long") == again.tree and len(again.tree.nodes) == 5004


def test_a_person_is_told_before_a_conversation_is_too_large_and_nothing_is_lost(home: Path, engine: Engine) -> None:
    lines: list[str] = []
    chat = started(engine, lines, home / "large", of_size(int(0.84 * 16 * MIB)))
    say(chat, "I am Bela.")
    assert not lines
    chat.tree = chat.tree.add(NodeId(0), Turn((Message("user", "x" * MIB),), Said("y"))).move(chat.tree.current)
    for text in ("Who am I?", "And now?"):
        say(chat, text)
    assert len(lines) == 1 and "% of what a session can hold" in lines[0] and "/new before it is full" in lines[0]
    assert on_disk(home / "large") == chat.tree
    chat.tree = chat.tree.add(NodeId(0), Turn((Message("user", "x" * int(0.8 * MIB)),), Said("y"))).move(NodeId(0))
    chat.keeper.keep(chat)
    assert on_disk(home / "large") == chat.tree and chat.keeper.room.writer.share(chat.tree) > FULL
    full = chat.tree
    with pytest.raises(UsageError, match=r"could not be kept any more: /new begins another one, and this one stays"):
        say(chat, "Am I lost?")
    with pytest.raises(UsageError, match="could not be kept any more"):
        chat.adopt(full.add(NodeId(0), Turn((Message("user", "I"),), Said("You."))))
    assert chat.tree == full and len(lines) == 1
    assert chat.begin_anew() == home / "large" and on_disk(home / "large") == full
    say(chat, "Hello!")
    assert len(lines) == 1 and chat.keeper.place not in (None, home / "large")
    # without keeping it goes on: the person has chosen so
    free = started(engine, lines, None, full)
    free.keeper.enabled = False
    say(free, "I go on.")
    assert len(free.tree.nodes) == len(full.nodes) + 1
    chat.keeper.close(chat)


def test_waiting_files_are_kept_with_the_old_conversation_and_stay_where_it_cannot_be(
    home: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    chat = started(engine, lines, home / "one")
    say(chat, "I am Bela.")
    chat.files.append("a document")
    before = chat.tree
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        assert chat.begin_anew() is None
    assert lines == [line for line in lines if "was not kept" in line] and len(lines) == 1
    assert chat.files == ["a document"] and chat.tree.nodes[: len(before.nodes)] == before.nodes
    chat.tree = before
    assert chat.begin_anew() == home / "one" and chat.files == [] and len(chat.tree.nodes) == 1
    value = open_text(home / "one").value["conversation"]
    assert read_conversation(value, home).files == ("a document",)


def test_a_document_that_waits_in_a_session_outlives_new(home: Path, engine: Engine) -> None:
    with SessionStore(home / "doc") as store:
        store.autosave(None, conversation_json(Kept(Tree(), ("a document",)), "demo"))
    chat = started(engine, [])
    chat.restore(home / "doc", rebuild=False)
    assert chat.files == ["a document"]
    assert chat.begin_anew() == home / "doc" and chat.files == []
    say(chat, "Hello!")
    chat.keeper.close(chat)
    assert read_conversation(open_text(home / "doc").value["conversation"], home).files == ("a document",)


def test_a_place_that_was_named_stays_when_nothing_was_said(home: Path, engine: Engine) -> None:
    chat = started(engine, [])
    chat.keeper.keep_at(home / "named")
    assert chat.begin_anew() is None
    say(chat, "Hello!")
    chat.keeper.close(chat)
    assert kept_tree(home / "named") == chat.tree


def full_disk(handle: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_first_save_that_fails_leaves_no_folder(home: Path, chat, monkeypatch: pytest.MonkeyPatch) -> None:
    session_key()  # written before the disk is full
    monkeypatch.setattr(os, "fsync", full_disk)
    done = chat("I am Bela.")
    named = chat("I am Bela.", options=("--session", str(home / "one")))
    assert done.status == named.status == 0 and "No space left" in done.err and "No space left" in named.err
    assert not list((home / "state/ninfer/sessions").iterdir()) and not (home / "one").exists()


def test_a_session_that_another_process_has_is_said_to_be_so(home: Path, chat) -> None:
    chat("I am Bela.", options=("--session", str(home / "one")))
    with SessionStore(home / "one"):
        for more in ((), ("--rebuild",)):
            second = chat("I am Tom.", options=("--session", str(home / "one"), *more))
            said = [line for line in second.err.splitlines() if "bundled demo model" not in line]
            assert second.status == 1 and len(said) == 1 and "is open in another ninfer (process" in said[0]
            assert "--rebuild" not in said[0]
        restored = chat(f"/restore {home / 'one'}", options=("--no-autosave",))
        assert restored.status == 1 and "is open in another ninfer" in restored.err


def test_a_file_that_is_only_looked_at_leaves_nothing_beside_it(home: Path, engine: Engine, chat) -> None:
    chat("I am Bela.", f"/save {home / 'talk'}")
    before = sorted(p.name for p in home.iterdir())
    for more in ((), ("--rebuild",)):
        assert chat("/tree", "/cache", options=("--session", str(home / "talk"), *more)).status == 0
    assert sorted(p.name for p in home.iterdir()) == before


def test_two_chats_from_one_file_keep_apart(home: Path, engine: Engine, chat) -> None:
    """Whoever speaks second, while the first is there or after it: neither takes the other's place."""
    chat("I am Bela.", f"/save {home / 'talk'}")
    lines: list[str] = []
    first, second, third = (started(engine, lines) for _ in range(3))
    for one in (first, second, third):
        one.restore(home / "talk", rebuild=False)
    say(first, "I am the first.")
    say(second, "I am the second.")
    first.keeper.close(first)
    second.keeper.close(second)
    say(third, "I am the third.")
    third.keeper.close(third)
    for name, one in (("talk.d", first), ("talk.d2", second), ("talk.d3", third)):
        assert kept_tree(home / name) == one.tree and one.tree.turn is not None and "I am the" in one.tree.turn.text
    assert sum("what comes is kept in" in line for line in lines) == 2 and not any("not kept" in line for line in lines)
    assert not list(home.glob("talk.d4*"))


def test_a_place_where_a_chat_died_before_its_first_turn_is_new(home: Path, chat) -> None:
    (home / "one").mkdir()
    for name in ("lock", "00000001.segment", ".0123456789abcdef.part"):
        (home / "one" / name).write_text("12345")
    done = chat("I am Bela.", options=("--session", str(home / "one"), "-q"))
    assert done.status == 0 and "holds state but no manifest" in done.err and f"kept in {home}/one.before;" in done.err
    assert (home / "one.before" / "00000001.segment").read_text() == "12345", "it may have been another's"
    tree = kept_tree(home / "one")
    assert tree is not None and tree.turn is not None and tree.turn.text == "I am Bela."


def test_restoring_what_is_open_says_so(home: Path, chat) -> None:
    (home / "link").symlink_to(home / "one")
    for name in ("one", "link", "one --rebuild"):
        done = chat("I am Bela.", f"/restore {home / name}", options=("--session", str(home / "one")))
        assert done.status == 1 and "is the conversation that is open here" in done.err, done.err
        assert "another ninfer" not in done.err and "process" not in done.err
        tree = kept_tree(home / "one")
        assert tree is not None and tree.turn is not None and tree.turn.text == "I am Bela."


def test_rebuild_moves_what_was_there_aside_and_says_so_beforehand(home: Path, chat) -> None:
    path = home / "one"
    chat("I am Bela.", "/edit I am Tom.", options=("--session", str(path)))
    before = {p.name: p.read_bytes() for p in path.iterdir() if p.name != "lock"}
    looked = chat("/tree", options=("--session", str(path), "--rebuild"))
    assert f"with the next turn, what {path} holds now is kept in {path}.before" in looked.err
    assert {p.name: p.read_bytes() for p in path.iterdir() if p.name != "lock"} == before, "looking changes nothing"
    back = chat("Who am I?", options=("--session", str(path), "--rebuild"))
    assert back.status == 0, back.err
    (aside,) = home.glob("one.before*")
    assert {p.name: p.read_bytes() for p in aside.iterdir()} == before
    # every branch of it is resumed, by the state that it had
    old = chat("/switch 1", "Who am I?", options=("--session", str(aside)))
    assert old.status == 0 and old.replies[0]["usage"]["reused_tokens"] > 0, old.err


def test_a_file_that_is_cut_short_opens_with_rebuild(home: Path, chat) -> None:
    path = home / "talk.ninfer"
    chat("I am Bela.", f"/save {path}", options=("--no-autosave",))
    data = path.read_bytes()
    behind = 8 + int.from_bytes(data[:8], "little")
    for length in (len(data) - 1, behind):
        path.write_bytes(data[:length])
        refused = chat("Who am I?", options=("--session", str(path), "--no-autosave"))
        assert refused.status == 1 and "damaged" in refused.err and "; --rebuild reads its text alone" in refused.err
        back = chat("/tree", options=("--session", str(path), "--rebuild", "--no-autosave"))
        assert back.status == 0 and len(back.results["/tree"]["result"]) == 2, back.err
        inside = chat(f"/restore {path} --rebuild", options=("--no-autosave",))
        assert inside.status == 0 and inside.results["/restore"]["result"]["turns"] == 1, inside.err
    path.write_bytes(data[: behind - 1])
    for options in (("--rebuild",), ()):
        gone = chat("Who am I?", options=("--session", str(path), "--no-autosave", *options))
        said = [line for line in gone.err.splitlines() if "bundled demo model" not in line]
        assert gone.status == 1 and len(said) == 1 and "(--rebuild" not in said[0], gone.err


def test_text_is_kept_where_it_and_the_state_are_too_much(
    home: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    chat = started(engine, lines, home / "one")
    for text in ("I am Bela.", "Who am I?"):
        say(chat, text)
    before = open_text(home / "one").value["continuations"]
    chat.tree = chat.tree.add(NodeId(0), Turn((Message("user", "x" * 5000),), Said("y")))
    text = len(json.dumps(conversation_json(chat.kept(), engine.info.model)))
    monkeypatch.setattr("ninfer_core.program.session_header.MAX_BYTES", text + 600)
    chat.keeper.keep(chat)
    assert not lines and on_disk(home / "one") == chat.tree
    assert len(open_text(home / "one").value["continuations"]) < len(before)
    chat.keeper.close(chat)
