"""CostModel: what work takes on this machine, in nanoseconds (context-cache COST-1 to COST-4).

It only orders what is feasible: it decides no capacity, no readiness and no loading.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from ninfer_core.program.planning.work import Copies, ImmediateWork, Prefill, Recipe

SATURATED_NS = 1e18
"""Thirty years. No price is larger, so that sums and differences of prices stay finite and comparable."""

_MOST_UNITS = 1 << 63
"""Larger counts saturate before they become floats."""


def _check(coefficients: Mapping[str, float]) -> None:
    for name, value in coefficients.items():
        if not (math.isfinite(value) and 0 <= value <= SATURATED_NS):
            raise ValueError(f"{name} is {value}: it must be finite and not negative")


def _units(count: int) -> float:
    return float(min(count, _MOST_UNITS))


def _bounded(ns: float) -> float:
    return min(ns, SATURATED_NS)


@dataclass(frozen=True, slots=True)
class TransferCost:
    """Coefficients of one direction (COST-2).

    Attributes:
        batch_ns: of a batch that is not empty.
        operation_ns: of one contiguous copy (DEF-9).
        ns_per_byte: of what is copied, when that takes longer than issuing it.

    Raises:
        ValueError: a coefficient is negative, not finite or beyond SATURATED_NS.
    """

    batch_ns: float
    operation_ns: float
    ns_per_byte: float

    def __post_init__(self) -> None:
        _check(asdict(self))

    def price(self, copies: Copies) -> float:
        """Nanoseconds of one batch of one phase and direction; 0 for an empty one."""
        if not copies.operations:
            return 0.0
        issuing = self.batch_ns + _units(copies.operations) * self.operation_ns
        return _bounded(max(issuing, _units(copies.bytes) * self.ns_per_byte))


@dataclass(frozen=True, slots=True)
class PrefillCost:
    """Coefficients of Text prefill (COST-3).

    Attributes:
        batch_ns: of a prefill that is not empty.
        token_ns: of one suffix token.
        pair_ns: of one attention pair.

    Raises:
        ValueError: as TransferCost.
    """

    batch_ns: float
    token_ns: float
    pair_ns: float

    def __post_init__(self) -> None:
        _check(asdict(self))

    def price(self, prefill: Prefill) -> float:
        """Nanoseconds of computing the suffix; 0 without one."""
        if prefill.suffix <= 0:
            return 0.0
        tokens, pairs = _units(prefill.suffix), _units(prefill.attention_pairs)
        return _bounded(self.batch_ns + tokens * self.token_ns + pairs * self.pair_ns)


@dataclass(frozen=True, slots=True)
class TransferCosts:
    """The three directions: into main memory, out of it, and between places on the device."""

    to_host: TransferCost
    to_device: TransferCost
    on_device: TransferCost


@dataclass(frozen=True, slots=True)
class Coefficients:
    """What was measured, by machine and by kind of model.

    Attributes:
        transfers: by hardware key.
        prefills: by hardware key, then by prefill signature.
    """

    transfers: Mapping[str, TransferCosts]
    prefills: Mapping[str, Mapping[str, PrefillCost]]


NOTHING_MEASURED = Coefficients({}, {})

GENERIC_TRANSFERS = TransferCosts(
    to_host=TransferCost(35_000.0, 4_200.0, 0.12),
    to_device=TransferCost(35_000.0, 4_200.0, 0.12),
    on_device=TransferCost(12_500.0, 6_300.0, 0.47),
)
"""Measured with `ninfer bench --calibrate` and the demo model on one thread of a busy two-core server CPU."""

GENERIC_PREFILL = PrefillCost(128_000_000.0, 3_500_000.0, 500.0)
"""Solved from README's measured rates of the 0.8B shape on two cores: 512 and 2,048 prompt tokens, and one token behind
512."""


@dataclass(frozen=True, slots=True)
class CostModel:
    """One immutable set of coefficients: a planning problem is priced with one model from start to end.

    Attributes:
        transfers_measured, prefill_measured: False where the generic coefficients stand in.
    """

    to_host: TransferCost = GENERIC_TRANSFERS.to_host
    to_device: TransferCost = GENERIC_TRANSFERS.to_device
    on_device: TransferCost = GENERIC_TRANSFERS.on_device
    prefill_cost: PrefillCost = GENERIC_PREFILL
    transfers_measured: bool = False
    prefill_measured: bool = False

    @classmethod
    def resolve(cls, hardware: str, signature: str, stored: Coefficients = NOTHING_MEASURED) -> CostModel:
        """Choose transfer coefficients by hardware, prefill coefficients by hardware and signature, each on its own;
        generic ones without a match (COST-4)."""
        transfers = stored.transfers.get(hardware)
        prefill = stored.prefills.get(hardware, {}).get(signature)
        chosen = transfers or GENERIC_TRANSFERS
        return cls(
            to_host=chosen.to_host,
            to_device=chosen.to_device,
            on_device=chosen.on_device,
            prefill_cost=prefill or GENERIC_PREFILL,
            transfers_measured=transfers is not None,
            prefill_measured=prefill is not None,
        )

    @property
    def source(self) -> str:
        """For people: where the coefficients come from."""
        words = {True: "measured", False: "generic"}
        return f"transfers {words[self.transfers_measured]}, prefill {words[self.prefill_measured]}"

    @staticmethod
    def transfer(cost: TransferCost, copies: Copies) -> float:
        """Nanoseconds of one batch, for instance `model.transfer(model.to_host, copies)`."""
        return cost.price(copies)

    def prefill(self, prefill: Prefill) -> float:
        """Nanoseconds of Text prefill."""
        return self.prefill_cost.price(prefill)

    def rebuild(self, frontier: int) -> float:
        """Nanoseconds of the canonical prefill from root up to a frontier (VAL-2)."""
        cost = self.prefill_cost
        pairs = frontier * (frontier + 1) / 2
        return min(cost.batch_ns + frontier * cost.token_ns + pairs * cost.pair_ns, SATURATED_NS) if frontier else 0.0

    def immediate(self, work: ImmediateWork) -> float:
        """Nanoseconds of what a target does now: its phases follow each other (COST-1)."""
        copies = (
            self.to_host.price(work.on_host),  # between places in main memory: no dearer than into it
            self.to_host.price(work.to_host),
            self.to_device.price(work.to_device),
            self.on_device.price(work.on_device),
        )
        return _bounded(sum(copies) + self.prefill(work.prefill))

    def recipe(self, recipe: Recipe) -> float:
        """Nanoseconds of one way to recover a checkpoint's state: restore, then prefill (VAL-2)."""
        return _bounded(self.to_device.price(recipe.restore) + self.prefill(recipe.prefill))
