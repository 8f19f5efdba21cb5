"""Violations planted in honest traffic, one kind each, at random positions, with expected findings.

``traffic``: tables in which something is planted. ``messages``, ``lanes``, ``causal``, ``value``, ``stated``: the
kinds. ``windows``: a part of the input that is taken away.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from tests.planting.causal import cycle, overtakes_lane
from tests.planting.lanes import (
    BEFORE,
    answered_twice,
    before,
    late,
    no_request,
    over_capacity,
    overtakes,
    skipped,
    unanswered,
)
from tests.planting.messages import (
    Kind,
    again,
    altered,
    amount,
    copied_early,
    early,
    forged_too,
    reused,
    timed_out_too,
    unsent,
)
from tests.planting.stated import fell, header, two_values
from tests.planting.traffic import Named, Planted, Traffic
from tests.planting.value import came_unsent, paid_beyond, paid_other_asset, paid_too, paid_unsent, payment_lost
from tests.support.properties.audit_ledgers import Case

KINDS: dict[str, Kind] = {
    **{f"{e}_again": again(e) for e in ("sent", "received", "executed", "answered", "acknowledged", "timed_out")},
    "received_unsent": unsent("received", "authenticity"),
    "acknowledged_unsent": unsent("acknowledged", "answers_without_request"),
    "altered": altered,
    "forged_too": forged_too,
    "reused": reused,
    **{f"{event}_overtakes": overtakes(event) for event in ("sent", "received", "acknowledged")},
    "skipped": skipped,
    **{f"{effect}_before_{cause}": before(cause, effect) for cause, effect in BEFORE},
    "early": early,
    "copied_early": copied_early,
    "unanswered": unanswered,
    "late": late,
    "answered_twice": answered_twice,
    "no_request": no_request,
    "timed_out_too": timed_out_too,
    "more": amount("more"),
    "less": amount("less"),
    "asset": amount("asset"),
    "paid_too": paid_too,
    "paid_beyond": paid_beyond,
    "payment_lost": payment_lost,
    "paid_other_asset": paid_other_asset,
    "paid_unsent": paid_unsent,
    "came_unsent": came_unsent,
    "over_capacity": over_capacity,
    "overtakes_lane": overtakes_lane,
    "cycle_of_2": cycle(2),
    "cycle_of_3": cycle(3),
    "watermark_fell": fell,
    "watermark_two_values": two_values,
    **{kind: header(kind) for kind in ("two_headers", "parent_differs", "time_fell")},
}
"""A function per kind that plants one violation, or returns None if the traffic has no position for it."""

__all__ = ["KINDS", "Named", "Planted", "Traffic", "plant", "plant_all"]


def plant(traffic: Traffic, kind: str, random: Random) -> Planted | None:
    """Plant one violation at a random position; None: there is no position for it."""
    planted = KINDS[kind](traffic, random)
    if planted:
        assert planted.kind == kind
        traffic.index()
    return planted


def plant_all(case: Case, random: Random, kinds: Iterable[str] = KINDS) -> list[tuple[Case, list[Planted]]]:
    """Plant one violation of each possible kind, in as few ledgers as possible."""
    left, made = sorted(kinds), []
    while left:
        traffic, done = Traffic(case), []
        for kind in random.sample(left, len(left)):
            planted = plant(traffic, kind, random)
            done += [planted] if planted else []
        if not done:
            break
        left = [kind for kind in left if kind not in {planted.kind for planted in done}]
        made.append((traffic.case(), done))
    return made
