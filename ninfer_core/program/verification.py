"""Verification: is what a request left behind what a cold run of its execution trace gives (context-cache VER-1)?

The replay has memory of its own, so it takes nothing from the pools and evicts nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ninfer_core.contract.ids import PAGE_SIZE, CheckpointRef, OwnerId
from ninfer_core.contract.sampling import SamplingParams
from ninfer_core.contract.verification import Verification
from ninfer_core.models.memory import available_memory, is_out_of_memory
from ninfer_core.models.model import Model
from ninfer_core.program.execution.sampling import SamplerRow, sample
from ninfer_core.program.identity import Trace, decode
from ninfer_core.program.ledger.objects import Checkpoint
from ninfer_core.program.records import Records
from ninfer_core.program.replay import BrokenTrace, Replay
from ninfer_core.program.storage.image_store import ImageStore
from ninfer_core.program.storage.page_store import PageStore
from ninfer_core.program.storage.physical import Physical

SHARE = 0.8
"""Of the free memory, what a replay may take."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a finished request says it did.

    Attributes:
        ledger: prompt and every output token.
        prompt_tokens: how many of them are the prompt.
        frontier: tokens executed.
        forced: positions of output tokens that were not drawn.
        trace: the units that ran, from token 0.
    """

    ledger: tuple[int, ...]
    prompt_tokens: int
    frontier: int
    forced: frozenset[int]
    sampling: SamplingParams
    trace: Trace


@dataclass(frozen=True, slots=True)
class Left:
    """The state at the frontier that is still resident, as bytes.

    Attributes:
        image: [image_bytes] uint8.
        planes: for every KV plane the first frontier tokens, [frontier, bytes] uint8.
    """

    image: Tensor
    planes: list[Tensor]

    @classmethod
    def of(cls, physical: Physical, checkpoint: Checkpoint) -> Left:
        """A checkpoint's bytes, wherever its replicas are."""
        store, pieces = physical.pools[0], []
        for at, page in enumerate(checkpoint.pages[0]):
            pieces.append(store.bytes_of(page, min(PAGE_SIZE, checkpoint.frontier - at * PAGE_SIZE)))
        planes = [torch.cat([piece[plane].cpu() for piece in pieces]) for plane in range(len(pieces[0]))]
        image = physical.images.bytes_of(checkpoint.image)
        return cls(image, [plane.view(checkpoint.frontier, -1) for plane in planes])

    @staticmethod
    def bytes_needed(model: Model, checkpoint: Checkpoint) -> int:
        """Memory that they take beside the stores."""
        pages = len(checkpoint.pages[0]) * PageStore.bytes_per_page(model.layout)
        return pages + ImageStore.bytes_per_image(model.layout)


class Verifier:
    """Replays what a request did in memory of its own. Mutates nothing and takes nothing from the pools."""

    def __init__(self, model: Model, physical: Physical, records: Records) -> None:
        self._model = model
        self._physical = physical
        self._records = records

    def verify_claim(self, claim: Claim, owner: OwnerId, ref: CheckpointRef) -> Verification:
        """Replay a claim cold and compare it with the checkpoint that it left, as far as that is resident."""
        return self._verify(claim, self._checkpoint(owner, ref))

    def verify_checkpoint(self, owner: OwnerId, ref: CheckpointRef) -> Verification:
        """Replay a checkpoint's trace cold and compare state and KV: whether it is what it says."""
        found = self._checkpoint(owner, ref)
        if found is None:
            return Verification(None, None, None, "it is not resident any more")
        record = self._records[ref]
        tokens = tuple(decode(record.identity.tokens))
        claim = Claim(tokens, len(tokens), found.frontier, frozenset(), SamplingParams(), record.trace)
        return self._verify(claim, found)

    def _checkpoint(self, owner: OwnerId, ref: CheckpointRef) -> Checkpoint | None:
        found = self._physical.world.owners.get(owner)
        return next((c for c in found.checkpoints if c.ref == ref), None) if found else None

    def _verify(self, claim: Claim, found: Checkpoint | None) -> Verification:
        """Replay a claim cold and compare, if memory allows.

        Args:
            found: None when the request's state is not resident any more: only its tokens are compared then.
        """
        model = self._model
        need = Replay.bytes_needed(model, claim.trace, claim.frontier)
        need += 0 if found is None else Left.bytes_needed(model, found)
        free = available_memory()
        if free is not None and need > free * SHARE:
            return _no_room(need, f"{_mib(int(free * SHARE))} are free for it")
        try:
            return _compared(model, claim, None if found is None else Left.of(self._physical, found))
        except BrokenTrace as error:
            return Verification(False, None, None, f"{error}: no run has left this")
        except Exception as error:
            if is_out_of_memory(error):
                return _no_room(need, "memory ran out")
            raise


def _no_room(need: int, why: str) -> Verification:
    return Verification(
        None, None, None, f"no room to verify: the replay needs {_mib(need)} and {why}: close other programs"
    )


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"


def _compared(model: Model, claim: Claim, left: Left | None) -> Verification:
    """See `Verifier._verify`."""
    replay = Replay(model, claim.ledger, claim.trace, claim.frontier)
    differing = _first_other_token(model, claim, replay.hidden)
    tokens = differing is None
    detail = "" if tokens else f"output token {differing} is another one in the replay"
    if left is None:
        return Verification(None, None, tokens, detail or "its state is not resident any more")
    state = torch.equal(replay.state, left.image.cpu())
    kv = all(torch.equal(a, b.cpu()) for a, b in zip(replay.kv(claim.frontier), left.planes, strict=True))
    return Verification(state, kv, tokens, detail)


def _first_other_token(model: Model, claim: Claim, hidden: Mapping[int, Tensor]) -> int | None:
    """Draw every output token again from the replay's hidden rows; the number of the first that differs."""
    ledger, start = claim.ledger, claim.prompt_tokens
    # The head's product has as many rows as the round had: products of other shapes differ in bits.
    rounds = {unit.start + unit.length: len(unit.rows) for unit in claim.trace}
    sampler = SamplerRow(claim.sampling, ledger[:start], model.layout.vocab_size)
    for at in range(start, len(ledger)):
        if at in hidden and at not in claim.forced:
            rows = hidden[at].reshape(1, -1).expand(rounds.get(at, 1), -1)
            if sample(model.logits(rows)[:1], [sampler])[0] != ledger[at]:
                return at - start
        sampler.accept(ledger[at])
    return None
