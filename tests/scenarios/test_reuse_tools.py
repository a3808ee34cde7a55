"""What is reused in a tool loop that thinks, with the published template: tables worked out by hand.

The first message takes 1014 tokens: 8 for <|im_start|>system and a line end, 61 for the heading, 107 for the tool
behind a line end, 9 for the end of the tools and 775 for the rules; then two line ends, 50 letters, <|im_end|> and a
line end. What comes of the tools alone ends at 960, and the frontier is the one before: ">" might be composed with what
follows.

The user's message ends at 1122. A call is 57 tokens: 6 line ends, <tool_call> and </tool_call> as one each, 12 for
<function=f>, 13 for <parameter=x>, 1 for the value, 12 and 11 for the ends. The opener is 13 tokens, the reasoning "r",
a line end, </think> and two line ends 5, <|im_end|> and a line end 2: a call in the loop's history takes 77. A result
of 5 letters takes 46: 5 for <|im_start|>user, 17 and 17 around it, 2. So in the loop messages start at

    0 system, 1014 user, 1122 call 1, 1199 result 1, 1245 call 2, 1322 result 2, 1368 answer

and call k ends 13 + 62 tokens behind its start, for the last of its 63 is never executed: at 1197 and 1320.

The template keeps the reasoning of the loop that is going on: each step goes on from the end of the one before. A new
question drops all of it, and starts where the loop began: that is the TurnClosure of all its steps. In history a call
takes 70 tokens then, and the answer 17:

    1122 call 1, 1192 result 1, 1238 call 2, 1308 result 2, 1354 answer, 1371 user 2, 1479 reply
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ninfer_core import Message
from tests.scenarios.chat import Step
from tests.scenarios.loop import Loop
from tests.support.talk import Talk

TOOLS = "SharedStablePrefix 959 present"
MOVED = [TOOLS, "LongAnchor 1014 present", "SharedStablePrefix 1014 present", "TurnClosure 1122 present"]
FORKED = [TOOLS, "LongAnchor 1014 aliased", "SharedStablePrefix 1014 present", "TurnClosure 1122 aliased"]

FIRST: Step = (
    1135,
    "Root",
    0,
    "none",
    [
        "SharedStablePrefix 959 captured",
        "LongAnchor 1014 captured",
        "SharedStablePrefix 1014 promoted",
        "TurnClosure 1122 captured",
    ],
)
"""The prefix up to the tools has an image of its own; that up to the system message is the anchor's."""
SECOND: Step = (
    1258,
    "SessionEndpoint",
    1197,
    "move",
    [*MOVED, "LongAnchor 1197 1199 captured", "ResponseReplay 1245 captured"],
)
"""1245 + 13. The loop's start came along; where the end was and the message boundary behind it are anchors."""
THIRD: Step = (
    1381,
    "SessionEndpoint",
    1320,
    "move",
    [*MOVED, "LongAnchor 1199 1245 present", "LongAnchor 1320 1322 captured", "ResponseReplay 1368 captured"],
)
"""1245, where the second step could be generated again, is an anchor now."""
DROPPED = "LongAnchor 1192 1238 1308 1354 1371 captured"
NEXT: Step = (
    1492,
    "TurnClosure",
    1122,
    "fork",
    [*FORKED[:3], "LongAnchor 1122 aliased", DROPPED, "TurnClosure 1479 captured"],
)


def loop_of_three(talk: Talk) -> Loop:
    loop = Loop(talk)
    loop.call("1", "1")
    loop.call("2", "2")
    loop.answer()
    assert loop.steps() == [FIRST, SECOND, THIRD]
    return loop


@pytest.mark.req("DEF-3", "ID-3", "VAL-9", "CKP-3", "CAN-7")
def test_a_thinking_loop_goes_on_from_its_ends(talk: Callable[..., Talk]) -> None:
    with talk() as engine:
        loop = loop_of_three(engine)
        loop.ask("b" * 100)
        assert loop.steps() == [NEXT]


@pytest.mark.req("DEF-3", "CAN-8")
def test_the_answer_regenerated_five_times(talk: Callable[..., Talk]) -> None:
    """From before its opener, and the loop's own start is there for the next question."""
    with talk() as engine:
        loop = loop_of_three(engine)
        for _ in range(5):
            del loop.messages[-1]
            loop.answer()
        same = [*FORKED, "LongAnchor 1199 1245 1322 aliased", "ResponseReplay 1368 aliased"]
        assert loop.steps() == [(1381, "ResponseReplay", 1368, "fork", same)] * 5
        loop.ask("b" * 100)
        assert loop.steps() == [NEXT]


@pytest.mark.req("CAN-5", "CAN-8", "CAN-3")
def test_a_result_and_the_question_edited(talk: Callable[..., Talk]) -> None:
    """Another result of the second call: from where it starts. Another question: from the system message's end. Another
    system message under the same tools: from theirs."""
    with talk() as engine:
        loop = loop_of_three(engine)
        loop.messages[-2] = Message("tool", "out 3")
        del loop.messages[-1]
        loop.answer()
        last = [*FORKED, "LongAnchor 1199 1245 1322 aliased", "ResponseReplay 1368 captured"]
        assert loop.steps() == [(1381, "LongAnchor", 1322, "fork", last)]
        other = Loop(engine, question="e")
        other.call("1", "1")
        assert other.steps() == [
            (1135, "SharedStablePrefix", 1014, "fork", [*FORKED[:3], "TurnClosure 1122 captured"]),
        ]
        other = Loop(engine, system="T")
        other.call("1", "1")
        assert other.steps() == [(1135, "SharedStablePrefix", 959, "fork", [TOOLS, *FIRST[4][1:]])]


@pytest.mark.req("CAN-8", "DEF-2")
def test_branch_and_return(talk: Callable[..., Talk]) -> None:
    """The first call's result was another one, and on; back to the old loop, which is asked the next question; and the
    new one again, from its own end."""
    with talk() as engine:
        loop = loop_of_three(engine)
        before = list(loop.messages)
        del loop.messages[4:]
        loop.messages[-1] = Message("tool", "out 3")
        loop.call("2", "2")
        branch = list(loop.messages)
        loop.messages = before
        loop.ask("b" * 100)
        loop.messages = branch
        loop.answer()
        assert loop.steps() == [
            (1258, "LongAnchor", 1199, "fork", [*FORKED, "LongAnchor 1199 aliased", "ResponseReplay 1245 captured"]),
            NEXT,
            THIRD,
        ]


@pytest.mark.req("DEF-3")
def test_thinking_on_and_off(talk: Callable[..., Talk]) -> None:
    """Without thinking the opener is 17 tokens, and history never shows its empty block: the step after such a one
    starts at its opener, where the reply can be generated again; the call itself takes 70, and its result ends at 1484.
    """
    with talk() as engine:
        loop = Loop(engine)
        loop.call("1", "1")
        loop.call("2", "2")
        loop.thinking = False
        loop.call("3", "3")
        loop.thinking = True
        loop.answer()
        places = [*FORKED, "LongAnchor 1199 1245 1322 1368 aliased", "LongAnchor 1438 captured"]
        assert loop.steps() == [
            FIRST,
            SECOND,
            (1385, *THIRD[1:]),
            (1497, "ResponseReplay", 1368, "fork", [*places, "ResponseReplay 1484 captured"]),
        ]


@pytest.mark.req("DEF-3", "CAN-3")
def test_a_loop_without_thinking_goes_on_from_its_openers(talk: Callable[..., Talk]) -> None:
    """Messages start where the published template's history has them, and an opener is 17 tokens. Nothing was reasoned,
    so a new question drops nothing."""
    with talk() as engine:
        loop = Loop(engine, thinking=False)
        loop.call("1", "1")
        loop.call("2", "2")
        loop.answer()
        loop.ask("b" * 100)
        second = [*FORKED, "LongAnchor 1192 captured", "ResponseReplay 1238 captured"]
        third = [*FORKED, "LongAnchor 1192 1238 aliased", "LongAnchor 1308 captured", "ResponseReplay 1354 captured"]
        fourth = [
            "LongAnchor 1122 1192 1238 1308 1354 aliased",
            "LongAnchor 1371 captured",
            "TurnClosure 1479 captured",
        ]
        assert loop.steps() == [
            (1139, *FIRST[1:]),
            (1255, "TurnClosure", 1122, "fork", second),
            (1371, "ResponseReplay", 1238, "fork", third),
            (1496, "ResponseReplay", 1354, "fork", [*FORKED[:3], *fourth]),
        ]
