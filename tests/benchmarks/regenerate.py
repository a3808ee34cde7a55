"""Time to the first token of a regenerated reply, against the decode steps of the same reply.

    python -m tests.benchmarks.regenerate [MODEL] [--tokens 2048] [--turns 6] [--rounds 7] [--new 8]

MODEL is a checkpoint directory; without, the demo model. A conversation of a system message and several turns, each of
them answered by the model, grows to so many tokens; then its last reply is generated again and again. Demanded of each:
at most three of its own decode steps and 10 ms.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ninfer_core import CacheIntent, Completion, Engine, EngineOptions, GenerationRequest, Message, SamplingParams
from tests.benchmarks.demands import Demand, judged, parser

STEPS, EXTRA_MS = 3, 10.0


class Conversation:
    """Turns of invented words. `messages` ends with a question that has been answered."""

    def __init__(self, engine: Engine, tokens: int, turns: int, new: int) -> None:
        self.engine, self.new = engine, new
        self._rng = random.Random(1)
        self.messages = self._grown([], "system", tokens // (turns + 1))
        for turn in range(1, turns + 1):
            self.messages = self._grown(self.messages, "user", tokens * (turn + 1) // (turns + 1))
            self.last = self.reply()
            if turn < turns:
                said = Message("assistant", self.last.text, reasoning_content=self.last.reasoning or "")
                self.messages.append(said)

    def _grown(self, messages: list[Message], role: str, until: int) -> list[Message]:
        """With one more message, so long that the prompt has at least so many tokens, and hardly more."""
        words: list[str] = []
        while True:
            words.append(self._rng.choice("bdfgklmnprst") + self._rng.choice("aeiou"))
            grown = [*messages, Message(role, " ".join(words))]
            asked = grown if role == "user" else [*grown, Message("user", "so")]
            if len(self.engine.prepare(asked)) >= until:
                return grown

    def reply(self) -> Completion:
        prompt = self.engine.prepare(self.messages)
        cache = CacheIntent(session="bench")
        sampling = SamplingParams(temperature=0)
        asked = GenerationRequest(prompt, sampling, max_new=self.new, ignore_end=True, cache=cache)
        result = self.engine.submit(asked).result()
        if result.error:
            raise SystemExit(result.error)
        return result


def regenerated(conversation: Conversation) -> tuple[float, float]:
    """Once more, with a line about it. Milliseconds to the first token, and of a decode step."""
    stats = conversation.reply().statistics
    times = stats.timings
    assert times.ttft_ms is not None and times.prefill_ms is not None and times.queued_ms is not None
    assert times.decode_tokens_per_s is not None
    step = 1e3 / times.decode_tokens_per_s
    outcomes = Counter(capture.outcome for capture in stats.captures)
    print(
        f"  TTFT {times.ttft_ms:6.1f} ms = queued, planned {times.queued_ms:5.1f} (planning {stats.planning.ms:.1f}) + "
        f"prefill {times.prefill_ms:6.1f} of {stats.usage.prefill_tokens} tokens; step {step:6.1f} ms; "
        f"{times.ttft_ms / step:.2f} steps; {stats.reuse.source.value} {stats.reuse.operation.value}; captures "
        + (", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()) or "none"),
        flush=True,
    )
    return times.ttft_ms, step


def main(argv: Sequence[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("model", type=Path, nargs="?")
    options.add_argument("--tokens", type=int, default=2048)
    options.add_argument("--turns", type=int, default=6)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--new", type=int, default=8, help="tokens of each reply")
    args = options.parse_args(argv)
    if args.turns < 1 or args.rounds < 1 or args.new < 2:
        options.error("--turns and --rounds must be at least 1, --new at least 2: nothing is measured otherwise")
    room = args.tokens + 64 * args.turns + 2 * args.new
    with Engine(EngineOptions(model=args.model, max_context=room)) as engine:
        conversation = Conversation(engine, args.tokens, args.turns, args.new)
        usage, ttft = conversation.last.statistics.usage, conversation.last.statistics.timings.ttft_ms
        print(f"{engine.info.model}, {engine.info.dtype}, {engine.info.threads} threads; {args.turns} turns", end="; ")
        print(f"the last: {usage.prompt_tokens} tokens, {usage.prefill_tokens} of them new, TTFT {ttft:.0f} ms")
        found = [regenerated(conversation) for _ in range(args.rounds)]
    shares = [ttft / (STEPS * step + EXTRA_MS) for ttft, step in found]
    print(f"TTFT median {statistics.median(ttft / step for ttft, step in found):.2f} decode steps; ", end="")
    print(f"of {STEPS} steps and {EXTRA_MS:g} ms: median {statistics.median(shares):.0%}, worst {max(shares):.0%}")
    name = f"the slowest TTFT, of {STEPS} of its decode steps and {EXTRA_MS:g} ms"
    return judged([Demand(name, 100 * max(shares), 100, " %")])


if __name__ == "__main__":
    sys.exit(main())
