"""A ledger that is audited again whenever there is something new shows what an audit of all of it shows."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from causeway.audit import passing
from causeway.audit.auditing import Audit
from causeway.ledger.chain_order import header_buckets, sorted_headers, sorted_watermarks, watermark_buckets
from causeway.ledger.order import without_repeats
from causeway.ledger.schema import (
    HEADERS_SCHEMA,
    LEDGER_SCHEMA,
    OBSERVED_SCHEMA,
    PROMISES_SCHEMA,
    VALUE_SCHEMA,
    WATERMARKS_SCHEMA,
)
from causeway.pipeline import kept_buckets, ledger_following, ledger_upkeep, ledger_watch
from causeway.pipeline.ledger_audit import audit_ledger
from causeway.pipeline.ledger_parts import bucket_parts
from causeway.pipeline.ledger_store import Ledger, LedgerWriter, by_bucket, create_ledger, open_ledger
from causeway.pipeline.ledger_upkeep import in_buckets, keep_up
from causeway.pipeline.ledger_watch import LedgerWatch
from tests.property.audit_ledgers import Case, by_chance, table

BUCKETS = 4
LIMIT = 1000


def committed(ledger: Ledger, case: Case, random: Random, left: list[int]) -> Ledger:
    """Commit some of the rows that are left, with some of the windows, and now and then other promises."""
    count = random.choice((0, 1, 2, 5, len(left)))
    own, left[:] = left[:count], left[count:]
    writer = LedgerWriter(ledger)
    rows = table([case.rows[number] for number in own], LEDGER_SCHEMA)
    if random.random() < 0.5:
        writer.write("ledger", in_buckets(without_repeats(rows), BUCKETS))
    else:
        for bucket, mine in by_bucket(rows, BUCKETS).items():
            writer.write("ledger", without_repeats(mine), bucket)
    for name, every, schema, of, ordered in (
        ("headers", case.headers, HEADERS_SCHEMA, header_buckets, sorted_headers),
        ("watermarks", case.watermarks, WATERMARKS_SCHEMA, watermark_buckets, sorted_watermarks),
    ):
        before = sum(file.rows for file in ledger.files(name))
        stated = table(every[before : before + random.choice((0, 1, 9))], schema)
        buckets = of(stated, BUCKETS)
        for bucket in sorted(set(buckets.tolist())):
            writer.write(name, ordered(stated.filter(pa.array(buckets == bucket))), bucket)
    before = ledger.counts.get("movements", 0)
    moved = table(case.value[before : before + random.choice((0, 1, 9))], VALUE_SCHEMA)
    if moved.num_rows and random.random() < 0.5:
        writer.write("value", in_buckets(moved, BUCKETS, "value"))
    else:
        for bucket, mine in by_bucket(moved, BUCKETS, "value").items():
            writer.write("value", mine, bucket)
    windows = [row for row in case.observed if random.random() < 0.7]
    declared = [{**row, "how": "declared", "stated_by": "test"} for row in windows]
    writer.write("observed", table(declared, OBSERVED_SCHEMA))
    if random.random() < 0.3 or ledger.number < 0:
        promised = [{**row, "stated_by": "test"} for row in case.promises if random.random() < 0.8]
        writer.write("promises", table(promised, PROMISES_SCHEMA))
    return keep_up(ledger.after(writer.commit([], {"movements": moved.num_rows})), kept=0.0)


def alike(one: Audit, other: Audit) -> None:
    assert one.checks == other.checks
    for name in ("violations", "completeness", "lanes", "sums", "abroad"):
        assert getattr(one, name).equals(getattr(other, name)), name


SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 12))]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_look_shows_what_an_audit_of_all_shows(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    for module, name, value in (
        (ledger_upkeep, "EVERY", 3),
        (ledger_upkeep, "TOGETHER", 3),
        (ledger_upkeep, "LEAST", random.choice((2, 4096))),
        (ledger_following, "_COMMITS", random.choice((1, 1000))),
        (passing, "WAITING", random.choice((1, 1000))),
    ):
        monkeypatch.setattr(module, name, value)
    few_at_a_time = seed % 2
    if few_at_a_time:
        monkeypatch.setattr(kept_buckets, "ROWS_AGAIN", 1)
        monkeypatch.setattr(kept_buckets, "SHARE_AGAIN", 1 << 40)
    case = by_chance(random)
    ledger = create_ledger(str(tmp_path / "ledger"), BUCKETS)
    left = random.sample(range(len(case.rows)), len(case.rows))
    with LedgerWatch(ledger.storage.uri, LIMIT) as watch:
        while left:
            ledger = committed(ledger, case, random, left)
            watched = watch.look()
            assert watched is not None and not watched.unread
            assert few_at_a_time or not watched.behind
            while watched.behind:
                behind, watched = watched.behind, watch.look()
                assert watched is not None and watched.behind < behind
            assert watch.look() is None
            alike(watched.audit, audit_ledger(open_ledger(ledger.storage.uri), limit=LIMIT))


def test_what_a_second_look_finds_is_found_anew_when_other_buckets_tell_it_otherwise(tmp_path: Path) -> None:
    lane = {"protocol": "p", "source": "a", "destination": "b", "lane": "x", "kind": "request", "stated_by": "test"}
    ledger = create_ledger(str(tmp_path / "ledger"), BUCKETS)
    place = ledger.storage.uri

    def commit(*events: tuple[int, str, int]) -> None:
        writer = LedgerWriter(open_ledger(place))
        rows = [{**lane, "index": index, "event": event, "chain": "a", "time": at} for index, event, at in events]
        for bucket, mine in by_bucket(table(rows, LEDGER_SCHEMA), BUCKETS).items():
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
            alike(watched.audit, audit_ledger(open_ledger(place), limit=ledger_watch.NAMED))
            # The first of all is done before the others are sent: fewer are in flight, where nothing is new.
            commit((elsewhere, "acknowledged", 15))


def test_only_buckets_with_something_new_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[int] = []

    def counted(ledger: Ledger, bucket: int) -> object:
        passed.append(bucket)
        return bucket_parts(ledger, bucket)

    monkeypatch.setattr(ledger_watch, "bucket_parts", counted)
    lane = {"protocol": "p", "source": "a", "destination": "b", "lane": "x", "kind": "request", "stated_by": "test"}
    ledger = create_ledger(str(tmp_path / "ledger"), BUCKETS)

    def commit(ledger: Ledger, segments: range, last: int, *events: str) -> Ledger:
        rows = [
            {**lane, "index": segment << 18, "event": event, "chain": "a" if event != "received" else "b", "height": at}
            for segment in segments
            for at, event in enumerate(events)
        ]
        writer = LedgerWriter(ledger)
        for bucket, mine in by_bucket(table(rows, LEDGER_SCHEMA), BUCKETS).items():
            writer.write("ledger", without_repeats(mine), bucket)
        windows = [
            {"chain": chain, "first_height": 0, "last_height": last, "how": "inferred", "stated_by": "test"}
            for chain in "ab"
        ]
        writer.write("observed", table(windows, OBSERVED_SCHEMA))
        return ledger.after(writer.commit([], {}))

    whole = ("sent", "received", "acknowledged")
    with LedgerWatch(ledger.storage.uri) as watch:
        ledger = commit(ledger, range(40), 3, *whole)
        assert watch.look() is not None and sorted(passed) == [*range(BUCKETS)]
        # One message more, in one bucket; the windows have grown, but nothing is missing elsewhere.
        passed.clear()
        ledger = commit(ledger, range(40, 41), 4, "sent")
        assert watch.look() is not None and len(passed) == 1
        # It is still open, so its bucket is looked at with the windows that there are.
        (open_in,) = passed
        passed.clear()
        ledger = commit(ledger, range(41, 42), 5, *whole)
        assert watch.look() is not None and open_in in passed and len(passed) <= 2
        passed.clear()
        assert watch.look() is None and not passed
