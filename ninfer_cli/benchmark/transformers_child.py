"""The same tests on Hugging Face transformers, in a process of its own: one JSON line of samples, then it ends.

Its one argument is a JSON object: model (a directory), dtype, repetition, tests ([kind, tokens, depth, batch] each).
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from ninfer_cli.benchmark.machine import peak_rss_bytes
from ninfer_cli.benchmark.plan import BenchTest


def main(text: str) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

    order = json.loads(text)
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.set_grad_enabled(False)
    config = AutoConfig.from_pretrained(order["model"])
    config = getattr(config, "text_config", config)
    model = AutoModelForCausalLM.from_pretrained(
        order["model"], config=config, dtype=getattr(torch, order["dtype"]), attn_implementation="sdpa"
    )
    model.eval()  # type: ignore[no-untyped-call]
    found = []
    for test in [BenchTest(*item) for item in order["tests"]]:
        _measure(model, test, 0)
        found.append(_measure(model, test, order["repetition"] + 1))
    json.dump({"samples": found, "peak_rss_bytes": peak_rss_bytes()}, sys.stdout)


def _measure(model: Any, test: BenchTest, repetition: int) -> list[float]:
    """[tokens/s, ms to the first token]."""
    import torch

    generator = torch.Generator().manual_seed(repetition)
    size = (test.batch, test.prompt_tokens)
    tokens = torch.randint(model.config.vocab_size, size, generator=generator)
    start = time.perf_counter()
    cache = None
    if test.kind == "pp" and test.depth:
        cache = model(tokens[:, : test.depth], use_cache=True, logits_to_keep=1).past_key_values
        tokens = tokens[:, test.depth :]
    behind = time.perf_counter()
    result = model(tokens, past_key_values=cache, use_cache=True, logits_to_keep=1)
    first = time.perf_counter()
    if test.kind == "pp":
        return [test.tokens * test.batch / (first - behind), (first - start) * 1000]
    for _ in range(test.tokens):
        result = model(result.logits[:, -1:].argmax(-1), past_key_values=result.past_key_values, use_cache=True)
    return [test.tokens * test.batch / (time.perf_counter() - first), (first - start) * 1000]


if __name__ == "__main__":
    main(sys.argv[1])
