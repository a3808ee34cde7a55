"""What can come between a conversation and its disk: Ctrl-C while it is written, and a disk that is full."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ninfer_cli.sessions import read_conversation
from ninfer_core import open_session
from tests.cli.killing import kept_tree
from tests.cli.test_chat_real import Real
from tests.support.pseudo_terminal import Terminal

PATIENCE = 240
"""Seconds: a machine may be busy."""


class OnSlowDisk(Real):
    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "tests.support.slow_disk", str(self.home), *arguments]


def appears(path: Path) -> None:
    end = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < end, f"{path} never came"
        time.sleep(0.02)


def turns_of(path: Path) -> list[str]:
    tree = read_conversation(open_session(path).header.value["conversation"], path).tree
    return [tree.turn_at(at).text for at in tree.path()]


@pytest.mark.timeout(900)
def test_ctrl_c_while_saving(tmp_path: Path) -> None:
    (tmp_path / "fast").touch()
    with Terminal(OnSlowDisk(tmp_path), "chat", "--dtype", "float32", "--greedy", "--no-autosave") as t:
        t.child.timeout = PATIENCE
        t.sees("no turn yet")
        t.type("Hello!\r")
        t.sees("TTFT")
        (tmp_path / "fast").unlink()
        t.type("/save talk.ninfer\r")
        appears(tmp_path / "saving")
        t.type("\x03")
        t.sees("this is finished first")
        (tmp_path / "go").touch()
        t.sees("of 1 continuation")
        assert turns_of(tmp_path / "talk.ninfer") == ["Hello!"]
        assert t.text.count("this is finished first") == 1 and "Traceback" not in t.text

        # Twice: it leaves at once, and the file is the one before.
        (tmp_path / "fast").touch()
        t.type("Thank you!\r")
        t.sees("TTFT")
        for name in ("fast", "saving", "go"):
            (tmp_path / name).unlink()
        t.type("/save\r")
        appears(tmp_path / "saving")
        t.type("\x03")
        t.sees("this is finished first")
        t.type("\x03")
        assert t.ends() == 130
    assert turns_of(tmp_path / "talk.ninfer") == ["Hello!"]


@pytest.mark.timeout(900)
def test_ctrl_c_while_a_turn_is_kept(tmp_path: Path) -> None:
    with Terminal(
        OnSlowDisk(tmp_path), "chat", "--dtype", "float32", "--greedy", "--autosave", "--session", "one"
    ) as t:
        t.child.timeout = PATIENCE
        (tmp_path / "go").touch()
        t.sees("no turn yet")
        t.type("Hello!\r")
        t.sees("TTFT")
        t.sees("turn 1")
        appears(tmp_path / "one" / "manifest")
        (tmp_path / "go").unlink()
        (tmp_path / "saving").unlink()
        t.type("Thank you!\r")
        appears(tmp_path / "saving")
        t.type("\x03")
        t.sees("this is finished first")
        t.type("\x03")
        assert t.ends() == 130
    tree = kept_tree(tmp_path / "one")
    assert tree is not None and [tree.turn_at(at).text for at in tree.path()] == ["Hello!"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if not sys.platform.startswith("linux") or libc.mount(b"tmpfs", bytes(place), b"tmpfs", 0, b"size=1m"):
        pytest.skip(f"a small file system cannot be mounted here: {os.strerror(ctypes.get_errno())}")
    try:
        yield place
    finally:
        libc.umount2(bytes(place), 2)  # MNT_DETACH


def test_a_disk_that_is_really_full(small_disk: Path, tmp_path: Path) -> None:
    from tests.cli.test_real_model import real

    script = "Hello!\n/save disk/talk.ninfer\nThank you!\n"
    ninfer = Real(tmp_path)
    options = ("--dtype", "float32", "--greedy", "--autosave", "--session", str(small_disk / "one"), "--keep-going")
    done = real(ninfer, "chat", "--script", "-", *options, stdin=script)
    assert done.returncode == 1 and done.stdout.count("\n\n") == 1, "both replies came"
    lines = [line for line in done.stderr.splitlines() if "No space left" in line]
    assert len(lines) == 2, done.stderr  # autosave says it once, /save once
    assert sum("was not kept" in line for line in lines) == 1
    assert sum("talk.ninfer" in line and "what was there before is unchanged" in line for line in lines) == 1
    assert not (small_disk / "talk.ninfer").exists() and not list(small_disk.rglob(".*.part"))
    tree = kept_tree(small_disk / "one")
    assert tree is None or tree.turn is not None, "what was kept before the disk was full is whole"
