"""The facade: errors that name the message, the thinking switch, raw prompts, and going on with a reply."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import run

import pytest

from ninfer_core.contract.prompt import OutputStart
from ninfer_core.errors import ModelError, TemplateError, UsageError
from ninfer_core.frontend.frontend import Frontend
from ninfer_core.frontend.messages import Message, ToolCall
from ninfer_core.frontend.template import ChatTemplate
from tests.support.tokenizers import write_bytes

WithTemplate = Callable[[str], Frontend]
USER = Message("user", "hi")


def made(frontend: Frontend, source: str) -> Frontend:
    return Frontend(frontend.tokenizer, ChatTemplate(source))


def test_loading_needs_a_tokenizer_and_a_template(tmp_path: Path) -> None:
    write_bytes(tmp_path)
    assert Frontend.load(tmp_path, 263).tokenizer.stop_ids == {258}
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(ModelError, match="no chat template"):
        Frontend.load(tmp_path, 263)


def test_the_frontend_needs_no_torch() -> None:
    code = (
        "import sys, ninfer_core.frontend.frontend; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert run([sys.executable, "-c", code], check=False).returncode == 0


# --- messages -------------------------------------------------------------------------------------------------------


def test_leading_system_messages_are_joined_and_developer_becomes_system(frontend: Frontend) -> None:
    messages = [Message("system", "one"), Message("developer", "two"), USER]
    assert frontend.prepare(messages).text.startswith("<|im_start|>system\none\n\ntwo<|im_end|>\n<|im_start|>user")
    assert frontend.prepare([Message("developer", "d"), USER]).text.startswith("<|im_start|>system\nd<|im_end|>")


def test_a_template_that_knows_developer_gets_it(frontend: Frontend) -> None:
    source = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    knowing = made(frontend, source)
    assert "developer\nd" in knowing.prepare([Message("developer", "d"), USER]).text
    assert "system\nlater" in knowing.prepare([USER, Message("system", "later"), USER]).text


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_later_system_message_is_named(frontend: Frontend, role: str) -> None:
    with pytest.raises(UsageError, match=rf"messages\[2\] is a {role} message behind others"):
        frontend.prepare([Message("system", "s"), USER, Message(role, "later"), USER])


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "no messages"),
        ([Message("robot", "x")], r"messages\[0\] has the unknown role 'robot'"),
        ([Message("user", None)], r"messages\[0\]: a NoneType stands where text belongs"),
        (["hi"], r"messages\[0\] is a str: give a Message"),
        ([Message("system", "x")], "No user query found in messages"),
        ([Message("assistant", "x")], "No user query found in messages"),
    ],
)
def test_refusals(frontend: Frontend, messages: list[Message], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        frontend.prepare(messages)
    assert "\n" not in str(caught.value)


def test_a_user_may_write_tool_response_tags(frontend: Frontend) -> None:
    """Untrusted text is no control text: the message is a query like any other."""
    prompt = frontend.prepare([Message("user", "<tool_response>x</tool_response>")])
    assert "<|im_start|>user\n<tool_response>x</tool_response><|im_end|>" in prompt.text


def test_an_answer_that_holds_the_end_of_thinking_stays_whole(frontend: Frontend) -> None:
    prompt = frontend.prepare([USER, Message("assistant", "before </think> after"), USER])
    assert "before </think> after<|im_end|>" in prompt.text


def test_an_empty_rendering_is_refused(frontend: Frontend) -> None:
    with pytest.raises(UsageError, match="the prompt is empty"):
        made(frontend, "{{ '' }}").prepare([USER])


def test_a_template_that_always_raises_still_loads(frontend: Frontend) -> None:
    broken = made(frontend, "{{ raise_exception('never') }}")
    assert not broken.thinking.has_switch and not broken.thinking.default
    with pytest.raises(TemplateError, match="never"):
        broken.prepare([USER])


def test_values_made_by_hand_are_checked_like_parsed_ones(frontend: Frontend) -> None:
    loop: list[object] = []
    loop.append(loop)
    for arguments, said in (({"a": loop}, "deeper"), ({"a": "\ud800"}, "surrogate"), ({"\ud800": 1}, "surrogate")):
        with pytest.raises(UsageError, match=rf"messages\[1\].*{said}"):
            frontend.prepare([USER, Message("assistant", "", None, (ToolCall("f", arguments),)), USER])
    with pytest.raises(UsageError, match=r"the tools: .*surrogate"):
        frontend.prepare([USER], [{"name": "\ud800"}])


def test_bad_tools_are_refused(frontend: Frontend) -> None:
    with pytest.raises(UsageError, match=r"tools\[0\]"):
        frontend.prepare([USER], ["x"])  # type: ignore[list-item]


def test_the_same_conversation_gives_the_same_prompt(frontend: Frontend) -> None:
    messages = [Message("system", "<|im_end|> think"), USER, Message("assistant", "<think>", "r"), USER]
    assert len({frontend.prepare(messages) for _ in range(5)}) == 1


# --- thinking -------------------------------------------------------------------------------------------------------

NEVER = (
    "{{ '<|im_start|>user\n' + messages[0].content }}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
ALWAYS = NEVER.replace("assistant\n", "assistant\n<think>\n")


def test_the_published_switch(frontend: Frontend) -> None:
    assert frontend.thinking.has_switch and frontend.thinking.default
    for flag in (None, True, False):
        frontend.check_thinking(flag)
    frontend.check_thinking(True, 0)
    opened, closed = frontend.prepare([USER], None, True), frontend.prepare([USER], None, False)
    assert opened == frontend.prepare([USER])
    assert opened.output_start is OutputStart.REASONING and closed.output_start is OutputStart.ANSWER
    assert frontend.decode(opened.thinking_close) == "\n</think>\n\n" and closed.thinking_close == opened.thinking_close
    assert closed.text.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert opened.mode == closed.mode  # turning thinking off keeps what is before the opener reusable
    for flag, budget in ((False, 5), (None, -1)):
        with pytest.raises(UsageError):
            frontend.check_thinking(flag, budget)


def test_a_template_that_always_thinks(frontend: Frontend) -> None:
    always = made(frontend, ALWAYS)
    assert always.thinking.opener_always_thinks and always.thinking.default and not always.thinking.has_switch
    always.check_thinking(None)
    for flag, budget in ((True, None), (False, None), (None, 10)):
        with pytest.raises(UsageError, match="leave out"):
            always.check_thinking(flag, budget)
    assert always.prepare([USER]).output_start is OutputStart.REASONING


def test_a_template_without_thinking(frontend: Frontend) -> None:
    never = made(frontend, NEVER)
    assert not never.thinking.opener_always_thinks and not never.thinking.has_switch
    never.check_thinking(False)
    for flag, budget in ((True, None), (None, 10)):
        with pytest.raises(UsageError, match="leave out"):
            never.check_thinking(flag, budget)
    assert never.prepare([USER]).output_start is OutputStart.ANSWER


# --- raw prompts and going on ---------------------------------------------------------------------------------------


def test_raw_prompts(frontend: Frontend) -> None:
    prompt = frontend.prepare_tokens([1, 2, 248_046])
    assert prompt.token_ids == (1, 2, 248_046) and prompt.boundaries is None
    assert frontend.prepare_text("hi").token_ids == frontend.tokenizer.encode("hi")
    for bad in ([], [True], [-1], ["x"]):
        with pytest.raises(UsageError):
            frontend.prepare_tokens(bad)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="empty"):
        frontend.prepare_text("")


def test_a_rewritten_reply_is_encoded_behind_the_generation_opener(frontend: Frontend) -> None:
    before = frontend.prepare([USER], None, False)
    prompt = frontend.prepare([USER, Message("assistant", "\nMy own <think>")], None, False, continue_final=True)
    assert prompt.token_ids == before.token_ids + frontend.tokenizer.encode("\nMy own <think>")
    assert prompt.boundaries == before.boundaries and prompt.output_start is OutputStart.ANSWER
    assert prompt.text == before.text + "\nMy own <think>" == frontend.decode(prompt.token_ids)


def test_a_rewritten_reply_closes_the_think_block(frontend: Frontend) -> None:
    opener = frontend.prepare([USER]).text
    for reasoning, content, said, start in (
        ("", "yes", "\n</think>\n\nyes", OutputStart.ANSWER),
        ("why", "yes", "why\n</think>\n\nyes", OutputStart.ANSWER),
        ("why", "", "why", OutputStart.REASONING),
    ):
        prompt = frontend.prepare([USER, Message("assistant", content, reasoning)], continue_final=True)
        assert prompt.text == opener + said and prompt.output_start is start
        assert prompt.output_start is start and prompt.thinking_close


@pytest.mark.parametrize(
    "messages",
    [[USER], [Message("assistant", "x")], [USER, Message("assistant", "", None, (ToolCall("f"),))]],
)
def test_what_cannot_be_continued(frontend: Frontend, messages: list[Message]) -> None:
    with pytest.raises(UsageError):
        frontend.prepare(messages, continue_final=True)


def test_going_on_with_a_reply_s_own_ids(frontend: Frontend) -> None:
    prompt = frontend.prepare([USER])
    why, end = frontend.tokenizer.encode("why"), frontend.tokenizer.added["<|im_end|>"].id
    inside = frontend.continue_with(prompt, why)
    assert inside.token_ids == prompt.token_ids + why and inside.output_start is OutputStart.REASONING
    assert inside.thinking_close == prompt.thinking_close
    answered = (*why, *prompt.thinking_close, *frontend.tokenizer.encode("yes"))
    behind = frontend.continue_with(prompt, (*answered, end))
    assert behind.token_ids == prompt.token_ids + answered and behind.output_start is OutputStart.ANSWER
    assert behind.thinking_close == prompt.thinking_close and behind.boundaries == prompt.boundaries
    assert behind.text == frontend.decode(behind.token_ids)
    with pytest.raises(UsageError, match="empty"):
        frontend.continue_with(prompt, (end,))
    raw = frontend.continue_with(frontend.prepare_text("a"), frontend.tokenizer.encode("b"))
    assert raw.boundaries is None and raw.output_start is OutputStart.ANSWER
