"""The tree of a conversation: it only grows, its JSON comes back equal, and hostile JSON is refused in one line."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer_cli.repl.node import Author, Record, Reply, Start, Turn
from ninfer_cli.repl.tree import Node, NodeId, Tree
from ninfer_cli.repl.tree_json import TreeWriter, from_json, to_json
from ninfer_cli.result import Branch
from ninfer_core import FinishReason, Message, RequestStatistics, ToolCall, UsageError, load_json
from ninfer_core.contract.statistics import Miss, MissReason, Planning, Reuse, Timings, Transfer, Usage

STATISTICS = RequestStatistics(
    Usage(9, 4, 5, 3),
    Reuse(frontier=4, misses=(Miss(4, 9, MissReason.DIVERGED, "edited"),)),
    Transfer(),
    Planning(),
    (),
    Timings(0.5, None, 1.5, 20.0),
)
RECORD = Record("m", 7, {"temperature": 0.7}, 100, ("END",), None, STATISTICS)


def turn(text: str, reply: str = "yes") -> Turn:
    return Turn((Message("user", text),), Reply(reply, token_ids=(1, 70_000), record=RECORD))


def grown(*texts: str) -> Tree:
    tree = Tree.starting(Start.with_system("Be brief."))
    for text in texts:
        tree = tree.add(tree.current, turn(text))
    return tree


def came_back(tree: Tree) -> Tree:
    text = json.dumps(to_json(tree), ensure_ascii=False, allow_nan=False)
    return from_json(load_json(text, "it"))


def test_a_path_is_what_the_model_sees() -> None:
    tree = grown("one", "two")
    said = [(m.role, m.content, m.reasoning_content, m.token_ids) for m in tree.messages()]
    assert said == [
        ("system", "Be brief.", None, None),
        ("user", "one", None, None),
        ("assistant", "yes", "", (1, 70_000)),
        ("user", "two", None, None),
        ("assistant", "yes", "", (1, 70_000)),
    ]
    assert tree.branch(tree.current) == Branch(2, 1, 1, None)


def test_undo_and_redo() -> None:
    tree = grown("one", "two", "three")
    back = tree.undo(1).undo(2)
    assert back.turn is None and back.redo().path() == [1, 2] and back.redo().redo() == tree
    assert back.add(back.current, turn("other")).nodes[:4] == tree.nodes
    with pytest.raises(ValueError, match="nothing to redo"):
        back.redo().redo().redo()
    with pytest.raises(ValueError, match="nothing to redo"):
        back.switch(NodeId(1)).redo()
    with pytest.raises(ValueError, match="1 to 3"):
        tree.undo(4)


def test_undo_counts_what_users_said() -> None:
    tree = grown("one")
    tree = tree.add(tree.current, Turn((Message("tool", "42", tool_call_id="c"),), Reply("42 it is")))
    assert tree.undo(1).current == 0


def test_siblings_and_names() -> None:
    tree = grown("one", "two").call("main")
    other = tree.add(NodeId(1), turn("too"))
    assert other.branch(other.current) == Branch(2, 2, 2, None) and other.active is None
    assert other.beside(-1).branch(NodeId(2)) == Branch(2, 1, 2, "main") and other.beside(-1).active == "main"
    for step, says in ((1, "the last of 2"), (-2, "the first of 2")):
        with pytest.raises(ValueError, match=says):
            other.beside(step)
    further = other.beside(-1).add(NodeId(2), turn("three"))
    assert (further.names, further.name(NodeId(2))) == ({"main": 4}, None)
    assert further.undo(1).add(NodeId(2), turn("3")).names == {"main": 4}
    both = other.beside(-1).call("copy").add(NodeId(2), turn("three"))
    assert both.names == {"main": 2, "copy": 4}
    with pytest.raises(ValueError, match="there is a branch main already"):
        other.call("main")


@pytest.mark.parametrize("name", ["7", "-1", "", "two words", "a\tb", "x" * 61, "\u202e", "a\x1b"])
def test_what_no_branch_can_be_called(name: str) -> None:
    with pytest.raises(ValueError, match="a branch name"):
        grown("one").call(name)


Verb = Callable[[Tree], Tree]
_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)


@st.composite
def verbs(draw: st.DrawFn) -> Verb:
    number = draw(st.integers(0, 30))
    text = draw(_TEXT)
    kind = draw(st.sampled_from(["add", "undo", "redo", "switch", "beside", "call", "begin"]))
    at = lambda tree: NodeId(number % len(tree.nodes))  # noqa: E731
    chosen: dict[str, Verb] = {
        "add": lambda tree: tree.add(at(tree), turn(text, text)),
        "undo": lambda tree: tree.undo(number % 3),
        "redo": lambda tree: tree.redo(),
        "switch": lambda tree: tree.switch(at(tree)),
        "beside": lambda tree: tree.beside(number % 3 - 1),
        "call": lambda tree: tree.call(f"b{number % 4}"),
        "begin": lambda tree: tree.begin(Start.with_system(text)),
    }
    return chosen[kind]


@given(st.lists(verbs(), max_size=25))
@settings(max_examples=60, deadline=None)
def test_whatever_is_done_nothing_is_lost_and_json_comes_back_equal(chosen: list[Verb]) -> None:
    tree = grown("first")
    for verb in chosen:
        try:
            after = verb(tree)
        except ValueError:
            continue
        assert after.nodes[: len(tree.nodes)] == tree.nodes
        assert set(tree.names) <= set(after.names)
        assert after.active is None or after.names[after.active] == after.current
        if after.turn is not None:
            place = after.branch(after.current)
            assert after.children(after.parent(after.current))[place.sibling - 1] == after.current
        tree = after
        assert came_back(tree) == tree


def test_everything_of_a_node_is_kept() -> None:
    call = ToolCall("f", {"a": [1, {"b": None}]}, "c1")
    tools = ({"type": "function", "function": {"name": "f"}},)
    tree = Tree.starting(Start((Message("system", "s"), Message("developer", "d")), tools))
    reply = Reply("", "why", (call,), FinishReason.TOOL_CALLS, Author.MODEL, True, (1, 2**32 - 1), RECORD)
    tree = tree.add(tree.current, Turn((Message("user", "u", name="Bela"),), reply))
    asked = (Message("tool", "r", tool_call_id="c1", name="f"), Message("user", "go on"))
    tree = tree.add(tree.current, Turn(asked, Reply("x", finish=FinishReason.INTERRUPTED, author=Author.PERSON)))
    again = came_back(tree)
    assert again == tree and again.turn_at(NodeId(1)).reply.record == RECORD


def changed(path: list[Any], value: object) -> Callable[[dict[str, Any]], None]:
    def change(whole: dict[str, Any]) -> None:
        place: Any = whole
        for step in path[:-1]:
            place = place[step]
        if value is KeyError:
            del place[path[-1]]
        else:
            place[path[-1]] = value

    return change


HOSTILE = [
    (["version"], 3, "version '3' is not 1 or 2"),
    (["version"], 1, "the unknown key 'settings'"),
    (["settings"], {}, "settings is not a list"),
    (["settings", 0], 3, "settings[0] is not a JSON object"),
    (["settings", 0, "max_new"], KeyError, "settings[0] lacks the key 'max_new'"),
    (["settings", 0, "max_new"], "x", "settings[0]: Expected `int`"),
    (["settings"], [], "nodes[1]: '0' is not a row of settings"),
    (["more"], 1, "unknown key 'more'"),
    (["names"], KeyError, "lacks the key 'names'"),
    (["nodes"], [], "nodes is not a list"),
    (["nodes", 2, "parent"], 2, "nodes[2], its parent: '2' is not a node from 0 to 1"),
    (["nodes", 1, "parent"], 2, "nodes[1], its parent: '2' is not a node from 0 to 0"),
    (["nodes", 1, "parent"], -1, "'-1' is not a node"),
    (["nodes", 1, "parent"], True, "'True' is not a node"),
    (["nodes", 0, "parent"], 0, "nodes[0] has the unknown key 'leading'"),
    (["nodes", 1, "parent"], None, "the unknown key 'asked'"),
    (["nodes", 1], 3, "nodes[1] is not a JSON object"),
    (["nodes", 0, "leading"], [{"role": "user", "content": "x"}], "another role than system"),
    (["nodes", 0, "tools"], "x", "'tools' is not a list"),
    (["nodes", 1, "asked"], [{"role": "assistant"}], "asked holds a reply"),
    (["nodes", 1, "asked"], [{"role": "king"}], "unknown role 'king'"),
    (["nodes", 1, "asked"], 3, "its messages are not a list"),
    (["nodes", 1, "more"], 3, "the unknown key 'more'"),
    (["nodes", 1, "reply"], {"role": "user", "content": ""}, "is a user's"),
    (["nodes", 1, "reply"], [], "is not a JSON object"),
    (["nodes", 1, "reasoning"], 1, "reasoning is not a text"),
    (["nodes", 1, "finish"], "never", "'never' is not a valid FinishReason"),
    (["nodes", 1, "finish"], [], "is not a valid FinishReason"),
    (["nodes", 1, "author"], "nobody", "'nobody' is not a valid Author"),
    (["nodes", 1, "think"], "yes", "think is neither"),
    (["nodes", 1, "ids"], "AAA", "token ids are not base64 of 24-bit"),
    (["nodes", 1, "ids"], "AAAAAAA=", "token ids are not base64"),
    (["nodes", 1, "ids"], [1], "token ids are not base64"),
    (["nodes", 1, "wide_ids"], "AAAAAA==", "has token ids twice"),
    (["nodes", 1, "settings"], KeyError, "lacks the key 'settings'"),
    (["nodes", 1, "settings"], True, "'True' is not a row of settings"),
    (["nodes", 1, "statistics"], KeyError, "lacks the key 'statistics'"),
    (["nodes", 1, "statistics"], "[" * 3000, "nodes[1]: "),
    (["nodes", 1, "statistics"], "{" + " " * (1 << 16) + "}", "more than 65536 characters"),
    (["nodes", 1, "statistics"], '{"usage": {}}', "missing required field"),
    (["nodes", 1, "statistics"], "NaN", "nodes[1]: JSON is malformed"),
    (["nodes", 1, "seed"], "x", "Expected `int | null`"),
    (["settings", 0, "sampling"], {"temperature": float("nan")}, "nan is not a finite number"),
    (["current"], 9, "current: '9' is not a node"),
    (["names"], {"7": 1}, "a branch name is not a number"),
    (["names"], {"x": 9}, "names: '9' is not a node"),
    (["active"], "nobody", "active is not a branch at the current point"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "says"), HOSTILE)
def test_hostile_json_is_refused_in_one_line(path: list[Any], value: object, says: str) -> None:
    whole = copy.deepcopy(to_json(grown("one", "two")))
    changed(path, value)(whole)
    with pytest.raises(UsageError) as caught:
        from_json(whole)
    assert says in str(caught.value) and "\n" not in str(caught.value)


VERSION_1 = Path(__file__).parent.parent / "data" / "tree_version_1.json"
"""As the first version wrote it: every key of a node that it had, one in each form."""


def test_the_first_version_is_read_and_written_as_this_one() -> None:
    old = json.loads(VERSION_1.read_text())
    tree = from_json(old)
    assert [len(tree.nodes), tree.names, tree.active] == [4, {"main": 3}, "main"]
    first = tree.turn_at(NodeId(1)).reply
    assert (first.token_ids, first.record, first.reasoning) == ((1, 2**32 - 1), RECORD, "why")
    assert first.tool_calls == (ToolCall("f", {"a": [1, {"b": None}]}, "c1"),)
    assert tree.turn_at(NodeId(3)) == turn("two")
    assert came_back(tree) == tree


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (["nodes", 1, "parent"], 1, "nodes[1], its parent: '1' is not a node from 0 to 0"),
        (["nodes", 2, "reply", "message", "role"], "user", "is a user's"),
        (["nodes", 2, "reply", "reasoning"], "other", "reasoning is not that of its message"),
        (["nodes", 1, "asked"], [{"role": "assistant"}], "asked holds a reply"),
        (["nodes", 2, "reply", "finish"], "never", "'never' is not a valid FinishReason"),
        (["nodes", 2, "reply", "think"], "yes", "think is neither"),
        (["nodes", 2, "reply", "token_ids"], "AAA", "token ids are not base64 of 32-bit"),
        (["nodes", 3, "reply", "record", "seed"], "x", "Expected `int | null`"),
        (["nodes", 3, "reply", "record", "statistics", "usage"], {}, "missing required field"),
    ],
)
def test_hostile_json_of_the_first_version_is_refused(path: list[Any], value: object, says: str) -> None:
    whole = json.loads(VERSION_1.read_text())
    changed(path, value)(whole)
    with pytest.raises(UsageError) as caught:
        from_json(whole)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_thousands_of_turns_are_far_from_the_limit_on_values() -> None:
    tree = Tree.starting(Start.with_system("Be brief."))
    for i in range(5000):
        reply = Reply(f"Reply {i}.", "thought", think=True, token_ids=(i, 70_000), record=replace(RECORD, seed=i))
        tree = tree.add(tree.current, Turn((Message("user", f"Turn {i}."),), reply))
    writer = TreeWriter()
    assert 0.45 < writer.share(tree) < 0.6, "ten values for each turn"
    assert came_back(tree) == tree


def test_a_writer_that_has_seen_a_tree_grow_writes_what_a_new_one_writes() -> None:
    writer, tree = TreeWriter(), grown("one")
    for i in range(3):
        tree = tree.add(NodeId(i % 2), replace(turn("x"), reply=Reply("y", record=replace(RECORD, max_new=i))))
        assert writer.json(tree) == to_json(tree) and writer.share(tree) == TreeWriter().share(tree)
    other = grown("something", "else", "altogether", "and", "more")
    assert writer.json(other) == to_json(other) and writer.json(tree) == to_json(tree)


def test_share_is_what_the_reader_counts() -> None:
    large = grown("ÄÖ😀\n" * 100_000)
    text = json.dumps(to_json(large), ensure_ascii=False, separators=(",", ":")).encode()
    assert TreeWriter().share(large) * (16 << 20) == pytest.approx(len(text), abs=200)
    many = grown(*("x" * 1000))
    values = len(re.findall(r"[\[{,]", re.sub(r'"(?:[^"\\]|\\.)*"', '""', json.dumps(to_json(many)))))
    assert TreeWriter().share(many) * 100_000 == pytest.approx(values, abs=20)


def test_statistics_that_are_long_or_not_finite() -> None:
    many = replace(STATISTICS, reuse=Reuse(misses=(Miss(0, 9, MissReason.DIVERGED, "x" * 1000),) * 100))
    tree = grown().add(NodeId(0), Turn((), Reply("", record=replace(RECORD, statistics=many))))
    assert came_back(tree) == tree
    wrong = replace(STATISTICS, timings=Timings(float("nan"), None, None, None))
    with pytest.raises(UsageError, match="not a finite number"):
        to_json(grown().add(NodeId(0), Turn((), Reply("", record=replace(RECORD, statistics=wrong)))))


def test_limits() -> None:
    deep: Any = []
    for _ in range(70):
        deep = [deep]
    with pytest.raises(UsageError, match="deeper than 64"):
        from_json({"version": deep})
    with pytest.raises(UsageError, match="more than 100,000"):
        from_json({"nodes": [0] * 100_001})
    rows = [Turn((Message("user", "x"),), Reply("y", think=True))] * 25_000
    tree = Tree((Node(None, Start()), *(Node(NodeId(0), row) for row in rows)))
    assert TreeWriter().share(tree) > 1
    with pytest.raises(UsageError, match="more than 100,000"):
        to_json(tree)


def test_thousands_of_nodes_share_one_long_row_of_settings() -> None:
    """A short file must not become a large memory: a row is read once, and is not of any length."""
    value = to_json(grown("one", "two", "three"))
    value["settings"][0]["sampling"] = {f"s{n}": 0.5 for n in range(900)}
    rows = [node.value.reply.record.sampling for node in from_json(value).nodes if isinstance(node.value, Turn)]
    assert len(rows) > 1 and all(row is rows[0] for row in rows)
    value["settings"][0]["sampling"] = {f"s{n}": 0.5 for n in range(1001)}
    with pytest.raises(UsageError, match=r"settings\[0\]: more than 1000"):
        from_json(value)
