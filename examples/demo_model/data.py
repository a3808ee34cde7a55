"""Generates the conversations that the demo model is trained and evaluated on.

A conversation is made turn by turn. Each turn draws an act (tell, ask, correct, repeat, count, small talk ...),
changes the state of the talk and gives the one right reply, so every reply follows from the conversation so far.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import smalltalk as st
import world
from world import ME, NAME, THIRD, Attribute, Value, Values

EN, DE = 0, 1
Key = tuple[str, str]  # (person or "", attribute key)
RECALL = {
    "recall",
    "recall_two",
    "correct_recall",
    "previous",
    "last_told",
    "spell_name",
    "add_known",
}


@dataclass
class Turn:
    """One exchange: what the user says, the right reply, the reasoning that leads to it, and the category."""

    user: str
    reply: str
    think: str
    category: str
    lost: str | None = None  # the right reply for someone who has forgotten what was said before this turn


@dataclass
class Conversation:
    """Optional system prompt and the turns."""

    system: str | None
    turns: list[Turn]


@dataclass
class Talk:
    """The state of one conversation while it is generated."""

    rng: random.Random
    values: Values
    lang: int = EN  # the user's language
    forced: int | None = None  # the reply language asked for
    upper: bool = False
    persona: str | None = None
    suffix: str | None = None
    lowercase: bool = False
    facts: dict[Key, list[Value]] = field(default_factory=dict)
    attributes: dict[Key, Attribute] = field(default_factory=dict)
    told: list[list[Key]] = field(default_factory=list)  # the keys of each telling turn
    told_values: list[list[Value]] = field(default_factory=list)
    pointer: int | None = None  # which telling "before that" counts from
    recent: Key | None = None  # a corrected fact that the last turn was about
    items: list[str] = field(default_factory=list)
    items_fresh: bool = False
    system_keys: set[Key] = field(default_factory=set)

    @property
    def out(self) -> int:
        """The language of replies."""
        return self.lang if self.forced is None else self.forced

    def name(self) -> str | None:
        """The user's name, when known."""
        known = self.facts.get(("", "name"))
        return known[-1][0] if known else None

    def fact(self, key: Key, value: Value | None = None, lang: int | None = None) -> str:
        """The canonical statement of a fact in the reply language."""
        lang = self.out if lang is None else lang
        return self.attributes[key].fact[lang].format(s=key[0], v=(value or self.facts[key][-1])[lang])

    def set(self, key: Key, attribute: Attribute, value: Value) -> None:
        """Remember a value (the last of a fact's values counts)."""
        self.attributes[key] = attribute
        self.facts.setdefault(key, []).append(value)


def first_upper(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """A statement as a sentence."""
    return first_upper(text) + "."


def join(parts: list[str], lang: int) -> str:
    """An enumeration with "and" / "und"."""
    if len(parts) == 1:
        return parts[0]
    return ", ".join(parts[:-1]) + (" and ", " und ")[lang] + parts[-1]


def untopic(topic: str) -> str:
    """A topic in the user's words ("where I live") turned to the model's view ("where they live"), for reasoning."""
    topic = re.sub(r"\bmy\b", "their", topic)
    topic = re.sub(r"\bI am\b", "they are", topic)
    return re.sub(r"\bI\b", "they", topic)


EVERYTHING = (
    "what do you know about me?",
    "what did I tell you about me?",
    "tell me everything you know about me.",
    "what have I told you about myself?",
    "what do you remember about me?",
)
LOST = ("You have not told me that.", "Das hast du mir nicht gesagt.")


class Generator:
    """Draws conversations; deterministic for a seed."""

    def __init__(self, seed: int, evaluation: bool = False):
        self.rng = random.Random(seed)
        self.values = Values(self.rng, evaluation)
        self.me_weights = [a.weight for a in ME]
        self.third_weights = [a.weight for a in THIRD]

    # ---- wording -------------------------------------------------------------------------------------------------

    def pick(self, phrases: tuple[list[str], list[str]], lang: int) -> str:
        """A phrase in a language (English where German has none)."""
        return self.rng.choice(phrases[lang] or phrases[EN])

    def rough(self, talk: Talk, text: str) -> str:
        """Write a user's text as people do: other capitals, less punctuation, American spelling."""
        rng = self.rng
        if talk.lang == EN:
            if rng.random() < 0.25:
                text = re.sub(r"\bcolour\b", "color", re.sub(r"\bfavourite\b", "favorite", text))
            if rng.random() < 0.15:
                text = re.sub(r"\bdo not\b", "don't", text)
            if rng.random() < 0.15:
                text = re.sub(r"\bwhat's\b", "whats", re.sub(r"\bI'm\b", "Im", text))
        text = first_upper(text)
        if talk.lowercase or rng.random() < 0.06:
            text = text.lower()
        elif rng.random() < 0.05:
            text = text[:1].lower() + text[1:]
        if rng.random() < 0.25:
            text = text.rstrip(".?!")
        elif rng.random() < 0.05 and text[-1] not in ".?!":
            text += "!"
        return text

    def wrap_ask(self, talk: Talk, question: str) -> str:
        """A question with an optional lead-in and ending."""
        text = self.pick(st.ASK_PREFIX, talk.lang) + question
        if talk.lang == EN and question.endswith("?") and self.rng.random() < 0.06:
            text = text[:-1] + " again?"
        elif talk.lang == EN and self.rng.random() < 0.06:
            text = text[:-1] + ", please" + text[-1]
        return re.sub(r"([.!] )(\w)", lambda m: m[1] + m[2].upper(), text)

    def join_tell(self, parts: list[str], lang: int) -> str:
        """Several statements in one message, joined in one of several ways."""
        rng = self.rng
        if len(parts) == 1:
            return parts[0] + rng.choice((".", ".", ".", "", "!"))
        style = rng.random()
        conj = (" and ", " und ")[lang]
        if style < 0.45:
            return ", ".join(parts[:-1]) + rng.choice((conj, conj, "," + conj)) + parts[-1] + rng.choice((".", ".", ""))
        if style < 0.85:
            return ". ".join([parts[0], *map(first_upper, parts[1:])]) + "."
        if style < 0.95:
            return ", ".join(parts) + "."
        return conj.join(parts) + "."

    # ---- facts ---------------------------------------------------------------------------------------------------

    def new_fact(self, talk: Talk, taken: set[Key]) -> tuple[Key, Attribute, Value] | None:
        """A fact about the user or another person that was not told yet, with distinct values within a kind."""
        rng = self.rng
        for _ in range(20):
            if rng.random() < 0.68:
                attribute, person = rng.choices(ME, self.me_weights)[0], ""
            else:
                attribute = rng.choices(THIRD, self.third_weights)[0]
                known = [k[0] for k in talk.facts if k[0]] + [k[0] for k in taken if k[0]]
                person = rng.choice(known) if known and rng.random() < 0.35 else self.values.draw("name")[0]
            key = (person, attribute.key)
            if key in talk.facts or key in taken:
                continue
            value = self.values.draw(attribute.kind)
            same = [v[-1] for k, v in talk.facts.items() if talk.attributes[k].kind == attribute.kind]
            if person and (value in same or person == talk.name()):
                continue
            return key, attribute, value
        return None

    def phrase_tell(self, talk: Talk, key: Key, attribute: Attribute, value: Value) -> str:
        """How the user states a fact."""
        return self.pick(attribute.tell, talk.lang).format(s=key[0], v=value[talk.lang])

    def tell(self, talk: Talk, count: int | None = None) -> tuple[str, str, str]:
        """The user tells one or more new facts; returns what is said, the acknowledgement and the reasoning."""
        rng = self.rng
        count = count or rng.choices((1, 2, 3, 4), (50, 30, 13, 7))[0]
        new: dict[Key, tuple[Attribute, Value]] = {}
        if count > 1 and rng.random() < 0.3:  # who has what: the same attribute of several people
            attribute = rng.choices(THIRD, self.third_weights)[0]
            while len(new) < count:
                person, value = self.values.draw("name")[0], self.values.draw(attribute.kind)
                key = (person, attribute.key)
                used = [v for _, v in new.values()] + [v[-1] for k, v in talk.facts.items() if k[1] == attribute.key]
                if key not in talk.facts and value not in used and person != talk.name():
                    new[key] = (attribute, value)
        elif count == 1 and rng.random() < 0.25 and ("", "name") not in talk.facts:
            new[("", "name")] = (NAME, self.values.draw("name"))
        else:
            for _ in range(count):
                made = self.new_fact(talk, set(new))
                if made:
                    new[made[0]] = made[1:]
        if not new:
            new[("", "secret word")] = (next(a for a in ME if a.key == "secret word"), self.values.draw("word"))
        parts = [self.phrase_tell(talk, k, a, v) for k, (a, v) in new.items()]
        said = self.pick(st.TELL_PREFIX, talk.lang) + self.join_tell(parts, talk.lang)
        said = re.sub(r"([.!] )(\w)", lambda m: m[1] + m[2].upper(), said)
        for k, (a, v) in new.items():
            talk.set(k, a, v)
        talk.told.append(list(new))
        talk.told_values.append([v for _, v in new.values()])
        talk.pointer, talk.recent = None, None
        return (
            said,
            self.acknowledge(talk, list(new)),
            "They tell me: " + join([talk.fact(k, lang=EN) for k in new], EN) + ".",
        )

    def acknowledge(self, talk: Talk, keys: list[Key]) -> str:
        """The reply to new facts: a greeting for a name, and the rest repeated in canonical words."""
        out = []
        name = ("", "name")
        if name in keys:
            out.append((f"Nice to meet you, {talk.name()}!", f"Freut mich, {talk.name()}!")[talk.out])
        rest = [talk.fact(k) for k in keys if k != name]
        if rest:
            out.append(("Noted: ", "Notiert: ")[talk.out] + join(rest, talk.out) + ".")
        return " ".join(out)

    def question(self, talk: Talk, key: Key) -> str:
        """How the user asks for a fact."""
        attribute = talk.attributes[key]
        return self.pick(attribute.ask, talk.lang).format(s=key[0])

    def known_keys(self, talk: Talk) -> list[Key]:
        return list(talk.facts)

    # ---- acts: each returns a turn or None where it does not fit ---------------------------------------------------

    def act_tell(self, talk: Talk) -> Turn | None:
        said, reply, think = self.tell(talk)
        return Turn(self.rough(talk, said), reply, think, "tell")

    def choose_known(self, talk: Talk) -> Key:
        """A known fact, preferring neither old nor new ones."""
        return self.rng.choice(self.known_keys(talk))

    def recall_think(self, talk: Talk, key: Key) -> str:
        values = talk.facts[key]
        if len(values) > 1:
            before, now = talk.fact(key, values[-2], EN), talk.fact(key, lang=EN)
            return f"First they said: {before}. Later: {now}. The later one counts."
        return f"They told me: {talk.fact(key, lang=EN)}."

    def act_recall(self, talk: Talk) -> Turn | None:
        if not talk.facts:
            return None
        key = self.choose_known(talk)
        changed = len(talk.facts[key]) > 1
        talk.recent = key if changed else None
        talk.pointer = None
        return Turn(
            self.rough(talk, self.wrap_ask(talk, self.question(talk, key))),
            sentence(talk.fact(key)),
            self.recall_think(talk, key),
            "correct_recall" if changed else "recall",
            talk.attributes[key].unknown[talk.lang].format(s=key[0]),
        )

    def act_tell_ask(self, talk: Talk) -> Turn | None:
        said, _, _ = self.tell(talk, self.rng.choice((1, 1, 2, 2, 3)))
        key = self.rng.choice(talk.told[-1]) if self.rng.random() < 0.8 else self.choose_known(talk)
        said = said.rstrip() if said[-1] in ".!?" else said + self.rng.choice((".", ",", "."))
        question = self.question(talk, key)
        text = said + " " + (first_upper(question) if said[-1] != "," else question)
        return Turn(self.rough(talk, text), sentence(talk.fact(key)), self.recall_think(talk, key), "tell_ask")

    def act_recall_two(self, talk: Talk) -> Turn | None:
        keys = self.known_keys(talk)
        if len(keys) < 2:
            return None
        a, b = self.rng.sample(keys, 2)
        qa, qb = self.question(talk, a), self.question(talk, b)
        glue = (" and ", " und ")[talk.lang]
        text = qa.rstrip("?.") + glue + qb if self.rng.random() < 0.7 else qa + " " + first_upper(qb)
        talk.recent = talk.pointer = None
        return Turn(
            self.rough(talk, self.wrap_ask(talk, text)),
            sentence(join([talk.fact(a), talk.fact(b)], talk.out)),
            f"{self.recall_think(talk, a)} {self.recall_think(talk, b)}",
            "recall_two",
        )

    def act_unknown(self, talk: Talk) -> Turn | None:
        for _ in range(20):
            if self.rng.random() < 0.75:
                attribute, person = self.rng.choices(ME, self.me_weights)[0], ""
            else:
                attribute = self.rng.choices(THIRD, self.third_weights)[0]
                known = [k[0] for k in talk.facts if k[0]]
                person = self.rng.choice(known) if known and self.rng.random() < 0.5 else self.values.draw("name")[0]
            if (person, attribute.key) in talk.facts or (person and person == talk.name()):
                continue
            talk.recent = talk.pointer = None
            question = self.pick(attribute.ask, talk.lang).format(s=person)
            return Turn(
                self.rough(talk, self.wrap_ask(talk, question)),
                attribute.unknown[talk.out].format(s=person),
                f"They have not told me {untopic(attribute.topic[EN].format(s=person))}.",
                "unknown",
            )
        return None

    def act_correct(self, talk: Talk) -> Turn | None:
        if not talk.facts:
            return None
        key = self.choose_known(talk)
        attribute, old = talk.attributes[key], talk.facts[key][-1]
        if attribute.kind == "coloured" and self.rng.random() < 0.5:
            return None
        value = self.values.draw(attribute.kind)
        taken = [v[-1] for k, v in talk.facts.items() if k[1] == key[1]]
        if value in taken:
            return None
        new = self.phrase_tell(talk, key, attribute, value)
        style = self.rng.random()
        if style < 0.6:
            said = self.pick(st.FIX_PREFIX, talk.lang) + new
        elif style < 0.75:
            said = (
                new + (" now", "")[talk.lang]
                if attribute.key in ("live", "job", "favourite colour", "favourite food", "name")
                and not new.startswith(value[talk.lang])
                else new
            )
        elif style < 0.88 or talk.lang == DE:
            said = new
        else:
            said = f"{self.rng.choice(('no, ', 'sorry, ', 'actually, '))}{new}, not {old[EN]}"
        talk.set(key, attribute, value)
        talk.told.append([key])
        talk.told_values.append([value])
        talk.recent, talk.pointer = key, None
        reply = ("OK, I changed that: ", "OK, ich habe das geändert: ")[talk.out] + talk.fact(key) + "."
        return Turn(self.rough(talk, said + "."), reply, f"They change it from {old[EN]} to {value[EN]}.", "correct")

    def act_previous(self, talk: Talk) -> Turn | None:
        key = talk.recent
        if key is None or len(talk.facts[key]) < 2:
            return None
        old = talk.facts[key][-2]
        text = self.pick(
            (
                [
                    "what did I say before that?",
                    "what did I say before?",
                    "what was it before?",
                    "and before that?",
                    "what was it before that?",
                    "and before?",
                    "what did I say first?",
                    "what did I tell you before?",
                    "what was my first answer?",
                ],
                ["was habe ich davor gesagt?", "und davor?", "was war es vorher?"],
            ),
            talk.lang,
        )
        if len(talk.facts[key]) > 2 and "first" in text:
            return None
        talk.recent = None
        return Turn(
            self.rough(talk, text),
            ("Before that you said: ", "Davor hast du gesagt: ")[talk.out] + talk.fact(key, old) + ".",
            f"It is {talk.facts[key][-1][EN]} now. Before it was {old[EN]}.",
            "previous",
        )

    def act_last_told(self, talk: Talk) -> Turn | None:
        if not talk.told:
            return None
        if talk.pointer is None:
            text = self.pick(
                (
                    [
                        "what did I tell you last?",
                        "what did I just tell you?",
                        "what was the last thing I told you?",
                        "what did I say last?",
                        "repeat what I told you last.",
                        "what was my last fact?",
                    ],
                    ["was habe ich dir zuletzt gesagt?", "was habe ich zuletzt erzählt?"],
                ),
                talk.lang,
            )
            talk.pointer, start = len(talk.told) - 1, ("You told me that ", "Du hast mir gesagt: ")
        else:
            text = self.pick(
                (
                    [
                        "and before that?",
                        "what did I tell you before that?",
                        "what did I say before that?",
                        "and what did I say before that?",
                        "before that?",
                    ],
                    ["und davor?", "was habe ich davor gesagt?"],
                ),
                talk.lang,
            )
            talk.pointer, start = talk.pointer - 1, ("Before that you told me that ", "Davor hast du mir gesagt: ")
            if talk.pointer < 0:
                talk.pointer = None
                talk.recent = None
                return Turn(
                    self.rough(talk, text),
                    ("Before that you told me nothing.", "Davor hast du mir nichts gesagt.")[talk.out],
                    "There is nothing before that.",
                    "last_told",
                )
        talk.recent = None
        facts = [talk.fact(k, v) for k, v in zip(talk.told[talk.pointer], talk.told_values[talk.pointer], strict=True)]
        facts_en = [
            talk.fact(k, v, EN) for k, v in zip(talk.told[talk.pointer], talk.told_values[talk.pointer], strict=True)
        ]
        return Turn(
            self.rough(talk, text),
            start[talk.out] + join(facts, talk.out) + ".",
            f"They told me: {join(facts_en, EN)}.",
            "last_told",
        )

    def act_cannot(self, talk: Talk) -> Turn | None:
        """Questions that this world has no answers to, whatever was told: yes or no, who, and everything at once."""
        rng = self.rng
        attribute, person = rng.choice(ME + THIRD), self.values.draw("name")[0]
        value = self.values.draw(attribute.kind)
        known = [k for k in talk.facts if talk.attributes[k].check[EN] or talk.attributes[k].reverse[EN]]
        if known and rng.random() < 0.6:
            key = rng.choice(known)
            attribute, person = talk.attributes[key], key[0]
            value = talk.facts[key][-1] if rng.random() < 0.5 else value
        asks = [*attribute.check[EN], *(attribute.reverse[EN] if attribute in THIRD else ())]
        text = rng.choice(asks).format(s=person, v=value[EN]) if asks and rng.random() < 0.8 else rng.choice(EVERYTHING)
        talk.recent = talk.pointer = None
        return Turn(
            self.rough(talk, self.wrap_ask(talk, text)),
            st.WORLD_REPLY[talk.out].format(n="", p=talk.persona or st.DEMO_NAME[talk.out]),
            "I cannot answer such questions.",
            "cannot",
        )

    # ---- acts: small talk ------------------------------------------------------------------------------------------

    def act_small(self, talk: Talk) -> Turn | None:
        pairs = [
            (st.HELLO, st.HELLO_REPLY),
            (st.HOW, st.HOW_REPLY),
            (st.GOOD, st.GOOD_REPLY),
            (st.BAD, st.BAD_REPLY),
            (st.THANKS, st.THANKS_REPLY),
            (st.BYE, st.BYE_REPLY),
            (st.WHO, st.WHO_REPLY),
            (st.CAN, st.CAN_REPLY),
            (st.FILLER, st.FILLER_REPLY),
            (st.SHORT, st.SHORT_REPLY),
            (st.WORLD, st.WORLD_REPLY),
        ]
        i = self.rng.choices(range(len(pairs)), (10, 6, 4, 3, 8, 6, 10, 3, 12, 6, 10))[0]
        said, reply = pairs[i]
        name, out = talk.name(), talk.out
        persona = talk.persona or st.DEMO_NAME[out]
        text = self.pick(said, talk.lang)
        if "{" in text:
            text = text.format(
                P=self.values.draw("place")[0],
                N=self.values.draw("name")[0],
                w=self.values.draw("word")[0],
                n=self.rng.randint(2, 99),
            )
        if i in (0, 4, 5) and talk.persona and self.rng.random() < 0.3:
            text = f"{text.rstrip('!')}, {talk.persona}"
        if i != 3 and self.rng.random() < 0.4:
            text += "" if text[-1] in ".?!" else self.rng.choice((".", "!"))
        think = (
            "They greet me.",
            "They ask how I am.",
            "They feel good.",
            "They feel bad.",
            "They thank me.",
            "They say goodbye.",
            f"They ask who I am. I am {talk.persona or st.DEMO_NAME[EN]}.",
            "They ask what I can do.",
            "They tell me about their day.",
            "They agree.",
            "I do not know such things.",
        )[i]
        if i in (0, 4, 5) and name:
            think += f" Their name is {name}."
        talk.recent = talk.pointer = None
        return Turn(
            self.rough(talk, text),
            reply[out].format(n=f", {name}" if name else "", p=persona),
            think,
            (
                "hello",
                "small",
                "small",
                "small",
                "thanks",
                "bye",
                "persona",
                "small",
                "filler",
                "small",
                "no_knowledge",
            )[i],
        )

    def act_switch(self, talk: Talk) -> Turn | None:
        kind = self.rng.choice(("de", "en", "upper", "lower", "call"))
        talk.recent = talk.pointer = None
        if kind == "call":
            talk.persona = self.values.draw("name")[0]
            return Turn(
                self.rough(talk, self.rng.choice(st.CALL_YOU).format(p=talk.persona)),
                st.CALL_YOU_REPLY[talk.out].format(p=talk.persona),
                f"I am {talk.persona} now.",
                "switch",
            )
        phrases, reply = st.SWITCH[kind]
        if (
            (kind == "lower" and not talk.upper)
            or (kind == "upper" and talk.out == DE)
            or (kind == "de" and talk.upper)
        ):
            return None
        if kind in ("de", "en"):
            talk.forced = DE if kind == "de" else EN
        else:
            talk.upper = kind == "upper"
        return Turn(
            self.rough(talk, self.rng.choice(phrases)),
            reply if isinstance(reply, str) else reply[talk.out],
            "They want another way of answering.",
            "switch",
        )

    # ---- acts: words and numbers -----------------------------------------------------------------------------------

    def draw_items(self) -> list[str]:
        """A short list of words, names, objects or numbers."""
        kind = self.rng.choice(("word", "word", "name", "object", "place", "animal", "number", "colour"))
        count = self.rng.choice((2, 3, 3, 4, 4, 5, 6))
        items: list[str] = []
        while len(items) < count:
            item = self.rng.choice(world.OBJECTS)[0] if kind == "object" else self.values.draw(kind)[0]
            if item not in items:
                items.append(item)
        return items

    def act_list(self, talk: Talk) -> Turn | None:
        rng, lang = self.rng, talk.lang
        items = self.draw_items()
        if talk.lowercase:
            items = [i.lower() for i in items]
        sep = rng.choice((", ", ", ", ", ", " ", " and "))
        text = (
            (sep if lang == EN or sep != " and " else ", ").join(items)
            if " " not in "".join(items) or sep != " "
            else ", ".join(items)
        )
        task = rng.choice(("repeat", "repeat", "back", "count", "first", "last", "keep"))
        talk.items, talk.items_fresh, talk.recent, talk.pointer = items, True, None, None
        out, joined = talk.out, ", ".join(items)
        if task == "repeat":
            said, reply, think = (
                self.pick(
                    (
                        [
                            "repeat: ",
                            "say: ",
                            "repeat after me: ",
                            "please repeat: ",
                            "repeat this: ",
                            "repeat these words: ",
                            "say this: ",
                            "can you repeat ",
                        ],
                        ["wiederhole: ", "sag: ", "sprich mir nach: ", "bitte wiederhole: "],
                    ),
                    lang,
                )
                + text,
                joined,
                "I repeat the list.",
            )
        elif task == "back":
            said, reply, think = (
                self.pick(
                    (
                        [
                            "say this backwards: ",
                            "say this list backwards: ",
                            "reverse this list: ",
                            "in reverse order: ",
                            "repeat backwards: ",
                        ],
                        ["sag das rückwärts: ", "rückwärts bitte: "],
                    ),
                    lang,
                )
                + text,
                ", ".join(items[::-1]),
                "I start at the end.",
            )
        elif task == "count":
            said, reply, think = (
                self.pick(
                    (
                        [
                            "how many words are in this list: ",
                            "count these words: ",
                            "how many things are these: ",
                            "count: ",
                            "how many are these: ",
                        ],
                        ["wie viele Wörter sind das: ", "zähle diese Wörter: ", "wie viele sind das: "],
                    ),
                    lang,
                )
                + text,
                (f"There are {len(items)}.", f"Es sind {len(items)}.")[out],
                f"I count: {', '.join(f'{n} {x}' for n, x in enumerate(items, 1))}.",
            )
        elif task == "first":
            said, reply, think = (
                self.pick(
                    (
                        ["what is the first word of: ", "what comes first: ", "the first of these: "],
                        ["was ist das erste Wort von: ", "was kommt zuerst: "],
                    ),
                    lang,
                )
                + text,
                sentence(f"{('the first one is', 'das erste ist')[out]} {items[0]}"),
                f"The list starts with {items[0]}.",
            )
        elif task == "last":
            said, reply, think = (
                self.pick(
                    (
                        ["what is the last word of: ", "what comes last: ", "the last of these: "],
                        ["was ist das letzte Wort von: ", "was kommt zuletzt: "],
                    ),
                    lang,
                )
                + text,
                sentence(f"{('the last one is', 'das letzte ist')[out]} {items[-1]}"),
                f"The list ends with {items[-1]}.",
            )
        else:
            said, reply, think = (
                self.pick(
                    (
                        [
                            "remember this list: ",
                            "here is a list: ",
                            "my list is: ",
                            "my shopping list: ",
                            "keep this list: ",
                        ],
                        ["merk dir diese Liste: ", "meine Liste ist: "],
                    ),
                    lang,
                )
                + text,
                ("Noted: ", "Notiert: ")[out] + joined + ".",
                "I keep the list.",
            )
        return Turn(first_upper(said) if not talk.lowercase else said.lower(), reply, think, "list")

    def act_list_more(self, talk: Talk) -> Turn | None:
        if not talk.items:
            return None
        rng, lang, out, items = self.rng, talk.lang, talk.out, talk.items
        task = rng.choice(("repeat", "count", "nth", "nth"))
        talk.recent = talk.pointer = None
        if task == "repeat":
            said, reply, think = (
                self.pick(
                    (
                        [
                            "repeat the list.",
                            "say the list again.",
                            "what was the list?",
                            "tell me the list.",
                            "what is on my list?",
                            "what is on the list?",
                        ],
                        ["wiederhole die Liste.", "was war die Liste?", "was steht auf der Liste?"],
                    ),
                    lang,
                ),
                ", ".join(items),
                "I repeat the list.",
            )
        elif task == "count":
            said, reply, think = (
                self.pick(
                    (
                        [
                            "how many are in the list?",
                            "how long is the list?",
                            "how many words are in the list?",
                            "how many things are on the list?",
                            "count the list.",
                        ],
                        ["wie viele sind in der Liste?", "wie lang ist die Liste?"],
                    ),
                    lang,
                ),
                (f"There are {len(items)}.", f"Es sind {len(items)}.")[out],
                f"I count: {', '.join(f'{n} {x}' for n, x in enumerate(items, 1))}.",
            )
        else:
            n = rng.choice((0, 1, 2, -1))
            if n == 2 and len(items) < 3:
                n = 0
            word = {0: ("first", "erste"), 1: ("second", "zweite"), 2: ("third", "dritte"), -1: ("last", "letzte")}[n]
            said = self.pick(
                (
                    [
                        f"what was the {word[0]} one?",
                        f"which one was {word[0]}?",
                        f"what is the {word[0]} word in the list?",
                        f"the {word[0]} one in the list?",
                        f"what comes {word[0]} in the list?",
                        f"what is the {word[0]} thing on the list?",
                    ],
                    [f"was war das {word[1]} in der Liste?", f"wie heißt das {word[1]} Wort der Liste?"],
                ),
                lang,
            )
            reply, think = (
                sentence(f"{('the {} one is', 'das {} ist')[out].format(word[out])} {items[n]}"),
                f"The list is: {', '.join(items)}.",
            )
        return Turn(self.rough(talk, said), reply, think, "list_more")

    def act_say(self, talk: Talk) -> Turn | None:
        rng, lang = self.rng, talk.lang
        talk.recent = talk.pointer = None
        if rng.random() < 0.5:
            thing = self.values.draw(rng.choice(("word", "name", "place")))[0]
        else:
            thing = " ".join(
                rng.choice(
                    (
                        self.values.draw("word")[0],
                        rng.choice(world.OBJECTS)[0],
                        rng.choice(["the", "a", "is", "in", "and", "my", "we", "on", "with", "has"]),
                    )
                )
                for _ in range(rng.randint(2, 6))
            )
        if talk.lowercase:
            thing = thing.lower()
        said = self.pick(
            (
                [
                    "say {}",
                    "say: {}",
                    "repeat: {}",
                    "repeat after me: {}",
                    "please say {}",
                    'say "{}"',
                    "can you say {}?",
                    "say the word {}",
                    "echo: {}",
                ],
                ["sag {}", "sag: {}", "wiederhole: {}", 'sag "{}"'],
            ),
            lang,
        ).format(thing)
        return Turn(
            said if rng.random() < 0.4 or talk.lowercase else first_upper(said), thing, f"I say it: {thing}", "say"
        )

    def act_spell(self, talk: Talk) -> Turn | None:
        rng, lang, out = self.rng, talk.lang, talk.out
        name = talk.name()
        own = name is not None and rng.random() < 0.4
        word = name if own and name else self.values.draw(rng.choice(("word", "name", "place")))[0].split()[0]
        if not own and talk.lowercase:
            word = word.lower()
        talk.recent = talk.pointer = None
        if rng.random() < 0.65:
            said = self.pick(
                (
                    ["spell my name.", "how do you spell my name?", "can you spell my name?", "please spell my name."],
                    ["buchstabiere meinen Namen."],
                )
                if own
                else (
                    [
                        f"spell {word}",
                        f"how do you spell {word}?",
                        f"can you spell {word}?",
                        f"spell the word {word}",
                        f"please spell {word}",
                        f"spell: {word}",
                    ],
                    [f"buchstabiere {word}", f"wie buchstabiert man {word}?"],
                ),
                lang,
            )
            reply = "-".join(word)
        else:
            said = self.pick(
                (
                    ["how many letters does my name have?", "how many letters are in my name?", "how long is my name?"],
                    ["wie viele Buchstaben hat mein Name?"],
                )
                if own
                else (
                    [
                        f"how many letters does {word} have?",
                        f"how many letters are in {word}?",
                        f"how many letters has {word}?",
                        f"count the letters of {word}",
                    ],
                    [f"wie viele Buchstaben hat {word}?"],
                ),
                lang,
            )
            reply = (f"{word} has {len(word)} letters.", f"{word} hat {len(word)} Buchstaben.")[out]
        text = self.rough(talk, said) if own else (said if rng.random() < 0.3 or talk.lowercase else first_upper(said))
        return Turn(text, reply, f"{'-'.join(word)}: {len(word)} letters.", "spell_name" if own else "spell")

    def act_count(self, talk: Talk) -> Turn | None:
        rng, lang = self.rng, talk.lang
        talk.recent = talk.pointer = None
        n = rng.randint(2, 20)
        style = rng.random()
        if style < 0.5:
            said, numbers = (
                self.pick(
                    (
                        [
                            f"count to {n}.",
                            f"count up to {n}.",
                            f"can you count to {n}?",
                            f"please count to {n}.",
                            f"count from 1 to {n}.",
                        ],
                        [f"zähle bis {n}.", f"kannst du bis {n} zählen?"],
                    ),
                    lang,
                ),
                range(1, n + 1),
            )
        elif style < 0.75:
            a = rng.randint(1, 15)
            n = a + rng.randint(1, 7)
            said, numbers = self.pick(([f"count from {a} to {n}."], [f"zähle von {a} bis {n}."]), lang), range(a, n + 1)
        else:
            n = rng.randint(2, 12)
            said, numbers = (
                self.pick(
                    (
                        [f"count backwards from {n}.", f"count down from {n}.", f"count down from {n} to 1."],
                        [f"zähle rückwärts von {n}."],
                    ),
                    lang,
                ),
                range(n, 0, -1),
            )
        return Turn(self.rough(talk, said), ", ".join(map(str, numbers)), "I count.", "count")

    def act_sum(self, talk: Talk) -> Turn | None:
        rng, lang = self.rng, talk.lang
        talk.recent = talk.pointer = None
        a = rng.randint(0, 20)
        b = rng.randint(0, 20 - a)
        number = talk.facts.get(("", "lucky number"))
        if number and int(number[-1][0]) <= 20 and rng.random() < 0.4:
            a = int(number[-1][0])
            b = rng.randint(0, 20 - a)
            said = self.pick(
                (
                    [f"what is my lucky number plus {b}?", f"add {b} to my lucky number."],
                    [f"was ist meine Glückszahl plus {b}?"],
                ),
                lang,
            )
            return Turn(
                self.rough(talk, said),
                f"{a} + {b} = {a + b}.",
                f"Their lucky number is {a}. {a} plus {b} is {a + b}.",
                "add_known",
            )
        if rng.random() < 0.15:
            said = self.pick(
                (
                    [
                        f"I have {a} cookies and get {b} more. How many cookies do I have now?",
                        f"there are {a} cookies on the table. I add {b} cookies. How many cookies are there?",
                    ],
                    [f"ich habe {a} Kekse und bekomme {b} dazu. Wie viele Kekse habe ich?"],
                ),
                lang,
            )
            return Turn(self.rough(talk, said), f"{a} + {b} = {a + b}.", f"{a} plus {b} is {a + b}.", "sum")
        if rng.random() < 0.65:
            said = self.pick(
                (
                    [
                        f"what is {a} + {b}?",
                        f"what is {a} plus {b}?",
                        f"{a} + {b}",
                        f"{a}+{b}",
                        f"{a}+{b}=?",
                        f"how much is {a} plus {b}?",
                        f"add {a} and {b}.",
                        f"what's {a}+{b}?",
                        f"{a} plus {b}?",
                        f"calculate {a} + {b}.",
                        f"can you add {a} and {b}?",
                        f"what is the sum of {a} and {b}?",
                    ],
                    [f"was ist {a} plus {b}?", f"wie viel ist {a} + {b}?", f"{a} + {b}"],
                ),
                lang,
            )
            return Turn(self.rough(talk, said), f"{a} + {b} = {a + b}.", f"{a} plus {b} is {a + b}.", "sum")
        c = a + b
        said = self.pick(
            (
                [
                    f"what is {c} - {b}?",
                    f"what is {c} minus {b}?",
                    f"{c} - {b}",
                    f"{c}-{b}",
                    f"how much is {c} minus {b}?",
                    f"subtract {b} from {c}.",
                ],
                [f"was ist {c} minus {b}?", f"{c} - {b}"],
            ),
            lang,
        )
        return Turn(self.rough(talk, said), f"{c} - {b} = {a}.", f"{c} minus {b} is {a}.", "sum")

    # ---- conversations -----------------------------------------------------------------------------------------------

    def system(self, talk: Talk) -> str | None:
        """A system prompt (or none), with its effect on the talk."""
        rng = self.rng
        roll = rng.random()
        if roll < 0.45:
            return None
        if roll < 0.55:
            return rng.choice(st.SYS_PLAIN)
        parts = []
        kinds = rng.sample(["lang", "lang", "upper", "persona", "suffix", "facts"], rng.choice((1, 1, 1, 1, 2)))
        if "lang" in kinds:
            talk.forced = DE if rng.random() < 0.7 else EN
            parts.append(rng.choice(st.SYS_DE if talk.forced == DE else st.SYS_EN))
        if "upper" in kinds and talk.forced != DE:
            talk.upper = True
            parts.append(rng.choice(st.SYS_UPPER))
        if "persona" in kinds:
            talk.persona = self.values.draw("name")[0]
            parts.append(rng.choice(st.SYS_PERSONA).format(p=talk.persona))
        if "suffix" in kinds and rng.random() < 0.7:
            word = self.values.draw("word")[0]
            talk.suffix = word.title()
            parts.append(rng.choice(st.SYS_SUFFIX).format(w=rng.choice((word.title(), word))))
        if "facts" in kinds:
            for attribute, phrases in ((NAME, st.SYS_NAME), (world.LIVE, st.SYS_LIVE)):
                if rng.random() < 0.6:
                    value = self.values.draw(attribute.kind)
                    talk.set(("", attribute.key), attribute, value)
                    parts.append(rng.choice(phrases).format(v=value[0]))
        rng.shuffle(parts)
        if parts and rng.random() < 0.2:
            parts.insert(0, rng.choice(st.SYS_PLAIN))
        return rng.choice((" ", " ", "\n")).join(parts) or None

    def finish(self, talk: Talk, turn: Turn) -> Turn:
        """Apply the manner of answering (upper case, last word) to a reply; add what a forgetful one would say."""
        if turn.category in RECALL and turn.lost is None:
            turn.lost = LOST[talk.lang]
        plain = talk.forced is None and not talk.upper and not talk.suffix
        if turn.category in ("tell", "sum", "count", "spell", "say", "list") and plain:
            turn.lost = turn.reply
        if talk.suffix:
            turn.reply = f"{turn.reply} {talk.suffix}!"
        if talk.upper:
            turn.reply = turn.reply.upper()
        return turn

    def conversation(self, turns: int | None = None, final: str | None = None) -> Conversation:
        """One conversation of 1 to 8 turns; `final` asks for an act at the end (the name of an act method)."""
        rng = self.rng
        turns = turns or rng.choices(range(1, 9), (6, 10, 12, 14, 14, 12, 10, 9))[0]
        while True:
            talk = Talk(rng, self.values)
            talk.lowercase = rng.random() < 0.15
            system = self.system(talk)
            acts: list[tuple[Callable[[Talk], Turn | None], float]] = [
                (self.act_tell, 26),
                (self.act_recall, 30),
                (self.act_small, 9),
                (self.act_tell_ask, 7),
                (self.act_recall_two, 8),
                (self.act_cannot, 5),
                (self.act_unknown, 26),
                (self.act_correct, 9),
                (self.act_previous, 13),
                (self.act_last_told, 5),
                (self.act_switch, 1.5),
                (self.act_list, 6),
                (self.act_list_more, 8),
                (self.act_say, 4),
                (self.act_spell, 8),
                (self.act_count, 3.5),
                (self.act_sum, 10),
            ]
            if rng.random() < 0.25:  # some talks are mostly about facts, so that many of them are held at once
                acts = [(a, w * (3 if a in (self.act_tell, self.act_recall) else 0.4)) for a, w in acts]
            functions, weights = zip(*acts, strict=True)
            hard = (
                *(self.act_recall,) * 4,
                *(self.act_recall_two,) * 2,
                *(self.act_unknown,) * 3,
                self.act_previous,
                self.act_last_told,
                self.act_list_more,
            )
            made: list[Turn] = []
            for i in range(turns):
                act = rng.choices(functions, weights)[0]
                if i == 0 and turns > 1 and rng.random() < 0.4:
                    act = self.act_tell
                if i == turns - 1 and turns > 1 and rng.random() < 0.4:
                    act = rng.choice(hard)
                if talk.recent and rng.random() < 0.35:
                    act = self.act_previous
                if talk.items_fresh and rng.random() < 0.35:
                    act = self.act_list_more
                talk.items_fresh = False
                if i == turns - 1 and final:
                    act = getattr(self, "act_" + final)
                turn = act(talk)
                for _ in range(50):
                    if turn is not None or (i == turns - 1 and final):
                        break
                    turn = rng.choices(functions, weights)[0](talk)
                if turn is None:
                    break
                made.append(self.finish(talk, turn))
            if len(made) == turns:
                return Conversation(system, made)
