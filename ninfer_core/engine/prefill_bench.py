"""PrefillBench: suffixes of several lengths behind several bases, through the real Program, under a stopwatch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

from ninfer_core.cache.fitting import Measured
from ninfer_core.contract.plans import RequestWork, SequenceHandle
from ninfer_core.contract.prompt import OutputStart, PreparedPrompt
from ninfer_core.contract.sampling import SamplingParams
from ninfer_core.engine.stopwatch import Stopwatch, medians
from ninfer_core.program.planning.target import Target
from ninfer_core.program.planning.work import Prefill
from ninfer_core.program.program import Program

ROUNDS = 3
STAIRS = (16, 64, 512, 16, 128, 512, 32, 512, 256, 2048, 16, 512, 2048, 64, 512)
"""Suffixes that are prefilled one behind the other: each is a sample whose base is what came before. Short and long
ones stand behind short and long bases, up to those of a long document, where the pairs are most of the work: only so
can they be told apart from tokens."""
PROBE = (16, 128)
"""The first step warms libraries up, the last says how fast the model is."""
ROUND_NS = 20e9
"""A slow model climbs lower stairs: one round takes no longer than about this."""


class PrefillBench:
    def __init__(self, program: Program, most_tokens: int) -> None:
        """
        Args:
            program: idle, and idle again after `measure`.
            most_tokens: the longest sequence that it holds.
        """
        self._program = program
        self._most_tokens = most_tokens

    def measure(self, stopwatch: Stopwatch) -> list[Measured[Prefill]]:
        """Climb the stairs a few times, and take medians."""
        probe = self._climb(self._fitting(PROBE), stopwatch)[-1]
        scale = min(1.0, ROUND_NS / max(1.0, probe.ns / probe.work.suffix * sum(STAIRS)))
        pieces = self._fitting([max(1, int(piece * scale)) for piece in STAIRS])
        rounds = [self._climb(pieces, stopwatch) for _ in range(ROUNDS)]
        return medians([sample.work for sample in rounds[0]], [[sample.ns for sample in one] for one in rounds])

    def _fitting(self, pieces: Sequence[int]) -> list[int]:
        """The leading pieces that leave room for one more token: a prompt that is never complete draws nothing."""
        taken: list[int] = []
        for piece in pieces:
            if sum(taken) + piece >= self._most_tokens:
                break
            taken.append(piece)
        return taken or [1]

    def _climb(self, pieces: Sequence[int], stopwatch: Stopwatch) -> list[Measured[Prefill]]:
        program, rng = self._program, random.Random(sum(pieces))
        tokens = tuple(rng.randrange(program.model.layout.vocab_size) for _ in range(sum(pieces) + 1))
        prompt = PreparedPrompt(tokens, None, OutputStart.ANSWER)
        work = RequestWork(prompt, len(tokens), SamplingParams(temperature=0))
        handle = program.materialize(Target(program.activation(None, work)), work)
        assert isinstance(handle, SequenceHandle), "an idle program has room"
        samples = []
        try:
            for number, piece in enumerate(pieces):
                prefill = Prefill(sum(pieces[:number]), piece)
                samples.append(Measured(prefill, stopwatch.ns(prefill, partial(self._step, handle, piece))))
        finally:
            program.discard(handle)
        return samples

    def _step(self, handle: SequenceHandle, tokens: int) -> None:
        with self._program.execute([(handle, tokens)]) as batch:
            batch.commit([handle])
