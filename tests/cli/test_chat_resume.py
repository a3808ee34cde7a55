"""`ninfer chat --resume`: which conversation shall go on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ninfer_cli.repl.node import Reply, Start, Turn
from ninfer_cli.repl.tree import NodeId, Tree
from ninfer_cli.sessions import Kept, conversation_json
from ninfer_core import Message, SessionStore
from tests.cli.test_chat_real import Real
from tests.support.pseudo_terminal import Terminal


@pytest.fixture
def kept(tmp_path: Path) -> Real:
    """Two conversations, the second the newer one."""
    for age, (name, said) in enumerate([("talk-b", "What is a fjord?"), ("talk-a", "I am Bela.")]):
        tree = Tree.starting(Start()).add(NodeId(0), Turn((Message("user", said),), Reply("Indeed.")))
        path = tmp_path / "state/ninfer/sessions" / name
        with SessionStore(path) as store:
            store.autosave(None, conversation_json(Kept(tree), "demo"))
        os.utime(path / "manifest", (1_000_000_000 - age * 3600,) * 2)
    return Real(tmp_path)


@pytest.mark.timeout(300)
def test_a_person_chooses_by_number(kept: Real) -> None:
    with Terminal(kept, "chat", "--resume", "--dtype", "float32") as t:
        t.child.timeout = 90
        t.sees("talk-b, 1 turn: What is a fjord?")
        t.sees("talk-a, 1 turn: I am Bela.")
        t.sees("Which one?")
        t.type("2\r")
        t.sees("talk-a:")
        t.sees("1 turn, 0 checkpoints resumable")
        t.sees("> I am Bela.")  # where it stands
        t.sees("Indeed.")
        t.sees("turn 1")
        t.type("\x04")
        t.sees("kept in")
        t.sees("talk-a:")
        t.sees("ninfer chat --continue goes on with it")
        assert t.ends() == 0


@pytest.mark.parametrize(
    ("answer", "status", "says"),
    [
        ("\r", 2, "no conversation was chosen"),
        ("\x04", 2, "no conversation was chosen"),
        ("\x03", 130, "Which one?"),
    ],
)
def test_what_is_no_choice_is_asked_again_until_a_person_leaves(
    kept: Real, answer: str, status: int, says: str
) -> None:
    with Terminal(kept, "chat", "--resume") as t:
        t.sees("Which one? [1 to 2, or a name; Enter leaves]")
        for wrong, why in (("3", "no number 3: give 1 to 2"), ("0", "no number 0"), ("nobody", "no such conversation")):
            t.type(wrong + "\r")
            t.sees(why)
            t.sees("Which one?")
        t.type(answer)
        assert t.ends() == status
        assert says in t.text and "Traceback" not in t.text


def test_without_a_terminal_the_names_are_told(kept: Real) -> None:
    done = kept("chat", "--resume", "--script", "-", stdin="hello", timeout=90)
    assert done.returncode == 2 and "one of: talk-b, talk-a" in done.stderr and not done.stdout
