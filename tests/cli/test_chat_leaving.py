"""Leaving a chat: one line says where it is kept and how to go on with it, if there is anything to go on with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ninfer_cli.repl.chat import Chat
from ninfer_cli.repl.keeping import Keeper
from ninfer_cli.repl.leaving import farewell
from ninfer_cli.repl.node import Reply, Turn
from ninfer_cli.sessions import newest_session
from ninfer_cli.settings import Settings
from ninfer_core import Engine, EngineOptions, Message


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(EngineOptions(dtype="float32", max_context=64, max_concurrency=1)) as engine:
        yield engine


@pytest.fixture
def chat(home: Path, engine: Engine) -> Iterator[Chat]:
    chat = Chat.start(engine, Settings(), None, [])
    chat.keeper = Keeper(pytest.fail)
    yield chat
    chat.keeper.close(chat)


def say(chat: Chat, text: str) -> None:
    chat.tree = chat.tree.add(chat.tree.current, Turn((Message("user", text),), Reply("Indeed.")))


def test_where_it_is_kept_by_itself(home: Path, chat: Chat) -> None:
    assert farewell(chat) == "" and not (home / "state/ninfer/sessions").exists(), "nothing was said"
    say(chat, "I am Bela.")
    line = farewell(chat)
    (place,) = (home / "state/ninfer/sessions").iterdir()
    assert line == f"kept in {place}: ninfer chat --continue goes on with it"


def test_it_is_kept_by_itself_also_where_the_state_lies_behind_a_link(home: Path, chat: Chat) -> None:
    (home / "elsewhere").mkdir()
    (home / "state").symlink_to(home / "elsewhere")
    say(chat, "I am Bela.")
    assert farewell(chat).endswith(": ninfer chat --continue goes on with it")
    path = newest_session()
    assert path.is_relative_to(home / "elsewhere"), "what --continue opens"
    chat.keeper.close(chat)
    chat.restore(path, rebuild=False)
    assert farewell(chat) == f"kept in {path}: ninfer chat --continue goes on with it"


def test_a_place_and_a_model_of_ones_own_are_named(home: Path, chat: Chat) -> None:
    chat.settings = replace(chat.settings, model="my model")
    chat.keeper.keep_at(home / "my talk")
    say(chat, "I am Bela.")
    place = home / "my talk"
    assert farewell(chat) == f"kept in {place}: ninfer chat --model 'my model' --session '{place}' goes on with it"


def test_what_is_not_kept_is_not_said_to_be(home: Path, chat: Chat) -> None:
    chat.keeper.enabled = False
    say(chat, "I am Bela.")
    assert farewell(chat) == ""
    file = home / "talk.ninfer"
    chat.keeper.save(chat, file, overwrite=False)
    assert farewell(chat) == f"kept in {file}: ninfer chat --session {file} goes on with it"
    say(chat, "And more.")
    assert farewell(chat) == ""
