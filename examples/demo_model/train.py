"""Trains the demo model on a CPU; can be stopped and resumed at any time.

  python train.py --work DIR --minutes 60            start, or go on from DIR/last.safetensors
  python train.py --work DIR --minutes 10 --anneal   lower the learning rate to zero over the given time

The schedule is warm-up, constant, then (with --anneal) a linear descent, so a run may end whenever time does.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import queue
import random
import threading
import time
from collections.abc import Iterator

import checkpoint
import torch
import torch.distributed as dist
import torch.nn.functional as F
from data import RECALL, Generator
from model import build, forward
from text import MODEL_DIR, render
from tokenizers import Tokenizer

BASE_LR = 2e-3
HERE = pathlib.Path(__file__).resolve().parent
Sample = tuple[list[int], list[float], int | None]
Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def encode(tokenizer: Tokenizer, pieces: list[tuple[str, float]]) -> tuple[list[int], list[float]]:
    """Token ids and their weights in the loss (a reply's pieces start and end at token borders)."""
    ids: list[int] = []
    weights: list[float] = []
    for piece, weight in pieces:
        new = tokenizer.encode(piece, add_special_tokens=False).ids
        ids += new
        weights += [weight] * len(new)
    return ids, weights


def batches(tokenizer: Tokenizer, seed: int, budget: int, args: argparse.Namespace) -> Iterator[Batch]:
    """Endless batches of similar lengths: ids, weights in the loss, and where the recurrent state is cleared.

    In a share `lost` of the conversations that end with a question about something told earlier, the state is cleared
    before the last user turn (attention still sees everything), and the right reply is that it was not told. So the
    model learns to trust its recurrent state, not the keys and values alone, on whether there was a conversation.
    """
    rng, generator, start = random.Random(seed), Generator(seed), tokenizer.token_to_id("<|im_start|>")
    user = tokenizer.token_to_id("user")

    def sample() -> Sample:
        turns = rng.randint(1, args.turns) if args.turns else None
        conversation = generator.conversation(turns, "recall" if rng.random() < args.recall else None)
        final = conversation.turns[-1]
        share = 0.0 if final.lost is None else args.lost if final.category in RECALL else args.lost / 4
        lost = len(conversation.turns) > 1 and rng.random() < share
        ids, weights = encode(tokenizer, render(conversation, rng.random() < args.thinking, args.history, lost))
        border = max(i for i in range(len(ids) - 1) if ids[i] == start and ids[i + 1] == user)
        return ids, weights, border if lost else None

    while True:
        pool = [sample() for _ in range(384)]
        pool = sorted((p for p in pool if len(p[0]) <= 1100), key=lambda p: len(p[0]))
        groups, group = [], []
        for one in pool:
            if group and (len(group) + 1) * len(one[0]) > budget:
                groups.append(group)
                group = []
            group.append(one)
        groups.append(group)
        rng.shuffle(groups)
        for group in groups:
            length = max(len(ids) for ids, _, _ in group)
            length += -length % 16
            ids = torch.zeros(len(group), length, dtype=torch.long)
            weights = torch.zeros(len(group), length)
            reset = torch.zeros(len(group), length, dtype=torch.bool)
            for i, (tokens, w, border) in enumerate(group):
                ids[i, : len(tokens)] = torch.tensor(tokens)
                weights[i, : len(tokens)] = torch.tensor(w)
                if border is not None:
                    reset[i, border] = True
            yield ids, weights, reset


def prefetch(source: Iterator[Batch], depth: int = 4) -> Iterator[Batch]:
    """Make batches in another thread."""
    box: queue.Queue[Batch] = queue.Queue(depth)

    def work() -> None:
        for item in source:
            box.put(item)

    threading.Thread(target=work, daemon=True).start()
    while True:
        yield box.get()


def make_optimizers(model: torch.nn.Module) -> list[torch.optim.Optimizer]:
    """Muon for the large matrices (it learns this task in about half the tokens), AdamW for all else."""
    large = [p for n, p in model.named_parameters() if p.dim() == 2 and min(p.shape) >= 64 and "embed" not in n]
    chosen = {id(p) for p in large}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    return [
        torch.optim.Muon(
            [{"params": large, "initial_lr": 2 * BASE_LR}],
            lr=2 * BASE_LR,
            weight_decay=0.05,
            momentum=0.95,
            adjust_lr_fn="match_rms_adamw",
        ),
        torch.optim.AdamW(
            [{"params": rest, "initial_lr": BASE_LR}], lr=BASE_LR, betas=(0.9, 0.95), weight_decay=0.0, fused=True
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path.home() / ".cache" / "ninfer-demo")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--anneal", action="store_true")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=2048, help="padded tokens per step and worker")
    parser.add_argument("--lost", type=float, default=0.2, help="share of recall questions asked with a cleared state")
    parser.add_argument(
        "--recall", type=float, default=0.0, help="share of samples that must end by asking for one fact"
    )
    parser.add_argument("--thinking", type=float, default=0.1, help="share of samples with reasoning")
    parser.add_argument("--history", type=float, default=0.4, help="weight of earlier replies in the loss")
    parser.add_argument(
        "--turns", type=int, default=0, help="at most so many turns (0: the generator's own mix of 1 to 8)"
    )
    parser.add_argument("--steps", type=int, default=10**9, help="stop after so many steps of this run")
    parser.add_argument("--go-on", action="store_true", help="without a checkpoint, start from the packaged weights")
    parser.add_argument("--nice", type=int, default=19)
    args = parser.parse_args()
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    os.setpriority(os.PRIO_PROCESS, 0, args.nice)
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // world))
    args.work.mkdir(parents=True, exist_ok=True)
    if world > 1:
        dist.init_process_group("gloo", rank=rank, world_size=world)
    last = args.work / checkpoint.NAME
    torch.manual_seed(1)
    tokenizer = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
    model = build().float().train()
    parameters = list(model.parameters())
    optimizers = make_optimizers(model)
    start = checkpoint.Progress()
    if last.exists():
        start = checkpoint.load(last, model, optimizers)
    elif args.go_on:
        checkpoint.load(MODEL_DIR / "model.safetensors", model)
    step, tokens, seconds = start
    log = (HERE / "train.log").open("a") if rank == 0 else None
    source = prefetch(batches(tokenizer, 1000 + 2 * step + rank, args.tokens, args))

    def save() -> None:
        checkpoint.save(last, model, optimizers, checkpoint.Progress(step, tokens, seconds + time.time() - begin))

    begin = mark = saved_at = time.time()
    first, mark_tokens, losses, ended = step, 0, [], False
    while not ended and step - first < args.steps:
        done = (time.time() - begin) / (args.minutes * 60)
        ids, weights, reset = next(source)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = forward(model, ids, reset)
            wanted = weights[:, 1:] > 0
            logits = model.lm_head(hidden[:, :-1][wanted])
        weight = weights[:, 1:][wanted]
        loss = (F.cross_entropy(logits.float(), ids[:, 1:][wanted], reduction="none") * weight).sum() / weight.sum()
        loss.backward()
        # One vector carries the gradients and what all workers must agree on: the loss, the tokens, the share of time.
        extra = torch.tensor([loss.item(), float(ids.numel()), done])
        vector = torch.cat([*(p.grad.flatten() for p in parameters), extra])
        if world > 1:
            dist.all_reduce(vector)
            vector /= world
        mean_loss, count, done = vector[-3:].tolist()
        ended = done >= 1.0
        vector = vector[:-3]
        vector *= min(1.0, 1.0 / (vector.norm().item() + 1e-6))
        at = 0
        for p in parameters:
            p.grad.copy_(vector[at : at + p.numel()].view_as(p))
            at += p.numel()
        scale = min(1.0, (step + 1) / args.warmup) * (max(0.0, 1.0 - done) if args.anneal else 1.0)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * scale * args.lr / BASE_LR
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step += 1
        tokens += round(count * world)
        mark_tokens += round(count * world)
        losses.append(mean_loss)
        if not math.isfinite(mean_loss):
            raise SystemExit(f"the loss is {mean_loss} at step {step}")
        if step % 20 == 0 and log:
            now = time.time()
            log.write(
                json.dumps(
                    {
                        "step": step,
                        "tokens": tokens,
                        "loss": round(sum(losses) / len(losses), 4),
                        "lr": round(args.lr * scale, 6),
                        "tok_s": round(mark_tokens / (now - mark)),
                        "seconds": round(seconds + now - begin),
                    }
                )
                + "\n"
            )
            log.flush()
            mark, mark_tokens, losses = now, 0, []
        if rank == 0 and time.time() - saved_at > 60:
            save()
            saved_at = time.time()
    if rank == 0:
        save()


if __name__ == "__main__":
    main()
