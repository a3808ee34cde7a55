"""Boundaries are exact: the tokens before one are the same whatever text follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ninfer_core.contract.prompt import Boundaries, OutputStart, PreparedPrompt
from ninfer_core.frontend.frontend import Frontend
from ninfer_core.frontend.messages import Message, ToolCall
from ninfer_core.frontend.template import ChatTemplate
from tests.frontend.conversations import conversations, schemas

WithTemplate = Callable[[str], Frontend]
FAST = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
words = st.text(st.sampled_from("ab \n.,1é中<>|"), min_size=1, max_size=12).map(lambda text: f"q{text}")

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Looks a word up.",
            "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
        },
    }
]
SYSTEM = Message("system", "Answer briefly.")
LOOP = [
    SYSTEM,
    Message("user", "What is an ibex?"),
    Message("assistant", "A goat.", "They ask about goats."),
    Message("user", "And a chamois? Look it up."),
    Message("assistant", "I look.", "I need the tool.", (ToolCall("look_up", {"word": "chamois"}),)),
    Message("tool", "goat-antelope"),
    Message("assistant", "", "Once more.", (ToolCall("look_up", {"word": "goat"}), ToolCall("look_up", {"word": "x"}))),
    Message("tool", "an animal"),
    Message("tool", "nothing"),
]


def every(boundaries: Boundaries | None) -> set[int]:
    assert boundaries is not None
    b = boundaries
    single = {b.after_tools, b.after_leading_system, b.generation_opener, b.turn_closure} - {None}
    return {int(f) for f in (*single, *b.message_ends, *b.rewrite_execution_frontiers) if f is not None}


def behind(frontend: Frontend, prompt: PreparedPrompt, frontier: int) -> str:
    return frontend.decode(prompt.token_ids[frontier:])


def marked(messages: list[Message]) -> list[Message]:
    """Every message with a word of its own at the start of its content, to find it in the rendering."""
    return [replace(m, content=f"W{i}Q {m.content}") for i, m in enumerate(messages)]


@pytest.mark.parametrize("name", ["published", "keeping", "headings"])
@given(data=st.data())
@FAST
def test_tokens_before_a_boundary_do_not_depend_on_what_follows(
    with_template: WithTemplate, name: str, data: st.DataObject
) -> None:
    frontend = with_template(name)
    messages = marked(data.draw(conversations(words, tools=name == "published")))
    tools = data.draw(schemas(words)) if name == "published" else None
    thinking = data.draw(st.sampled_from([None, True, False]))
    prompt = frontend.prepare(messages, tools, thinking)
    changed = data.draw(st.integers(0, len(messages)))
    other = [
        replace(m, content=data.draw(words), reasoning_content=m.reasoning_content and data.draw(words))
        for m in messages[changed:]
    ]
    variant = frontend.prepare([*messages[:changed], *other], tools, data.draw(st.sampled_from([None, True, False])))
    start = prompt.text.find(f"W{changed}Q") if changed < len(messages) else len(prompt.text)
    for frontier in every(prompt.boundaries):
        before = frontend.decode(prompt.token_ids[:frontier])
        at_opener = frontier <= prompt.boundaries.generation_opener  # type: ignore[union-attr]
        if at_opener and len(before) <= start and not _reasoning_ahead(messages, changed, before):
            assert variant.token_ids[:frontier] == prompt.token_ids[:frontier]


def _reasoning_ahead(messages: list[Message], changed: int, before: str) -> bool:
    """Whether the reasoning of the changed message, which stands before its content, lies before the frontier."""
    if changed == len(messages):
        return False
    reasoning = (messages[changed].reasoning_content or "").strip()
    return bool(reasoning) and before.rstrip().endswith("</think>")


@pytest.mark.req("CKP-3", "DEF-3")
@given(messages=conversations(words), thinking=st.sampled_from([None, True, False]))
@FAST
def test_rewrite_frontiers_of_the_published_template(
    frontend: Frontend, messages: list[Message], thinking: bool | None
) -> None:
    prompt = frontend.prepare(messages, None, thinking)
    found = prompt.boundaries
    assert found is not None
    opener = "<|im_start|>assistant\n"
    assert behind(frontend, prompt, found.generation_opener).startswith(opener)
    assert behind(frontend, prompt, found.generation_opener).count(opener) == 1
    queries = [i for i, m in enumerate(messages) if m.role == "user"]
    later = [m for m in messages[queries[-1] :] if m.role == "assistant"]
    assert behind(frontend, prompt, found.turn_closure).startswith(opener)
    assert behind(frontend, prompt, found.turn_closure).count(opener) == len(later) + 1
    assert (found.turn_closure == found.generation_opener) == (not later)
    assert not found.reproduces_history


@pytest.mark.req("ID-2")
@given(messages=conversations(words), thinking=st.sampled_from([None, True, False]))
@FAST
def test_every_assistant_opener_is_an_execution_frontier(
    frontend: Frontend, messages: list[Message], thinking: bool | None
) -> None:
    prompt = frontend.prepare(messages, None, thinking)
    assert prompt.boundaries is not None
    cuts = prompt.boundaries.rewrite_execution_frontiers
    assert len(cuts) == 1 + sum(m.role == "assistant" for m in messages)
    assert all(behind(frontend, prompt, cut).startswith("<|im_start|>assistant\n") for cut in cuts)
    assert list(cuts) == sorted(set(cuts)) and cuts[-1] == prompt.boundaries.generation_opener
    # A pure function of the prompt: the same again, and independent of the thinking mode before g.
    again = frontend.prepare(messages, None, thinking)
    assert again == prompt


def test_message_ends_of_a_tool_loop(frontend: Frontend) -> None:
    prompt = frontend.prepare(LOOP, TOOLS)
    assert prompt.boundaries is not None
    ends = prompt.boundaries.message_ends
    pieces = [frontend.decode(prompt.token_ids[a:b]) for a, b in zip((0, *ends), ends, strict=False)]
    assert "".join(pieces) == prompt.text.removesuffix("<|im_start|>assistant\n<think>\n")
    assert len(pieces) == 8  # two tool results share one block
    assert all(piece.startswith("<|im_start|>") and piece.endswith("<|im_end|>\n") for piece in pieces)
    assert pieces[0].endswith("Answer briefly.<|im_end|>\n")
    assert pieces[-1].count("<tool_response>") == 2


@pytest.mark.req("DEF-3")
@pytest.mark.parametrize("thinking", [None, True, False])
def test_a_tool_loop_closes_before_its_first_reply(frontend: Frontend, thinking: bool | None) -> None:
    prompt = frontend.prepare(LOOP, TOOLS, thinking)
    assert prompt.boundaries is not None
    closure, opener = prompt.boundaries.turn_closure, prompt.boundaries.generation_opener
    assert closure < opener
    assert behind(frontend, prompt, closure).startswith("<|im_start|>assistant\n<think>\nI need the tool.")
    # The next question shows the loop without its reasoning: everything up to the closure is the same, nothing behind.
    later = frontend.prepare([*LOOP, Message("assistant", "Done.", "r"), Message("user", "Thanks")], TOOLS, thinking)
    assert later.token_ids[:closure] == prompt.token_ids[:closure]
    assert later.token_ids[: closure + 4] != prompt.token_ids[: closure + 4]


def test_tools_and_system_end_at_exact_frontiers(frontend: Frontend) -> None:
    prompt = frontend.prepare(LOOP, TOOLS)
    found = prompt.boundaries
    assert found is not None and found.after_tools is not None and found.after_leading_system is not None
    assert behind(frontend, prompt, found.after_leading_system).startswith("<|im_start|>user\nWhat is an ibex?")
    assert frontend.decode(prompt.token_ids[: found.after_tools]).endswith("</IMPORTANT")
    for system in ([], [Message("system", "é")], [Message("system", "- x")], [Message("system", "…\n\n1")]):
        other = frontend.prepare([*system, Message("user", "x")], TOOLS)
        assert other.token_ids[: found.after_tools] == prompt.token_ids[: found.after_tools]
        assert other.boundaries is not None and other.boundaries.after_tools == found.after_tools


def test_without_system_or_tools_there_is_nothing_to_share(frontend: Frontend) -> None:
    prompt = frontend.prepare([Message("user", "x")])
    assert prompt.boundaries is not None
    assert prompt.boundaries.after_tools is None and prompt.boundaries.after_leading_system is None
    assert prompt.boundaries.message_ends == (prompt.boundaries.generation_opener,)


def test_tools_alone_make_no_message(frontend: Frontend) -> None:
    prompt = frontend.prepare([Message("user", "x")], TOOLS)
    assert prompt.boundaries is not None
    assert prompt.boundaries.after_tools is not None
    assert prompt.boundaries.message_ends == (prompt.boundaries.generation_opener,)


@pytest.mark.req("DEF-3")
@pytest.mark.parametrize("thinking", [True, False])
def test_a_template_that_keeps_reasoning_reproduces_history(with_template: WithTemplate, thinking: bool) -> None:
    frontend = with_template("keeping")
    prompt = frontend.prepare([Message("user", "x")], None, thinking)
    assert prompt.boundaries is not None and prompt.boundaries.reproduces_history
    said = "because\n</think>\n\nfine" if thinking else "fine"
    generated = frontend.tokenizer.encode("because") if thinking else ()
    generated += (prompt.thinking_close if thinking else ()) + frontend.tokenizer.encode("fine")
    reply = Message("assistant", "fine", "because" if thinking else "")
    later = frontend.prepare([Message("user", "x"), reply, Message("user", "y")], None, thinking)
    whole = (*prompt.token_ids, *generated)
    assert later.token_ids[: len(whole)] == whole
    assert later.text.startswith(prompt.text + said)
    assert frontend.reproduces([Message("user", "x")], reply, whole, None, thinking)


def test_reproduces_tells_reachable_endpoints_from_unreachable(frontend: Frontend) -> None:
    """With the published template a plain turn's endpoint is unreachable, a thinking tool loop's is not."""
    question = [Message("user", "Look it up.")]
    prompt = frontend.prepare(question, TOOLS)
    call = "I look.\n\n<tool_call>\n<function=look_up>\n<parameter=word>\nibex\n</parameter>\n</function>\n</tool_call>"
    ids = (*prompt.token_ids, *frontend.tokenizer.encode("why"), *prompt.thinking_close)
    head, tail = call.split("<tool_call>")
    ids = (*ids, *frontend.tokenizer.encode(head), frontend.tokenizer.added["<tool_call>"].id)
    ids = (*ids, *frontend.tokenizer.encode(tail.removesuffix("</tool_call>")))
    ids = (*ids, frontend.tokenizer.added["</tool_call>"].id)
    reply = Message("assistant", "I look.", "why", (ToolCall("look_up", {"word": "ibex"}),))
    assert frontend.reproduces(question, reply, ids, TOOLS)
    edited = replace(reply, tool_calls=(ToolCall("look_up", {"word": "ibex", "lang": "en"}),))
    assert not frontend.reproduces(question, edited, ids, TOOLS)
    plain = (*prompt.token_ids, *frontend.tokenizer.encode("why"), *prompt.thinking_close)
    assert not frontend.reproduces(question, Message("assistant", "Goat.", "why"), plain, TOOLS)


def test_a_template_without_added_tokens_gets_safe_frontiers(with_template: WithTemplate) -> None:
    frontend = with_template("headings")
    messages = [Message("system", "Be kind."), Message("user", "one two"), Message("assistant", "three")]
    messages.append(Message("user", "four"))
    prompt = frontend.prepare(messages)
    assert prompt.boundaries is not None
    before = frontend.decode(prompt.token_ids[: prompt.boundaries.generation_opener])
    assert prompt.text.startswith(before) and before.endswith("four")
    assert prompt.output_start is OutputStart.ANSWER


PARTS = (
    "import",
    "ant",
    "ance",
    " ",
    "  ",
    "\n",
    "\n\n",
    "1",
    "23",
    ".",
    "...",
    "é",
    "\u0301",
    "中文",
    "'s",
    "'",
    "😀",
    "\t",
)
parts = st.lists(st.sampled_from(PARTS), max_size=5).map("".join)


@given(content=parts, more=parts)
@settings(FAST, max_examples=150)
def test_a_frontier_inside_text_is_exact_whatever_follows(frontend: Frontend, content: str, more: str) -> None:
    """A template without any mark between message and opener: g lies where no continuation can change a token."""
    source = "{% for m in messages %}{{ 'x' + m.content }}{% endfor %}{{ ' and' if add_generation_prompt }}"
    prompt = Frontend(frontend.tokenizer, ChatTemplate(source)).prepare([Message("user", content)])
    assert prompt.boundaries is not None
    g = prompt.boundaries.generation_opener
    assert frontend.tokenizer.encode(f"x{content}{more}")[:g] == prompt.token_ids[:g]
    assert len(frontend.tokenizer.encode(f"x{content}")) - g <= 6  # not further back than a word or two


def test_generation_opener_where_the_end_changes_earlier_text(frontend: Frontend) -> None:
    """A template that renders everything differently once it opens a reply still gets an exact g."""
    source = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
        "{{ 'asked: ' if add_generation_prompt else '' }}{{ m.content + '<|im_end|>\n' }}{% endfor %}"
        "{{ '<|im_start|>assistant\n' if add_generation_prompt else '' }}"
    )
    made = Frontend(frontend.tokenizer, ChatTemplate(source))
    prompt = made.prepare([Message("user", "x"), Message("assistant", "y"), Message("user", "z")])
    assert prompt.boundaries is not None
    assert prompt.token_ids[: prompt.boundaries.generation_opener]  # at a message start, no further than the last
