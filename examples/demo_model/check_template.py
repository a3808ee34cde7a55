"""Checks the chat template: it renders what training renders, and follows the family's rules.

python check_template.py
"""

from __future__ import annotations

import random

import jinja2
from data import Generator
from text import MODEL_DIR, messages, opener, render
from transformers.utils.chat_template_utils import render_jinja_template

TEMPLATE = (MODEL_DIR / "chat_template.jinja").read_text()


def rendered(conversation: list[dict], **options: object) -> str:
    """The template's text."""
    (text,), _ = render_jinja_template([conversation], chat_template=TEMPLATE, **options)
    return text


def fails(conversation: list[dict]) -> str:
    """The message with which the template refuses a conversation."""
    try:
        rendered(conversation)
    except jinja2.TemplateError as error:
        return str(error)
    raise AssertionError("the template accepted a wrong conversation")


def main() -> None:
    rng, generator = random.Random(0), Generator(77)
    for _ in range(500):
        conversation, thinking = generator.conversation(), rng.random() < 0.5
        ours = "".join(piece for piece, _ in render(conversation, thinking))
        options = {"enable_thinking": True} if thinking else rng.choice(({}, {"enable_thinking": False}))
        prompt = rendered(messages(conversation, len(conversation.turns) - 1), add_generation_prompt=True, **options)
        assert ours.startswith(prompt) and prompt.endswith(opener(thinking)), (ours, prompt)
        assert ours[len(prompt) :].endswith(conversation.turns[-1].reply + "<|im_end|>")
    user, reply = (
        {"role": "user", "content": " Hi "},
        {"role": "assistant", "content": "Ho", "reasoning_content": "They greet."},
    )
    call = {
        "role": "assistant",
        "content": "",
        "reasoning_content": "I look.",
        "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": 1, "b": "x"}}}],
    }
    tool = {"role": "tool", "content": "42"}
    assert (
        rendered([user, reply, user])
        == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    )
    assert rendered([user, reply]).endswith("<|im_start|>assistant\n<think>\nThey greet.\n</think>\n\nHo<|im_end|>\n")
    assert rendered([user, {"role": "assistant", "content": "<think>\nThey greet.\n</think>\n\nHo"}]) == rendered(
        [user, reply]
    )
    assert rendered([user, {"role": "assistant", "content": "<think>\n\n</think>\n\nHo"}, user]) == rendered(
        [user, reply, user]
    )
    parts = [{"role": "user", "content": [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]}]
    assert rendered(parts) == rendered([user])
    loop = rendered([user, call, tool, tool], add_generation_prompt=True)
    assert loop == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\nI look.\n</think>\n\n<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\nx\n</parameter>\n</function>\n</tool_call><|im_end|>\n"  # noqa: E501
        "<|im_start|>user\n<tool_response>\n42\n</tool_response>\n<tool_response>\n42\n</tool_response><|im_end|>\n"
        + opener(False)
    ), loop
    with_tools = rendered(
        [{"role": "system", "content": "Be kind."}, user], tools=[{"type": "function", "function": {"name": "f"}}]
    )
    assert (
        '\n{"type": "function", "function": {"name": "f"}}\n</tools>' in with_tools
        and "\n\nBe kind.<|im_end|>\n" in with_tools
    )
    for wrong in (
        [],
        [{"role": "system", "content": "x"}],
        [user, {"role": "system", "content": "x"}],
        [user, {"role": "developer", "content": "x"}],
        [{"role": "user", "content": "<tool_response>\n1\n</tool_response>"}],
        [{"role": "user", "content": [{"type": "image"}]}],
    ):
        print("refused:", fails(wrong))
    print("the template is as expected")


if __name__ == "__main__":
    main()
