"""A model whose logits prove that state and pages are right: it recounts the whole history from both and compares.

Its recurrent state holds (tokens seen, running checksum); its KV holds the token ids themselves. A pass reads the
history back from the pages, recomputes the checksum and fails loudly when the state says something else. The next
token is a function of the checksum alone, so a wrong slot, page or frontier changes the reply.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ninfer_core.contract.ids import PAGE_SIZE
from ninfer_core.kernels.batch import ForwardBatch
from ninfer_core.kernels.planes import KvPlanes, StatePlanes
from ninfer_core.models.layout import ModelLayout

PRIME = 65_521


def checksum(tokens: Iterable[int], start: int = 0) -> int:
    value = start
    for token in tokens:
        value = (value * 31 + token + 1) % PRIME
    return value


class LedgerModel:
    """`fault`, when set, is called with each batch before it runs and may raise."""

    def __init__(self, vocab_size: int = 64, max_positions: int = 4096) -> None:
        self.layout = ModelLayout(
            gdn_layers=1,
            attention_layers=1,
            recurrent_shape=(1, 1, 2),
            conv_shape=(1, 3),
            hidden_size=2,
            kv_shape=(1, 1),
            dtype=torch.float32,
            vocab_size=vocab_size,
            max_positions=max_positions,
        )
        self.device = torch.device("cpu")
        self.weight_bytes = 0
        self.fault = lambda batch: None
        self.batches: list[ForwardBatch] = []

    def fingerprint(self) -> str:
        return f"ledger {self.layout.vocab_size}"

    def close(self) -> None:
        """Nothing goes on beside the callers."""

    def forward(self, batch: ForwardBatch, state: StatePlanes, kv: KvPlanes) -> torch.Tensor:
        self.fault(batch)
        self.batches.append(batch)
        kv.keys[0].view(-1)[batch.kv_slots] = batch.token_ids.float()
        kv.values[0].view(-1)[batch.kv_slots] = 1.0  # what a pass has not written may be anything, NaN too
        ends = []
        for row in batch.rows:
            places = torch.tensor(row.pages).unsqueeze(1) * PAGE_SIZE + torch.arange(PAGE_SIZE)
            history = kv.keys[0].view(-1)[places.view(-1)[: row.start]].long().tolist()
            count, value = 0, 0
            if row.read_slot is not None:
                count, value = (int(x) for x in state.recurrent[0][row.read_slot].flatten())
            assert count == row.start, f"the state covers {count} tokens, the row starts at {row.start}"
            assert value == checksum(history), "state and pages tell different histories"
            for cut in row.cuts:
                if cut.slot is not None:
                    seen = checksum(row.token_ids[: cut.offset], value)
                    tapped = torch.tensor([float(row.start + cut.offset), float(seen)])
                    state.recurrent[0][cut.slot] = tapped
                    state.hidden[cut.slot] = tapped
            value = checksum(row.token_ids, value)
            end = torch.tensor([float(row.start + len(row.token_ids)), float(value)])
            state.recurrent[0][row.write_slot] = end
            state.hidden[row.write_slot] = end
            ends.append(end)
        return torch.stack(ends)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        logits = torch.full((len(hidden), self.layout.vocab_size), -4.0)
        for line, (_, value) in zip(logits, hidden.tolist(), strict=True):
            line[self.next_token(int(value))] = 4.0
        return logits

    def next_token(self, value: int) -> int:
        return value % self.layout.vocab_size

    def greedy(self, prompt: list[int], length: int) -> list[int]:
        """What greedy decoding must give."""
        out: list[int] = []
        while len(out) < length:
            out.append(self.next_token(checksum([*prompt, *out])))
        return out
