"""Time of one assessment: 64 owners on 32,768 pages, successors that differ from the one before in at most two owners.

    python -m tests.benchmarks.assess [--rounds N]

Demanded, in processor time (a busy neighbour left out): a median of at most 150 microseconds where no Host extent is
allocated, and at most 1 ms at p99 where one is.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence

from ninfer_core.contract.ids import PAGE_SIZE, CheckpointRef, ImageId, LogicalPage, OwnerId
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.program.ledger.arena import Arena
from ninfer_core.program.ledger.bits import mask_of
from ninfer_core.program.ledger.geometry import Geometry, Vector
from ninfer_core.program.ledger.objects import Checkpoint, Extent, Owner, Replicas, Role
from ninfer_core.program.ledger.world import World
from ninfer_core.program.planning.assessment import AssessmentSession
from ninfer_core.program.planning.outcome import Outcome, Step, identity, successors
from ninfer_core.program.planning.target import Activation, Source, SourceMode, Target
from tests.benchmarks.demands import Demand, judged, parser, percentile

OWNERS, PAGES, HOST_PAGES, PAGE_BYTES, DEPTH = 64, 32_768, 8_192, 1 << 16, 3
"""Pages are all Device's; each owner has DEPTH checkpoints and its share of the pages, half of it on Host too."""

MEDIAN_US, P99_US = 150, 1000


def make_world(seed: int = 1) -> World:
    """A full Device; logical pages in shuffled runs of eight, as after a long history; some owners partly on Host."""
    rng = random.Random(seed)
    images = OWNERS * DEPTH
    capacity = Vector(images + 8, images, (PAGES,), HOST_PAGES * PAGE_BYTES)
    geometry = Geometry.of(capacity, (PAGE_BYTES,), (12,), 1 << 20)
    runs = [range(at, at + 8) for at in range(0, PAGES, 8)]
    rng.shuffle(runs)
    share = PAGES // OWNERS
    ids = [LogicalPage(page) for run in runs for page in run]
    arena, extents, owners, device, host = Arena.empty(capacity.host_bytes), [], {}, (1 << PAGES) - 1, 0
    for number in range(OWNERS):
        pages = tuple(ids[number * share : (number + 1) * share])
        checkpoints = []
        for depth in range(1, DEPTH + 1):
            held = pages[: share * depth // DEPTH]
            image = ImageId(number * DEPTH + depth - 1)
            ref = CheckpointRef(image + 1)
            checkpoints.append(Checkpoint(ref, SourceKind.LONG_ANCHOR, len(held) * PAGE_SIZE - 5, image, (held,)))
        if number % 4 == 0:
            moved = pages[: share // 2]
            placed = arena.allocate(len(moved) * PAGE_BYTES)
            assert placed is not None
            arena = placed[1]
            extents.append(Extent(0, placed[0], len(moved) * PAGE_BYTES, moved))
            host |= mask_of(moved)
            device &= ~mask_of(moved[: share // 4])
        owners[OwnerId(number)] = Owner(OwnerId(number), Role.PRIVATE, tuple(checkpoints))
    replicas = Replicas((1 << images) - 1, 0, device, host)
    empty = World.empty(geometry)
    return World(geometry, owners, replicas, tuple(extents), arena, empty.held, empty.revision)


def targets(world: World, host: bool, rounds: int, seed: int = 2) -> Iterator[Target]:
    """A walk down the graph: from target to target one or two owners change, among them ones that go back up."""
    rng = random.Random(seed)
    first = world.owners[OwnerId(0)]
    source = Source(first.id, first.checkpoints[1], SourceMode.CONSUME, first.checkpoints[:2])
    demand = Activation(source, (2_000,))
    pure = {Step.DROP_HOST_COPY, Step.DELETE_CHECKPOINT, Step.EVICT}
    outcomes: dict[OwnerId, Outcome] = {}
    for _ in range(rounds):
        for change in range(rng.randint(1, 2)):
            owner = world.owners[OwnerId(rng.randrange(1, OWNERS))]
            before = outcomes.get(owner.id) or identity(owner, world.replicas)
            steps = list(successors(before))
            if not host:
                steps = [s for s in steps if s.step in pure]
            elif change == 0:  # always something new to be placed
                steps = [s for s in successors(identity(owner, world.replicas)) if s.step is Step.DEMOTE_PAGES]
            if not steps or (rng.random() < 0.3 and (change or not host)) or len(outcomes) > 24:
                outcomes.pop(owner.id, None)
            else:
                outcomes[owner.id] = rng.choice(steps).outcome
        yield Target(demand, dict(outcomes))


def measure(host: bool, rounds: int) -> tuple[list[float], list[float]]:
    """Microseconds of each assessment, sorted: on the clock, and of processor time (a busy neighbour left out)."""
    world = make_world()
    session = AssessmentSession(lambda: world, lambda: "")
    wall, cpu, placed, feasible = [], [], 0, 0
    for target in targets(world, host, rounds):
        begin = time.perf_counter(), time.thread_time()
        assessment = session.assess(target)
        end = time.perf_counter(), time.thread_time()
        wall.append((end[0] - begin[0]) * 1e6)
        cpu.append((end[1] - begin[1]) * 1e6)
        placed += bool(assessment.projection.extents)
        feasible += assessment.projection.feasible
    assert placed > 0.9 * rounds if host else placed == 0, f"{placed} of {rounds} targets placed Host extents"
    print(f"  {feasible} of {rounds} feasible, {placed} with new Host extents")
    return sorted(wall), sorted(cpu)


def main(argv: Sequence[str] | None = None) -> int:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=4000)
    rounds, found = options.parse_args(argv).rounds, {}
    for host in (False, True):
        print("with Host allocation" if host else "without Host allocation")
        for name, times in zip(("wall", "cpu"), measure(host, rounds), strict=True):
            found[host, name] = median, p99 = statistics.median(times), percentile(times, 0.99)
            print(f"  {name:4}  median {median:.0f} us, p99 {p99:.0f} us, worst {times[-1]:.0f} us")
    return judged(
        [
            Demand("median without Host allocation", found[False, "cpu"][0], MEDIAN_US, " us"),
            Demand("p99 with Host allocation", found[True, "cpu"][1], P99_US, " us"),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
