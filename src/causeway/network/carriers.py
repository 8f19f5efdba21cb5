"""What carriers of messages did in a lake, and what they left: for protocols in which chains do not carry them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from causeway.pipeline.lake import Lake, Manifest


@dataclass(frozen=True)
class Fee:
    """What carriers paid in all for one reason, in whole units of an asset."""

    asset: str
    why: str
    amount: int


@dataclass(frozen=True)
class CarrierSummary:
    """What is reported about carriers after a run.

    ``content``: what ``--json`` prints of them; ``lines``: what a person reads; ``fees``: what they paid that is no
    movement of value in the ledger. All are empty where the protocol has no carriers, or where they did nothing and
    left nothing.
    """

    content: Mapping[str, Any] = field(default_factory=dict)
    lines: Sequence[str] = ()
    fees: Sequence[Fee] = ()


Carriers: TypeAlias = "Callable[[Lake, Manifest], CarrierSummary]"
"""Sums up the carriers of one protocol at the last height of a commit. The registry names it."""


def carrier_summary(lake: Lake, manifest: Manifest) -> CarrierSummary:
    """Return what is reported about the carriers of a lake at the last height of a commit, without Spark."""
    from causeway.protocols.registry import protocol

    sum_up: Carriers | None = protocol(lake.about()["protocol"]).part("carriers")
    return CarrierSummary() if sum_up is None else sum_up(lake, manifest)
