"""/export and /import: what comes back is the same path, and nothing is overwritten unasked."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_cli import private_file
from ninfer_cli.private_file import write_private
from ninfer_cli.repl.markdown_transcript import from_markdown, to_markdown
from ninfer_cli.repl.transcript import as_path, from_json, message_json, path_of, to_json
from ninfer_core import Conversation, Message, NinferError, ToolCall
from tests.support.chat_script import Talk
from tests.support.fake_engine import Scripted
from tests.support.ninfer_process import Ninfer

TOOLS = ({"type": "function", "function": {"name": "weather", "parameters": {"x": "```"}}},)
WHOLE = Conversation(
    (
        Message("system", "Be brief.\n\n## User\n\nnot a turn"),
        Message("developer", "d"),
        Message("user", "\n# Weather?\n```\n## Assistant\n```\n\n", name="B`e`la"),
        Message("assistant", "", "I ask.\n\\## Tool", (ToolCall("weather", {"at": "Torvik", "n": [1, None]}, "c`1"),)),
        Message("tool", "## Tools\nrain", tool_call_id="c`1", name="weather"),
        Message("assistant", "Rain, </think> and\n\n\n"),
        Message("user", ""),
        Message("assistant", "  ## User `{}`\n## User `{}`"),
    ),
    TOOLS,
)


@pytest.mark.parametrize("kind", ["md", "json"])
def test_both_forms_come_back_equal(kind: str) -> None:
    text = to_markdown(WHOLE) if kind == "md" else to_json(WHOLE)
    again = from_markdown(text, "t") if kind == "md" else from_json(text, "t")
    assert [message_json(m) for m in again.messages] == [message_json(m) for m in WHOLE.messages]
    assert again.tools == WHOLE.tools
    assert (to_markdown(again) if kind == "md" else to_json(again)) == text


_LINE = st.sampled_from(
    ["", "a", "## User", "\\## Tool call", "# Conversation", "```json", '## Tool `{"name": 1}`', " x "]
)
_TEXT = st.lists(_LINE, max_size=4).map("\n".join)


@given(st.lists(st.tuples(_TEXT, _TEXT, _TEXT), max_size=4), _TEXT)
@settings(max_examples=150, deadline=None)
def test_any_text_survives_markdown(turns: list[tuple[str, str, str]], system: str) -> None:
    messages = [Message("system", system)]
    for user, reasoning, text in turns:
        messages += [Message("user", user), Message("assistant", text, reasoning or None)]
    again = from_markdown(to_markdown(Conversation(tuple(messages))), "t")
    assert again.messages == tuple(messages)


def test_a_transcript_by_hand_is_read() -> None:
    read = from_markdown("# Notes\nby me\n## User\nHello\n## Assistant\nHi\n\n## User\n\nMore?", "t")
    assert [(m.role, m.content) for m in read.messages] == [("user", "Hello"), ("assistant", "Hi"), ("user", "More?")]


@pytest.mark.parametrize("name", ["t.md", "t.json"])
def test_export_import_is_the_same_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    talk = Talk(system="S", replies=["A", Scripted("B", reasoning="because"), "C"])
    assert talk.run("one", "two", f"/export {name}", "three", "/undo", f"/import {name}") == 0
    assert f"\n2 turns written to {name}\n" in talk.err and f"\n2 turns read from {name}\n" in talk.err
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600 and [p.name for p in tmp_path.iterdir()] == [name]
    tree = talk.chat.tree
    assert len(tree.path()) == 2 and tree.path() != [1, 2] and tree.children(None) == [0, 4]
    old = [message_json(m) for m in tree.messages(tree.nodes[3].parent)]
    assert [message_json(m) for m in path_of(tree).messages] == old
    assert talk.run("more") == 0 and talk.said[-2:] == ["assistant: B", "user: more"]


def test_tools_and_an_unanswered_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    value = json.loads(to_json(WHOLE))
    value["messages"].append({"role": "user", "content": "and tomorrow?"})
    Path("w.json").write_text(json.dumps(value))
    talk = Talk(settings={"json": True})
    assert talk.run("/import w.json", "what else?", "/export w.md", "/tree") == 0
    assert talk.values[0]["result"] == {"path": "w.json", "turns": 3, "unanswered": "and tomorrow?"}
    assert talk.engine.requests[-1].tools == TOOLS
    assert "## Tool call" in Path("w.md").read_text() and "## Tools" in Path("w.md").read_text()
    assert [row["turn"] for row in talk.values[3]["result"]] == [None, None, 1, 2, 3, 4]
    assert "no user spoke in that turn" in talk.fails("/edit 2 x")


def test_run_takes_what_was_exported(ninfer: Ninfer) -> None:
    script = "one\n/export t.json\n"
    assert ninfer.replies("A")("chat", "-q", "-s", "S", "--script", "-", stdin=script).returncode == 0
    done = ninfer.replies("B")("run", "-q", "--messages", "t.json")
    assert (done.returncode, done.stdout) == (0, "B\n")
    assert ninfer.log[-3]["prepare"] == ["system: S", "user: one", "assistant: A"]


BAD = [
    ("x.json", "[{]", "broken JSON at line 1"),
    ("x.json", "[]", "the list of messages is empty"),
    ("x.json", '{"a": 1}', "has no 'messages'"),
    ("x.json", '[{"role": "king", "content": "x"}]', "unknown role 'king'"),
    ("x.json", '[{"role": "system", "content": "x"}]', "it holds no turn"),
    ("x.json", '[{"role": "user", "content": "x"}, {"role": "tool", "content": "y"}]', "needs a reply behind it"),
    ("x.json", "[" * 70 + "]" * 70, "deeper than 64"),
    ("x.json", "[" + "0," * 100_001 + "0]", "more than 100,000"),
    ("x.json", " " * ((16 << 20) + 1), "16 MiB"),
    ("x.json", '[{"role": "user", "content": NaN}]', "NaN is not a finite number"),
    ("x.md", "Hello", "there is no heading such as ## User"),
    ("x.md", " " * ((16 << 20) + 1), "16 MiB"),
    ("x.md", "## Tool call\n\n{}", "line 1: a tool call stands behind no assistant"),
    ("x.md", "## Assistant\n\nx\n\n## Tool call\n\n```json\n{\n```", "line 5: broken JSON"),
    ("x.md", "## Reasoning\n\nx\n\n## User\n\ny", "line 5: the reasoning before it"),
    ("x.md", "## User\n\ny\n\n## Reasoning\n\nx", "ends with reasoning"),
    ("x.md", '## User `{"name": 3}`\n\ny', "name is not a string"),
    ("x.txt", "Hello", "ends in .md or .json"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "says"), BAD)
def test_a_bad_import_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text)
    talk = Talk()
    talk.run("one")
    assert says in talk.fails(f"/import {name}")


def test_an_import_that_is_too_long_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.md").write_text("## User\n\n" + "b " * 50 + "\n\n## Assistant\n\nx")
    talk = Talk(info={"max_context": 30})
    assert "the context holds 30" in talk.fails("/import x.md")


def test_existing_files_are_refused_in_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.md").write_text("mine")
    Path("link.md").symlink_to("t.md")
    Path("d.md").mkdir()
    talk = Talk()
    talk.run("one")
    assert talk.fails("/export t.md") == "t.md exists: choose another name, or give --force"
    for name, says in (("link.md", "no"), ("d.md", "not a regular file"), ("no/t.md", "there is no directory no")):
        assert says in talk.fails(f"/export {name}")
    assert Path("t.md").read_text() == "mine"
    talk = Talk(settings={"force": True})
    assert talk.run("one", "/export t.md") == 0 and "## User" in Path("t.md").read_text()
    assert "not a regular file" in talk.fails("/export link.md")


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(private_file.os, "fsync", full)
    (tmp_path / "t").write_text("old")
    for overwrite, name in ((True, "t"), (False, "new")):
        with pytest.raises(NinferError, match="cannot be written: No space left on device"):
            write_private(tmp_path / name, b"new", overwrite=overwrite)
    assert [p.name for p in tmp_path.iterdir()] == ["t"] and (tmp_path / "t").read_text() == "old"


def test_somebody_faster_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_file.os, "fsync", lambda descriptor: (tmp_path / "t").write_text("theirs"))
    with pytest.raises(private_file.FileThere):
        write_private(tmp_path / "t", b"ours", overwrite=False)
    assert [p.name for p in tmp_path.iterdir()] == ["t"] and (tmp_path / "t").read_text() == "theirs"


def test_a_path_is_what_messages_say() -> None:
    path = as_path(WHOLE, "t")
    assert [len(turn.asked) for turn in path.turns] == [1, 1, 1] and path.unanswered == ""
    assert path.start.system == "Be brief.\n\n## User\n\nnot a turn\n\nd"
