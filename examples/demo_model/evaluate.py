"""Evaluates the demo model on conversations with names and values that training never showed.

  python evaluate.py [--model DIR] [--count 40] [--reset] [--show 5] [--json FILE]

Each conversation has up to 8 turns and ends with a turn of the category that is scored. The model answers every turn
greedily; its own replies are the history, written by the chat template. A reply counts only if it is exactly the
right one. With --reset the recurrent states (and convolution histories) are zeroed where the last user turn begins,
while attention keeps its keys and values: what the score loses is what depends on the recurrent state.

`run` takes any backend: a function from messages to the reply's text (see `Backend`).
"""

from __future__ import annotations

import argparse
import inspect
import json
import pathlib
import time
from collections.abc import Callable

from data import Conversation, Generator
from text import MODEL_DIR

Messages = list[dict[str, str]]
Backend = Callable[[Messages, bool], str]  # messages and whether to think; returns the whole generated text

CATEGORIES = {  # category: (final act of the generator, whether it asks for something told earlier)
    "recall": ("recall", True),
    "recall_two": ("recall_two", True),
    "previous": ("previous", True),
    "last_told": ("last_told", True),
    "tell": ("tell", False),
    "correct": ("correct", False),
    "tell_ask": ("tell_ask", False),
    "unknown": ("unknown", False),
    "cannot": ("cannot", False),
    "small": ("small", False),
    "switch": ("switch", False),
    "list": ("list", False),
    "list_more": ("list_more", True),
    "say": ("say", False),
    "spell": ("spell", False),
    "count": ("count", False),
    "sum": ("sum", False),
}


def transformers_backend(directory: pathlib.Path, reset: bool = False) -> Backend:
    """Greedy generation with transformers; `reset` zeroes the recurrent state at the last user turn."""
    import torch
    from tokenizers import Tokenizer
    from transformers import DynamicCache, Qwen3_5ForCausalLM
    from transformers.utils.chat_template_utils import render_jinja_template

    template = (directory / "chat_template.jinja").read_text()
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    model = Qwen3_5ForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    cache_name = (
        "cache" if "cache" in inspect.signature(model.model.forward).parameters else "past_key_values"
    )  # renamed in 5.2x
    ends = {tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")}

    @torch.inference_mode()
    def generate(messages: Messages, thinking: bool) -> str:
        (text,), _ = render_jinja_template(
            [messages], chat_template=template, add_generation_prompt=True, enable_thinking=thinking
        )
        border = text.rindex("<|im_start|>user\n")
        cache = DynamicCache(config=model.config)
        if reset and border > 0:
            model(
                input_ids=torch.tensor([tokenizer.encode(text[:border], add_special_tokens=False).ids]),
                use_cache=True,
                **{cache_name: cache},
            )
            for layer in cache.layers:
                for name in ("conv_states", "recurrent_states"):
                    states = getattr(layer, name, None)
                    for state in states.values() if isinstance(states, dict) else [states]:
                        if state is not None:
                            state.zero_()
            text = text[border:]
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        out: list[int] = []
        while len(out) < 200:
            ids = [
                int(model(input_ids=torch.tensor([ids]), use_cache=True, **{cache_name: cache}).logits[0, -1].argmax())
            ]
            if ids[0] in ends:
                break
            out += ids
        return tokenizer.decode(out, skip_special_tokens=False)

    return generate


def answer(text: str) -> str:
    """The reply without its reasoning."""
    return text.split("</think>")[-1].strip()


def play(backend: Backend, conversation: Conversation, thinking: bool, last_only: bool = False) -> list[str]:
    """The model's reply to every turn (or, with the right replies as history, to the last alone)."""
    history: Messages = [{"role": "system", "content": conversation.system}] if conversation.system is not None else []
    replies = []
    for i, turn in enumerate(conversation.turns):
        history.append({"role": "user", "content": turn.user})
        reply = (
            turn.reply if last_only and i < len(conversation.turns) - 1 else answer(backend(list(history), thinking))
        )
        history.append({"role": "assistant", "content": reply})
        replies.append(reply)
    return replies


def conversations(act: str, count: int, seed: int) -> list[Conversation]:
    """Held-out conversations whose last turn is the given act; their lengths go through 2..8 (1..8 where that fits)."""
    generator = Generator(seed, evaluation=True)
    needs_past = any(a == act and past for a, past in CATEGORIES.values()) or act == "correct"
    return [generator.conversation(2 + i % 7 if needs_past else 1 + i % 8, act) for i in range(count)]


def run(
    backend: Backend,
    count: int,
    seed: int = 4242,
    thinking: bool = False,
    last_only: bool = False,
    only: set[str] | None = None,
    show: int = 0,
) -> dict[str, dict[str, float]]:
    """Scores by category: exact final replies, and the share of right replies over all turns."""
    table: dict[str, dict[str, float]] = {}
    for name, (act, _) in CATEGORIES.items():
        if only and name not in only:
            continue
        right = turns = right_turns = 0
        shown = 0
        for conversation in conversations(act, count, seed + sum(map(ord, name))):
            replies = play(backend, conversation, thinking, last_only)
            ok = replies[-1] == conversation.turns[-1].reply
            right += ok
            turns += len(replies)
            right_turns += sum(r == t.reply for r, t in zip(replies, conversation.turns, strict=True))
            if not ok and shown < show:
                shown += 1
                print(f"--- {name}; system: {conversation.system}")
                for reply, turn in zip(replies, conversation.turns, strict=True):
                    print(
                        f"    U: {turn.user}\n    A: {reply}"
                        + ("" if reply == turn.reply else f"\n    !! {turn.reply}")
                    )
        table[name] = {"exact": right / count, "all_turns": right_turns / turns, "count": count}
        print(f"{name:12} {right}/{count} = {right / count:.1%}   (all turns {right_turns / turns:.1%})", flush=True)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, default=MODEL_DIR)
    parser.add_argument("--count", type=int, default=40, help="conversations per category")
    parser.add_argument("--seed", type=int, default=4242)
    parser.add_argument("--think", action="store_true")
    parser.add_argument("--reset", action="store_true", help="zero the recurrent state before the last user turn")
    parser.add_argument(
        "--last-only",
        action="store_true",
        help="right replies as history, the last turn alone is generated (implied by --reset)",
    )
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--show", type=int, default=0, help="print so many failures per category")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    begin = time.time()
    table = run(
        transformers_backend(args.model, args.reset),
        args.count,
        args.seed,
        args.think,
        args.last_only or args.reset,
        set(args.only) if args.only else None,
        args.show,
    )
    told = [n for n in table if CATEGORIES[n][1] and n != "list_more"]
    if told:
        print(f"told earlier {sum(table[n]['exact'] for n in told) / len(told):.1%}")
    print(f"mean of categories {sum(t['exact'] for t in table.values()) / len(table):.1%}; {time.time() - begin:.0f} s")
    if args.json:
        args.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
