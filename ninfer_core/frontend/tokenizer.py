"""Tokenizer: text to token ids without added tokens, and the table of added tokens.

Only the part of tokenizer.json that treats ordinary text is loaded. Added tokens never come out of `encode`: whoever
knows that a piece of text is trusted looks its id up in `added`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import tokenizers

from ninfer_core.errors import ModelError, UsageError
from ninfer_core.frontend.span_cache import SpanCache
from ninfer_core.models.directory import ModelDirectory

MAX_TOKENIZER_BYTES = 256 * 1024 * 1024
SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AddedToken:
    """One entry of tokenizer.json's added_tokens, with the flags that decide where it matches."""

    id: int
    content: str
    special: bool
    lstrip: bool
    rstrip: bool
    single_word: bool


class Tokenizer:
    """A model directory's tokenizer.

    Attributes:
        added: added tokens by content.
        stop_ids: ids that end a reply: generation_config.json's eos_token_id, the eos_token, `<|im_end|>`.
        think_open, think_close: ids of `<think>` and `</think>`, None where they are no added tokens.
        special_strings: bos_token, eos_token, ... as tokenizer_config.json names them (templates use them).
        config: tokenizer_config.json as parsed, {} when there is none.
    """

    def __init__(self, document: dict[str, Any], config: dict[str, Any], generation: dict[str, Any]) -> None:
        """Build from the three parsed JSON files.

        Raises:
            ModelError: the tokenizer is damaged or of a kind that cannot be streamed.
        """
        self.config = config
        self._check_decoder(document.get("decoder"))
        self.added = {token.content: token for token in map(_added_token, document.get("added_tokens") or [])}
        self._content_of = {token.id: token.content for token in self.added.values()}
        self._plain = guarded(lambda: tokenizers.Tokenizer.from_str(json.dumps(_without_added(document, self.added))))
        self._cache = SpanCache()
        self.size = 1 + max([*_vocabulary(document).values(), *self._content_of], default=-1)
        self.special_strings = _special_strings(config)
        self.stop_ids = self._stop_ids(generation)
        self.think_open = self._added_id("<think>")
        self.think_close = self._added_id("</think>")

    @classmethod
    def load(cls, directory: Path, vocab_size: int) -> Tokenizer:
        """Read tokenizer.json, tokenizer_config.json and generation_config.json of a model directory.

        Args:
            directory: the model directory.
            vocab_size: rows of the model's embedding; every token id must be below it.

        Raises:
            ModelError: missing, damaged, too large, or not this model's.
        """
        files = ModelDirectory.open(directory)
        document = files.json_object("tokenizer.json", MAX_TOKENIZER_BYTES)
        if document is None:
            raise ModelError(f"{directory}: no tokenizer.json: fetch the model's tokenizer files into the directory")
        config = files.json_object("tokenizer_config.json") or {}
        generation = files.json_object("generation_config.json") or {}
        try:
            made = cls(document, config, generation)
        except ModelError as problem:
            raise ModelError(f"{directory}: tokenizer.json: {problem}") from problem.__cause__
        if made.size > vocab_size:
            raise ModelError(
                f"{directory}: the model's vocabulary ({vocab_size}) is smaller than a token id ({made.size - 1}): "
                "the tokenizer belongs to another model"
            )
        return made

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of untrusted text; never an added token. Empty text gives no ids.

        Raises:
            UsageError: the text holds half a surrogate pair, or the tokenizer fails on it.
        """
        if not text:
            return ()
        known = self._cache.get(text)
        if known is None:
            known = self._encode(text)
            self._cache.put(text, known)
        return known

    def _encode(self, text: str) -> tuple[int, ...]:
        check_unicode(text)
        try:
            ids = tuple(guarded(lambda: self._plain.encode(text, add_special_tokens=False).ids))
        except ModelError as problem:
            raise UsageError(f"the tokenizer cannot read the text: {problem}") from None
        if not self._content_of.keys().isdisjoint(ids):
            raise UsageError("the text holds a control token that this tokenizer cannot spell as text: remove it")
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; b"" for an id that the tokenizer does not know."""
        name = self._content_of.get(token_id)
        if name is None and 0 <= token_id < self.size:
            name = self._plain.id_to_token(token_id)
        if name is None:
            return b""
        try:
            return bytes(map(_BYTE_OF.__getitem__, name))
        except KeyError:
            return name.encode("utf-8")

    def decode(self, token_ids: tuple[int, ...] | list[int]) -> str:
        """Text of token ids, added tokens included; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(map(self.token_bytes, token_ids)).decode("utf-8", "replace")

    def added_content(self, token_id: int) -> str | None:
        """The text of an added token, None for every other id."""
        return self._content_of.get(token_id)

    def last_piece_start(self, text: str) -> int:
        """Where in text (normalised) the last pre-token starts; tokens before it do not depend on what follows."""
        if self._plain.pre_tokenizer is None:
            return 0
        pieces = self._plain.pre_tokenizer.pre_tokenize_str(text)
        return int(pieces[-1][1][0]) if pieces else 0

    def normalize(self, text: str) -> str:
        """The text as the model's tokens spell it (NFC for Qwen)."""
        return text if self._plain.normalizer is None else str(self._plain.normalizer.normalize_str(text))

    def _stop_ids(self, generation: dict[str, Any]) -> frozenset[int]:
        eos = generation.get("eos_token_id")
        ids = eos if isinstance(eos, list) else [] if eos is None else [eos]
        if any(isinstance(i, bool) or not isinstance(i, int) or i < 0 for i in ids):
            raise ModelError("generation_config.json: eos_token_id is neither a token id nor a list of them")
        names = [self.special_strings.get("eos_token"), "<|im_end|>"]
        known = [self.token_id(name) for name in names if name is not None]
        return frozenset([*ids, *(i for i in known if i is not None)])

    def token_id(self, content: str) -> int | None:
        """Id of the token with exactly this content, added or not."""
        token = self.added.get(content)
        return token.id if token is not None else self._plain.token_to_id(content)

    def _added_id(self, content: str) -> int | None:
        token = self.added.get(content)
        return None if token is None else token.id

    @staticmethod
    def _check_decoder(decoder: Any) -> None:
        kinds = [decoder] if not isinstance(decoder, dict) or "decoders" not in decoder else decoder["decoders"]
        names = [d.get("type") if isinstance(d, dict) else None for d in kinds]
        if names != ["ByteLevel"]:
            raise ModelError(f"the decoder {names} is not byte-level BPE, the only kind that is supported")


def check_unicode(text: str) -> None:
    """Refuse text that UTF-8 cannot carry.

    Raises:
        UsageError: a surrogate, as broken JSON escapes or a badly decoded argument leave it.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise UsageError(
            f"character {problem.start + 1} of a text is half a surrogate pair: give the text as valid UTF-8"
        ) from None


def guarded(call: Callable[[], T]) -> T:
    """Run a call into the tokenizers library; its errors and its panics (no Exceptions) become ModelError."""
    try:
        return call()
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as problem:
        line = (str(problem) or type(problem).__name__).splitlines()[0]
        raise ModelError(f"the tokenizers library refuses it: {line[:200]}") from problem


def _added_token(entry: Any) -> AddedToken:
    if not isinstance(entry, dict) or not isinstance(entry.get("content"), str) or not entry["content"]:
        raise ModelError("an added token has no content")
    if isinstance(entry.get("id"), bool) or not isinstance(entry.get("id"), int) or entry["id"] < 0:
        raise ModelError(f"the added token {entry['content'][:40]!r} has no id")
    flags = {name: bool(entry.get(name)) for name in ("special", "lstrip", "rstrip", "single_word")}
    return AddedToken(entry["id"], entry["content"], **flags)


def _without_added(document: dict[str, Any], added: dict[str, AddedToken]) -> dict[str, Any]:
    """tokenizer.json's document for plain text: no added tokens, nothing that adds, cuts or pads."""
    vocab = {text: i for text, i in _vocabulary(document).items() if text not in added}
    model = {**document["model"], "vocab": vocab}
    silenced = dict.fromkeys(("truncation", "padding", "post_processor"))
    return {**document, "model": model, "added_tokens": [], **silenced}


def _vocabulary(document: dict[str, Any]) -> dict[str, int]:
    model = document.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocab, dict) or not all(type(i) is int for i in vocab.values()):
        raise ModelError("the model's vocabulary is missing: only BPE is supported")
    return vocab


def _special_strings(config: dict[str, Any]) -> dict[str, str]:
    found = {}
    for name in SPECIAL_NAMES:
        value = config.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            found[name] = value
    return found


def _byte_alphabet() -> dict[str, int]:
    """Byte-level BPE's printable stand-ins (GPT-2): printable Latin-1 for itself, the others from U+0100 on."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in kept]
    return {**{chr(b): b for b in kept}, **{chr(0x100 + i): b for i, b in enumerate(moved)}}


_BYTE_OF = _byte_alphabet()
