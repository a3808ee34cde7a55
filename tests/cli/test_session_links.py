"""Conversations that are kept where a person says: --continue and --resume find them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ninfer_cli.repl.tree import Tree
from ninfer_cli.session_links import FORGOTTEN, remember
from ninfer_cli.sessions import find_session, kept_sessions, read_conversation
from ninfer_core import open_text


def kept(path: Path) -> Tree:
    return read_conversation(open_text(path).value["conversation"], path).tree


def session(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "manifest").write_text("")
    return path


def test_continue_goes_on_with_the_newest_wherever_it_is(home: Path, chat) -> None:
    named, file = home / "mine/talk", home / "talk.ninfer"
    named.parent.mkdir()
    chat("I am Tom.")  # in ninfer's own place
    chat("I am Bela.", f"/save {file}", options=("--session", str(named)))
    (tree,) = (kept(entry.path) for entry in kept_sessions() if entry.path == named)
    assert tree.turn is not None
    done = chat("Who am I?", options=("--continue",))
    assert done.status == 0 and done.replies[0]["usage"]["reused_tokens"] > 0, done.err
    assert len(kept(named).path()) == 2
    done = chat("Where am I?", options=("--session", str(file)))
    assert done.status == 0, done.err
    assert [entry.name for entry in kept_sessions()][:2] == ["talk.ninfer.d", "talk"]
    done = chat("Who am I?", options=("--continue",))
    assert done.status == 0 and len(kept(home / "talk.ninfer.d").path()) == 3, done.err
    chat("Never mind.", options=("--session", str(home / "off"), "--no-autosave"))
    assert len(kept_sessions()) == 3


def test_names_that_are_taken_get_a_number(home: Path) -> None:
    among = home / "state/ninfer/sessions"
    own, one, other = (session(path) for path in (among / "talk", home / "a/talk", home / "b/talk"))
    for path in (own, one, other, one):
        remember(path, among)
    assert {entry.name: entry.path for entry in kept_sessions()} == {"talk": own, "talk-2": one, "talk-3": other}
    assert find_session("talk-2") == one and find_session("talk") == own
    assert [entry.elsewhere for entry in sorted(kept_sessions(), key=lambda e: e.name)] == [False, True, True]


def test_a_conversation_that_is_gone_is_passed_over_and_forgotten_later(home: Path) -> None:
    among = home / "state/ninfer/sessions"
    gone, there = session(home / "gone"), session(home / "there")
    remember(gone, among)
    (gone / "manifest").unlink()
    gone.rmdir()
    assert kept_sessions() == []
    remember(there, among)
    assert {link.name for link in among.iterdir()} == {"gone", "there"}, "a disk may be mounted again"
    os.utime(among / "gone", (0, (among / "gone").lstat().st_mtime - FORGOTTEN - 1), follow_symlinks=False)
    remember(session(home / "third"), among)
    assert {link.name for link in among.iterdir()} == {"third", "there"}


def test_a_state_directory_that_cannot_be_written_costs_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(session(tmp_path / "one"), Path("/dev/null/sessions"))


def test_a_link_that_leads_to_itself_is_passed_over(home: Path, chat) -> None:
    """Such as that of a conversation that somebody has moved, with a link left in its place."""
    among = home / "state/ninfer/sessions"
    moved = session(home / "talk")
    remember(moved, among)
    moved.rename(home / "elsewhere")
    moved.symlink_to(among / "talk")
    assert kept_sessions() == []
    done = chat("I am Tom.")
    assert done.status == 0, done.err
    assert len(kept_sessions()) == 1
    remember(moved, among)
    os.utime(among / "talk", (0, (among / "talk").lstat().st_mtime - FORGOTTEN - 1), follow_symlinks=False)
    remember(session(home / "other"), among)
    assert not os.path.lexists(among / "talk")


def test_a_link_that_cannot_be_looked_at_keeps_no_other_from_being_made(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leads into a directory of somebody else's, or another chat takes it away at this moment."""
    among = home / "state/ninfer/sessions"
    for name in ("one", "two"):
        remember(session(home / name), among)
    (among / "one").unlink()
    listed, is_link, there = Path.iterdir, Path.is_symlink, Path.exists
    gone = [among / "one"]
    monkeypatch.setattr(Path, "is_symlink", lambda self: self in gone or is_link(self))
    monkeypatch.setattr(Path, "iterdir", lambda self: iter([*gone, *listed(self)]) if self == among else listed(self))

    def exists(self: Path) -> bool:
        if self.parent == among:
            raise PermissionError(13, "Permission denied")
        return there(self)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "exists", exists)
        remember(home / "one", among)
    assert (among / "one").readlink() == home / "one"
