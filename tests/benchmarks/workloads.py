"""Seeded streams of requests: who asks what, in which order, over which history. No model, no cache."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ninfer_core.contract.ids import Frontier
from ninfer_core.contract.prompt import Boundaries, OutputStart, PreparedPrompt

Tokens = tuple[int, ...]
CLOSE, OPENER = 60, 61
VOCAB = 50


@dataclass
class Chat:
    """A conversation.

    Attributes:
        head: leading messages that others may have too: tools, instructions, a project's files, a document.
        messages: the user's and the assistant's in turn.
        reproduces: the template shows replies as they were generated; else it drops their first half (reasoning).
    """

    session: str
    head: tuple[Tokens, ...]
    reproduces: bool = True
    messages: list[Tokens] = field(default_factory=list)

    def prompt(self) -> PreparedPrompt:
        tokens: list[int] = []
        ends, cuts = [], []
        for part in self.head:
            tokens += [*part, CLOSE]
            ends.append(len(tokens))
        for number, part in enumerate(self.messages):
            if number % 2:
                cuts.append(len(tokens))
                tokens.append(OPENER)
            tokens += [*part, CLOSE]
            ends.append(len(tokens))
        opener = Frontier(len(tokens))
        bounds = Boundaries(
            after_tools=Frontier(ends[0]) if len(self.head) > 1 else None,
            after_leading_system=Frontier(ends[len(self.head) - 1]) if self.head else None,
            message_ends=tuple(map(Frontier, ends)),
            generation_opener=opener,
            turn_closure=opener,
            rewrite_execution_frontiers=(*map(Frontier, cuts), opener),
            reproduces_history=self.reproduces,
        )
        return PreparedPrompt((*tokens, OPENER), bounds, OutputStart.ANSWER)

    def answer(self, reply: Tokens) -> None:
        self.messages.append(reply if self.reproduces else reply[len(reply) // 2 :])


@dataclass(frozen=True)
class Arrival:
    """reply: how many tokens the answer has."""

    session: str | None
    prompt: PreparedPrompt
    reply: int
    answered: Callable[[Tokens], None]


Workload = Callable[[random.Random, int], Iterator[Arrival]]


def text(rng: random.Random, least: int, most: int) -> Tokens:
    return tuple(rng.randrange(VOCAB) for _ in range(rng.randint(least, most)))


def heads(rng: random.Random) -> list[tuple[Tokens, ...]]:
    """Tools and instructions that all share, then two kinds of agents, then projects: three depths."""
    tools = text(rng, 300, 300)
    kinds = [text(rng, 150, 250) for _ in range(2)]
    return [(tools, kinds[n % 2], text(rng, 100, 400)) for n in range(4)]


def _ask(chat: Chat, rng: random.Random, question: tuple[int, int], reply: int, session: bool = True) -> Arrival:
    chat.messages.append(text(rng, *question))
    return Arrival(chat.session if session else None, chat.prompt(), rng.randint(reply // 2, reply), chat.answer)


def chats(rng: random.Random, count: int) -> Iterator[Arrival]:
    """Twenty conversations; a few are busy, most are seldom heard of; the template drops reasoning."""
    shared = heads(rng)
    talks = [Chat(f"chat {n}", rng.choice(shared), reproduces=False) for n in range(20)]
    weights = [1 / (n + 1) for n in range(20)]
    for number in range(count):
        (at,) = rng.choices(range(20), weights)
        if len(talks[at].messages) > 14 or rng.random() < 0.02:
            talks[at] = Chat(f"chat {at} of {number}", rng.choice(shared), reproduces=False)
        yield _ask(talks[at], rng, (10, 120), 120)


def prefixes(rng: random.Random, count: int) -> Iterator[Arrival]:
    """Single questions under shared prefixes of three depths: nobody comes back, the prefixes do."""
    shared = heads(rng)
    for number in range(count):
        yield _ask(Chat(f"single {number}", rng.choice(shared)), rng, (20, 200), 60, session=False)


def documents(rng: random.Random, count: int) -> Iterator[Arrival]:
    """Long documents, each asked about several times, between documents that are read once only."""
    tools = text(rng, 120, 120)
    open_: list[Chat] = []
    for number in range(count):
        if rng.random() < 0.35:
            yield _ask(Chat(f"once {number}", (tools, text(rng, 600, 1500))), rng, (20, 60), 40)
            continue
        if len(open_) < 4 or rng.random() < 0.08:
            open_ = [*open_[-3:], Chat(f"document {number}", (tools, text(rng, 800, 2000)))]
        chat = rng.choice(open_)
        if len(chat.messages) > 10:
            del chat.messages[2:]
        yield _ask(chat, rng, (20, 80), 60)


def branches(rng: random.Random, count: int) -> Iterator[Arrival]:
    """Conversations that are regenerated, edited, and returned to at an earlier turn."""
    shared = heads(rng)
    talks = [Chat(f"tree {n}", shared[n % 4]) for n in range(7)]
    for _ in range(count):
        chat = rng.choice(talks)
        fate = rng.random()
        if len(chat.messages) >= 4 and fate < 0.2:
            del chat.messages[-1]  # once more, please
            yield Arrival(chat.session, chat.prompt(), rng.randint(30, 60), chat.answer)
            continue
        if len(chat.messages) >= 4 and fate < 0.4:
            del chat.messages[2 * rng.randrange(len(chat.messages) // 2) :]
        elif len(chat.messages) > 16:
            chat.messages.clear()
        yield _ask(chat, rng, (10, 150), 80)


def rounds(rng: random.Random, count: int) -> Iterator[Arrival]:
    """Conversations in turn, a few more than fit: what was used longest ago is always what comes next."""
    shared = heads(rng)
    talks = [Chat(f"round {n}", shared[n % 4]) for n in range(13)]
    for number in range(count):
        chat = talks[number % len(talks)]
        if len(chat.messages) > 12:
            chat.messages.clear()
        yield _ask(chat, rng, (10, 100), 80)


def agents(rng: random.Random, count: int) -> Iterator[Arrival]:
    """Long tool loops with short steps, and helpers that each start from the same instructions and end soon."""
    tools, helper = text(rng, 400, 400), text(rng, 300, 300)
    loops = [Chat(f"agent {n}", (tools, text(rng, 100, 200))) for n in range(3)]
    for number in range(count):
        if rng.random() < 0.4:
            yield _ask(Chat(f"helper {number}", (tools, helper)), rng, (100, 400), 100, session=False)
            continue
        at = rng.randrange(3)
        if len(loops[at].messages) > 24:
            loops[at] = Chat(f"agent {at} of {number}", (tools, text(rng, 100, 200)))
        yield _ask(loops[at], rng, (30, 250), 60)


WORKLOADS: dict[str, Workload] = {
    "chats": chats,
    "prefixes": prefixes,
    "documents": documents,
    "branches": branches,
    "rounds": rounds,
    "agents": agents,
}
