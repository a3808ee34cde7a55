"""The same conversations with a template that keeps the reasoning in history: tables worked out by hand.

The lengths are those of test_reuse_conversations, but a reply in history has the 13 + 10 tokens it had when it was
said, and a line end: 24. So messages start at

    0 system, 60 user 1, 168 reply 1, 192 user 2, 300 reply 2, 324 user 3, 432 reply 3, 456 user 4, 564 reply 4

and turn k ends 22 tokens behind the start of its reply, for the last token is never executed: at 190, 322, 454. Nothing
is rewritten: the next turn goes on from that end by Move, and takes the conversation's other states along ("present").
Where the end was an anchor stays (CAN-7), and the place before each opener is a ResponseReplay.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.scenarios.chat import A, B, C, Chat, D, Step, after
from tests.support.talk import Talk

MOVED = ["LongAnchor 60 present", "SharedStablePrefix 60 present"]
"""What a request that went on by Move finds of the system message."""
FORKED = ["LongAnchor 60 aliased", "SharedStablePrefix 60 present"]
"""What one that forked an older state leaves of it."""

FIRST: Step = (
    181,
    "Root",
    0,
    "none",
    ["LongAnchor 60 captured", "SharedStablePrefix 60 promoted", "ResponseReplay 168 captured"],
)
SECOND: Step = (
    313,
    "SessionEndpoint",
    190,
    "move",
    [*MOVED, "LongAnchor 168 present", "LongAnchor 190 192 captured", "ResponseReplay 300 captured"],
)
"""300 + 13. 190 is where the end was, 192 the message boundary right behind it; 168 was the turn's ResponseReplay."""
THIRD: Step = (
    445,
    "SessionEndpoint",
    322,
    "move",
    [*MOVED, "LongAnchor 168 192 300 present", "LongAnchor 322 324 captured", "ResponseReplay 432 captured"],
)
FOURTH: Step = (
    577,
    "SessionEndpoint",
    454,
    "move",
    [*MOVED, "LongAnchor 168 192 300 324 432 present", "LongAnchor 454 456 captured", "ResponseReplay 564 captured"],
)


@pytest.mark.req("DEF-2", "DEF-3", "CKP-3", "CAN-7", "STAT-1")
def test_append(talk: Callable[..., Talk]) -> None:
    with talk("keeping") as engine:
        chat = after(engine, FIRST, SECOND, THIRD)
        chat.ask(D)
        assert chat.steps() == [FOURTH]


@pytest.mark.req("DEF-3", "CAN-8")
def test_regenerate_five_times(talk: Callable[..., Talk]) -> None:
    """From before the reply's opener. Every reply stays a branch, which goes on from its own end."""
    with talk("keeping") as engine:
        chat = after(engine, FIRST, SECOND, THIRD)
        for answer in ("v1", "v2", "v3", "v4", "v5"):
            chat.again(answer)
        same = [*FORKED, "LongAnchor 168 192 300 324 aliased", "ResponseReplay 432 aliased"]
        assert chat.steps() == [(445, "ResponseReplay", 432, "fork", same)] * 5
        chat.again("v3")
        chat.steps()
        chat.ask(D)
        # "v3" was said twice, and only one of the two is gone on with: the other's end is the anchor at 454.
        aliased = ["LongAnchor 454 aliased", "LongAnchor 456 captured", "ResponseReplay 564 captured"]
        assert chat.steps() == [(*FOURTH[:4], [*FOURTH[4][:-2], *aliased])]


@pytest.mark.req("CAN-5", "CAN-8")
def test_edit_the_last_message(talk: Callable[..., Talk]) -> None:
    """From where the edited message starts, two tokens behind the end of the turn before."""
    with talk("keeping") as engine:
        chat = after(engine, FIRST, SECOND, THIRD)
        chat.edit(1, "c" * 50 + "e" * 50)
        chat.edit(1, "f" * 10)
        before = [*FORKED, "LongAnchor 168 192 300 324 aliased"]
        assert chat.steps() == [
            (445, "LongAnchor", 324, "fork", [*before, "ResponseReplay 432 captured"]),
            (355, "LongAnchor", 324, "fork", [*before, "ResponseReplay 342 captured"]),  # 324 + 18, and 13
        ]


@pytest.mark.req("CAN-3", "CAN-5")
def test_edit_the_first_message(talk: Callable[..., Talk]) -> None:
    with talk("keeping") as engine:
        chat = after(engine, FIRST, SECOND, THIRD)
        chat.edit(3, "e" * 100)
        assert chat.steps() == [(181, "SharedStablePrefix", 60, "fork", [*FORKED, "ResponseReplay 168 captured"])]


@pytest.mark.req("CAN-8", "DEF-2")
def test_branch_and_return(talk: Callable[..., Talk]) -> None:
    """Editing forks an anchor and leaves the conversation as it is: both branches go on from their ends."""
    with talk("keeping") as engine:
        chat = after(engine, FIRST, SECOND, THIRD)
        before = list(chat.messages)
        chat.edit(2, "e" * 100)
        chat.ask(D)
        branch = list(chat.messages)
        chat.messages = before
        chat.ask(D)
        chat.messages = branch
        chat.ask("g" * 10)
        assert chat.steps() == [
            (313, "LongAnchor", 192, "fork", [*FORKED, "LongAnchor 168 192 aliased", "ResponseReplay 300 captured"]),
            THIRD,
            FOURTH,
            (487, *FOURTH[1:4], [*FOURTH[4][:-1], "ResponseReplay 474 captured"]),  # 456 + 18, and 13
        ]


@pytest.mark.req("DEF-3", "ID-3")
def test_thinking_on_and_off(talk: Callable[..., Talk]) -> None:
    """A reply without thinking stays in history as it was said, too: 17 tokens of opener with an empty think block, two
    letters, <|im_end|> and a line end are 21. So the switch costs nothing. Messages start at

        60 user 1, 168 reply 1, 192 user 2, 300 reply 2 (no thinking), 321 user 3, 429 reply 3, 453 user 4, 561 reply 4

    and the turns end at 190, 300 + 17 + 2 = 319, 429 + 22 = 451.
    """
    with talk("keeping") as engine:
        chat = Chat(engine)
        for thinking, text in ((True, A), (False, B), (None, C), (False, D)):
            chat.thinking = thinking
            chat.ask(text)
        third = ["LongAnchor 168 192 300 present", "LongAnchor 319 321 captured", "ResponseReplay 429 captured"]
        fourth = [
            "LongAnchor 168 192 300 321 429 present",
            "LongAnchor 451 453 captured",
            "ResponseReplay 561 captured",
        ]
        assert chat.steps() == [
            FIRST,
            (317, *SECOND[1:]),
            (442, "SessionEndpoint", 319, "move", [*MOVED, *third]),
            (578, "SessionEndpoint", 451, "move", [*MOVED, *fourth]),
        ]
        chat.thinking = True
        chat.again("zz")
        same = [*FORKED, "LongAnchor 168 192 300 321 429 453 aliased", "ResponseReplay 561 aliased"]
        assert chat.steps() == [(574, "ResponseReplay", 561, "fork", same)], "the same prompt, but for its opener's end"


@pytest.mark.req("CAN-3", "EVI-1", "REQ-1", "CAP-4")
def test_a_system_prompt_under_eight_sessions(talk: Callable[..., Talk]) -> None:
    """The first publishes it at sight, the others start from it; each goes on from its own end.

    It is one image for all of them; of its two turns a session has five more: 168, 190, 192, 300 and its end. 1 + 8 * 5
    is all that there are: one lane's and 40 slots.
    """
    with talk("keeping") as engine:
        chats = [Chat(engine, session=f"s{i}") for i in range(8)]
        for i, chat in enumerate(chats):
            chat.ask(f"{i}" * 100)
        assert chats[0].steps() == [FIRST]
        for chat in chats[1:]:
            assert chat.steps() == [(181, "SharedStablePrefix", 60, "fork", [*FORKED, "ResponseReplay 168 captured"])]
        for chat in chats:
            chat.ask(B)
            assert chat.steps() == [SECOND]
        assert len(list(engine.manager.books.shared)) == 1
        assert engine.program.world.used().device_images == 41 and engine.losses.told() == []
