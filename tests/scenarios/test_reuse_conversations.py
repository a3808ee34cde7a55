"""What is reused when a conversation goes on, is regenerated, edited and branched: tables worked out by hand.

A token is a byte or a control token. A message is <|im_start|>, its role and a line end, its text, <|im_end|> and a
line end: the system message of 50 letters takes 60 tokens, a user's of 100 takes 108, and an assistant's in history
takes 15 with a text of two. The opener is 13 tokens with an open think block. A reply is "hmm", a line end, </think>,
two line ends, two letters and <|im_end|>: 10 tokens, the last of which is never executed.

So with the published template, which drops the reasoning from history, messages start at

    0 system, 60 user 1, 168 reply 1, 183 user 2, 291 reply 2, 306 user 3, 414 reply 3, 429 user 4, 537 reply 4

and the next prompt leaves each ending 11 tokens behind the opener's start. With the one that keeps reasoning, a reply
in history has the 13 + 10 tokens it had when it was said, and a line end:

    0 system, 60 user 1, 168 reply 1, 192 user 2, 300 reply 2, 324 user 3, 432 reply 3, 456 user 4, 564 reply 4
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.scenarios.chat import Chat, Row
from tests.support.talk import Talk, captures

A, B, C, D = ("a" * 100, "b" * 100, "c" * 100, "d" * 100)
START = {
    "published": (168, 183, 291, 306, 414, 429, 537),
    "keeping": (168, 192, 300, 324, 432, 456, 564),
}
REWRITE = {"published": "TurnClosure", "keeping": "ResponseReplay"}
TEMPLATES = ("published", "keeping")

APPEND: dict[str, list[Row]] = {
    "published": [
        (181, "Root", 0, "none"),
        (304, "TurnClosure", 168, "fork"),
        (427, "TurnClosure", 291, "fork"),
        (550, "TurnClosure", 414, "fork"),
    ],
    "keeping": [
        (181, "Root", 0, "none"),
        (313, "SessionEndpoint", 190, "move"),
        (445, "SessionEndpoint", 322, "move"),
        (577, "SessionEndpoint", 454, "move"),
    ],
}


def three_turns(talk: Talk) -> Chat:
    chat = Chat(talk)
    for text in (A, B, C):
        chat.ask(text)
    chat.table()
    return chat


@pytest.mark.req("DEF-2", "DEF-3", "CKP-3", "STAT-1")
@pytest.mark.parametrize("template", TEMPLATES)
def test_append(talk: Callable[..., Talk], template: str) -> None:
    with talk(template) as engine:
        chat = Chat(engine)
        for text in (A, B, C, D):
            chat.ask(text)
        assert chat.table() == APPEND[template]
        reply1, user2, reply2, user3, reply3, user4, reply4 = START[template]
        if template == "published":
            assert captures(chat.done) == [
                ("LongAnchor", 60, "aliased"),
                ("SharedStablePrefix", 60, "present"),
                ("LongAnchor", reply1, "aliased"),
                ("LongAnchor", user2, "aliased"),
                ("LongAnchor", reply2, "aliased"),
                ("LongAnchor", user3, "aliased"),
                ("LongAnchor", reply3, "aliased"),
                ("LongAnchor", user4, "captured"),
                ("TurnClosure", reply4, "captured"),
            ]
        else:
            assert captures(chat.done) == [
                ("LongAnchor", 60, "present"),
                ("SharedStablePrefix", 60, "present"),
                ("LongAnchor", reply1, "present"),
                ("LongAnchor", user2, "present"),
                ("LongAnchor", reply2, "present"),
                ("LongAnchor", user3, "present"),
                ("LongAnchor", reply3, "present"),
                ("LongAnchor", 454, "captured"),  # where the endpoint was: it went on by Move
                ("LongAnchor", user4, "captured"),
                ("ResponseReplay", reply4, "captured"),
            ]


@pytest.mark.req("DEF-3", "CAN-8")
@pytest.mark.parametrize("template", TEMPLATES)
def test_regenerate_five_times(talk: Callable[..., Talk], template: str) -> None:
    """Each time from before the reply's opener; every reply stays a branch that can be gone on with."""
    with talk(template) as engine:
        chat = three_turns(engine)
        reply3 = START[template][4]
        for answer in ("v1", "v2", "v3", "v4", "v5"):
            chat.again(answer)
        assert chat.table() == [(reply3 + 13, REWRITE[template], reply3, "fork")] * 5
        # on from the third of them: its endpoint is there where history shows a reply as it was said
        chat.again("v3")
        chat.table()
        chat.ask(D)
        [(_, source, frontier, _)] = chat.table()
        assert (source, frontier) == {
            "published": ("TurnClosure", 414),
            "keeping": ("SessionEndpoint", 454),
        }[template]


@pytest.mark.req("CAN-5", "CAN-8")
@pytest.mark.parametrize("template", TEMPLATES)
def test_edit_the_last_message(talk: Callable[..., Talk], template: str) -> None:
    """From where the edited message starts, also when half of its text is the same."""
    with talk(template) as engine:
        chat = three_turns(engine)
        chat.edit(1, "c" * 50 + "e" * 50)
        chat.edit(1, "f" * 10)
        user3, reply3 = START[template][3], START[template][4]
        assert chat.table() == [
            (reply3 + 13, "LongAnchor", user3, "fork"),
            (reply3 + 13 - 90, "LongAnchor", user3, "fork"),
        ]


@pytest.mark.req("CAN-3", "CAN-5")
@pytest.mark.parametrize("template", TEMPLATES)
def test_edit_the_first_message(talk: Callable[..., Talk], template: str) -> None:
    """Only the system message is left: it was published for everybody, at first sight, into spare room."""
    with talk(template) as engine:
        chat = three_turns(engine)
        chat.edit(3, "e" * 100)
        assert chat.table() == [(181, "SharedStablePrefix", 60, "fork")]


@pytest.mark.req("CAN-8", "DEF-2")
@pytest.mark.parametrize("template", TEMPLATES)
def test_branch_and_return(talk: Callable[..., Talk], template: str) -> None:
    with talk(template) as engine:
        chat = three_turns(engine)
        before = list(chat.messages)
        chat.edit(2, "e" * 100)
        chat.ask(D)
        branch = list(chat.messages)
        chat.messages = before
        chat.ask(D)
        chat.messages = branch
        chat.ask("g" * 10)
        _, user2, reply2, _, reply3, _, reply4 = START[template]
        rewrites = template == "published"
        assert chat.table() == [
            (reply2 + 13, "LongAnchor", user2, "fork"),
            (reply3 + 13, "TurnClosure", reply2, "fork")
            if rewrites
            else (reply3 + 13, "SessionEndpoint", reply2 + 22, "move"),
            (reply4 + 13, "TurnClosure", reply3, "fork")
            if rewrites
            else (reply4 + 13, "SessionEndpoint", reply3 + 22, "move"),
            (reply4 + 13 - 90, "TurnClosure", reply3, "fork")
            if rewrites
            else (reply4 + 13 - 90, "SessionEndpoint", reply3 + 22, "move"),
        ]


@pytest.mark.req("DEF-3")
def test_thinking_on_and_off(talk: Callable[..., Talk]) -> None:
    """The opener comes behind every frontier that the next turn needs: the switch costs nothing."""
    with talk() as engine:
        chat = Chat(engine)
        for thinking, text in ((True, A), (False, B), (None, C), (False, D)):
            chat.thinking = thinking
            chat.ask(text)
        assert chat.table() == [
            (181, "Root", 0, "none"),
            (291 + 17, "TurnClosure", 168, "fork"),
            (414 + 13, "TurnClosure", 291, "fork"),
            (537 + 17, "TurnClosure", 414, "fork"),
        ]
        chat.thinking = True
        chat.again("zz")
        assert chat.table() == [(537 + 13, "TurnClosure", 537, "fork")], "the same prompt, but for its opener's end"


@pytest.mark.req("CAN-3", "EVI-1", "REQ-1")
def test_a_system_prompt_under_eight_sessions(talk: Callable[..., Talk]) -> None:
    """The first publishes it at sight, the others start from it; each goes on from its own turn."""
    with talk() as engine:
        chats = [Chat(engine, session=f"s{i}") for i in range(8)]
        for i, chat in enumerate(chats):
            chat.ask(f"{i}" * 100)
        assert chats[0].table() == [(181, "Root", 0, "none")]
        for chat in chats[1:]:
            assert chat.table() == [(181, "SharedStablePrefix", 60, "fork")]
        for chat in chats:
            chat.ask(B)
            assert chat.table() == [(304, "TurnClosure", 168, "fork")]
        assert len(list(engine.manager.books.shared)) == 1
