"""Turns conversations into training text and tokens; builds the tokenizer.

`render` writes the same text as the model's chat template (test_data.py compares the two), only faster.
"""

from __future__ import annotations

import json
import pathlib
from collections import Counter

from data import Conversation
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

MODEL_DIR = pathlib.Path(__file__).resolve().parents[2] / "ninfer_core" / "demo"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
ADDED = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
SPLIT = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CONSONANTS = "bcdfghjklmnprstvwzy"
# Frequent words that stand without a space before them.
WHOLE = ("assistant", "user", "Your", "What", "Noted", "You")
VOWELS = "aeiou"

FORGOTTEN = "They have not told me that."
Piece = tuple[str, float]  # a piece of text and the weight of its tokens in the loss


def opener(thinking: bool) -> str:
    """What the template puts after the last message for the assistant to go on."""
    return "<|im_start|>assistant\n" + ("<think>\n" if thinking else "<think>\n\n</think>\n\n")


def render(
    conversation: Conversation, thinking: bool = False, history_weight: float = 0.3, lost: bool = False
) -> list[Piece]:
    """A conversation as the template writes it: earlier replies plain, the last one after the generation opener.

    With `lost` the last reply is that of a model whose memory was cleared just before the last user turn.
    """
    pieces: list[Piece] = []
    final = conversation.turns[-1]
    think, reply = final.think, final.reply
    if lost:
        think, reply = FORGOTTEN if final.lost != final.reply else final.think, final.lost
    if conversation.system is not None:
        pieces.append((f"<|im_start|>system\n{conversation.system}<|im_end|>\n", 0.0))
    for i, turn in enumerate(conversation.turns):
        last = i == len(conversation.turns) - 1
        pieces.append((f"<|im_start|>user\n{turn.user.strip()}<|im_end|>\n", 0.0))
        if not last:
            pieces += [("<|im_start|>assistant\n", 0.0), (turn.reply + "<|im_end|>", history_weight), ("\n", 0.0)]
        elif thinking:
            pieces += [(opener(True), 0.0), (f"{think}\n</think>\n\n{reply}<|im_end|>", 1.0)]
        else:
            pieces += [(opener(False), 0.0), (f"{reply}<|im_end|>", 1.0)]
    return pieces


def messages(conversation: Conversation, upto: int) -> list[dict[str, str]]:
    """The messages before the reply of turn `upto`, with the right replies as history."""
    out = [{"role": "system", "content": conversation.system}] if conversation.system is not None else []
    for turn in conversation.turns[:upto]:
        out += [{"role": "user", "content": turn.user}, {"role": "assistant", "content": turn.reply}]
    return [*out, {"role": "user", "content": conversation.turns[upto].user}]


def byte_letters() -> dict[int, str]:
    """GPT-2's printable letter for each byte, in the order of the byte-level alphabet."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, extra = {b: chr(b) for b in keep}, 0
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + extra)
            extra += 1
    return table


def build_tokenizer(corpus: list[str], size: int) -> Tokenizer:
    """A byte-level BPE tokenizer of at most `size` entries.

    First come consonant-vowel merges: they never overlap, so a made-up name splits the same way wherever it
    stands, and upper-case words fall to letters. Then whole lower-case words of the corpus with their leading
    space, the most useful first. No merge joins a space with anything but such a whole word.
    """
    table = byte_letters()
    vocab: dict[str, int] = {table[b]: b for b in range(256)}
    merges: list[tuple[str, str]] = []
    spaced: list[tuple[str, str]] = []  # come after all others, so that a space joins a word only once it is whole

    def add(left: str, right: str) -> None:
        if left + right not in vocab:
            vocab[left + right] = len(vocab)
            (spaced if left == "Ġ" else merges).append((left, right))

    for text in "äöüßÄÖÜ":
        first, second = text.encode()
        add(table[first], table[second])
    for c in CONSONANTS:
        for v in VOWELS:
            add(c, v)
    for c in CONSONANTS.upper():
        for v in VOWELS:
            add(c, v)

    def make() -> Tokenizer:
        tokenizer = Tokenizer(models.BPE(vocab=dict(vocab), merges=merges + spaced, fuse_unk=False))
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(SPLIT), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer

    def whole(word: str) -> None:
        """Merge a word's pieces from the left."""
        parts = [t.value for t in make().model.tokenize(word)]
        body = parts[0]
        for part in parts[1:]:
            add(body, part)
            body += part

    for word in WHOLE:
        whole(word)
    words = Counter(w for text in corpus for w, _ in make().pre_tokenizer.pre_tokenize_str(text))
    room = size - len(SPECIAL) - len(ADDED)
    lower = {
        w: n
        for w, n in words.items()
        if len(w) > 1 and w[0] == "Ġ" and w[1:].isascii() and w[1:].isalpha() and w[1:].islower()
    }
    while True:
        model = make()

        def gain(item: tuple[str, int], model: Tokenizer = model) -> float:
            cost = len(model.model.tokenize(item[0])) - 1
            return item[1] * cost / cost if cost == 1 else item[1] * (cost - 0.5) / cost if cost else 0.0

        best = max(lower.items(), key=gain)
        parts = [t.value for t in model.model.tokenize(best[0])]
        if len(parts) < 2 or len(vocab) + len(model.model.tokenize(best[0][1:])) > room:
            break
        # The word without its space first, then the space: so "name" and " name" share their pieces.
        whole(best[0][1:])
        add("Ġ", best[0][1:])
        if [t.value for t in make().model.tokenize(best[0])] != [best[0]]:
            lower.pop(best[0])  # an earlier merge takes one of its pieces; the merges stay, they do no harm
            print("not whole:", best[0])
    tokenizer = make()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in ADDED])
    return tokenizer


def tokenizer_config() -> str:
    """tokenizer_config.json."""
    return (
        json.dumps(
            {
                "tokenizer_class": "Qwen2Tokenizer",
                "eos_token": "<|im_end|>",
                "pad_token": "<|endoftext|>",
                "bos_token": None,
                "unk_token": None,
                "add_prefix_space": False,
                "clean_up_tokenization_spaces": False,
                "model_max_length": 8192,
                "errors": "replace",
                "split_special_tokens": False,
            },
            indent=1,
        )
        + "\n"
    )


def main() -> None:
    """Write the tokenizer files into the packaged model directory."""
    from data import Generator

    generator = Generator(0)
    corpus = [t for _ in range(6000) for turn in generator.conversation().turns for t in (turn.user, turn.reply)]
    tokenizer = build_tokenizer(corpus, 600)
    tokenizer.save(str(MODEL_DIR / "tokenizer.json"))
    (MODEL_DIR / "tokenizer_config.json").write_text(tokenizer_config())
    print(
        tokenizer.get_vocab_size(),
        "tokens;",
        sum(len(tokenizer.encode(t).ids) for t in corpus[:5000]) / sum(map(len, corpus[:5000])),
        "tokens per character",
    )


if __name__ == "__main__":
    main()
