"""What a checkpoint protects, as one digest."""

from __future__ import annotations

import hashlib

from ninfer_core.program.ledger.objects import Checkpoint
from ninfer_core.program.program import Program


def checksum(program: Program, checkpoint: Checkpoint) -> bytes:
    """Digest of everything that the checkpoint protects, from any replica."""
    hasher = hashlib.blake2b(program.physical.images.bytes_of(checkpoint.image).numpy().tobytes(), digest_size=16)
    for number, pool in enumerate(checkpoint.pages):
        for i, page in enumerate(pool):
            tokens = min(64, checkpoint.frontier - 64 * i)
            for plane in program.physical.pools[number].bytes_of(page, tokens):
                hasher.update(plane.numpy().tobytes())
    return hasher.digest()
