"""The same places with the demo model's own words and default options: what is reused, what is left, what it says.

Of a first question, BELA takes 23 tokens, MIRA 22, NAME 10, PLACE 13; a reply's opener 9, and 5 with an open think
block. In history a reply has 4 tokens beside its own: that to BELA takes 27, "Your name is Bela." 12. The template
drops the reasoning, so every turn starts at the TurnClosure of the one before. What was once asked is said again from a
checkpoint as it is said by an Engine without a cache.
"""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer

from ninfer_core import CacheIntent, GenerationRequest, Message
from tests.scenarios.chat import Step
from tests.scenarios.person import BELA, GREEDY, MIRA, MOST_NEW, NAME, PLACE, Alone, Person, demo
from tests.support.puppet import Puppet
from tests.support.talk import accounts_for, line, told

FIRST: Step = (32, "Root", 0, "none", ["TurnClosure 23 captured"])
SECOND: Step = (
    69,
    "TurnClosure",
    23,
    "fork",
    ["LongAnchor 23 aliased", "LongAnchor 50 captured", "TurnClosure 60 captured"],
)
"""23 + 27 = 50, + 10 = 60, + 9."""
THIRD: Step = (
    94,
    "TurnClosure",
    60,
    "fork",
    ["LongAnchor 23 50 60 aliased", "LongAnchor 72 captured", "TurnClosure 85 captured"],
)
"""60 + 12 = 72, + 13 = 85, + 9."""


@pytest.mark.req("DEF-3", "CAN-5", "CAN-8", "STAT-1", "CAN-9")
def test_a_conversation(cold: Alone) -> None:
    """Goes on, is regenerated five times, its last question edited, then its first; and back to the first branch."""
    with demo(cold) as engine:
        person = Person(engine)
        assert "Bela" in person.asks(BELA)
        assert person.asks(NAME) == "Your name is Bela."
        assert person.steps() == [FIRST, SECOND]
        for _ in range(5):
            assert person.instead(1, NAME) == "Your name is Bela."
        same = ["LongAnchor 23 50 aliased", "TurnClosure 60 aliased"]
        assert person.steps() == [(69, "TurnClosure", 60, "fork", same)] * 5
        home = list(person.said)
        assert person.instead(1, PLACE) == "You live in Torvik."
        # From the end of the reply before it: 50 + 13 = 63, + 9.
        edited = ["LongAnchor 23 50 aliased", "TurnClosure 63 captured"]
        assert person.steps() == [(72, "LongAnchor", 50, "fork", edited)]
        person.instead(2, MIRA)
        assert person.asks(NAME) == "Your name is Mira."
        # Nothing was kept before the first question. Then 22 + 26 = 48, + 10 = 58, + 9.
        other = ["LongAnchor 22 aliased", "LongAnchor 48 captured", "TurnClosure 58 captured"]
        assert person.steps() == [
            (31, "Root", 0, "none", ["TurnClosure 22 captured"]),
            (67, "TurnClosure", 22, "fork", other),
        ]
        person.said = home
        assert person.asks(PLACE) == "You live in Torvik."
        assert person.steps() == [THIRD] and engine.losses.told() == []


@pytest.mark.req("DEF-3")
def test_thinking_on_and_off(cold: Alone) -> None:
    """It reasons where it is asked to, and the switch costs nothing: the opener comes behind every place."""
    with demo(cold) as engine:
        person = Person(engine)
        for thinking, text in ((True, BELA), (False, NAME), (True, PLACE)):
            person.thinking = thinking
            person.asks(text)
            assert bool(person.said[-1].reasoning_content) == thinking
        assert person.steps() == [(28, *FIRST[1:]), SECOND, (90, *THIRD[1:])]
        person.thinking = None
        assert person.instead(1, PLACE) == "You live in Torvik."
        same = ["LongAnchor 23 50 60 72 aliased", "TurnClosure 85 aliased"]
        assert person.steps() == [(94, "TurnClosure", 85, "fork", same)]


@pytest.mark.req("CAN-6", "EVI-1", "DEF-5")
def test_a_raw_prompt_twice_and_once_more(cold: Alone) -> None:
    """22 tokens. Each time somebody else: the second publishes it, so that the third reads nothing."""
    with demo(cold) as engine:
        prompt = engine.warm.prepare_text("My name is Bela. My name is Bela. My name is")
        rows = []
        for _ in range(3):
            [done] = engine.say([prompt], [None])
            assert done.text == " Bela."
            rows.append((len(prompt), *line(done), told(done)))
        assert rows == [
            (22, "Root", 0, "none", []),
            (22, "Root", 0, "none", ["SharedStablePrefix 22 captured"]),
            (22, "SharedStablePrefix", 22, "fork", ["SharedStablePrefix 22 present"]),
        ]


@pytest.mark.req("DEF-3", "ID-3", "CAN-7")
def test_a_thinking_tool_loop(cold: Alone) -> None:
    """The demo model reasons, but it was not trained to call tools: the call is put into its mouth, the rest is its
    own.

    The description of the tool takes 224 tokens, the question makes it 247. The call has 61 with its reasoning, of
    which the last is not executed: it ends at 247 + 5 + 60 = 312, its message two behind that, and the result at 328. A
    new question drops the reasoning of 17: the call ends at 297, the result at 311, the answer at 340, the question at
    350.
    """
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {}}}}}]
    call = "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>"
    with demo(cold) as engine:
        talked = [Message("user", BELA)]
        words = Tokenizer.from_file(str(engine.warm.info.model_directory / "tokenizer.json"))
        engines = [(one, Puppet(one._worker._program.model)) for one in (engine.warm, cold.engine)]

        def say(call: str = "") -> Step:
            """Its own words, or these."""
            prompt = engine.warm.prepare(talked, tools=tools, thinking=True)
            forced = words.encode(call, add_special_tokens=False).ids
            request = GenerationRequest(prompt, GREEDY, len(forced) or MOST_NEW, cache=CacheIntent(session="loop"))
            heard = []
            for one, puppet in engines:
                puppet.say(forced)
                heard.append((one.submit(request).result(60), puppet.own))
            (done, own), (alone, alone_own) = heard
            assert (done.token_ids, own) == (alone.token_ids, alone_own), "it would have said something else"
            accounts_for(done, prompt)
            talked.append(Message("assistant", done.text, done.reasoning, done.tool_calls))
            return len(prompt), *line(done), told(done)

        first = say(f"They ask for f.\n</think>\n\n{call}<|im_end|>")
        assert [call.name for call in talked[-1].tool_calls] == ["f"]
        talked.append(Message("tool", "out 1"))
        second = say()
        talked.append(Message("user", NAME))
        third = say()
        assert talked[-1].content == "Your name is Bela."
        tool = "SharedStablePrefix 222 present"
        assert [first, second, third] == [
            (252, "Root", 0, "none", ["SharedStablePrefix 222 captured", "TurnClosure 247 captured"]),
            (
                333,
                "SessionEndpoint",
                312,
                "move",
                [tool, "TurnClosure 247 present", "LongAnchor 312 314 captured", "ResponseReplay 328 captured"],
            ),
            (
                355,
                "TurnClosure",
                247,
                "fork",
                [tool, "LongAnchor 247 aliased", "LongAnchor 297 311 340 captured", "TurnClosure 350 captured"],
            ),
        ]
