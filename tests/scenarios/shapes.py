"""The usual shapes of a 2,000-token conversation: what is asked, and what must be computed again, by hand.

Texts are digits: a published tokenizer reads each as a token of its own, and in the byte vocabulary each is a byte. In
that one, with the published template: a system message of 60 tokens, eight user messages of 208, replies of 41 in the
history. User message k starts at 60 + 249 (k - 1), its reply 208 tokens later: the eighth at 1803 and 2011. The opener
takes 13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ninfer_core import Completion, Message
from ninfer_core.contract.prompt import PreparedPrompt
from tests.scenarios.chat import Chat
from tests.support.talk import Talk, line

REPLY = "7" * 28
CHANGED = REPLY[:21] + "6" + REPLY[22:]
"""In the byte vocabulary the first reply's 21st digit is token 300."""


@dataclass(frozen=True)
class Shape:
    """
    Attributes:
        computed: tokens of the prompt that were computed.
        expected: so many lie behind the place that a boundary, an anchor or a shared prefix must provide: counted in
            the prompt alone.
    """

    name: str
    prompt: PreparedPrompt
    done: Completion
    expected: int

    @property
    def computed(self) -> int:
        return self.done.statistics.usage.prefill_tokens

    @property
    def reuse(self) -> tuple[str, int, str]:
        """(source, frontier, operation)."""
        return line(self.done)


def user(k: int) -> str:
    return f"{k}" * 200


def sent_at_once(talk: Talk) -> Chat:
    """Eight turns, the last of them answered."""
    chat = Chat(talk, "5" * 50)
    for k in range(1, 8):
        chat.messages += [Message("user", user(k)), Message("assistant", REPLY)]
    chat.ask(user(8), REPLY)
    return chat


def _shape(name: str, chat: Chat, message: int) -> Shape:
    """Of the chat's last request. message: the one from which on must be computed; the opener is the last, -1."""
    opens = chat.talk.words.token_to_id("<|im_start|>")
    starts = [at for at, token in enumerate(chat.prompt.token_ids) if token == opens]
    return Shape(name, chat.prompt, chat.done, len(chat.prompt) - starts[message])


def in_one_conversation(chat: Chat) -> Iterator[Shape]:
    """On `sent_at_once`, or the same turn by turn."""
    said = list(chat.messages)
    chat.again(REPLY)
    yield _shape("the last request again", chat, -1)
    chat.edit(1, "8" * 100 + "9" * 100, REPLY)
    yield _shape("an edit of the last 100", chat, -2)
    chat.messages = list(said)
    chat.ask("0" * 100, REPLY)
    yield _shape("back to the earlier branch, and on", chat, -3)
    chat.messages = list(said[:-2])
    chat.messages[2] = Message("assistant", CHANGED)
    chat.ask(user(8), REPLY)
    yield _shape("a change at token 300", chat, 2)


def second_conversation(talk: Talk) -> Shape:
    """1,000 tokens of instructions that the first one had, too, and 1,000 of its own."""
    first, second = (Chat(talk, "5" * 990, session=name) for name in ("first", "second"))
    first.ask("1" * 979, REPLY)
    second.ask("2" * 979, REPLY)
    return _shape("a second conversation under the system prompt", second, 1)


def after_restart(start: Callable[[], Talk], file: Path) -> Shape:
    """Saved, ended, restored by another Engine, which is asked the last request again."""
    with start() as talk:
        chat = sent_at_once(talk)
        talk.engine.save_session(file, [talk.paths[-1]], {})
    with start() as another:
        restored = another.engine.restore_session(file)
        ends = [checkpoint.frontier for checkpoint in restored.checkpoints[-1]]
        assert ends[-1] == len(talk.paths[-1]) and not restored.left_out, "there is room for all of it"
        another.paths = [talk.paths[-1]]
        chat.talk = another
        chat.again(REPLY)
    return _shape("the last request after a restart", chat, -1)
