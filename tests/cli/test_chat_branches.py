"""The commands that branch, regenerate, edit and rewrite, on the fake Engine in this process."""

from __future__ import annotations

from typing import Any

import pytest

from ninfer_cli.repl.chat import sibling_seed
from ninfer_cli.repl.commands import COMMANDS
from ninfer_cli.repl.completion import CommandCompleter
from ninfer_cli.repl.node import Author
from ninfer_cli.repl.tree import NodeId
from ninfer_core import FinishReason
from tests.support.chat_script import Talk
from tests.support.fake_engine import Scripted


def test_regenerating_makes_siblings_in_one_go_with_seeds_of_their_own() -> None:
    talk = Talk(settings={"seed": 9}, replies=["A", "B one", "B two", "B three", "C"])
    assert talk.run("hello", "/regen 3") == 0
    assert talk.out == "A\n\nB one\n\nB two\n\nB three\n"
    seeds = [request.sampling.seed for request in talk.engine.requests]
    assert seeds == [9, *(sibling_seed(9, 1, sibling) for sibling in (2, 3, 4))] and len(set(seeds)) == 4
    assert len({request.prompt for request in talk.engine.requests}) == 1
    tree = talk.chat.tree
    said = [tree.turn_at(at).reply.text for at in tree.children(NodeId(0))]
    assert said == ["A", "B one", "B two", "B three"]
    records = [tree.turn_at(NodeId(at)).reply.record for at in (1, 2, 3, 4)]
    assert [record.seed for record in records if record] == seeds
    assert tree.turn and tree.turn.reply.text == "B one"
    assert talk.run("and on") == 0 and talk.said == ["user: hello", "assistant: B one", "user: and on"]


def test_all_siblings_are_submitted_before_one_is_waited_for() -> None:
    talk = Talk(replies=["A", *(Scripted("a b c d", delay=0.05) for _ in range(4))])
    talk.run("hello")
    order: list[str] = []
    submit = talk.engine.submit

    def watched(request: Any) -> Any:
        handle = submit(request)
        order.append("submitted")
        follow = handle.next_event

        def next_event(timeout: float | None = None) -> Any:
            order.append("followed")
            return follow(timeout)

        handle.next_event = next_event  # type: ignore[method-assign]
        return handle

    talk.engine.submit = watched  # type: ignore[method-assign]
    assert talk.run("/retry 4") == 0
    assert order.index("followed") == 4 == order.count("submitted")


def test_without_a_seed_the_turn_s_own_serves() -> None:
    talk = Talk()
    assert talk.run("hello", "/regen", "/regen") == 0
    assert [r.sampling.seed for r in talk.engine.requests[1:]] == [
        sibling_seed(7, 1, 2),
        sibling_seed(seeded(talk), 1, 3),
    ]


def seeded(talk: Talk) -> int:
    record = talk.chat.tree.turn_at(NodeId(2)).reply.record
    assert record and record.seed is not None
    return record.seed


def test_regen_that_cannot_be() -> None:
    talk = Talk()
    assert "no reply to regenerate" in talk.fails("/regen")
    talk.run("hello")
    assert talk.fails("/regen 5") == "/regen 5: give how many replies to make, 1 to 4; --max-concurrency raises it"
    assert "1 to 4" in talk.fails("/regen many") and "1 to 4" in talk.fails("/regen 0")
    talk.run("/set greedy on")
    assert "raise the temperature" in talk.fails("/regen")


def test_a_sibling_that_fails_costs_only_itself() -> None:
    broken = Scripted("so", finish="error", error="the row fell")
    talk = Talk(settings={"json": True}, replies=["A", "B", broken, "C"])
    assert talk.run("hello", "/regen 3") == 0
    first, one, two, command = talk.values
    assert (first["text"], one["text"], two["text"]) == ("A", "B", "C")
    assert one["branch"] == {"turn": 1, "sibling": 2, "siblings": 3, "name": None}
    assert command == {"command": "/regen 3", "ok": True, "result": [one["branch"], None, two["branch"]]}
    assert "one of the replies failed: the row fell" in talk.err
    talk = Talk(replies=["A", broken, broken])
    talk.run("hello")
    assert talk.fails("/regen") == "the row fell" and talk.fails("/regen") == "the row fell"


def test_editing_goes_on_from_there() -> None:
    talk = Talk(replies=["A", "B", "C", "D", "E"], system="S")
    assert talk.run("one", "two", "three", "/edit 2 zwei", "drei") == 0
    assert talk.said == ["system: S", "user: one", "assistant: A", "user: zwei", "assistant: D", "user: drei"]
    assert talk.run("/prev", keep_going=True) == 1 and "turn 3 has no siblings" in talk.err
    assert talk.run("/undo", "/prev", "/tree") == 0
    assert "turn 2, sibling 1/2: two -> B" in talk.err
    assert talk.run('/edit """', "with", "", "lines", '"""') == 0
    assert talk.said[-1] == "user: with\n\nlines"
    assert talk.run('/edit 1 """', "uno", "dos", '"""') == 0 and talk.said == ["system: S", "user: uno\ndos"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("/edit 99 x", "/edit: there is no turn 99 on this path: give 1 to 2 and the new text"),
        ("/edit -1 x", "/edit: there is no turn -1 on this path: give 1 to 2"),
        ("/edit 0", "/edit: there is no turn 0 on this path: give 1 to 2"),
        ("/edit 1", "/edit 1: give the TEXT behind it"),
        ("/edit", "/edit 2: give the TEXT behind it"),
        ("/rewrite", "/rewrite: give the TEXT behind it"),
        ("/undo 3", "/undo 3: give how many messages to go back, 1 to 2"),
        ("/undo 0", "/undo 0: give how many messages to go back, 1 to 2"),
        ("/undo x", "/undo x: give how many messages to go back, 1 to 2"),
        ("/redo", "/redo: there is nothing to redo"),
        ("/switch", "/switch wants a place to go to: give the name of a branch (main) or the number of a node, 0 to 2"),
        ("/switch 7", "/switch: there is no node 7: give the name of a branch (main) or the number of a node, 0 to 2"),
        (
            "/switch -1",
            "/switch: there is no node -1: give the name of a branch (main) or the number of a node, 0 to 2",
        ),
        ("/switch " + "9" * 5000, "the number of a node, 0 to 2"),
        ("/switch mian", "did you mean main?"),
        ("/switch nowhere", "no branch nowhere: give the name of a branch (main) or the number of a node, 0 to 2"),
        ("/branch 3", "numbers are the turns that /tree shows"),
        ("/next", "turn 2 has no siblings"),
        ("/tree now", "/tree takes no argument"),
        ("/copy", "/copy needs a terminal"),
    ],
)
def test_what_cannot_be_is_one_line_and_changes_nothing(line: str, says: str) -> None:
    talk = Talk()
    talk.run("one", "two", "/branch main")
    assert says in talk.fails(line)


def test_before_anything_was_said() -> None:
    talk = Talk()
    for line in ("/edit x", "/rewrite x", "/continue", "/regen", "/copy", "/stats", "/undo", "/next", "/export a.md"):
        assert " yet" in talk.fails(line) or "nothing" in talk.err


def test_too_long_in_mid_conversation_names_the_numbers_and_changes_nothing() -> None:
    talk = Talk(info={"max_context": 30})
    talk.run("one", "two")
    for line in ("b " * 40, "/edit 1 " + "b " * 40, "/rewrite " + "b " * 40, "/system " + "b " * 40):
        message = talk.fails(line)
        assert "the context holds 30" in message and "/undo" in message and "--max-context" in message


def test_rewriting_keeps_the_old_reply_and_is_what_the_model_sees() -> None:
    talk = Talk(replies=["A", "B"])
    assert talk.run("one", "/rewrite Better so.", "and?") == 0
    assert talk.said == ["user: one", "assistant: Better so.", "user: and?"]
    tree = talk.chat.tree
    assert tree.turn_at(NodeId(1)).reply.text == "A"
    assert tree.turn_at(NodeId(2)).reply.author is Author.PERSON
    assert tree.turn_at(NodeId(2)).reply.token_ids == ()


def test_going_on_uses_the_reply_s_own_ids_and_keeps_both() -> None:
    talk = Talk(settings={"max_new": 2, "json": True}, replies=["Once upon a time", "a time."])
    assert talk.run("tell", "/continue") == 0
    first, whole, command = talk.values
    assert (first["text"], first["finish_reason"]) == ("Once upon ", "length")
    assert (whole["text"], whole["finish_reason"]) == ("Once upon a time.", "stop")
    assert command["result"] == [{"turn": 1, "sibling": 2, "siblings": 2, "name": None}]
    asked = talk.engine.prepared[-1][-1]
    assert asked.unfinished and asked.token_ids == (0, 1) and asked.content == "Once upon "
    tree = talk.chat.tree
    opener = len(talk.engine.prepared[-2])
    assert opener == 1 and tree.turn and tree.turn.reply.text == "Once upon a time."
    request = talk.engine.requests[-1]
    assert tree.turn.reply.token_ids == (*request.prompt.token_ids[2:], 0, 1)
    assert tree.turn_at(NodeId(1)).reply.text == "Once upon "


def test_going_on_where_the_model_adds_nothing() -> None:
    talk = Talk(replies=["done", ""])
    assert talk.run("tell", "/continue") == 0
    assert "nothing was added" in talk.err and len(talk.chat.tree.nodes) == 2


def test_tool_calls_are_not_continued() -> None:
    talk = Talk(replies=[Scripted("", finish="tool_calls", tool_calls=[["f", {"a": 1}]])])
    talk.run("do")
    assert "calls tools" in talk.fails("/continue")


def test_names_follow_their_branch_and_switching_goes_there() -> None:
    talk = Talk(settings={"json": True}, replies=["A", "B", "C", "D", "E"])
    assert talk.run("one", "/branch main", "two", "/edit 1 uno", "/branch alt", "dos", "/switch main", "/branch") == 0
    values = talk.values
    assert values[1]["result"] == {"node": 1, "turn": 1, "sibling": 1, "siblings": 1, "name": "main"}
    assert values[2]["branch"] == {"turn": 2, "sibling": 1, "siblings": 1, "name": "main"}
    assert values[3]["branch"] == {"turn": 1, "sibling": 2, "siblings": 2, "name": None}
    assert values[6]["branch"]["name"] == "alt"
    assert values[7]["result"] == {"node": 2, "turn": 2, "sibling": 1, "siblings": 1, "name": "main"}
    assert values[8]["result"] == {"main": {"node": 2, "turn": 2}, "alt": {"node": 4, "turn": 2}}
    assert talk.run("three", "/switch 3", "/tree") == 0
    assert talk.values[0]["branch"]["name"] == "main"
    rows = talk.values[2]["result"]
    assert [(row["node"], row["parent"], row["turn"], row["name"], row["current"]) for row in rows] == [
        (0, None, None, None, False),
        (1, 0, 1, None, False),
        (2, 1, 2, None, False),
        (5, 2, 3, "main", False),
        (3, 0, 1, None, True),
        (4, 3, 2, "alt", False),
    ]
    assert {row["resume"] for row in rows} == {None}


def test_another_system_message_is_a_branch_of_its_own() -> None:
    talk = Talk(replies=["A", "B", "C"], system="Old.")
    assert talk.run("one", "/system New.", "two", "/system") == 0
    assert "the next reply reads 6 tokens again" in talk.err and "system message: New." in talk.err
    assert talk.said == ["system: New.", "user: one", "assistant: A", "user: two"]
    assert talk.run("/switch 1", "zwei") == 0
    assert talk.said == ["system: Old.", "user: one", "assistant: A", "user: zwei"]
    assert talk.run("/new", "hi") == 0 and talk.said == ["system: Old.", "user: hi"]
    assert talk.run("/system none", "/system") == 0 and "there is no system message" in talk.err


def test_a_reply_that_was_interrupted_stays_and_can_go_on() -> None:
    talk = Talk(replies=["one two three", " and on"])
    job = talk.chat.message("tell")
    (answer,) = talk.chat.carry_out(job, _Quiet(), lambda: bool(_Quiet.seen))
    assert answer.completion.finish_reason is FinishReason.INTERRUPTED
    turn = talk.chat.tree.turn
    assert turn and turn.reply.interrupted and turn.reply.text in ("one ", "one two ")
    assert talk.run("/continue") == 0 and talk.chat.tree.turn
    assert talk.chat.tree.turn.reply.text == turn.reply.text + " and on"


class _Quiet:
    """A view that remembers, for the whole class, that text came."""

    seen = ""

    def text(self, text: str) -> None:
        _Quiet.seen += text

    def prefilled(self, done: int, total: int) -> None: ...
    def reasoning(self, text: str) -> None: ...
    def finish(self) -> None: ...


def test_interrupting_ends_all_siblings() -> None:
    talk = Talk(replies=["A", *(Scripted("a b c d e f g h", delay=0.02) for _ in range(3))])
    talk.run("hello")
    tree = talk.chat.tree
    job = talk.chat.job(tree.parent(tree.current), tree.turn_at(tree.current).asked, talk.chat.sampling_seeds(3))
    _Quiet.seen = ""
    answers = talk.chat.carry_out(job, _Quiet(), lambda: bool(_Quiet.seen))
    assert {a.completion.finish_reason for a in answers} == {FinishReason.INTERRUPTED}
    assert 0 < len([a for a in answers if a.node is not None]) <= 3


def test_replies_keep_the_ids_and_settings_they_were_made_with() -> None:
    talk = Talk(settings={"temperature": 0.5, "stop": ("END",), "max_new": 50}, replies=["a b c"])
    talk.run("/think on", "hello", "more")
    turn = talk.chat.tree.turn_at(NodeId(1))
    assert turn.reply.token_ids == (0, 1, 2) and turn.reply.think is True and turn.reply.record
    record = turn.reply.record
    assert (record.sampling["temperature"], record.stop, record.max_new, record.seed) == (0.5, ("END",), 50, 7)
    assert record.statistics.usage.completion_tokens == 3
    assert talk.engine.prepared[-1][1].token_ids == (0, 1, 2) and talk.engine.prepared[-1][1].reasoning_content == ""


def test_every_command_has_help_and_completion() -> None:
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    completer = CommandCompleter(lambda: ["main", "alt"])

    def completions(text: str) -> list[str]:
        return [c.text for c in completer.get_completions(Document(text), CompleteEvent())]

    talk = Talk()
    for row in COMMANDS:
        assert talk.run(f"/help {row.name}") == 0 and talk.err.startswith(row.usage)
        assert row.name in completions(f"/{row.name[:2]}")
    assert completions("/switch m") == ["main"] and completions("/think o") == ["on", "off"]
    assert completions("//re") == completions("re") == []
    assert "temperature" in completions("/set t")
