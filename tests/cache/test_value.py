"""Portfolio value by hand: prefill costs one nanosecond a token, a restore one nanosecond a byte."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from ninfer_core.cache import shelf as catalog_shelf
from ninfer_core.cache.catalog import CellId, Entry
from ninfer_core.cache.contents import Contents
from ninfer_core.cache.cost import CostModel, PrefillCost, TransferCost
from ninfer_core.cache.demand import Demand, DemandWindow
from ninfer_core.cache.paths import PathIndex
from ninfer_core.cache.retention import Retention
from ninfer_core.cache.value import Portfolio
from ninfer_core.contract.ids import CheckpointRef, Generation, ImageId, LogicalPage, OwnerId
from ninfer_core.contract.statistics import SourceKind
from ninfer_core.program.ledger.geometry import Geometry, Vector
from ninfer_core.program.ledger.objects import Checkpoint, Replicas

COST = CostModel(
    to_host=TransferCost(0.0, 0.0, 1.0),
    to_device=TransferCost(0.0, 0.0, 1.0),
    on_device=TransferCost(0.0, 0.0, 1.0),
    prefill_cost=PrefillCost(0.0, 1.0, 0.0),
)
GEOMETRY = Geometry.of(Vector(16, 16, (64,), 4096), (8,), (1,), 20)


@dataclass
class Shelf:
    """Owners are added one by one. A path is a string: one that begins with another lies below it."""

    paths: dict[CheckpointRef, str] = field(default_factory=dict)
    owners: list[tuple[Entry, tuple[Checkpoint, ...], bool]] = field(default_factory=list)
    demands: DemandWindow = field(default_factory=DemandWindow)
    host_images: int = 0

    def add(
        self, *points: tuple[str, int], shared: bool = False, **entry: object
    ) -> tuple[OwnerId, list[CheckpointRef]]:
        """An owner with checkpoints (path, frontier), each with a page of its own."""
        owner, made = OwnerId(len(self.owners)), []
        for path, frontier in points:
            number = len(self.paths)
            ref = CheckpointRef(number + 1)
            self.paths[ref] = path
            page = LogicalPage(number)
            made.append(Checkpoint(ref, SourceKind.LONG_ANCHOR, frontier, ImageId(number), ((page,),)))
        found = Entry(owner, CellId(owner), Generation(1), (), 0, 0, shared=shared, **entry)  # type: ignore[arg-type]
        self.owners.append((found, tuple(made)))
        return owner, [c.ref for c in made]

    def ask(self, *paths: str, domain: bytes = b"d") -> None:
        self.demands.record(Demand(domain, frozenset(path.encode() for path in paths)))

    @property
    def now(self) -> Replicas:
        everything = (1 << len(self.paths)) - 1
        return Replicas(everything ^ self.host_images, self.host_images, everything, 0)

    def portfolio(self) -> Portfolio:
        index = PathIndex(lambda a, b: self.paths[b].startswith(self.paths[a]))
        for ref in self.paths:
            index.add(ref)
        shelf = catalog_shelf.Shelf()
        for entry, checkpoints in self.owners:
            for checkpoint in checkpoints:
                shelf.add(checkpoint.ref, self.paths[checkpoint.ref].encode(), b"", entry.owner)
        entries = {entry.owner: entry for entry, _ in self.owners}
        held = {entry.owner: checkpoints for entry, checkpoints in self.owners}
        contents = Contents(entries.get, held.__getitem__, shelf, self.demands, 0, self.now)
        return Portfolio(GEOMETRY, COST, index, contents)

    def loss(self, owner: OwnerId, *dead: CheckpointRef, portfolio: Portfolio | None = None) -> float:
        portfolio = portfolio or self.portfolio()
        return portfolio.future_loss([owner], portfolio.end(dead, self.now), portfolio.base())


@pytest.mark.req("VAL-2", "DEF-11")
def test_saving_is_rebuild_less_the_cheapest_recovery() -> None:
    shelf = Shelf()
    _, (low, high) = shelf.add(("a", 100), ("ab", 300))
    portfolio = shelf.portfolio()
    alive = portfolio.end((), shelf.now)
    assert portfolio.saving(high, alive) == 300, "it lies on Device: nothing is left to do"
    assert portfolio.saving(high, portfolio.end((high,), shelf.now)) == 100, "from the survivor on its path, plus 200"
    assert portfolio.saving(high, portfolio.end((low, high), shelf.now)) == 0, "from root"
    shelf.host_images = 0b10
    portfolio = shelf.portfolio()
    assert portfolio.saving(high, portfolio.end((), shelf.now)) == 300 - 20, "its image of 20 bytes is restored"
    shelf.host_images = 0b11
    portfolio = shelf.portfolio()
    assert portfolio.saving(low, portfolio.end((), shelf.now)) == 100 - 20
    moved = Replicas(0, 0b11, 0, 0b11)
    assert portfolio.saving(low, portfolio.end((), moved)) == 100 - 28, "where the target leaves it: page and image"


@pytest.mark.req("VAL-2")
def test_a_recovery_dearer_than_root_saves_nothing() -> None:
    shelf = Shelf(host_images=1)
    _, (ref,) = shelf.add(("a", 15))
    portfolio = shelf.portfolio()
    assert portfolio.saving(ref, portfolio.end((), shelf.now)) == 0, "restoring costs 20, computing 15"


@pytest.mark.req("DEF-11")
def test_a_deleted_checkpoint_is_rebuilt_from_any_owners_survivor_on_the_same_path() -> None:
    shelf = Shelf()
    shelf.add(("sys", 200), shared=True)
    owner, (ref,) = shelf.add(("sys user", 250), retention=Retention.DISPOSABLE)
    other, (stranger,) = shelf.add(("other", 250), retention=Retention.DISPOSABLE)
    assert shelf.loss(owner, ref) == 50, "the shared prefix gives back 200 of 250"
    assert shelf.loss(other, stranger) == 250


@pytest.mark.req("VAL-3")
def test_nested_prefixes_count_once_for_one_demand() -> None:
    shelf = Shelf()
    _, (low,) = shelf.add(("a", 100), shared=True)
    _, (high,) = shelf.add(("ab", 300), shared=True)
    shelf.ask("a", "ab")
    portfolio = shelf.portfolio()
    base = portfolio.base()
    owners = (OwnerId(0), OwnerId(1))
    assert portfolio.future_loss(owners, portfolio.end((low,), shelf.now), base) == 0, "the deeper one serves it"
    assert portfolio.future_loss(owners, portfolio.end((high,), shelf.now), base) == 200, "100 is still saved"
    assert portfolio.future_loss(owners, portfolio.end((low, high), shelf.now), base) == 300, "not 400"


@pytest.mark.parametrize(
    ("retention", "weight"), [(Retention.DISPOSABLE, 1), (Retention.RECENT_PRIVATE, 4), (Retention.LIVE_SESSION, 16)]
)
@pytest.mark.req("VAL-4", "RET-1")
def test_private_retention_is_one_more_weighted_reuse_per_owner(retention: Retention, weight: int) -> None:
    shelf = Shelf()
    owner, (low, high) = shelf.add(("a", 100), ("ab", 300), retention=retention)
    assert shelf.loss(owner, low, high) == weight * 300, "the largest loss of the owner, not the sum"
    assert shelf.loss(owner, high) == weight * 200
    assert shelf.loss(owner, low) == weight * 100, "whoever returned to it would start from root"


@pytest.mark.req("VAL-5", "DEF-7")
def test_explicit_credit_counts_an_owners_largest_saving_once() -> None:
    shelf = Shelf()
    owner, refs = shelf.add(("a", 100), ("ab", 300), shared=True, credit_until=32)
    plain, other = shelf.add(("c", 300), shared=True)
    assert shelf.loss(owner, *refs) == 300
    assert shelf.loss(plain, *other) == 0, "no demand, no credit: a shared owner has no fixed multiplier"


@pytest.mark.req("VAL-6", "VAL-8", "DEF-13")
def test_what_the_source_disposition_removes_is_a_transfer_and_no_loss() -> None:
    shelf = Shelf()
    _, (endpoint,) = shelf.add(("ab", 300), retention=Retention.LIVE_SESSION)
    victim, (anchor,) = shelf.add(("a", 100), retention=Retention.DISPOSABLE)
    shelf.ask("ab")
    portfolio = shelf.portfolio()
    base = portfolio.base(frozenset({endpoint}))
    assert portfolio.future_loss((), portfolio.end((endpoint,), shelf.now), base) == 0
    end = portfolio.end((endpoint, anchor), shelf.now)
    assert portfolio.future_loss((victim,), end, base) == 100, "the victim's own loss, not the source's path"


@pytest.mark.req("VAL-9")
def test_an_endpoint_that_nothing_reproduces_carries_no_loss() -> None:
    shelf = Shelf()
    owner, (low, end) = shelf.add(("a", 100), ("ab", 300), retention=Retention.LIVE_SESSION)
    shelf.owners[0][0].unreachable = frozenset({end})
    assert shelf.loss(owner, end) == 0
    assert shelf.loss(owner, low, end) == 16 * 100, "the rest of the conversation is worth what it was"


@pytest.mark.req("VAL-7", "INV-16")
def test_a_new_shared_checkpoint_gains_what_no_present_one_serves() -> None:
    shelf = Shelf()
    shelf.add(("a", 100), shared=True)
    shelf.ask("a", "ab")
    shelf.ask("ab")
    shelf.ask("x")
    portfolio = shelf.portfolio()
    assert portfolio.public_gain(b"ab", 300, credit=False) == 200 + 300
    assert portfolio.public_gain(b"ab", 300, credit=True) == 200 + 300 + 300
    base = portfolio.base()
    lost = portfolio.signed_loss((OwnerId(0),), portfolio.end((CheckpointRef(1),), shelf.now), base)
    assert lost == 100, "NetGain subtracts the public value that the target gives up"


@pytest.mark.req("VAL-1", "DEF-6")
def test_the_window_remembers_the_last_32_demands_and_their_domains() -> None:
    window = DemandWindow()
    for number in range(40):
        window.record(Demand(b"%d" % (number % 3), frozenset({b"k%d" % number, b"common"})))
    assert len(list(window)) == 32 and window.epoch == 40
    assert window.domains(b"k7") == frozenset() and window.domains(b"k8") == {b"2"}
    assert window.domains(b"common") == {b"0", b"1", b"2"}, "distinct domains, however often they asked"


@pytest.mark.req("VAL-6")
def test_a_loss_of_which_only_the_limit_matters_is_never_reported_as_less_than_it() -> None:
    shelf = Shelf()
    owners = [shelf.add((name, 100), retention=Retention.DISPOSABLE) for name in "abcd"]
    portfolio = shelf.portfolio()
    end = portfolio.end([ref for _, refs in owners for ref in refs], shelf.now)
    everyone = [owner for owner, _ in owners]
    assert portfolio.future_loss(everyone, end, portfolio.base()) == 400
    assert 150 < portfolio.future_loss(everyone, end, portfolio.base(), limit=150) <= 400
