"""Plays the example dialogues with the model and writes dialogues.json (messages and the model's greedy replies).

python dialogues.py [--model DIR]
"""

from __future__ import annotations

import argparse
import json
import pathlib

from evaluate import answer, transformers_backend
from text import MODEL_DIR

HERE = pathlib.Path(__file__).resolve().parent
DIALOGUES: list[dict] = [
    {
        "name": "facts",
        "system": None,
        "turns": [
            "Hi! My name is Bela and I live in Torvik.",
            "My favourite colour is green and I have a dog called Rufo.",
            "How are you?",
            "What's my name?",
            "Actually, I live in Lomara now.",
            "Where do I live?",
            "What did I say before that?",
            "Thanks, bye!",
        ],
    },
    {
        "name": "people",
        "system": None,
        "turns": [
            "Mira has a red ball, Tom has a blue book and Lena has a green cup.",
            "What does Tom have?",
            "What does Lena have?",
            "Tom lives in Zurich and Mira lives in Kelso.",
            "Where does Mira live?",
            "Where does Tom live?",
            "How old is Tom?",
            "What is 7 + 8?",
        ],
    },
    {
        "name": "persona",
        "system": "You are Kiro. Answer in upper case.",
        "turns": [
            "Who are you?",
            "My secret word is lantu.",
            "Count to 5",
            "What is the secret word?",
            "Repeat after me: sol, mira, tek",
            "How long is the list?",
            "What is my favourite food?",
            "Thank you",
        ],
    },
    {
        "name": "german",
        "system": "Answer in German.",
        "turns": [
            "Hello!",
            "My name is Vera and my favourite colour is blue.",
            "What is my favourite colour?",
            "I work as a baker.",
            "What is my job?",
            "What is my name?",
            "Where do I live?",
            "Goodbye",
        ],
    },
]


def main() -> None:
    """Write dialogues.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, default=MODEL_DIR)
    parser.add_argument("--print-only", action="store_true")
    args = parser.parse_args()
    backend = transformers_backend(args.model)
    out = []
    for dialogue in DIALOGUES:
        messages = [{"role": "system", "content": dialogue["system"]}] if dialogue["system"] else []
        print(f"--- {dialogue['name']}: {dialogue['system'] or ''}")
        for said in dialogue["turns"]:
            messages.append({"role": "user", "content": said})
            reply = answer(backend(messages, False))
            messages.append({"role": "assistant", "content": reply})
            print(f"> {said}\n  {reply}", flush=True)
        out.append({"name": dialogue["name"], "messages": messages})
    if not args.print_only:
        (HERE / "dialogues.json").write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
