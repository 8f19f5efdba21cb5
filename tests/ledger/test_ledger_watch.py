"""Incremental audits of a growing ledger equal full audits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from causeway.audit import causal_links
from causeway.audit.engine import AuditResult
from causeway.audit.incremental import buckets
from causeway.audit.incremental import watch as ledger_following
from causeway.audit.incremental import watch as ledger_watch
from causeway.audit.incremental.watch import LedgerWatch
from causeway.audit.passes import bucket_pass
from causeway.audit.stored import audit_ledger
from causeway.ledger import maintenance
from causeway.ledger.maintenance import maintain_ledger, split_by_bucket
from causeway.ledger.row_order import (
    assign_header_buckets,
    assign_watermark_buckets,
    drop_repeats,
    sort_headers,
    sort_watermarks,
)
from causeway.ledger.schema import (
    HEADERS_SCHEMA,
    LEDGER_SCHEMA,
    OBSERVED_SCHEMA,
    PROMISES_SCHEMA,
    VALUE_SCHEMA,
    WATERMARKS_SCHEMA,
)
from causeway.ledger.store import Ledger, LedgerWriter, create_ledger, group_by_bucket, open_ledger
from tests.spec.audit.ledger import Row
from tests.support.properties.audit_ledgers import Case, by_chance, table, zones_by_chance
from tests.tiers import sized

BUCKETS = 4
LIMIT = 1000


def commit_some(ledger: Ledger, case: Case, random: Random, left: list[int]) -> Ledger:
    """Commit some of the remaining rows, with some of the windows, and occasionally other guarantees."""
    count = random.choice((0, 1, 2, 5, len(left)))
    own, left[:] = left[:count], left[count:]
    writer = LedgerWriter(ledger)
    rows = table([case.rows[number] for number in own], LEDGER_SCHEMA)
    if random.random() < 0.5:
        writer.write("ledger", split_by_bucket(drop_repeats(rows), BUCKETS))
    else:
        for bucket, mine in group_by_bucket(rows, BUCKETS).items():
            writer.write("ledger", drop_repeats(mine), bucket)
    for name, every, schema, of, ordered in (
        ("headers", case.headers, HEADERS_SCHEMA, assign_header_buckets, sort_headers),
        ("watermarks", case.watermarks, WATERMARKS_SCHEMA, assign_watermark_buckets, sort_watermarks),
    ):
        before = sum(file.rows for file in ledger.files(name))
        stated = table(every[before : before + random.choice((0, 1, 9))], schema)
        buckets = of(stated, BUCKETS)
        for bucket in sorted(set(buckets.tolist())):
            writer.write(name, ordered(stated.filter(pa.array(buckets == bucket))), bucket)
    before = ledger.counts.get("movements", 0)
    moved = table(case.value[before : before + random.choice((0, 1, 9))], VALUE_SCHEMA)
    if moved.num_rows and random.random() < 0.5:
        writer.write("value", split_by_bucket(moved, BUCKETS, "value"))
    else:
        for bucket, mine in group_by_bucket(moved, BUCKETS, "value").items():
            writer.write("value", mine, bucket)
    windows = [row for row in case.observed if random.random() < 0.7]
    declared = [{**row, "how": "declared", "stated_by": "test"} for row in windows]
    writer.write("observed", table(declared, OBSERVED_SCHEMA))
    if random.random() < 0.3 or ledger.number < 0:
        promised = [{**row, "stated_by": "test"} for row in case.promises if random.random() < 0.8]
        writer.write("promises", table(promised, PROMISES_SCHEMA))
    return maintain_ledger(ledger.after(writer.commit([], {"movements": moved.num_rows})), kept=0.0)


def assert_equal_audits(one: AuditResult, other: AuditResult) -> None:
    assert one.checks == other.checks
    for name in ("violations", "completeness", "lanes", "sums", "abroad"):
        assert getattr(one, name).to_pylist() == getattr(other, name).to_pylist(), name


LEDGERS = [
    *((by_chance, seed) for seed in range(3)),
    *((zones_by_chance, seed) for seed in (1, 2)),
    *(pytest.param(by_chance, seed, marks=pytest.mark.slow) for seed in range(3, sized(5, 12))),
    *(pytest.param(zones_by_chance, seed, marks=pytest.mark.slow) for seed in range(3, sized(5, 9))),
]


@pytest.mark.parametrize(("make", "seed"), LEDGERS)
def test_each_incremental_audit_equals_a_full_audit(
    make: Callable[[Random], Case], seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    for module, name, value in (
        (maintenance, "CHECKPOINT_EVERY", 3),
        (maintenance, "FILES_PER_MERGE", 3),
        (maintenance, "MINIMUM", random.choice((2, 4096))),
        (ledger_following, "_COMMITS", random.choice((1, 1000))),
        (bucket_pass, "PENDING_COLUMNS", random.choice((1, 1000))),
        (causal_links, "MAX_LINKS", 0 if seed % 3 == 2 else causal_links.MAX_LINKS),
    ):
        monkeypatch.setattr(module, name, value)
    few_at_a_time = seed % 2
    if few_at_a_time:
        monkeypatch.setattr(buckets, "MAX_RECHECK_ROWS", 1)
        monkeypatch.setattr(buckets, "MAX_RECHECK_SHARE", 1 << 40)
    case = make(random)
    ledger = create_ledger(str(tmp_path / "ledger"), BUCKETS)
    left = random.sample(range(len(case.rows)), len(case.rows))
    with LedgerWatch(ledger.storage.uri, LIMIT) as watch:
        while left:
            ledger = commit_some(ledger, case, random, left)
            watched = watch.look()
            assert watched is not None and not watched.unread
            assert few_at_a_time or not watched.behind
            while watched.behind:
                behind, watched = watched.behind, watch.look()
                assert watched is not None and watched.behind <= behind
            assert watch.look() is None
            whole = audit_ledger(open_ledger(ledger.storage.uri), limit=LIMIT)
            assert_equal_audits(watched.audit, whole)
            with LedgerWatch(ledger.storage.uri, LIMIT) as another:
                begun = another.look()
                assert begun is not None
                assert_equal_audits(begun.audit, whole)


def test_second_pass_findings_are_recomputed_when_other_buckets_change(tmp_path: Path) -> None:
    lane = {"protocol": "p", "source": "a", "destination": "b", "lane": "x", "kind": "request", "stated_by": "test"}
    ledger = create_ledger(str(tmp_path / "ledger"), BUCKETS)
    place = ledger.storage.uri

    def commit(*events: tuple[int, str, int]) -> None:
        writer = LedgerWriter(open_ledger(place))
        rows = [{**lane, "index": index, "event": event, "chain": "a", "time": at} for index, event, at in events]
        for bucket, mine in group_by_bucket(table(rows, LEDGER_SCHEMA), BUCKETS).items():
            writer.write("ledger", mine, bucket)
        promise = {"promise": "capacity", "number": 1, "stated_by": "test"}
        writer.write("promises", table([promise], PROMISES_SCHEMA))
        writer.commit([], {})

    elsewhere = 2 << 18
    with LedgerWatch(place) as watch:
        commit((0, "sent", 20), (1, "sent", 30), (elsewhere, "sent", 10))
        for _ in range(2):
            watched = watch.look()
            assert watched is not None
            assert_equal_audits(watched.audit, audit_ledger(open_ledger(place), limit=ledger_watch.NAMED_FINDINGS))
            # The first of all completes before the others are sent: fewer are in flight without new rows.
            commit((elsewhere, "acknowledged", 15))


LANE = {"protocol": "p", "source": "a", "destination": "b", "lane": "x", "kind": "request", "stated_by": "test"}
WINDOWS = [
    {"chain": chain, "first_height": 0, "first_time": 0, "last_height": 10**6, "last_time": 10**6, "how": "declared",
     "stated_by": "test"}
    for chain in "ab"
]  # fmt: skip


def of_lane(index: int, event: str, at: int, **others: object) -> Row:
    chain = "b" if event == "received" else "a"
    return {**LANE, "index": index, "event": event, "chain": chain, "height": at, "time": at, **others}


def add(ledger: Ledger, rows: list[Row], last: int = 10**6, kept: float = 0.0) -> Ledger:
    """Commit rows, and windows of both chains up to a height."""
    writer = LedgerWriter(ledger)
    for bucket, mine in group_by_bucket(table(rows, LEDGER_SCHEMA), ledger.buckets).items():
        writer.write("ledger", drop_repeats(mine), bucket)
    windows = [{**row, "last_height": last, "last_time": last} for row in WINDOWS]
    writer.write("observed", table(windows, OBSERVED_SCHEMA))
    return maintain_ledger(ledger.after(writer.commit([], {})), kept=kept)


def test_timeout_is_compared_again_with_heights_of_other_buckets(tmp_path: Path) -> None:
    ledger = create_ledger(str(tmp_path / "ledger"), BUCKETS)
    limited = {"timeout_height": 100}
    with LedgerWatch(ledger.storage.uri) as watch:
        ledger = add(ledger, [of_lane(0, "sent", 1, **limited), of_lane(0, "timed_out", 50)])
        for number, height, early in ((1, 120, 0), (2, 60, 1)):
            sent = of_lane(number << 18, "sent", 2, timeout_height=200)
            received = {**of_lane(number << 18, "received", 60 + number), "height": height}
            ledger = add(ledger, [{**row, "lane": f"y{number}"} for row in (sent, received)])
            watched = watch.look()
            assert watched is not None
            reasons = watched.audit.checks["agreement"].reasons
            assert reasons.get(("violated", "timed_out_too_early"), 0) == early
            assert_equal_audits(
                watched.audit, audit_ledger(open_ledger(ledger.storage.uri), limit=ledger_watch.NAMED_FINDINGS)
            )


def test_continued_messages_are_judged_again_with_more_continuations(tmp_path: Path) -> None:
    ledger = create_ledger(str(tmp_path / "ledger"), BUCKETS)
    with LedgerWatch(ledger.storage.uri) as watch:
        ledger = add(ledger, [of_lane(number, "sent", 1, message_id=f"m{number}") for number in range(3)])
        for number in range(3):
            again = of_lane(number << 18, "sent", 9, message_id=f"n{number}", continues=f"m{number}")
            ledger = add(ledger, [{**again, "lane": f"y{number}"}])
            watched = watch.look()
            assert watched is not None
            assert watched.audit.checks["delivery"].reasons["noted", "carried_on"] == number + 1
            assert_equal_audits(
                watched.audit, audit_ledger(open_ledger(ledger.storage.uri), limit=ledger_watch.NAMED_FINDINGS)
            )


@pytest.mark.parametrize(
    ("promise", "check", "reason"),
    [
        (
            {"source": "b", "promise": "clock_tolerance", "number": 10},
            "causality",
            ("violated", "received_before_sent"),
        ),
        ({"protocol": "p", "promise": "may_drop", "detail": "full"}, "delivery", ("violated", "dropped")),
    ],
)
def test_later_guarantees_count(promise: Row, check: str, reason: tuple[str, str], tmp_path: Path) -> None:
    ledger = create_ledger(str(tmp_path / "ledger"), BUCKETS)
    rows = [of_lane(0, "sent", 9), of_lane(0, "received", 5), of_lane(1, "sent", 9)]
    rows.append(of_lane(1, "dropped", 10, detail="full"))
    ledger = add(ledger, rows)
    with LedgerWatch(ledger.storage.uri) as watch:
        for count, promised in ((1, {"protocol": "p", "promise": "may_drop", "detail": "other"}), (0, promise)):
            writer = LedgerWriter(ledger)
            writer.write("promises", table([{**promised, "stated_by": "test"}], PROMISES_SCHEMA))
            ledger = ledger.after(writer.commit([], {}))
            watched = watch.look()
            assert watched is not None
            assert watched.audit.checks[check].reasons.get(reason, 0) == count
            assert_equal_audits(
                watched.audit, audit_ledger(open_ledger(ledger.storage.uri), limit=ledger_watch.NAMED_FINDINGS)
            )


@pytest.fixture
def scanned_runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of runs of each scanned bucket."""
    found: list[int] = []

    def counted(*arguments: Any) -> list[bucket_pass.RunResult]:
        runs = bucket_pass.check_bucket(*arguments)
        found.append(len(runs))
        return runs

    monkeypatch.setattr(ledger_watch, "check_bucket", counted)
    return found


def test_only_buckets_with_new_rows_are_scanned(tmp_path: Path, scanned_runs: list[int]) -> None:
    ledger = create_ledger(str(tmp_path / "ledger"), BUCKETS)

    def commit(ledger: Ledger, segments: range, last: int, *events: str) -> Ledger:
        rows = [of_lane(segment << 18, event, at) for segment in segments for at, event in enumerate(events)]
        return add(ledger, rows, last)

    whole = ("sent", "received", "acknowledged")
    with LedgerWatch(ledger.storage.uri) as watch:
        ledger = commit(ledger, range(40), 3, *whole)
        assert watch.look() is not None and len(scanned_runs) == BUCKETS
        # One message more, in one bucket; the windows have grown, but no message is missing elsewhere.
        scanned_runs.clear()
        ledger = commit(ledger, range(40, 41), 4, "sent")
        assert watch.look() is not None and len(scanned_runs) == 1
        # It is still open, so its bucket is scanned with the current windows.
        scanned_runs.clear()
        ledger = commit(ledger, range(41, 42), 5, *whole)
        assert watch.look() is not None and 1 <= len(scanned_runs) <= 2
        scanned_runs.clear()
        assert watch.look() is None and not scanned_runs


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_late_duplicate_and_unmatched_answers_are_found_in_any_bucket(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    monkeypatch.setattr(maintenance, "FILES_PER_MERGE", 3)
    rows = []
    for number in range(40):
        name: Row = {"message_id": f"m{number}"}
        at = 10 * number
        rows.append((at, of_lane(number, "sent", at, **name)))
        for turn in range(random.choice((0, 1, 1, 1, 1, 2))):
            came = at + random.choice((3, 5, 400))
            back: Row = {"source": "b", "destination": "a", "kind": "response", "answers": f"m{number}"}
            back |= {"lane": random.choice("xy"), "message_id": f"r{number}/{turn}"}
            rows.append((came, of_lane(2 * number + turn, "received", came, **back) | {"chain": "a"}))
        if random.random() < 0.1:
            came = at + random.choice((2, 300))
            rows.append((came, of_lane(number, random.choice(("acknowledged", "sent", "collected")), came, **name)))
    del rows[random.randrange(len(rows))]
    rows.sort(key=lambda row: row[0])
    ledger = create_ledger(str(tmp_path / "ledger"), random.choice((1, 2)))
    writer = LedgerWriter(ledger)
    promised = [{"promise": "answered", "number": random.choice((50, 1000)), "stated_by": "test"}]
    writer.write("promises", table(promised, PROMISES_SCHEMA))
    ledger = ledger.after(writer.commit([], {}))
    with LedgerWatch(ledger.storage.uri, LIMIT) as watch:
        for begin in range(0, len(rows), 9):
            some = rows[begin : begin + 9]
            ledger = add(ledger, [row for _, row in some], some[-1][0] + random.choice((0, 30)))
            watched = watch.look()
            while watched is not None and watched.behind:
                watched = watch.look()
            assert watched is not None
            assert_equal_audits(watched.audit, audit_ledger(open_ledger(ledger.storage.uri), limit=LIMIT))
