"""ResourceManager over a Program whose model computes nothing: real stores and transitions, long prompts cheaply."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ninfer_core.cache.cost import CostModel
from ninfer_core.cache.manager import Admission, Admitted, Ask, ResourceManager, Transferring
from ninfer_core.contract.cache_limits import CacheLimits
from ninfer_core.contract.ids import Frontier, RequestId
from ninfer_core.contract.intent import CacheIntent
from ninfer_core.contract.plans import RequestWork
from ninfer_core.contract.prompt import Boundaries, OutputStart, PreparedPrompt
from ninfer_core.contract.sampling import SamplingParams
from ninfer_core.kernels.batch import ForwardBatch
from ninfer_core.kernels.planes import KvPlanes, StatePlanes
from ninfer_core.program.ledger.geometry import Vector
from ninfer_core.program.program import Program
from tests.support.ledger_model import LedgerModel

PAGE_BYTES = 64 * 4 * 2
"""Bytes of one page of this model."""


class QuietModel(LedgerModel):
    """Reads and writes nothing: every reply is token 1."""

    def forward(self, batch: ForwardBatch, state: StatePlanes, kv: KvPlanes) -> torch.Tensor:
        return torch.ones(len(batch.rows), 2)

    def next_token(self, value: int) -> int:
        return 1


class Managed:
    """Requests are run one after the other, each in one pass."""

    def __init__(self, capacity: Vector, limits: CacheLimits, cost: CostModel | None = None) -> None:
        self.program = Program(QuietModel(vocab_size=1 << 20, max_positions=1 << 20), capacity)
        self.manager = ResourceManager(self.program, limits, cost or CostModel())
        self._next = 1

    def ask(
        self, tokens: Sequence[int], most_new: int = 1, cuts: Sequence[int] = (), intent: CacheIntent | None = None
    ) -> Ask:
        """
        Args:
            cuts: message ends; the last is where the reply may be regenerated from. None for a raw prompt.
        """
        bounds = None
        if cuts:
            ends = tuple(Frontier(cut) for cut in cuts)
            bounds = Boundaries(None, None, ends, ends[-1], ends[-1], (ends[-1],), reproduces_history=False)
        prompt = PreparedPrompt(tuple(tokens), bounds, OutputStart.ANSWER)
        request = RequestId(self._next)
        self._next += 1
        work = RequestWork(prompt, len(prompt) + most_new, SamplingParams(temperature=0))
        return Ask(request, work, intent or CacheIntent())

    def admit(self, ask: Ask) -> Admission:
        """Try to make it Active, and drive its transition to the end."""
        admission = self.manager.admit(ask)
        while isinstance(admission, Transferring):
            admission = self.manager.advance()
        return admission

    def complete(self, ask: Ask, admitted: Admitted, *, keep: bool = True) -> None:
        """Prefill, draw one token, end."""
        left = len(ask.work.prompt) - admitted.reuse.frontier
        self.manager.before_pass(ask.request, len(ask.work.prompt), 1)
        batch = self.program.execute([(admitted.handle, max(1, left))])
        batch.commit({admitted.handle})
        self.manager.after_pass(ask.request)
        if keep:
            self.program.end(admitted.handle)
            self.manager.finish(ask.request)
        else:
            self.manager.discard(ask.request)

    def run(self, tokens: Sequence[int], most_new: int = 1, cuts: Sequence[int] = (), **intent: object) -> Admitted:
        """Admit and complete one request that fits."""
        ask = self.ask(tokens, most_new, cuts, CacheIntent(**intent))  # type: ignore[arg-type]
        admitted = self.admit(ask)
        assert isinstance(admitted, Admitted), admitted
        self.complete(ask, admitted)
        return admitted
