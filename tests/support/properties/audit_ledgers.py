"""Ledgers to audit: rows as dicts, as tables, in buckets; by chance, and honest ones in which faults are planted."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pyarrow as pa

from causeway.audit.engine import AuditResult, audit_ledger_rows, latest_time
from causeway.ledger.row_order import (
    assign_header_buckets,
    assign_value_buckets,
    assign_watermark_buckets,
    message_buckets,
    sort_headers,
    sort_rows,
    sort_watermarks,
)
from causeway.ledger.schema import (
    HEADERS_SCHEMA,
    LEDGER_SCHEMA,
    LIMBS,
    OBSERVED_SCHEMA,
    PROMISES_SCHEMA,
    VALUE_SCHEMA,
    WATERMARKS_SCHEMA,
    LedgerEvent,
)
from tests.spec.audit.checks import CHECKS
from tests.spec.audit.ledger import Finding, Ledger, Row
from tests.spec.audit.value import abroad, sums

WORD = 2**64


def table(rows: Iterable[Row], schema: pa.Schema) -> pa.Table:
    """Rows as a table; ``amount`` becomes limbs, what a row does not say is null."""
    rows = [dict(row) for row in rows]
    for row in rows:
        amount = row.get("amount")
        if amount is not None:
            row |= {name: amount // WORD**limb % WORD for limb, name in enumerate(LIMBS)}
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        if pa.types.is_dictionary(field.type):
            columns.append(pa.array(values, pa.string()).dictionary_encode())
        elif pa.types.is_timestamp(field.type):
            columns.append(pa.array(values, pa.int64()).cast(field.type))
        else:
            columns.append(pa.array(values, field.type))
    return pa.table(columns, schema)


def dicts(rows: pa.Table, of: list[Row]) -> list[Row]:
    """Rows of a table as the oracle has them, in the table's order; ``source_row`` is their place in ``of``."""
    empty = dict.fromkeys([*LEDGER_SCHEMA.names, "amount"])
    return [{**empty, **of[row], "at": at} for at, row in enumerate(rows["source_row"].to_pylist())]


def content(number: int | None) -> bytes | None:
    return None if number is None else hashlib.sha256(bytes([number])).digest()


def stated(rows: Iterable[Row], schema: pa.Schema) -> list[Row]:
    """Rows with all columns of their table, and a number each."""
    empty = dict.fromkeys(schema.names)
    return [{**empty, **row, "source_row": number, "stated_by": "test"} for number, row in enumerate(rows)]


class Case:
    """A ledger as dicts: ``rows``, ``observed``, ``promises``, ``watermarks``, ``headers``, ``value``; ``source_row``
    is given here."""

    def __init__(
        self,
        rows: list[Row],
        observed: list[Row],
        promises: list[Row],
        watermarks: Iterable[Row] = (),
        headers: Iterable[Row] = (),
        value: Iterable[Row] = (),
    ) -> None:
        self.rows = stated(rows, LEDGER_SCHEMA)
        self.observed = [{**dict.fromkeys(OBSERVED_SCHEMA.names), "how": "declared", **row} for row in observed]
        self.promises = [{**dict.fromkeys(PROMISES_SCHEMA.names), **row} for row in promises]
        self.watermarks, self.headers = stated(watermarks, WATERMARKS_SCHEMA), stated(headers, HEADERS_SCHEMA)
        self.value = [{"amount": None, **row} for row in stated(value, VALUE_SCHEMA)]

    def oracle(self) -> Ledger:
        rows = dicts(sort_rows(table(self.rows, LEDGER_SCHEMA)), self.rows)
        headers = sort_headers(table(self.headers, HEADERS_SCHEMA))["source_row"].to_pylist()
        marks = sort_watermarks(table(self.watermarks, WATERMARKS_SCHEMA))["source_row"].to_pylist()
        in_order = [self.watermarks[row] for row in marks], [self.headers[row] for row in headers]
        return Ledger(rows, self.observed, self.promises, *in_order, self.value)

    def tables(self) -> tuple[pa.Table, pa.Table, pa.Table]:
        """Rows in the order of this list, windows and promises."""
        observed, promises = ([{**row, "stated_by": "test"} for row in own] for own in (self.observed, self.promises))
        rows = table(self.rows, LEDGER_SCHEMA)
        return rows, table(observed, OBSERVED_SCHEMA), table(promises, PROMISES_SCHEMA)

    def audit(self, buckets: int = 1, limit: int = 1000) -> AuditResult:
        """Audit the rows in so many buckets, a file (and record batch) each two rows long at least."""
        rows, observed, promises = self.tables()
        numbers = message_buckets(rows, buckets)
        readers: list[Callable[[], pa.Table]] = []
        for bucket in range(buckets):
            own = sort_rows(rows.filter(pa.array(numbers == bucket)))
            pieces = pa.Table.from_batches(own.to_batches(max_chunksize=3 + bucket), own.schema)
            readers.append(lambda pieces=pieces: pieces)  # type: ignore[misc]
        end = latest_time(rows["time"])
        return audit_ledger_rows(readers, observed, promises, limit, self.stated(buckets), self.movements(buckets), end)

    def movements(self, buckets: int) -> list[Callable[[], pa.Table]]:
        """Rows of value of so many buckets."""
        value = table(self.value, VALUE_SCHEMA)
        of_value = assign_value_buckets(value, buckets)
        own = [value.filter(pa.array(of_value == bucket)) for bucket in range(buckets)]
        return [lambda rows=rows: rows for rows in own]  # type: ignore[misc]

    def stated(self, buckets: int) -> list[Callable[[], tuple[pa.Table, pa.Table]]]:
        """Headers and watermarks of so many buckets."""
        headers, watermarks = table(self.headers, HEADERS_SCHEMA), table(self.watermarks, WATERMARKS_SCHEMA)
        of_headers, of_watermarks = (
            assign_header_buckets(headers, buckets),
            assign_watermark_buckets(watermarks, buckets),
        )

        def of(bucket: int) -> tuple[pa.Table, pa.Table]:
            own = headers.filter(pa.array(of_headers == bucket)), watermarks.filter(pa.array(of_watermarks == bucket))
            return sort_headers(own[0]), sort_watermarks(own[1])

        return [lambda bucket=bucket: of(bucket) for bucket in range(buckets)]  # type: ignore[misc]


def findings(found: AuditResult, check: str) -> list[Finding]:
    """What an audit names, as the oracle does."""
    rows = [row for row in found.violations.to_pylist() if row["check"] == check]
    names = ("protocol", "source", "destination", "lane")
    return sorted(
        (
            Finding(
                *(row["check"], row["verdict"], row["reason"], tuple(row[name] for name in names)),
                *(row["index"], row["source_row"], row["magnitude"]),
            )
            for row in rows
        ),
        key=repr,
    )


def compare(case: Case, found: AuditResult) -> None:
    """Compare an audit with the oracle: counts, findings and sums."""
    ledger = case.oracle()
    for name, check in CHECKS.items():
        examined, expected = check(ledger)
        expected = sorted((f._replace(magnitude=_float(f.magnitude)) for f in expected), key=repr)
        assert findings(found, name) == expected, name
        own = found.checks[name]
        assert own.examined == examined, name
        counts = [sum(f.verdict == verdict for f in expected) for verdict in ("violated", "unknown", "noted")]
        assert [own.violated, own.unknown, own.noted] == counts, name
    totals = {
        tuple(row[name] for name in ("protocol", "source", "destination", "lane", "asset")): tuple(
            int(row[name]) for name in ("sent", "received", "refunded", "pending", "fees")
        )
        for row in found.sums.to_pylist()
    }
    assert totals == sums(ledger)
    left_over = {key: a - b - fees - c - d for key, (a, b, c, d, fees) in totals.items()}
    assert left_over == {
        tuple(row[name] for name in ("protocol", "source", "destination", "lane", "asset")): int(row["difference"])
        for row in found.sums.to_pylist()
    }
    assert [
        (tuple(row[name] for name in ("chain", "other", "asset")), *(int(row[name]) for name in AWAY))
        for row in found.abroad.to_pylist()
    ] == [(key, *amounts) for key, amounts in sorted(abroad(ledger).items(), key=nulls_first)]


AWAY = ("left", "back", "difference")


def nulls_first(item: tuple[tuple[str | None, ...], Any]) -> list[tuple[bool, str]]:
    return [(name is not None, name or "") for name in item[0]]


def _float(number: float | None) -> float | None:
    return None if number is None else float(number)


INDICES = (0, 1, 2, 3, 5, 2**18 - 2, 2**18 - 1, 2**18, 2**18 + 1, 3 * 2**18, 2**64 - 1)
AMOUNTS = (0, 1, 7, 2**64 - 1, 2**128, 2**256 - 1, None)
PROMISES = (
    *("numbered", "ordered_sends", "ordered_receives", "ordered_acknowledgements"),
    *("answered", "final_after", "conserved", "capacity", "refund_messages"),
    *("received", "expected", "settled", "refunds_recorded", "may_drop"),
)


def by_chance(random: Random) -> Case:
    """A ledger of rows that have little to do with each other."""
    some = [event.value for event in LedgerEvent] + ["sent", "received", "sent", "received", "acknowledged"]
    lanes = [
        {"protocol": "p", "source": source, "destination": target, "lane": lane}
        for source, target, lane in (("a", "b", "x"), ("b", "a", None), ("a", None, "x"))
    ]
    busy = random.random() < 0.2  # many rows of one message
    timeouts = random.choice(((None,), (None, 2, 5), (3, 6)))
    how = random.choice(("declared", "declared", "inferred"))
    revisions = random.choice(((None,), (None,), (None,), (1,), (1, 1, 2), (None, 0, 1)))

    aside = Random(str(random.getstate()))
    continued = aside.choice(((None,), (None,), (None, None, "m", "o")))

    def row() -> Row:
        index = None if random.random() < 0.15 else random.choice(INDICES[:2] if busy else INDICES)
        event = random.choice(some)
        chain = random.choice(("a", "b", "a", "b", None))
        details = ("timeout", "sent", "received", "forged", "expired", "stopped it", None)
        return {
            **random.choice(lanes),
            "index": index,
            "message_id": random.choice(("m", "n", None)),
            "answers": random.choice(("m", "n", "o", None)),
            "continues": aside.choice(continued),
            "kind": random.choice(("request", "request", "response", "reject", "refund", "control")),
            "event": event,
            "chain": chain,
            "height": random.choice((None, 0, 1, 2, 3, 4, 5, 6)),
            "position": random.choice((None, 0, 1)),
            "time": random.choice((None, *range(8))),
            "payload_hash": content(random.choice((1, 1, 1, 2, None))),
            "asset": random.choice(("gold", "gold", "silver", None)),
            "amount": random.choice(AMOUNTS),
            "detail": random.choice(("sent", "received") if event == "reverted" else details),
            "code": random.choice((None, None, None, 0, 5)),
            "revision": random.choice(revisions),
            "transaction": random.choice(("t", "u", None)),
            "timeout_revision": random.choice(revisions),
            "timeout_height": random.choice(timeouts),
            "timeout_time": random.choice(timeouts),
        }

    def span(top: int) -> tuple[int | None, int | None]:
        if random.random() < 0.2:
            return None, None
        return random.randrange(top), random.randrange(top)

    observed = []
    for _ in range(random.randrange(5)):
        heights, times = span(8), span(9)
        own = random.choice(lanes) if random.random() < 0.3 else {}
        observed.append(
            {
                **own,
                "chain": random.choice(("a", "b")),
                "how": how,
                "events": random.choice((None, None, ["sent", "value"], ["received", "acknowledged"])),
                **{
                    "first_height": heights[0],
                    "last_height": heights[1],
                    "first_time": times[0],
                    "last_time": times[1],
                },
            }
        )
    promises = [
        {
            **(random.choice(lanes) if random.random() < 0.5 else {}),
            "promise": promise,
            "number": random.choice((None, 0, 1, 3)),
            "detail": random.choice(("timeout", "sent", None)) if promise == "may_drop" else None,
        }
        for promise in random.sample(PROMISES, random.randrange(len(PROMISES) + 1))
    ]
    for chain in ("a", "b", None):
        if random.random() < 0.15:
            promises.append({"source": chain, "promise": "clock_tolerance", "number": random.choice((None, 1, 2))})
        if chain is not None and random.random() < 0.1:
            promises.append({"source": chain, "promise": "restarted"})
    some_rows = [row() for _ in range(random.randrange(70))]
    stated_too = watermarks_by_chance(random, lanes), headers_by_chance(random)
    value = value_by_chance(random, lanes, some_rows)
    if random.random() < 0.5:
        promises.append({"promise": "causal"})
    return Case(some_rows, observed, promises, *stated_too, value)


def journeys_by_chance(random: Random) -> Case:
    """Messages that travel in order, of which some are lost. Some have copies that were received at another place, or
    rows that say that something was taken back, which the ledger need not have; windows end anywhere."""
    rows: list[Row] = []
    for target, lane in (("b", "x"), ("b", "y"), ("a", "x")):
        own: Row = {"protocol": "p", "source": "a", "destination": target, "lane": lane, "asset": "gold", "amount": 7}
        for index in range(random.randrange(1, 7)):
            sent = 2 * index + random.randrange(2)
            came = sent + random.choice((1, 2, 2, 3))
            happens = [("sent", "a", sent), ("received", target, came)][: random.choice((1, 2, 2, 2))]
            happens += [("received", target, sent + random.randrange(-2, 5)) for _ in range(random.choice(HOW_OFTEN))]
            happens += [("timed_out", "a", came + 2)] * (random.random() < 0.1)
            happens += [("executed", target, came)] * (len(happens) > 1 and random.random() < 0.3)
            happens += [("reverted", target, sent + random.randrange(5)) for _ in range(random.choice(HOW_OFTEN))]
            for event, chain, place in happens:
                row = {**own, "index": index, "event": event, "chain": chain, "kind": "request"}
                row["payload_hash"] = content(random.choice((1,) * 12 + (2, None)))
                row["detail"] = random.choice(("received", "received", "sent")) if event == "reverted" else None
                for kind in ("height", "time"):
                    fork = event == "reverted" and kind == "height" and random.random() < 0.3
                    row[kind] = None if random.random() < 0.06 else max(0, place - 3 * fork)
                rows += [row] if random.random() < 0.95 else []
    observed = []
    for chain in ("a", "b"):
        hole, end = random.choice((None, None, 2, 5)), random.choice((4, 9, 13, 20))
        for first, last in [(0, end)] if hole is None else [(0, hole - 1), (hole + 1, end)]:
            heights, times = (ends if random.random() < 0.85 else (None, None) for ends in ((first, last),) * 2)
            names = ("first_height", "last_height", "first_time", "last_time")
            observed.append({"chain": chain, "events": None, **dict(zip(names, heights + times, strict=True))})
    promised = [
        each for each in ("numbered", "ordered_sends", "ordered_receives", "conserved") if random.random() < 0.8
    ]
    promises: list[Row] = [{"promise": each} for each in promised]
    promises += [{"promise": "final_after", "number": random.choice((None, 1, 2, 3))}]
    return Case(rows, observed, promises)


HOW_OFTEN = (0, 0, 0, 0, 1, 2)


def zones_by_chance(random: Random) -> Case:
    """Messages among some zones over several lanes each, most of them in causal order: chains have heights of their
    own, and some heights, chains or rows are false or missing."""
    zones, clock = random.choice(("abc", "abc", "abcde")), random.choice((5, 20, 60))
    offsets = {zone: random.choice((0, 0, 5, 100)) for zone in zones}
    speeds = {zone: random.choice((1, 1, 2, 5)) for zone in zones}
    false, unseen = random.choice((0, 0.02, 0.1, 0.3)), random.choice((0, 0, 0.03))
    revision = random.choice((None, None, None, 1))
    ways = [(one, other) for one in zones for other in zones if one != other or random.random() < 0.2]
    lanes: list[Row] = [
        {"protocol": protocol, "source": source, "destination": random.choice((target,) * 9 + (None,)), "lane": lane}
        for source, target in random.sample(ways, random.randrange(2, min(len(ways), 9) + 1))
        for protocol, lane in random.sample([("p", "x"), ("p", "y"), ("q", "x")], random.randrange(1, 4))
    ]

    def height(zone: str, at: float) -> int:
        return offsets[zone] + int(at / speeds[zone])

    rows: list[Row] = []
    for lane in lanes:
        source, target = lane["source"], lane["destination"] or random.choice(zones)
        in_turn = random.random() < 0.5
        last = [0.0, 0.0, 0.0]
        for index in range(random.randrange(1, 8)):
            at = [last[0] + random.random() * clock / 6 if in_turn else random.random() * clock, 0.0, 0.0]
            for hop, zone in ((1, source), (2, target)):
                done = (int(at[hop - 1] / speeds[zone]) + 1) * speeds[zone]
                at[hop] = max(done, last[hop] if in_turn else 0) + random.expovariate(0.3)
            last = at
            events = (("sent", source, at[0]), ("received", target, at[1]), ("acknowledged", source, at[2]))
            for event, zone, when in events[: random.choice((2, 3, 3, 3))]:
                place: int | None = height(zone, when)
                if random.random() < false:
                    place = max(0, height(zone, when) - random.randrange(1, 30))
                known = {"height": place, "chain": zone, "revision": revision, "time": None}
                known |= {name: None for name in ("height", "chain") if random.random() < unseen}
                row = {**lane, "index": index, "event": event, "kind": "request", "payload_hash": content(1), **known}
                rows += [row] * (random.random() >= unseen)
                if random.random() < unseen:
                    rows.append({**row, "event": "reverted", "detail": event})
    promises: list[Row] = [{"promise": "causal"}]
    if random.random() < 0.3:
        promises = [{**lane, "promise": "causal"} for lane in random.sample(lanes, random.randrange(len(lanes)) + 1)]
    for promise in ("ordered_receives", "ordered_acknowledgements"):
        promises += [{"promise": promise, "lane": random.choice(("x", None))}] * (random.random() < 0.5)
    promises += [{"source": "c", "promise": "restarted"}] * (random.random() < 0.1)
    return Case(rows, [], promises)


HOLDERS = ("message", "message", "account:x", "abroad:a", "abroad:b", "abroad:c", "burned", "abroad", None)


def value_by_chance(random: Random, lanes: list[Row], rows: list[Row]) -> list[Row]:
    """Movements that have little to do with each other, of messages of these rows and of others."""
    found = []
    for _ in range(random.choice((0, 1, 2, 5, 10, 30))):
        of = random.choice(rows) if rows and random.random() < 0.8 else {**random.choice(lanes), "index": 4}
        found.append(
            {
                **{name: of[name] for name in ("protocol", "source", "destination", "lane", "index")},
                "message_id": of.get("message_id"),
                "chain": random.choice(("a", "b", "a", "b", "a", "b", "c", None)),
                "height": random.choice((None, 0, 1, 2, 3, 4)),
                "position": random.choice((None, 0, 1)),
                "time": random.choice((None, *range(8), *range(8))),
                "asset": random.choice(("gold",) * 8 + ("silver", "silver", None)),
                "amount": random.choice((*AMOUNTS[:-1], *AMOUNTS, of.get("amount"))),
                "why": random.choice(("fee", "fee", "moved", "reverted")),
                "from": random.choice(HOLDERS),
                "to": random.choice(HOLDERS),
                "source_file": random.choice(("f", "g", None)),
            }
        )
    return found


HEIGHTS = (None, 0, 1, 2, 3, 4, 6, 2**18 - 1, 2**18, 2**18 + 1)
"""Blocks on both sides of the end of a segment."""


def watermarks_by_chance(random: Random, lanes: list[Row]) -> list[Row]:
    return [
        {
            **random.choice(lanes),
            "chain": random.choice(("a", "b", None)),
            "name": random.choice(("sent", "sent", "got")),
            "height": random.choice(HEIGHTS),
            "position": random.choice((None, 0, 1)),
            "time": random.choice((None, *range(4))),
            "value": random.choice((0, 1, 2, 3, 2**64 - 1)),
            "status": random.choice((None, None, None, None, "reverted")),
        }
        for _ in range(random.choice((0, 3, 10, 30)))
    ]


def headers_by_chance(random: Random) -> list[Row]:
    names = ("A", "B", "C", None)
    return [
        {
            "chain": random.choice(("a", "b")),
            "height": random.choice(HEIGHTS),
            "time": random.choice((None, *range(4))),
            "tick": random.choice((None, 0, 1)),
            "hash": random.choice(names),
            "parent": random.choice(names),
            "root": random.choice(names),
            "status": random.choice((None, None, None, "reverted")),
        }
        for _ in range(random.choice((0, 2, 6, 20)))
    ]
