"""One transition driven to its end, with everything checked that must hold on the way and of its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ninfer_core.contract.plans import SequenceHandle
from ninfer_core.contract.results import Ending, ResourceResult
from ninfer_core.program.planning.plan import ResourcePlan
from ninfer_core.program.planning.target import Activation, Capture
from ninfer_core.program.program import Program
from ninfer_core.program.transactions.running import CopyError, Phase
from tests.program.choices import Choices

if TYPE_CHECKING:
    from tests.program.history import History


def drive_plan(history: History, plan: ResourcePlan, choices: Choices) -> SequenceHandle | ResourceResult:
    """Advance with decode rounds in between; sometimes cancel, sometimes let a copy fail."""
    program = history.program
    left = choices.pick(30)

    def fault(phase: Phase) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise CopyError("injected")

    program.fault = fault if choices.pick(4) == 0 else None
    cancel_after = choices.pick(6) if choices.pick(4) == 0 else -1
    before = {o: {c.ref for c in program.world.owners[o].checkpoints} for o in history._idle()}
    sources = plan.target.demand.source if isinstance(plan.target.demand, Activation) else None
    transaction = program.start(plan)
    assert not isinstance(transaction, ResourceResult), transaction
    steps = rounds = 0
    while (done := program.advance(transaction, plan)) is None:
        over = program.world.used().excess(program.world.geometry.capacity)
        assert not over, f"stage {transaction.phase} exceeds the capacity by {over}"
        if steps == cancel_after:
            transaction.cancel()
        if choices.pick(3) == 0 and not any(program.sequence(h).armed for h in history.expected):
            rounds += 1
            history.execute(
                choices, plan.target.demand.owner if isinstance(plan.target.demand, Capture) else None, False
            )
        steps += 1
    result = transaction.result
    assert result is not None
    for owner_id, summary in result.owners.items():
        now = {c.ref for c in summary.checkpoints}
        if owner_id in before:
            assert now == before[owner_id] - summary.deleted, "the deletion set is not exact (TXN-9)"
        owner = program.world.owners.get(owner_id)
        assert now == ({c.ref for c in owner.checkpoints} if owner else set())
    if result.ending is Ending.COMMITTED and not rounds:
        check_end(program, plan)
    for shrink in plan.projection.shrinks if result.ending is Ending.COMMITTED else ():
        history.count("extent shrunk")
        assert shrink.extent not in program.world.extents, "what was replaced is still there"
    if result.ending is Ending.ABORTED:
        assert result.reason in ("injected", "cancelled"), "the plan was not what could be done"
        history.count(f"aborted in {transaction.aborted_in.value}: {result.reason}")
        if plan.projection.shrinks:
            history.count("shrinking aborted")
        if sources is not None:
            kept = program.world.owners[sources.owner]
            assert sources.checkpoint in kept.checkpoints, "an abort lost its source (TXN-10)"
    return done


def check_end(program: Program, plan: ResourcePlan) -> None:
    """The world is the projected one: what was to stay stays, and nothing is new but what the demand has taken."""
    projection, now = plan.projection, program.world.replicas
    assert not projection.final.without(now), "a replica that was to stay is gone"
    new, demand, use = now.without(projection.final), plan.target.demand, projection.source
    assert new.device_images.bit_count() == projection.demand.device_images
    assert new.host_images.bit_count() == projection.demand.host_images and not new.host_pages
    copied = 0 if use is None else sum(tail is not None for tail in use.copied)
    copied += sum(demand.tail_pages) if isinstance(demand, Capture) else 0
    assert new.device_pages.bit_count() == copied
    assert not program.world.held
