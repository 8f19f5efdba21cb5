"""One column of a comparison: what a run's lake shows of it. All of it is the same whatever ran it; what was measured
of the run itself stands apart (``Measured``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow.compute as pc

from causeway.audit.plain import plain_verdicts
from causeway.comparing.ingress import TakenIn, taken_in
from causeway.comparing.plan import Planned
from causeway.figures.figures import Figures
from causeway.figures.where import Where
from causeway.ledger.outcomes import OUTCOMES
from causeway.network.carriers import carrier_summary
from causeway.pipeline.lake import Lake
from causeway.pipeline.lake_taking import ledger_of
from causeway.pipeline.ledger_audit import audit_ledger
from causeway.pipeline.ledger_figures import figures_of, messages_of
from causeway.pipeline.ledger_store import Ledger
from causeway.proofs.work import HASHES, PROOF_BYTES
from causeway.protocols.registry import protocol
from causeway.protocols.semantics import CHECKS

MEASURES = {"delivery": "call to receipt", "round_trip": "call to answer"}
QUANTILES = ("p50", "p90", "p99", "max")
MOST_STEPS = 240
"""Steps that a distribution is shown by."""

REQUESTS = Where.of(kind="request")

Said = Callable[[str], None]
"""Is told what is being done."""


@dataclass(frozen=True)
class Measured:
    """What was measured of a run on this machine: another run, or another machine, gives other figures.

    ``seconds``: of running the ticks; ``processor_seconds``: of all cores and processes of the run's command, with its
    start; ``peak_memory_bytes``; ``hashes``: computed in rounds, by function. None where another process ran a part.
    """

    seconds: float | None = None
    processor_seconds: float | None = None
    peak_memory_bytes: int | None = None
    hashes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Column:
    """What one protocol made of the traffic.

    ``failed``: why there is nothing else, in a line; ``content``: the figures, as JSON has them; ``taken``: what it
    took in.
    """

    protocol: str
    failed: str | None = None
    content: Mapping[str, Any] = field(default_factory=dict)
    measured: Measured = field(default_factory=Measured)
    taken: TakenIn | None = None


def column(planned: Planned, place: str, ran: Mapping[str, Any], said: Said = lambda text: None) -> Column:
    """Return the column of a run. ``place``: its lake; ``ran``: what its command printed (``run --json``).

    Raises ``InvalidInput``, ``LakeError``, ``LedgerDamaged``.
    """
    said("messages of users")
    taken = taken_in(planned.protocol, place, planned.scenario.path)
    lake = Lake.at(place)
    manifest = lake.last_manifest()
    sent = ran["sent"]
    said("ledger")
    with ledger_of(place) as ledger:
        said("delays and backlog")
        figures = figures_of(ledger, where=REQUESTS)
        said("audit")
        audit = audit_ledger(ledger)
        fees = _fees(ledger, lake)
        distribution = _distribution(ledger)
    proof_bytes = manifest.work.get(PROOF_BYTES, 0)
    content = {
        "note": planned.note,
        "options": dict(planned.scenario.options),
        "chains": ran["chains"],
        "ingress": {name: getattr(taken, name) for name in INGRESS},
        "calls": {name: ran[name] for name in CALLS},
        "latency": _latency(figures),
        "distribution": distribution,
        "backlog": _backlog(figures),
        "messages": ran["messages"],
        "messages_a_call": _share(ran["messages"], sent),
        "proof_bytes": proof_bytes,
        "proof_bytes_a_call": _share(proof_bytes, sent),
        "headers": manifest.totals.get("headers", 0),
        "fees": fees,
        "heights": ran["heights"],
        "ticks": ran["ticks"],
        "at_rest": ran["finished"],
        "stalled": ran["stalled"],
        "audit": {"verdict": audit.verdict.value, "sentence": audit.sentence(), "checks": plain_verdicts(audit)},
        "root": ran["root"],
    }
    hashes = {name: manifest.work[name] for name in HASHES if name in manifest.work}
    measured = Measured(ran["seconds"], ran["processor_seconds"], ran["peak_memory_bytes"], hashes)
    return Column(planned.protocol, None, content, measured, taken)


CALLS = ("sent", "received", *(each.value for each in OUTCOMES), "duplicates", "out_of_order")
"""The counts of calls that are compared."""


INGRESS = ("received", "refused", "waiting")
"""The counts of messages from users that are compared."""


def _share(count: int, of: int) -> float | None:
    return round(count / of, 3) if of else None


def _latency(figures: Figures) -> dict[str, Any]:
    """Return quantiles of delays by measure and unit."""
    found: dict[str, Any] = {}
    for row in figures.latency.filter(pc.equal(figures.latency["scope"], "all")).to_pylist():
        if row["measure"] in MEASURES and row["unit"] in ("ticks", "seconds"):
            names = ("count", *QUANTILES)
            found.setdefault(row["measure"], {})[row["unit"]] = {name: row[name] for name in names}
    return found


def _distribution(ledger: Ledger) -> dict[str, list[list[int]]]:
    """Return, by measure, how many calls took how many ticks: [ticks, calls], ascending; at most ``MOST_STEPS``, of
    more each with those up to it."""
    counted = {name: Counter[int]() for name in MEASURES}
    for rows in messages_of(ledger, REQUESTS):
        for name, counts in counted.items():
            found = rows[f"{name}_ticks"].drop_null().value_counts()
            counts.update({row["values"]: row["counts"] for row in found.to_pylist()})
    return {name: _thinned(sorted(counts.items())) for name, counts in counted.items() if counts}


def _thinned(steps: Sequence[tuple[int, int]]) -> list[list[int]]:
    if len(steps) <= MOST_STEPS:
        return [[value, count] for value, count in steps]
    found: list[list[int]] = []
    for group in range(MOST_STEPS):
        part = steps[group * len(steps) // MOST_STEPS : (group + 1) * len(steps) // MOST_STEPS]
        found.append([part[-1][0], sum(count for _, count in part)])
    return found


def _backlog(figures: Figures) -> dict[str, Any]:
    """Return how many calls were in flight and without an answer at the end of each span of ticks."""
    rows = figures.backlog
    if not rows.num_rows or rows["axis"][0].as_py() != "tick":
        return {"at": [], "ticks": 0, "in_flight": [], "pending": [], "most": 0}
    pending = rows["pending"].to_pylist()
    return {
        "at": rows["tick"].to_pylist(),
        "ticks": rows["ticks"][0].as_py(),
        "in_flight": rows["in_flight"].to_pylist(),
        "pending": pending,
        "most": max(pending),
    }


def _fees(ledger: Ledger, lake: Lake) -> list[dict[str, Any]]:
    """Return what was paid for moving messages, by asset and reason; amounts are exact, in decimal digits."""
    paid: Counter[tuple[str, str]] = Counter()
    if ledger.files("value"):
        rows = figures_of(ledger).fees
        for row in rows.filter(pc.equal(rows["is_fee"], True)).to_pylist():
            paid[row["asset"], row["why"]] += int(row["amount"])
    for fee in carrier_summary(lake, lake.last_manifest()).fees:
        paid[fee.asset, fee.why] += fee.amount
    return [{"asset": asset, "why": why, "amount": str(amount)} for (asset, why), amount in sorted(paid.items())]


def guarantees_of(planned: Planned) -> list[dict[str, str | None]]:
    """Return what a protocol guarantees under the options of its column, and which check of the audit judges it."""
    info = protocol(planned.protocol)
    options = info.load_options().model_validate(planned.scenario.options)
    return [
        {
            "topic": one.topic,
            "holds": one.holds,
            "how": one.how,
            "reference": one.reference,
            "check": CHECKS.get(one.topic),
        }
        for one in info.load_semantics().guarantees(options)
    ]


__all__ = ["CALLS", "INGRESS", "MEASURES", "QUANTILES", "Column", "Measured", "column", "guarantees_of"]
