"""Guard: rewrites untrusted strings so that a chat template can be rendered and none of them becomes control text.

Two rewritings, both one character for one character, so that lengths, slices and trims in the template stay right:

* *guarded*: every character that could begin or end an added token is replaced by a stand-in, and so is one in a text
  that could be the middle of one. `restore` turns the rendering back into the real text.
* *veiled*: every character of an untrusted string is replaced, so that what is left in the rendering was written by the
  template. Only positions are read from it.

Stand-ins are rare CJK letters (plane 2) drawn at random from those that occur in no input: letters without case survive
trim, upper, lower, JSON and repr, and nobody can write them beforehand.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from ninfer_core.errors import UsageError

POOL = range(0x20000, 0x2A6DE)
"""CJK Unified Ideographs Extension B: printable, caseless letters of one code point."""


class Owner(Enum):
    """Whose text a veiled character of the rendering is."""

    TOOLS = "tools"
    SYSTEM = "system"
    """The leading run of system messages."""
    REST = "rest"


KEY_VEILS = 8192
"""Distinct characters of keys that are veiled; more than that occur in no honest schema."""

# Left as they are in veiled text: white space (templates trim it), what JSON or repr would escape differently.
_VEILED = re.compile(r"""[^\s"'\\\x00-\x20\x7f-\xa0\xad]""")

# fmt: off
KEYWORDS = frozenset((
    "$defs", "$ref", "additionalProperties", "allOf", "anyOf", "array", "boolean", "const", "content", "default",
    "definitions", "description", "enum", "examples", "exclusiveMaximum", "exclusiveMinimum", "format", "function",
    "id", "integer", "items", "maximum", "maxItems", "maxLength", "minimum", "minItems", "minLength", "name",
    "null", "number", "object", "oneOf", "parameters", "pattern", "properties", "required", "response",
    "return", "returns", "strict", "string", "title", "type", "uniqueItems",
))
# fmt: on
"""Words of tool schemas that templates compare with and look up; they are left as they are in schemas."""


class AddedTokenEdges:
    """What about a tokenizer's added tokens decides where text has to be guarded.

    Attributes:
        alphabet: characters that can be replaced by stand-ins.
        edges: the first and last such character of every added token.
    """

    def __init__(self, contents: Iterable[str]) -> None:
        visible = [(token, _VEILED.findall(token)) for token in contents]
        self.alphabet = sorted({char for _, chars in visible for char in chars})
        self.edges = sorted({char for _, chars in visible if chars for char in (chars[0], chars[-1])})
        self._longest = max((len(token) for token, _ in visible), default=0)
        self._all = "\0".join(token for token, _ in visible)

    def could_be_inside(self, text: str) -> bool:
        """Whether text could be the middle of an added token whose ends the template writes."""
        return 0 < len(text) < self._longest and text in self._all


class Guard:
    """Stand-ins for one rendering. `texts` is every string that goes into it; no stand-in occurs in any of them."""

    def __init__(self, tokens: AddedTokenEdges, texts: Iterable[str]) -> None:
        self._tokens = tokens
        self._used = {char for text in texts for char in set(text)}
        if sum(ord(char) in POOL for char in self._used) > len(POOL) // 4:
            raise UsageError("the messages use more than 10,000 different rare characters: split them")
        # In the order of what they stand for, so that a template that sorts keys sorts them alike every time.
        self._stand_in: dict[str, str] = dict(
            zip(tokens.alphabet, sorted(self._draw() for _ in tokens.alphabet), strict=True)
        )
        self._hidden: set[str] = set()  # the characters that were replaced so far
        self._veil_of = {owner: self._draw() for owner in Owner}
        self._key_veils: dict[int, str] = {}

    def _draw(self) -> str:
        while True:
            char = chr(POOL.start + secrets.randbelow(len(POOL)))
            if char not in self._used:
                self._used.add(char)
                return char

    def guard(self, text: str) -> str:
        """Text that can take no part in an added token, however a template trims it or puts it together.

        Neither end of an added token is left in it, and what could be the middle of one is broken.
        """
        out = text
        for char in self._tokens.edges:
            if char in text:
                out = out.replace(char, self._hide(char))
        core = text.strip()
        if self._tokens.could_be_inside(core) and core[0] in self._stand_in:
            at = text.find(core)
            out = out[:at] + self._hide(core[0]) + out[at + 1 :]
        return out

    def _hide(self, char: str) -> str:
        self._hidden.add(char)
        return self._stand_in[char]

    def restore(self, text: str) -> str:
        """The rendering with the real characters, also where `tojson(ensure_ascii=True)` has escaped the stand-ins."""
        escapes = "\\ud8" in text
        for char in self._hidden:
            stand_in = self._stand_in[char]
            text = text.replace(stand_in, char)
            if escapes:
                text = text.replace(_json_escape(stand_in), char)
        return text

    def veil(self, text: str, owner: Owner) -> str:
        """Text in which every character that a template can only copy is owner's veil."""
        return _VEILED.sub(self._veil_of[owner], text)

    def veil_key(self, text: str) -> str:
        """Like veil, but different keys stay different."""
        for char in set(text):
            if ord(char) not in self._key_veils and _VEILED.fullmatch(char):
                if len(self._key_veils) >= KEY_VEILS:
                    return text
                self._key_veils[ord(char)] = self._draw()
        return text.translate(self._key_veils)

    def veil_of(self, owner: Owner) -> str:
        """The character that veils owner's text."""
        return self._veil_of[owner]


def rewrite(value: Any, text: Any, key: Any, skip: frozenset[str] = frozenset()) -> Any:
    """A copy of a JSON value with text(s) for every string and key(s) for every key; strings in skip stay."""
    if isinstance(value, str):
        return value if value in skip else text(value)
    if isinstance(value, Mapping):
        return {k if k in skip else key(k): rewrite(v, text, key, skip) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [rewrite(v, text, key, skip) for v in value]
    return value


def strings(value: Any) -> Iterable[str]:
    """Every string and key of a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for k, v in value.items():
            yield k
            yield from strings(v)
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from strings(v)


def _json_escape(char: str) -> str:
    high, low = divmod(ord(char) - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
