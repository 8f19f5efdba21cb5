"""Derive a stored ledger from a lake, each height once, also after a crash.

``open_or_derive_ledger`` derives a temporary one for an audit. One call is one commit. Rows are derived one range of
heights at a time, staged by bucket, then sorted and written bucket by bucket (``sorted_runs``). Memory is bounded by a
range or a part of a bucket.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc
from causeway_proofs.errors import InvalidInput

from causeway.ledger.commits import STAGING, table_schema
from causeway.ledger.ingest.commit import LOOSE_ROWS, write_runs
from causeway.ledger.lake.chains import ChainDerivation, protocol_lanes
from causeway.ledger.lake.derivation import DeriveProgress, LedgerDerivation
from causeway.ledger.lake.names import VALUE_LOG, drafts_from_rows, lane_name
from causeway.ledger.maintenance import maintain_ledger
from causeway.ledger.row_order import EVENTS, LAYOUTS, sort_rows
from causeway.ledger.schema import (
    DECLARED,
    OBSERVED_SCHEMA,
    PROMISES_SCHEMA,
    REFUND_MESSAGES,
    REPORTER_COLUMN,
    SETTLED,
    VALUE,
)
from causeway.ledger.sorted_runs import RunWriter, SpooledRun, write_bucket
from causeway.ledger.store import (
    LEDGER_FILE,
    InputFile,
    Ledger,
    LedgerWriter,
    StoredFile,
    create_ledger,
    group_by_bucket,
    open_ledger,
)
from causeway.protocols.registry import find_protocol
from causeway.protocols.shared.semantics import Promise
from causeway.storage.files import Storage
from causeway.storage.lake import Lake, LakeError
from causeway.storage.layout import LAKE_FILE
from causeway.storage.manifests import Manifest

__all__ = [
    "MAPPING",
    "BucketSpool",
    "LakeIngest",
    "ingest_lake",
    "is_lake",
    "lake_promises",
    "lake_windows",
    "open_or_derive_ledger",
    "reject_file",
    "require_stored",
    "to_ledger_table",
]


@dataclass
class BucketSpool:
    """Rows of ``table`` (one of ``LAYOUTS``) staged by bucket in ``folder``, a file a part."""

    folder: str
    table: str
    buckets: int
    rows: int = 0
    _parts: list[dict[int, int]] = field(default_factory=list)

    def add(self, rows: pa.Table) -> None:
        """Stage rows."""
        if not rows.num_rows:
            return
        batches: dict[int, int] = {}
        whole = rows.unify_dictionaries().combine_chunks()
        with ipc.new_file(self._path(len(self._parts)), table_schema(self.table)) as sink:
            for bucket, bucket_rows in group_by_bucket(whole, self.buckets, self.table).items():
                batches[bucket] = len(batches)
                sink.write_table(bucket_rows)
        self._parts.append(batches)
        self.rows += rows.num_rows

    def add_all(self, tables: Iterable[pa.Table]) -> None:
        """Stage the rows of several tables."""
        for rows in tables:
            self.add(rows)

    def write(self, writer: LedgerWriter, few: int = 0) -> int:
        """Write staged rows, a file a bucket or, below ``few`` rows, one file; return their number."""
        in_order = LAYOUTS[self.table].in_order
        buckets = sorted({bucket for batches in self._parts for bucket in batches})
        if self.buckets > 1 and 0 < self.rows < few:
            parts = [in_order(self._rows(bucket)) for bucket in buckets]
            return writer.write(self.table, pa.concat_tables(parts).unify_dictionaries())
        return sum(writer.write(self.table, in_order(self._rows(bucket)), bucket) for bucket in buckets)

    def _rows(self, bucket: int) -> pa.Table:
        parts = []
        for number, batches in enumerate(self._parts):
            if bucket in batches:
                with pa.memory_map(self._path(number)) as source:
                    parts.append(pa.Table.from_batches([ipc.open_file(source).get_batch(batches[bucket])]))
        return pa.concat_tables(parts).unify_dictionaries().combine_chunks()

    def _path(self, number: int) -> str:
        return f"{self.folder}/{self.table}-{number}"


MAPPING = "lake:"
"""Prefix of the mapping of lake input. The lake's identity follows, and as JSON the chains that it runs and the remote
chains that it knows."""

_BUCKET_ROWS = 400_000
_MAX_CHOSEN = 64
_ROWS_OF = {"outbound": 3, "events": 2, "collected": 0}
"""Approximate number of ledger rows a log row, to choose the bucket count of a new ledger."""


@dataclass(frozen=True)
class LakeIngest:
    """Result of one ingest of a lake.

    Attributes:
        commit: Number of the commit, or None if nothing was new.
        first: First ingested height.
        heights: Number of ingested heights.
        rows: Number of ledger rows written.
        movements: Number of movements of value written.
        waiting: Number of messages that wait for a lane after the last height.
    """

    commit: int | None
    first: int
    heights: int
    rows: int
    movements: int
    waiting: int


def is_lake(uri: str) -> bool:
    """Return True if there is a lake at a path or URI.

    Args:
        uri: Path or URI.
    """
    return Storage(uri).exists(LAKE_FILE)


def require_stored(uri: str) -> None:
    """Require a lake or a ledger at a path or URI.

    Args:
        uri: Path or URI.

    Raises:
        InvalidInput: There is neither.
    """
    reject_file(uri)
    storage = Storage(uri)
    if not storage.exists(LAKE_FILE) and not storage.exists(LEDGER_FILE):
        raise InvalidInput(f"{uri}: no lake or ledger found (no {LAKE_FILE}, no {LEDGER_FILE})")


def reject_file(uri: str) -> None:
    """Reject a path that is not a folder.

    Args:
        uri: Path or URI of a lake or ledger.

    Raises:
        InvalidInput: The path exists and is not a folder.
    """
    if "://" not in uri and os.path.exists(uri) and not os.path.isdir(uri):
        text = "a file, and a lake or a ledger is a folder; causeway ingest takes files of recorded traffic into one"
        raise InvalidInput(f"{uri}: {text}")


@contextmanager
def open_or_derive_ledger(uri: str, *, progress: DeriveProgress | None = None) -> Iterator[Ledger]:
    """Open the ledger at a path or URI, or derive that of a lake for the ``with`` block.

    Nothing is written into the lake.

    Args:
        uri: Path or URI.
        progress: Called with the number of derived heights, and their total.

    Yields:
        The ledger.

    Raises:
        InvalidInput: There is neither a ledger nor a lake.
        LedgerDamaged: The ledger is damaged.
        LakeError: The lake is unreadable.
    """
    require_stored(uri)
    if not is_lake(uri):
        yield open_ledger(uri)
        return
    with tempfile.TemporaryDirectory(prefix="causeway-ledger-") as folder:
        ingest_lake(uri, folder, progress=progress)
        yield open_ledger(folder)


def ingest_lake(
    source: str, target: str, *, buckets: int | None = None, progress: DeriveProgress | None = None
) -> LakeIngest:
    """Ingest the new heights of a lake into a ledger, as one commit.

    Args:
        source: Path or URI of the lake.
        target: Path or URI of the ledger; it is created if missing.
        buckets: Bucket count of a new ledger; default: by the rows of the lake.
        progress: Called with the number of derived heights, and their total.

    Returns:
        The result of the ingest.

    Raises:
        InvalidInput: The ledger is that of another lake, or another process commits. Nothing is committed.
        LakeError: The lake is unreadable. Nothing is committed.
        LedgerDamaged: The ledger is damaged. Nothing is committed.
    """
    if not is_lake(source):
        raise LakeError(f"{source}: no lake is there (no {LAKE_FILE})")
    derived = LedgerDerivation(Lake.at(source))
    lake = derived.lake
    ledger = open_ledger(target) if Storage(target).exists(LEDGER_FILE) else None
    first = 0 if ledger is None else _ingested_heights(derived, ledger)
    end = lake.last_height() + 1
    if ledger is None:
        ledger = create_ledger(target, buckets or _buckets_for(lake))
    elif buckets is not None and buckets != ledger.buckets:
        raise InvalidInput(f"buckets: {buckets}: the ledger at {target} has {ledger.buckets}, for good")
    if first >= end:
        return LakeIngest(None, first, 0, 0, 0, 0)
    with LedgerWriter(ledger) as writer:
        return _ingest_heights(derived, writer, first, end, progress)


def _ingest_heights(
    derived: LedgerDerivation, writer: LedgerWriter, first: int, end: int, progress: DeriveProgress | None
) -> LakeIngest:
    lake, ledger = derived.lake, writer.ledger
    before, elsewhere = _by_chain(ledger.table("waiting"), derived.local_chains())
    stated_before, _ = _by_chain(ledger.table("observed"), derived.local_chains())
    chains = ChainDerivation(derived.logs, derived.names)
    runs = RunWriter(ledger.storage, f"{STAGING}/{writer.prefix}", ledger.buckets)
    with tempfile.TemporaryDirectory(prefix="causeway-rows-") as folder:
        value_spool = BucketSpool(folder, "value", ledger.buckets)
        for part in derived.rows(first, end, drafts_from_rows(before, derived.names)):
            runs.add(part.rows)
            value_spool.add(part.value)
            if progress is not None:
                progress(part.heights.stop - first, end - first)
        runs_on_disk = runs.end(keep=True)
        rows = write_runs(writer, runs_on_disk, runs.taken, partial(_write_buckets, writer, runs_on_disk))
        movements = value_spool.write(writer, LOOSE_ROWS * ledger.buckets)
        for table, states in (("headers", chains.headers), ("watermarks", chains.watermarks)):
            spool = BucketSpool(folder, table, ledger.buckets)
            spool.add_all(states(first, end))
            spool.write(writer)
    waiting = sort_rows(derived.drafts_to_rows(derived.waiting()))
    if not waiting.equals(before):
        writer.write("waiting", sort_rows(pa.concat_tables([waiting, elsewhere]).unify_dictionaries()))
    last = lake.manifest(end - 1)
    windows = lake_windows(derived, end) + chains.windows(stated_before)
    for table, now in (
        ("observed", _remote_windows(ledger, derived.local_chains()) + windows),
        ("promises", _update_promises(ledger.table("promises").to_pylist(), lake_promises(derived, last))),
    ):
        schema = OBSERVED_SCHEMA if table == "observed" else PROMISES_SCHEMA
        table_now = to_ledger_table(now, schema)
        if not table_now.equals(ledger.table(table)):
            writer.write(table, table_now)
    records = sum(last.totals.get(name, 0) for name in _ROWS_OF)
    name = lake.storage.uri.rstrip("/").rsplit("/", 1)[-1]
    taken = InputFile(name, end, last.digest, records, _mapping(derived))
    counts = {"heights": end - first, "rows": rows, "movements": movements}
    commit = writer.commit([taken], counts)
    maintain_ledger(ledger.after(commit))
    return LakeIngest(commit.number, first, end - first, rows, movements, waiting.num_rows)


def _mapping(derived: LedgerDerivation) -> str:
    names = derived.names
    own = derived.local_chains()
    record = {"protocol": names.protocol, "runs": own, "knows": [name for name in names.chains if name not in own]}
    return f"{MAPPING}{derived.lake.identity} {json.dumps(record)}"


def _ingested_heights(derived: LedgerDerivation, ledger: Ledger) -> int:
    """Return the number of heights of a lake in a ledger.

    Raises:
        InvalidInput: The ledger has heights of a lake outside of this one's network.
    """
    lake, uri = derived.lake, ledger.storage.uri
    taken = [each for each in ledger.ingested_inputs() if each.mapping.startswith(MAPPING)]
    own = [each for each in taken if _identity(each) == lake.identity]
    if own:
        last = max(own, key=lambda each: each.bytes)
        if lake.last_height() < last.bytes - 1 or lake.manifest(last.bytes - 1).digest != last.sha256:
            text = f"{uri}: holds the heights of the lake {last.file} up to {last.bytes - 1}"
            raise InvalidInput(f"{text}, which are not those of {lake.storage.uri}")
        return last.bytes
    others = {_identity(each): each for each in taken}
    wrong = {name: reason for name, each in others.items() if (reason := _conflict(derived, each)) is not None}
    if wrong and (len(wrong) == len(others) or any(wrong.values())):
        name, reason = max(wrong.items(), key=lambda each: bool(each[1]))
        text = f"{uri}: holds the heights of the lake {others[name].file}, and {lake.storage.uri} is another one"
        raise InvalidInput(f"{text}{reason and f' {reason}'}; give it a ledger of its own")
    return 0


def _identity(taken: InputFile) -> str:
    return taken.mapping.removeprefix(MAPPING).partition(" ")[0]


def _conflict(derived: LedgerDerivation, taken: InputFile) -> str | None:
    """Return the reason why an ingested lake is in another network, or None if it is not.

    Both lakes are in one network if each knows the chains of the other. The reason is empty if neither knows of the
    other.
    """
    record = json.loads(taken.mapping.partition(" ")[2] or "{}")
    names, own = derived.names, set(derived.local_chains())
    both = sorted(own & set(record.get("runs", ())))
    if both:
        return f"that runs {both[0]} too"
    known = (
        record.get("protocol") == names.protocol
        and own & set(record["knows"])
        and set(record["runs"]) & set(names.chains)
    )
    return None if known else ""


def _by_chain(rows: pa.Table, own: list[str]) -> tuple[pa.Table, pa.Table]:
    """Split rows to those of some chains, and others."""
    there = pc.is_in(rows["chain"].cast(pa.string()), pa.array(own, pa.string()))
    return rows.filter(there), rows.filter(pc.invert(there))


def _buckets_for(lake: Lake) -> int:
    """Return the bucket count of a new ledger: a power of two."""
    newest = lake.newest()
    totals = {} if newest is None else newest.totals
    rows = sum(totals.get(table, 0) * many for table, many in _ROWS_OF.items())
    return min(1 << (rows // _BUCKET_ROWS).bit_length(), _MAX_CHOSEN)


def _write_buckets(writer: LedgerWriter, runs: list[SpooledRun], buckets: list[int]) -> Iterator[StoredFile]:
    """Sort and write buckets in threads; yield the files."""
    storage = writer.ledger.storage
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 4), "causeway-sort") as pool:
        for files in pool.map(lambda each: write_bucket(storage, f"{writer.prefix}-{each:04}", each, runs), buckets):
            yield from files


def lake_windows(derived: LedgerDerivation, end: int) -> list[dict[str, Any]]:
    """Return the windows of the chains that a lake runs: all events at all of its heights.

    Movements of value are covered if the lake logs them. Headers have windows of their own
    (``ChainDerivation.windows``), as block numbers may differ from the heights of the lake.

    Args:
        derived: Derivation of the lake.
        end: Number of heights.

    Returns:
        Rows of the table ``observed``.
    """
    first, last = (_time(derived, derived.logs.tick(height)) for height in (0, end - 1))
    window = {"first_height": 0, "last_height": end - 1, "first_time": first, "last_time": last}
    events = [*EVENTS, VALUE] if VALUE_LOG in derived.logs.schemas else EVENTS
    rest = {"events": events, "how": DECLARED, "stated_by": REPORTER_COLUMN}
    return [{**window, **rest, "chain": chain} for chain in derived.local_chains()]


def _time(derived: LedgerDerivation, tick: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=tick * derived.names.tick_micros)


def lake_promises(derived: LedgerDerivation, last: Manifest) -> list[dict[str, Any]]:
    """Return the guarantees of the used lanes of a lake.

    Args:
        derived: Derivation of the lake.
        last: Manifest of the last height.

    Returns:
        Rows of the table ``promises``.
    """
    names = derived.names
    promised = find_protocol(names.protocol).load_semantics().promises
    if promised is None:
        return []
    lanes = protocol_lanes(derived.lake, names, derived.substreams)
    settled = [Promise(SETTLED)] if derived.lake.is_settled(last) else []
    return [
        {
            "protocol": names.protocol,
            "source": each.source,
            "destination": None,
            "lane": None if each.substream is None else lane_name(each.substream, each.own),
            "promise": each.promise,
            "number": each.number,
            "detail": each.detail,
            "stated_by": REPORTER_COLUMN,
        }
        for each in (Promise(REFUND_MESSAGES), *settled, *promised(lanes))
    ]


def _remote_windows(ledger: Ledger, own: list[str]) -> list[dict[str, Any]]:
    """Return the windows of other reporters, and of chains that other lakes run."""
    before: list[dict[str, Any]] = ledger.table("observed").to_pylist()
    return [row for row in before if row["stated_by"] != REPORTER_COLUMN or row["chain"] not in own]


def _update_promises(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add guarantees; an earlier ``SETTLED`` is dropped, as it holds only for its height."""
    retained = [row for row in before if (row["promise"], row["stated_by"]) != (SETTLED, REPORTER_COLUMN)]
    return retained + [row for row in now if row not in retained]


def to_ledger_table(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Convert rows to a table.

    Args:
        rows: Rows by column name.
        schema: Schema of a ledger table.

    Returns:
        The table.
    """
    texts = pa.schema([(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in schema])
    return pa.Table.from_pylist(rows, texts).cast(schema)
