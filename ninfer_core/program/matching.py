"""Matching: which published checkpoints a prompt can go on from, and how far it runs beside the others (ID-1, STAT-2).

One pass over many owners with nothing between two comparisons of bytes: an admission asks this of the whole catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ninfer_core.contract.ids import CheckpointRef, OwnerId
from ninfer_core.program.identity import Identity
from ninfer_core.program.ledger.objects import Checkpoint
from ninfer_core.program.ledger.world import World
from ninfer_core.program.records import Records


def matching(
    world: World, records: Records, owners: Iterable[OwnerId], prompt: Identity
) -> Iterator[tuple[OwnerId, Checkpoint]]:
    """Every checkpoint of these owners whose identity is exactly that of a prefix of the prompt (CAN-1, CKP-1)."""
    for owner_id in owners:
        owner = world.owners.get(owner_id)
        for checkpoint in owner.checkpoints if owner else ():
            # The deeper ones of an owner lie on the same path: where this one differs, they do.
            if not records[checkpoint.ref].identity.matches(prompt):
                break
            yield owner_id, checkpoint


def longest_common(
    records: Records, refs: Iterable[CheckpointRef], prompt: Identity, tokens: int
) -> tuple[int, Identity | None]:
    """How many leading tokens the prompt shares with any of these checkpoints, where those are more than `tokens`.

    Returns:
        (the number, the identity that shares them); (tokens, None) when none shares more.
    """
    best, found = tokens, None
    start = prompt.tokens[: 4 * (best + 1)]
    for ref in refs if len(start) > 4 * best else ():
        identity = records[ref].identity
        # Most share no more than is known already: one comparison of bytes shows it.
        if identity.tokens.startswith(start):
            best, found = identity.common(prompt), identity
            start = prompt.tokens[: 4 * (best + 1)]
            if len(start) <= 4 * best:
                break
    return best, found
