"""What is reused when a conversation goes on, is regenerated, edited and branched, and what each step leaves behind,
with the published template: tables worked out by hand. `Talk` checks prefill = len(prompt) - frontier at every step.

A token is a byte or a control token. A message is <|im_start|>, its role and a line end, its text, <|im_end|> and a
line end: the system message of 50 letters takes 60 tokens, a user's of 100 takes 108, and an assistant's in history
takes 15 with a text of two. The opener is 13 tokens with an open think block. A reply is "hmm", a line end, </think>,
two line ends, two letters and <|im_end|>: 10 tokens, the last of which is never executed.

The template drops the reasoning from history, so messages start at

    0 system, 60 user 1, 168 reply 1, 183 user 2, 291 reply 2, 306 user 3, 414 reply 3, 429 user 4, 537 reply 4

and the next prompt leaves each ending 11 tokens behind the opener's start: nobody can go on from an end, the next turn
starts at the TurnClosure, which is where the reply starts. So a step leaves: an anchor at each message boundary inside
its prompt, "aliased" where another conversation or an older branch has that state and "present" where it came along
with the source; the prefix up to 60 for everybody, once; and its own TurnClosure.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.scenarios.chat import A, B, C, Chat, D, Step, after
from tests.support.talk import Talk

SYSTEM = ["LongAnchor 60 aliased", "SharedStablePrefix 60 present"]
"""What all but the first request leave of the system message."""

FIRST: Step = (
    181,
    "Root",
    0,
    "none",
    ["LongAnchor 60 captured", "SharedStablePrefix 60 promoted", "TurnClosure 168 captured"],
)
"""168 + 13. The prefix needs no image of its own: it is the anchor's."""
SECOND: Step = (
    304,
    "TurnClosure",
    168,
    "fork",
    [*SYSTEM, "LongAnchor 168 aliased", "LongAnchor 183 captured", "TurnClosure 291 captured"],
)
"""291 + 13, from where the first reply started: that state is an anchor from now on. New: 183 and 291."""
THIRD: Step = (
    427,
    "TurnClosure",
    291,
    "fork",
    [*SYSTEM, "LongAnchor 168 183 291 aliased", "LongAnchor 306 captured", "TurnClosure 414 captured"],
)
FOURTH: Step = (
    550,
    "TurnClosure",
    414,
    "fork",
    [*SYSTEM, "LongAnchor 168 183 291 306 414 aliased", "LongAnchor 429 captured", "TurnClosure 537 captured"],
)


@pytest.mark.req("DEF-2", "DEF-3", "CKP-3", "STAT-1", "CAN-5")
def test_append(talk: Callable[..., Talk]) -> None:
    with talk() as engine:
        chat = after(engine, FIRST, SECOND, THIRD)
        chat.ask(D)
        assert chat.steps() == [FOURTH]


@pytest.mark.req("DEF-3", "CAN-8")
def test_regenerate_five_times(talk: Callable[..., Talk]) -> None:
    """The same prompt: from its TurnClosure, and all its places are there. It can be gone on with from each of them."""
    with talk() as engine:
        chat = after(engine, FIRST, SECOND, THIRD)
        for answer in ("v1", "v2", "v3", "v4", "v5"):
            chat.again(answer)
        same = [*SYSTEM, "LongAnchor 168 183 291 306 aliased", "TurnClosure 414 aliased"]
        assert chat.steps() == [(427, "TurnClosure", 414, "fork", same)] * 5
        chat.again("v3")
        chat.steps()
        chat.ask(D)
        assert chat.steps() == [FOURTH]


@pytest.mark.req("CAN-5", "CAN-8")
def test_edit_the_last_message(talk: Callable[..., Talk]) -> None:
    """From where the edited message starts, also when half of its text is the same: nothing was kept inside it. A text
    of 10 takes 18 tokens, so that reply 3 starts at 306 + 18."""
    with talk() as engine:
        chat = after(engine, FIRST, SECOND, THIRD)
        chat.edit(1, "c" * 50 + "e" * 50)
        chat.edit(1, "f" * 10)
        before = [*SYSTEM, "LongAnchor 168 183 291 306 aliased"]
        assert chat.steps() == [
            (427, "LongAnchor", 306, "fork", [*before, "TurnClosure 414 captured"]),
            (337, "LongAnchor", 306, "fork", [*before, "TurnClosure 324 captured"]),
        ]


@pytest.mark.req("CAN-3", "CAN-5")
def test_edit_the_first_message(talk: Callable[..., Talk]) -> None:
    """Only the system message is left: it was published for everybody, at first sight, into spare room."""
    with talk() as engine:
        chat = after(engine, FIRST, SECOND, THIRD)
        chat.edit(3, "e" * 100)
        assert chat.steps() == [(181, "SharedStablePrefix", 60, "fork", [*SYSTEM, "TurnClosure 168 captured"])]


@pytest.mark.req("CAN-8", "DEF-2")
def test_branch_and_return(talk: Callable[..., Talk]) -> None:
    """The second message edited, and on; back to the old branch, and on; to the new one again: each from its own last
    turn. What they have in common up to 183 is there once."""
    with talk() as engine:
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
            (304, "LongAnchor", 183, "fork", [*SYSTEM, "LongAnchor 168 183 aliased", "TurnClosure 291 captured"]),
            THIRD,
            FOURTH,
            # The fourth message takes 18 tokens: the reply to it starts at 429 + 18.
            (460, *FOURTH[1:4], [*FOURTH[4][:-1], "TurnClosure 447 captured"]),
        ]


@pytest.mark.req("DEF-3")
def test_thinking_on_and_off(talk: Callable[..., Talk]) -> None:
    """The opener comes behind every frontier that the next turn needs: the switch costs nothing. Without thinking it is
    17 tokens long."""
    with talk() as engine:
        chat = Chat(engine)
        for thinking, text in ((True, A), (False, B), (None, C), (False, D)):
            chat.thinking = thinking
            chat.ask(text)
        assert chat.steps() == [FIRST, (308, *SECOND[1:]), THIRD, (554, *FOURTH[1:])]
        chat.thinking = True
        chat.again("zz")
        same = [*SYSTEM, "LongAnchor 168 183 291 306 414 429 aliased", "TurnClosure 537 aliased"]
        assert chat.steps() == [(550, "TurnClosure", 537, "fork", same)], "the same prompt, but for its opener's end"


@pytest.mark.req("CAN-3", "EVI-1", "REQ-1", "CAP-4")
def test_a_system_prompt_under_eight_sessions(talk: Callable[..., Talk]) -> None:
    """The first publishes it at sight, the others start from it; each goes on from its own turn.

    It is one image for all of them. Beside it a session has three that nobody shares, of its second turn, and two of
    its first: 168 and its end. 1 + 8 * 5 is all that there are: one lane's and 40 slots.
    """
    with talk() as engine:
        chats = [Chat(engine, session=f"s{i}") for i in range(8)]
        for i, chat in enumerate(chats):
            chat.ask(f"{i}" * 100)
        assert chats[0].steps() == [FIRST]
        for chat in chats[1:]:
            assert chat.steps() == [
                (181, "SharedStablePrefix", 60, "fork", [*SYSTEM, "TurnClosure 168 captured"]),
            ]
        for chat in chats:
            chat.ask(B)
            assert chat.steps() == [SECOND]
        assert len(list(engine.manager.books.shared)) == 1
        assert engine.program.world.used().device_images == 41 and engine.losses.told() == []
