"""Stored ledgers keep their committed rows through merges, removals and kills."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.ledger import maintenance
from causeway.ledger.commits import CommitLost, InputFile, LedgerDamaged
from causeway.ledger.maintenance import maintain_ledger, remove_garbage, split_by_bucket
from causeway.ledger.row_order import drop_repeats, message_buckets
from causeway.ledger.schema import LEDGER_SCHEMA, OBSERVED_SCHEMA, QUARANTINE_SCHEMA
from causeway.ledger.store import Ledger, LedgerWriter, create_ledger, group_by_bucket, open_ledger, write_file
from causeway.storage.commit_log import encoded
from causeway.storage.object_store import LocalPlace
from tests.support.properties.audit_ledgers import table

BUCKETS = 4


def rows_for(random: Random, number: int) -> pa.Table:
    """Return rows with repetitions: neighbours in a file, and the same event by other files."""
    rows = []
    for row in range(random.randrange(1, 12)):
        index = random.randrange(60)
        own = {"event": random.choice(("sent", "received")), "height": random.choice((None, index)), "chain": "a"}
        lane = {"protocol": "p", "source": "a", "destination": "b", "lane": str(index % 7)}
        rows.append(
            {
                **lane, "index": index << 16, "kind": "request", **own, "stated_by": "test",
                "source_file": f"f{number % 5}", "source_row": row,
            }
        )  # fmt: skip
    return table(rows, LEDGER_SCHEMA)


def commit_rows(ledger: Ledger, rows: pa.Table, number: int) -> Ledger:
    """Commit some rows, in files of all buckets or of one each."""
    writer = LedgerWriter(ledger)
    if number % 3:
        writer.write("ledger", split_by_bucket(drop_repeats(rows), BUCKETS))
    else:
        for bucket, mine in group_by_bucket(rows, BUCKETS).items():
            writer.write("ledger", drop_repeats(mine), bucket)
    broken = {"source_file": "f", "source_row": number, "reason": "missing", "row": "?"}
    writer.write("quarantine", table([broken], QUARANTINE_SCHEMA))
    window = {"chain": "a", "first_height": 0, "last_height": number, "how": "inferred", "stated_by": "test"}
    writer.write("observed", table([window], OBSERVED_SCHEMA))
    each = InputFile(f"f{number}", 10, f"{number:064x}", 1, "m")
    return ledger.after(writer.commit([each], {"rows": rows.num_rows, "records": 1}))


def check(ledger: Ledger, every: list[pa.Table]) -> None:
    """Compare a ledger with all rows committed to it."""
    rows = pa.concat_tables([LEDGER_SCHEMA.empty_table(), *every]).unify_dictionaries()
    of_rows = message_buckets(rows, BUCKETS)
    for bucket in range(BUCKETS):
        expected = drop_repeats(rows.filter(pa.array(of_rows == bucket)))
        assert ledger.rows(bucket).to_pylist() == expected.to_pylist()
        assert ledger.rows(bucket, ["index"])["index"].equals(expected["index"])
    assert sorted(ledger.table("quarantine")["source_row"].to_pylist()) == list(range(len(every)))
    assert ledger.table("observed")["last_height"].to_pylist() == ([len(every) - 1] if every else [])
    assert {each.file for each in ledger.ingested_inputs()} == {f"f{number}" for number in range(len(every))}
    assert ledger.counts.get("rows", 0) == sum(each.num_rows for each in every)


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits so that few rows and commits count as many."""
    for name, value in (("CHECKPOINT_EVERY", 8), ("FILES_PER_MERGE", 4), ("MINIMUM", 16), ("MAXIMUM", 1 << 12)):
        monkeypatch.setattr(maintenance, name, value)


def test_many_commits_leave_few_files_and_all_rows(tmp_path: Path, small_limits: None) -> None:
    random, place = Random(1), tmp_path / "ledger"
    ledger, every = create_ledger(str(place), BUCKETS), []
    most: dict[str, int] = {}
    for number in range(80):
        every.append(rows_for(random, number))
        ledger = maintain_ledger(commit_rows(ledger, every[-1], number), 1, kept=0)
        for folder, _, names in os.walk(place):
            most[Path(folder).name] = max(most.get(Path(folder).name, 0), len(names))
        if number % 39 == 0:
            check(open_ledger(str(place)), every)
    check(ledger, every)
    check(open_ledger(str(place)), every)
    # Without merging there would be 80 of each.
    assert all(count < 30 for count in most.values()), most
    assert open_ledger(str(place)) == ledger


def test_open_ledger_is_read_as_of_its_opening(tmp_path: Path, small_limits: None) -> None:
    random, place = Random(2), str(tmp_path)
    ledger, every = create_ledger(place, BUCKETS), []
    before: list[tuple[Ledger, list[pa.Table]]] = []
    for number in range(20):
        every.append(rows_for(random, number))
        ledger = maintain_ledger(commit_rows(ledger, every[-1], number))
        before.append((open_ledger(place), [*every]))
    for opened, had in before:
        check(opened, had)
    remove_garbage(ledger, kept=0)
    with pytest.raises(InvalidInput, match="merged anew while it was read; run again"):
        before[0][0].table("quarantine")
    check(open_ledger(place), every)


class Killed(BaseException):
    """The exception that ends a process at one instant."""


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int | None], None]]:
    """Return a context that kills the process at the n-th call to the file system, before or after it."""
    calls = itertools.count()
    at: dict[str, int | None] = {"kill": None}

    def wrapped(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            number, kill = next(calls), at["kill"]
            if kill is not None and number >= 2 * kill:
                raise Killed
            found = real(*arguments)
            if kill is not None and number >= 2 * kill - 1:
                raise Killed
            return found

        return call

    for name in ("create", "put", "remove", "remove_folder", "sync", "writer", "make_subfolder"):
        monkeypatch.setattr(LocalPlace, name, wrapped(getattr(LocalPlace, name)))

    def kill(number: int | None) -> None:
        nonlocal calls
        calls, at["kill"] = itertools.count(), number

    yield kill
    kill(None)


def test_ledger_killed_at_any_instant_continues_to_the_same_rows(
    tmp_path: Path, small_limits: None, killed: Callable[[int | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step is repeated until it completes, killed one call later each time."""
    monkeypatch.setattr(maintenance, "CHECKPOINT_EVERY", 3)
    random, place = Random(3), str(tmp_path / "ledger")
    ledger, every, kills = create_ledger(place, BUCKETS), list[pa.Table](), 0
    for number in range(7):
        rows = rows_for(random, number)
        steps: list[Callable[[Ledger], Ledger]] = [
            partial(commit_rows, rows=rows, number=number),
            partial(maintain_ledger, threads=1, kept=0),
        ]
        for place_of, step in enumerate(steps):
            for at in itertools.count():
                killed(at)
                try:
                    ledger = step(ledger)
                except Killed:
                    kills += 1
                    killed(None)
                    ledger = open_ledger(place)
                    if place_of == 0 and ledger.counts.get("records", 0) > number:
                        break
                    check(ledger, [*every, *([rows] if place_of else [])])
                else:
                    break
        killed(None)
        every.append(rows)
        check(open_ledger(place), every)
    assert kills > 40
    remove_garbage(ledger, kept=0)
    there = {str(path.relative_to(place)) for path in Path(place).rglob("*.parquet")}
    assert there == {file.path for file in ledger.live}


def test_one_of_two_concurrent_commits_counts(tmp_path: Path) -> None:
    ledger = create_ledger(str(tmp_path), 1)
    first, second = LedgerWriter(ledger), LedgerWriter(ledger)
    for writer in (first, second):
        writer.write("ledger", rows_for(Random(1), 1), 0)
    first.commit([], {})
    with pytest.raises(CommitLost, match="another process committed"):
        second.commit([], {})
    assert len(list((tmp_path / "ledger" / "bucket=00").iterdir())) == 1


def test_corrupted_checkpoint_is_skipped_and_a_missing_commit_is_named(tmp_path: Path, small_limits: None) -> None:
    random, ledger, every = Random(4), create_ledger(str(tmp_path), BUCKETS), []
    for number in range(20):
        every.append(rows_for(random, number))
        ledger = maintain_ledger(commit_rows(ledger, every[-1], number))
    checkpoints = sorted((tmp_path / "checkpoints").iterdir())
    assert len(checkpoints) > 1
    checkpoints[-1].write_bytes(checkpoints[-1].read_bytes().replace(b"ledger", b"ledgex"))
    check(open_ledger(str(tmp_path)), every)
    manifests = sorted((tmp_path / "manifests").iterdir())
    manifests[-2].unlink()
    with pytest.raises(LedgerDamaged, match=f"{manifests[-2].name} is missing"):
        open_ledger(str(tmp_path))


def test_ledger_without_its_last_commits_is_corrupted(tmp_path: Path) -> None:
    ledger, every = create_ledger(str(tmp_path), BUCKETS), []
    for number in range(3):
        every.append(rows_for(Random(number), number))
        ledger = commit_rows(ledger, every[-1], number)
    manifests = sorted((tmp_path / "manifests").iterdir())
    last = manifests[-1].read_bytes()
    manifests[-1].unlink()
    with pytest.raises(LedgerDamaged, match=r"^manifests/0000000002\.json is missing: ledger\.head names commit 2$"):
        open_ledger(str(tmp_path))
    manifests[-2].unlink()
    with pytest.raises(LedgerDamaged, match=r"^manifests/0000000001\.json is missing"):
        open_ledger(str(tmp_path))
    # Another commit of the same number differs from the committed one.
    other = create_ledger(str(tmp_path / "other"), BUCKETS)
    for number in range(3):
        other = commit_rows(other, rows_for(Random(9), number), number)
    head = (tmp_path / "other" / "ledger.head").read_bytes()
    manifests[-2].write_bytes((tmp_path / "other" / "manifests" / manifests[-2].name).read_bytes())
    with pytest.raises(LedgerDamaged, match=r"0000000001\.json does not follow on the commit before it"):
        open_ledger(str(tmp_path))
    (tmp_path / "other" / "ledger.head").write_bytes((tmp_path / "ledger.head").read_bytes())
    with pytest.raises(LedgerDamaged, match=r"^manifests/0000000002\.json is not the commit that ledger\.head names$"):
        open_ledger(str(tmp_path / "other"))
    assert len(head) == 512 and last


def test_head_is_a_required_lower_bound(tmp_path: Path) -> None:
    ledger, head = create_ledger(str(tmp_path), BUCKETS), tmp_path / "ledger.head"
    first = rows_for(Random(1), 0)
    before = head.read_bytes()
    ledger = commit_rows(ledger, first, 0)
    head.write_bytes(before)  # killed between the manifest and the head
    check(open_ledger(str(tmp_path)), [first])
    commit_rows(open_ledger(str(tmp_path)), first, 1)
    check(open_ledger(str(tmp_path)), [first, first])
    damaged = bytearray(head.read_bytes())
    damaged[20] ^= 1
    head.write_bytes(bytes(damaged))
    with pytest.raises(LedgerDamaged, match=r"^ledger\.head has invalid content"):
        open_ledger(str(tmp_path))
    head.unlink()
    with pytest.raises(LedgerDamaged, match=r"^ledger\.head is missing$"):
        open_ledger(str(tmp_path))
    # Ledgers of format 1 have none until their next commit.
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "manifests").mkdir()
    (tmp_path / "old" / "ledger.json").write_bytes(encoded({"format": 1, "buckets": BUCKETS}, in_lines=True))
    old = open_ledger(str(tmp_path / "old"))
    commit_rows(old, first, 0)
    check(open_ledger(str(tmp_path / "old")), [first])
    (tmp_path / "old" / "manifests" / "0000000000.json").unlink()
    with pytest.raises(LedgerDamaged, match="is missing"):
        open_ledger(str(tmp_path / "old"))


def test_incompressible_texts_are_stored_uncompressed_and_read_back(tmp_path: Path) -> None:
    random = Random(7)
    count = 5_000
    names = {"protocol": "p", "source": "a", "destination": "b", "lane": "1", "stated_by": "test", "source_file": "f"}
    rows = table(
        [
            {
                **names, "index": index, "kind": "request", "event": "sent", "transaction": random.randbytes(32).hex(),
                "receiver": f"0x{index % 50:040x}",
            }
            for index in range(count)
        ],
        LEDGER_SCHEMA,
    )  # fmt: skip
    ledger = create_ledger(str(tmp_path / "ledger"), 1)
    file = write_file(ledger.storage, "0000000000-test", "ledger", rows, 0)
    about = pq.ParquetFile(tmp_path / "ledger" / file.path).metadata.row_group(0)
    columns = [about.column(number) for number in range(about.num_columns)]
    packed = {each.path_in_schema: each.compression for each in columns}
    assert (packed["transaction"], packed["receiver"], packed["index"]) == ("UNCOMPRESSED", "LZ4", "LZ4")
    assert ledger.read(file).equals(rows)
