"""Compare runs of the same traffic, one column a protocol.

A column has outcomes, delays, backlog, fees and guarantees from the lake of a run; they do not depend on the machine.
Measurements of the run itself are separate (``RunMeasurements``).

All columns must ingest the same messages of users. To verify that, a digest is computed for every committed tick: from
the traffic files in the lake, compared with the messages that the chains logged.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import DIGEST_BYTES, HashFunction, digest_values
from causeway_proofs.work import HASHES, PROOF_BYTES

from causeway.analysis.figures.figures import LedgerFigures
from causeway.analysis.figures.filters import MessageFilter
from causeway.analysis.stored_figures import compute_figures, read_messages
from causeway.audit.json_output import verdicts_to_json
from causeway.audit.stored import audit_ledger
from causeway.compare.runs import PlannedRun
from causeway.core.text import format_value
from causeway.core.vocabulary import Event, Kind, Via
from causeway.ledger.lake.ingest import open_or_derive_ledger
from causeway.ledger.outcomes import OUTCOMES
from causeway.ledger.store import Ledger
from causeway.network.replay import recorded_deployment
from causeway.network.run_records import carrier_summary
from causeway.programs.user_modules import NOWHERE, ModuleSources
from causeway.protocols.registry import find_protocol
from causeway.protocols.shared.semantics import CHECKS, TOPICS
from causeway.storage.lake import Lake
from causeway.storage.reorgs import find_reverted
from causeway.tick.deployment import Deployment

__all__ = [
    "CALLS",
    "INGRESS",
    "MEASURES",
    "QUANTILES",
    "ComparisonColumn",
    "IngressDiffers",
    "IngressDigest",
    "RunMeasurements",
    "build_column",
    "describe_difference",
    "digest_ingress",
    "protocol_guarantees",
]

_NUMBERS = ("receiver", "sender")
_TEXTS = ("chain", "method", "payload")
_SHOWN_BYTES = 24


class IngressDiffers(InvalidInput):
    """A run ingested other user messages than its traffic has."""


@dataclass(frozen=True)
class IngressDigest:
    """The user messages that a run ingested.

    ``digest``: hexadecimal digest of all. ``received``, ``refused``, ``waiting``: number received by programs, refused
    by
    chains, and pending for a block. ``ticks``: count and digest by tick. ``lake``: source of the digest. ``scenario``:
    the
    scenario file.
    """

    protocol: str
    digest: str
    received: int
    refused: int
    waiting: int
    ticks: Mapping[int, tuple[int, bytes]]
    lake: str
    scenario: str | None = None

    @property
    def count(self) -> int:
        """Return the number of messages."""
        return self.received + self.refused + self.waiting


def digest_ingress(protocol: str, place: str, scenario: str | None = None) -> IngressDigest:
    """Compute the digest of the user messages in a lake.

    Args:
        protocol: name of the protocol, for errors.
        place: folder or URI of the lake.
        scenario: the scenario file, beside the modules of its programs.

    Returns:
        The digest.

    Raises:
        IngressDiffers: the chains logged other messages than the traffic has.
        InvalidInput: the lake has no usable scenario.
    """
    lake = Lake.at(place)
    deployment = recorded_deployment(lake, lake.about(), _sources(scenario), unsigned=True)
    ticks: dict[int, tuple[int, bytes]] = {}
    given: Counter[tuple[int, int]] = Counter()
    for tick, rows in _read_user_messages(lake, deployment):
        ticks[tick] = rows.num_rows, hashlib.sha256(_digests(rows).tobytes()).digest()
        given.update(_pairs(rows))
    counts = _require_logged(protocol, lake, given)
    whole = hashlib.sha256()
    for tick, (count, digest) in sorted(ticks.items()):
        whole.update(b"%d/%d/" % (tick, count) + digest)
    return IngressDigest(protocol, whole.hexdigest(), *counts, ticks, place, scenario)


def _read_user_messages(lake: Lake, deployment: Deployment) -> Any:
    """Yield the ticks with user messages, ascending, with the messages by chain name."""
    names = pa.array(deployment.kernel.chains(), pa.string())
    order = np.argsort(deployment.numbers)
    numbers = deployment.numbers[order]
    everywhere = np.arange(len(numbers), dtype=np.uint32)
    number = 1
    last = lake.last_manifest().number
    while number <= last:
        manifest = lake.numbered(number)
        for line in manifest.lines:
            rows = deployment.ingress(line.tick, lake.outside(manifest.at(line.height)), everywhere)
            if rows.num_rows:
                at = order[np.searchsorted(numbers, rows["chain"].to_numpy())]
                named = rows.set_column(0, "chain", names.take(pa.array(at)))
                # The order matters within a chain, not between chains.
                by_chain = np.argsort(np.asarray(named["chain"].to_pylist()), kind="stable")
                yield line.tick, named.take(pa.array(by_chain)).combine_chunks()
        number += 1


def _digests(rows: pa.Table) -> Any:
    """Return the digest of each message (sender, receiver, method, content), shape (n, 32)."""
    columns: dict[str, pa.Array] = {name: rows[name].combine_chunks() for name in rows.column_names}
    fixed = np.empty((rows.num_rows, len(_NUMBERS) + len(_TEXTS)), dtype="<u8")
    texts = [columns[name].cast(pa.large_binary()) for name in _TEXTS]
    for place, name in enumerate(_NUMBERS):
        fixed[:, place] = columns[name].to_numpy()
    for place, text in enumerate(texts, len(_NUMBERS)):
        fixed[:, place] = pc.binary_length(text).to_numpy(zero_copy_only=False)
    head = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(fixed.shape[1] * fixed.itemsize), len(fixed), [None, pa.py_buffer(np.ascontiguousarray(fixed))]
    )
    joined = pc.binary_join_element_wise(head.cast(pa.large_binary()), *texts, pa.scalar(b"", pa.large_binary()))
    return digest_values(HashFunction.SHA256, joined).reshape(-1, DIGEST_BYTES)


def _pairs(rows: pa.Table) -> dict[tuple[int, int], int]:
    counted = rows.group_by(list(_NUMBERS)).aggregate([([], "count_all")])
    pairs = zip(*(counted[name].to_pylist() for name in _NUMBERS), strict=True)
    return dict(zip(pairs, counted["count_all"].to_pylist(), strict=True))


def _require_logged(protocol: str, lake: Lake, given: Mapping[tuple[int, int], int]) -> tuple[int, int, int]:
    """Return the number of received, refused and pending user messages.

    Raises:
        IngressDiffers: the log differs from the given messages, by user and program.
    """
    received: Counter[tuple[int, int]] = Counter()
    refused: Counter[tuple[int, int]] = Counter()
    columns = ["height", "chain", "events", "kind", "via", *_NUMBERS]
    undone = find_reverted(lake, lake.last_manifest())
    for path, seal in lake.log_files("events").items():
        rows = lake.sealed_table(path, seal, columns)
        if undone is not None:
            rows = rows.filter(pa.array(~undone.hits(rows, "chain")))
        users = pc.and_(pc.equal(rows["kind"], int(Kind.INGRESS)), pc.equal(rows["via"], int(Via.INGRESS)))
        rows = rows.filter(users)
        bits = rows["events"].to_numpy()
        came = bits & np.uint16(Event.RECEIVED) > 0
        received.update(_pairs(rows.filter(pa.array(came))))
        refused.update(_pairs(rows.filter(pa.array(~came & (bits & np.uint16(Event.REJECTED) > 0)))))
    waiting = _pending_ingress(lake)
    for pair in sorted({*given, *received, *refused, *waiting}):
        counts = received[pair], refused[pair], waiting[pair]
        if sum(counts) != given.get(pair, 0):
            receiver, sender = pair
            raise IngressDiffers(
                f"ingress: {protocol}: its chains were given {given.get(pair, 0)} messages of user {sender} to program "
                f"{receiver}, and logged that they received {counts[0]} and refused {counts[1]}; {counts[2]} wait"
            )
    return received.total(), refused.total(), waiting.total()


def _pending_ingress(lake: Lake) -> Counter[tuple[int, int]]:
    """Count the user messages pending at the last height, by program and user."""
    found: Counter[tuple[int, int]] = Counter()
    table = find_protocol(lake.about()["protocol"]).pool
    if table is not None:
        for rows in lake.state(lake.last_manifest(), table, list(_NUMBERS)):
            found.update(_pairs(rows))
    return found


def describe_difference(one: IngressDigest, other: IngressDigest) -> str | None:
    """Describe the first message in which two runs differ; None if they ingested the same.

    Args:
        one: the first run.
        other: the other run.

    Returns:
        One line, or None.
    """
    return None if one.digest == other.digest else f"ingress: {_first_difference(one, other)}"


def _first_difference(one: IngressDigest, other: IngressDigest) -> str:
    """Describe the first message that is not in both runs."""
    nothing = 0, b""
    tick = min(
        tick for tick in {*one.ticks, *other.ticks} if one.ticks.get(tick, nothing) != other.ticks.get(tick, nothing)
    )
    mine, theirs = (_rows_of(side, tick) for side in (one, other))
    for place in range(max(len(mine), len(theirs))):
        found = [side[place] if place < len(side) else None for side in (mine, theirs)]
        if found[0] != found[1]:
            says = [
                f"{side.protocol} {'took in nothing more' if row is None else 'took in ' + _describe(row)}"
                for side, row in zip((one, other), found, strict=True)
            ]
            return f"tick {tick}, message {place + 1}: {says[0]}; {says[1]}"
    return f"tick {tick}: {one.protocol} and {other.protocol} took in different messages"


def _sources(scenario: str | None) -> ModuleSources:
    return NOWHERE if scenario is None else ModuleSources.for_run(scenario)


def _rows_of(side: IngressDigest, tick: int) -> list[dict[str, Any]]:
    lake = Lake.at(side.lake)
    deployment = recorded_deployment(lake, lake.about(), _sources(side.scenario), unsigned=True)
    for at, rows in _read_user_messages(lake, deployment):
        if at == tick:
            found: list[dict[str, Any]] = rows.to_pylist()
            return found
    return []


def _describe(row: Mapping[str, Any]) -> str:
    payload = row["payload"]
    more = "..." if len(payload) > _SHOWN_BYTES else ""
    content = f"{len(payload)} bytes {payload[:_SHOWN_BYTES].hex()}{more}"
    method, sender = format_value(row["method"]), row["sender"]
    return f"{method} of user {sender} to program {row['receiver']} on {row['chain']} ({content})"


MEASURES = {"delivery": "call to receipt", "round_trip": "call to answer"}
QUANTILES = ("p50", "p90", "p99", "max")
MAX_STEPS = 240
"""Maximum number of steps of a distribution."""

REQUESTS = MessageFilter.of(kind="request")

ColumnReport = Callable[[str], None]
"""Receives the name of the current step."""


@dataclass(frozen=True)
class RunMeasurements:
    """Measurements of a run on this machine; they vary between runs.

    ``seconds``: of running the ticks. ``processor_seconds``: of all cores and processes of the command, start included.
    ``peak_memory_bytes``. ``hashes``: number computed in rounds, by function. None if another process ran a part.
    """

    seconds: float | None = None
    processor_seconds: float | None = None
    peak_memory_bytes: int | None = None
    hashes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ComparisonColumn:
    """The result of one protocol.

    ``failed``: reason of a failure, in one line; then there is nothing else. ``content``: the figures as JSON.
    ``taken``: the ingress digest.
    """

    protocol: str
    failed: str | None = None
    content: Mapping[str, Any] = field(default_factory=dict)
    measured: RunMeasurements = field(default_factory=RunMeasurements)
    taken: IngressDigest | None = None


def build_column(
    planned: PlannedRun, place: str, ran: Mapping[str, Any], report: ColumnReport = lambda text: None
) -> ComparisonColumn:
    """Build the column of a run.

    Args:
        planned: the run.
        place: its lake.
        ran: the output of its command (``run --json``).
        report: receives the name of the current step.

    Returns:
        The column.

    Raises:
        InvalidInput: the user messages differ.
        LakeError: nothing is committed.
        LedgerDamaged: a file is corrupted.
    """
    report("messages of users")
    ingress = digest_ingress(planned.protocol, place, planned.scenario.path)
    lake = Lake.at(place)
    manifest = lake.last_manifest()
    sent = ran["sent"]
    report("ledger")
    with open_or_derive_ledger(place) as ledger:
        report("delays and backlog")
        figures = compute_figures(ledger, where=REQUESTS)
        report("audit")
        audit = audit_ledger(ledger)
        fees = _fees(ledger, lake)
        distribution = _distribution(ledger)
    proof_bytes = manifest.work.get(PROOF_BYTES, 0)
    content = {
        "note": planned.note,
        "options": dict(planned.scenario.options),
        "chains": ran["chains"],
        "ingress": {name: getattr(ingress, name) for name in INGRESS},
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
        "audit": {"verdict": audit.verdict.value, "sentence": audit.sentence(), "checks": verdicts_to_json(audit)},
        "root": ran["root"],
    }
    hashes = {name: manifest.work[name] for name in HASHES if name in manifest.work}
    measured = RunMeasurements(ran["seconds"], ran["processor_seconds"], ran["peak_memory_bytes"], hashes)
    return ComparisonColumn(planned.protocol, None, content, measured, ingress)


CALLS = ("sent", "received", *(each.value for each in OUTCOMES), "duplicates", "out_of_order")
"""Compared counts of calls."""


INGRESS = ("received", "refused", "waiting")
"""Compared counts of user messages."""


def _share(count: int, of: int) -> float | None:
    return round(count / of, 3) if of else None


def _latency(figures: LedgerFigures) -> dict[str, Any]:
    """Return the quantiles of delays by measure and unit."""
    found: dict[str, Any] = {}
    for row in figures.latency.filter(pc.equal(figures.latency["scope"], "all")).to_pylist():
        if row["measure"] in MEASURES and row["unit"] in ("ticks", "seconds"):
            names = ("count", *QUANTILES)
            found.setdefault(row["measure"], {})[row["unit"]] = {name: row[name] for name in names}
    return found


def _distribution(ledger: Ledger) -> dict[str, list[list[int]]]:
    """Return [ticks, calls] by measure, ascending, in at most ``MAX_STEPS`` steps.

    A step of a shortened distribution includes all delays up to it.
    """
    counted = {name: Counter[int]() for name in MEASURES}
    for rows in read_messages(ledger, REQUESTS):
        for name, counts in counted.items():
            found = rows[f"{name}_ticks"].drop_null().value_counts()
            counts.update({row["values"]: row["counts"] for row in found.to_pylist()})
    return {name: _thin(sorted(counts.items())) for name, counts in counted.items() if counts}


def _thin(steps: Sequence[tuple[int, int]]) -> list[list[int]]:
    if len(steps) <= MAX_STEPS:
        return [[value, count] for value, count in steps]
    found: list[list[int]] = []
    for group in range(MAX_STEPS):
        part = steps[group * len(steps) // MAX_STEPS : (group + 1) * len(steps) // MAX_STEPS]
        found.append([part[-1][0], sum(count for _, count in part)])
    return found


def _backlog(figures: LedgerFigures) -> dict[str, Any]:
    """Return the calls in flight and the unanswered calls at the end of each span of ticks."""
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
    """Return the fees of messages by asset and reason, as exact decimal digits."""
    paid: Counter[tuple[str, str]] = Counter()
    if ledger.files("value"):
        rows = compute_figures(ledger).fees
        for row in rows.filter(pc.equal(rows["is_fee"], True)).to_pylist():
            paid[row["asset"], row["why"]] += int(row["amount"])
    for fee in carrier_summary(lake, lake.last_manifest()).fees:
        paid[fee.asset, fee.why] += fee.amount
    return [{"asset": asset, "why": why, "amount": str(amount)} for (asset, why), amount in sorted(paid.items())]


def protocol_guarantees(planned: PlannedRun) -> list[dict[str, str | None]]:
    """Return the guarantees of a protocol under its options, each with its audit check.

    Args:
        planned: the run.

    Returns:
        One object a guarantee.
    """
    info = find_protocol(planned.protocol)
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


@dataclass(frozen=True)
class Comparison:
    """The columns of one scenario.

    ``guarantees``: by protocol (``protocol_guarantees``). ``faults``: as of ``try_faults``, None if not tried.
    ``tried``:
    the scenario of the trials. ``seconds_per_tick``: common to all columns.
    """

    scenario: str
    seconds_per_tick: float
    columns: Sequence[ComparisonColumn]
    guarantees: Mapping[str, Sequence[Mapping[str, str | None]]]
    faults: Mapping[str, Any] | None = None
    tried: str | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Return True if every column and trial ran, and no column violates its guarantees."""
        tried = (
            [] if self.faults is None else [one for found in self.faults["found"].values() for one in found.values()]
        )
        return not any(one.get("internal_error") for one in tried) and all(
            column.failed is None and column.content["audit"]["verdict"] != "FAILED" for column in self.columns
        )

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as JSON; only ``measured`` depends on the machine."""
        ingress = next((column.taken for column in self.columns if column.taken is not None), None)
        ticks = sorted(ingress.ticks) if ingress is not None else []
        return {
            "scenario": self.scenario,
            "seconds_per_tick": self.seconds_per_tick,
            "protocols": [column.protocol for column in self.columns],
            "traffic": {
                "messages": 0 if ingress is None else ingress.count,
                "digest": None if ingress is None else ingress.digest,
                "first_tick": ticks[0] if ticks else None,
                "last_tick": ticks[-1] if ticks else None,
            },
            "columns": {column.protocol: {"failed": column.failed, **column.content} for column in self.columns},
            "topics": dict(TOPICS),
            "guarantees": {name: [dict(one) for one in rows] for name, rows in self.guarantees.items()},
            "faults": None if self.faults is None else {**self.faults, "scenario": self.tried},
            "holds": self.holds,
            "measured": {
                "machine": dict(self.about),
                "columns": {column.protocol: asdict(column.measured) for column in self.columns},
            },
        }


def same_ingress(columns: Sequence[ComparisonColumn]) -> list[ComparisonColumn]:
    """Mark columns as failed that ingested other user messages than the first one.

    Args:
        columns: the columns.

    Returns:
        The columns.
    """
    first = next((column.taken for column in columns if column.taken is not None), None)
    found = []
    for column in columns:
        reason = None if first is None or column.taken is None else describe_difference(first, column.taken)
        found.append(column if reason is None else ComparisonColumn(column.protocol, reason))
    return found
