"""Rows of a table that are set aside by bucket on this machine, until all are there and each bucket is written once.

Lakes that Causeway ran into stored ledgers: each height once, whatever was killed before; and for a while, so that a
lake can be audited as it is.

One call is one commit. Rows are derived a range of heights at a time, set aside by bucket, and sorted and written
bucket by bucket (``ledger_runs``): what is in memory is a range, or a part of a bucket.
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
    """Rows of ``table`` (of ``chain_order.LAYOUTS``) in ``buckets``, in files of ``folder`` that hold a part each."""

    folder: str
    table: str
    buckets: int
    rows: int = 0
    _parts: list[dict[int, int]] = field(default_factory=list)

    def add(self, rows: pa.Table) -> None:
        """Set rows aside."""
        if not rows.num_rows:
            return
        batches: dict[int, int] = {}
        whole = rows.unify_dictionaries().combine_chunks()
        with ipc.new_file(self._path(len(self._parts)), table_schema(self.table)) as sink:
            for bucket, mine in group_by_bucket(whole, self.buckets, self.table).items():
                batches[bucket] = len(batches)
                sink.write_table(mine)
        self._parts.append(batches)
        self.rows += rows.num_rows

    def add_all(self, tables: Iterable[pa.Table]) -> None:
        """Set the rows of several tables aside."""
        for rows in tables:
            self.add(rows)

    def write(self, writer: LedgerWriter, few: int = 0) -> int:
        """Write each bucket as a file of the ledger, or fewer rows than ``few`` as one file for all buckets; return how
        many rows there are."""
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
"""How the mapping of what was taken of a lake begins; its identity follows, and in JSON which chains it runs and which
it knows that other lakes run."""

_BUCKET_ROWS = 400_000
_MAX_CHOSEN = 64
_ROWS_OF = {"outbound": 3, "events": 2, "collected": 0}
"""About how many rows of the ledger a row of a log gives: to choose how many buckets a new ledger has."""


@dataclass(frozen=True)
class LakeIngest:
    """What one call did. ``commit``: the number of the commit, None: nothing was new. ``first``, ``heights``: the
    lowest height that was taken, and how many; ``rows``: of the ledger that were written; ``movements``: of value;
    ``waiting``: messages that wait for a lane after the last height."""

    commit: int | None
    first: int
    heights: int
    rows: int
    movements: int
    waiting: int


def is_lake(uri: str) -> bool:
    """Return whether a lake that Causeway ran is at a path or URI."""
    return Storage(uri).exists(LAKE_FILE)


def require_stored(uri: str) -> None:
    """Raise ``InvalidInput`` where neither a lake nor a ledger is at a path or URI."""
    reject_file(uri)
    storage = Storage(uri)
    if not storage.exists(LAKE_FILE) and not storage.exists(LEDGER_FILE):
        raise InvalidInput(f"{uri}: neither a lake nor a ledger is there (no {LAKE_FILE}, no {LEDGER_FILE})")


def reject_file(uri: str) -> None:
    """Raise ``InvalidInput`` for the path of what is there and no folder."""
    if "://" not in uri and os.path.exists(uri) and not os.path.isdir(uri):
        text = "a file, and a lake or a ledger is a folder; causeway ingest takes files of recorded traffic into one"
        raise InvalidInput(f"{uri}: {text}")


@contextmanager
def open_or_derive_ledger(uri: str, *, progress: DeriveProgress | None = None) -> Iterator[Ledger]:
    """Give the ledger at a path or URI: the stored one; of a lake that Causeway ran one that is derived from it, and is
    gone with the end of the ``with`` statement. Nothing is written into the lake.

    Raises ``InvalidInput`` where nothing is, ``LedgerDamaged``, ``LakeError``.
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
    """Take the heights of the lake ``source`` that are new into the ledger at ``target``, made if need be.

    ``buckets``: of a new ledger; default: by the rows of the lake. ``progress``: told of the heights that are done.

    Raises ``InvalidInput`` for a ledger of another lake, or when another process commits at the same time, and
    ``LakeError``, ``LedgerDamaged``; nothing is committed then.
    """
    if not is_lake(source):
        raise LakeError(f"{source}: no lake is there (no {LAKE_FILE})")
    derived = LedgerDerivation(Lake.at(source))
    lake = derived.lake
    ledger = open_ledger(target) if Storage(target).exists(LEDGER_FILE) else None
    first = 0 if ledger is None else _taken(derived, ledger)
    end = lake.last_height() + 1
    if ledger is None:
        ledger = create_ledger(target, buckets or _buckets_for(lake))
    elif buckets is not None and buckets != ledger.buckets:
        raise InvalidInput(f"buckets: {buckets}: the ledger at {target} has {ledger.buckets}, for good")
    if first >= end:
        return LakeIngest(None, first, 0, 0, 0, 0)
    writer = LedgerWriter(ledger)
    try:
        return _take(derived, writer, first, end, progress)
    except BaseException:
        writer.abandon()
        raise
    finally:
        if writer.prefix in ledger.storage.list(STAGING):
            ledger.storage.remove_folder(f"{STAGING}/{writer.prefix}")


def _take(
    derived: LedgerDerivation, writer: LedgerWriter, first: int, end: int, progress: DeriveProgress | None
) -> LakeIngest:
    lake, ledger = derived.lake, writer.ledger
    before, elsewhere = _by_chain(ledger.table("waiting"), derived.local_chains())
    stated_before, _ = _by_chain(ledger.table("observed"), derived.local_chains())
    chains = ChainDerivation(derived.logs, derived.names)
    runs = RunWriter(ledger.storage, f"{STAGING}/{writer.prefix}", ledger.buckets)
    with tempfile.TemporaryDirectory(prefix="causeway-rows-") as folder:
        moved = BucketSpool(folder, "value", ledger.buckets)
        for part in derived.rows(first, end, drafts_from_rows(before, derived.names)):
            runs.add(part.rows)
            moved.add(part.value)
            if progress is not None:
                progress(part.heights.stop - first, end - first)
        ended = runs.end(keep=True)
        rows = write_runs(writer, ended, runs.taken, partial(_settled, writer, ended))
        movements = moved.write(writer, LOOSE_ROWS * ledger.buckets)
        for table, states in (("headers", chains.headers), ("watermarks", chains.watermarks)):
            stated = BucketSpool(folder, table, ledger.buckets)
            stated.add_all(states(first, end))
            stated.write(writer)
    waiting = sort_rows(derived.drafts_to_rows(derived.waiting()))
    if not waiting.equals(before):
        writer.write("waiting", sort_rows(pa.concat_tables([waiting, elsewhere]).unify_dictionaries()))
    last = lake.manifest(end - 1)
    windows = lake_windows(derived, end) + chains.windows(stated_before)
    for table, now in (
        ("observed", _of_others(ledger, derived.local_chains()) + windows),
        ("promises", _also(ledger.table("promises").to_pylist(), lake_promises(derived, last))),
    ):
        schema = OBSERVED_SCHEMA if table == "observed" else PROMISES_SCHEMA
        made = to_ledger_table(now, schema)
        if not made.equals(ledger.table(table)):
            writer.write(table, made)
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
    said = {"protocol": names.protocol, "runs": own, "knows": [name for name in names.chains if name not in own]}
    return f"{MAPPING}{derived.lake.identity} {json.dumps(said)}"


def _taken(derived: LedgerDerivation, ledger: Ledger) -> int:
    """Return how many heights of a lake a ledger has. Raises ``InvalidInput`` where it has those of one with which this
    one exchanges no messages."""
    lake, uri = derived.lake, ledger.storage.uri
    taken = [each for each in ledger.taken() if each.mapping.startswith(MAPPING)]
    own = [each for each in taken if _identity(each) == lake.identity]
    if own:
        last = max(own, key=lambda each: each.bytes)
        if lake.last_height() < last.bytes - 1 or lake.manifest(last.bytes - 1).digest != last.sha256:
            text = f"{uri}: holds the heights of the lake {last.file} up to {last.bytes - 1}"
            raise InvalidInput(f"{text}, which are not those of {lake.storage.uri}")
        return last.bytes
    others = {_identity(each): each for each in taken}
    wrong = {name: why for name, each in others.items() if (why := _apart(derived, each)) is not None}
    if wrong and (len(wrong) == len(others) or any(wrong.values())):
        name, why = max(wrong.items(), key=lambda each: bool(each[1]))
        text = f"{uri}: holds the heights of the lake {others[name].file}, and {lake.storage.uri} is another one"
        raise InvalidInput(f"{text}{why and f' {why}'}; give it a ledger of its own")
    return 0


def _identity(taken: InputFile) -> str:
    return taken.mapping.removeprefix(MAPPING).partition(" ")[0]


def _apart(derived: LedgerDerivation, taken: InputFile) -> str | None:
    """Return why a lake is in no network with one that was taken: empty where neither knows of the other; None where
    each knows the chains of the other."""
    said = json.loads(taken.mapping.partition(" ")[2] or "{}")
    names, own = derived.names, set(derived.local_chains())
    both = sorted(own & set(said.get("runs", ())))
    if both:
        return f"that runs {both[0]} too"
    known = (
        said.get("protocol") == names.protocol and own & set(said["knows"]) and set(said["runs"]) & set(names.chains)
    )
    return None if known else ""


def _by_chain(rows: pa.Table, own: list[str]) -> tuple[pa.Table, pa.Table]:
    """Return the rows of some chains, and those of others."""
    there = pc.is_in(rows["chain"].cast(pa.string()), pa.array(own, pa.string()))
    return rows.filter(there), rows.filter(pc.invert(there))


def _buckets_for(lake: Lake) -> int:
    """Return how many buckets a new ledger gets: a power of two."""
    newest = lake.newest()
    totals = {} if newest is None else newest.totals
    rows = sum(totals.get(table, 0) * many for table, many in _ROWS_OF.items())
    return min(1 << (rows // _BUCKET_ROWS).bit_length(), _MAX_CHOSEN)


def _settled(writer: LedgerWriter, runs: list[SpooledRun], buckets: list[int]) -> Iterator[StoredFile]:
    """Write the rows of buckets in threads; yield the files."""
    storage = writer.ledger.storage
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 4), "causeway-sort") as pool:
        for files in pool.map(lambda each: write_bucket(storage, f"{writer.prefix}-{each:04}", each, runs), buckets):
            yield from files


def lake_windows(derived: LedgerDerivation, end: int) -> list[dict[str, Any]]:
    """Return the windows of the chains that a lake runs: of all events at all of its heights, and of movements of value
    where it logs them. Headers have windows of their own (``LakeChains``): the numbers of blocks may be others than the
    heights of a lake."""
    first, last = (_time(derived, derived.logs.tick(height)) for height in (0, end - 1))
    window = {"first_height": 0, "last_height": end - 1, "first_time": first, "last_time": last}
    events = [*EVENTS, VALUE] if VALUE_LOG in derived.logs.schemas else EVENTS
    rest = {"events": events, "how": DECLARED, "stated_by": REPORTER_COLUMN}
    return [{**window, **rest, "chain": chain} for chain in derived.local_chains()]


def _time(derived: LedgerDerivation, tick: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=tick * derived.names.tick_micros)


def lake_promises(derived: LedgerDerivation, last: Manifest) -> list[dict[str, Any]]:
    """Return what the lanes that messages used promise, of a lake up to the manifest ``last``."""
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


def _of_others(ledger: Ledger, own: list[str]) -> list[dict[str, Any]]:
    """Return the windows that others state, and those of chains that other lakes run."""
    before: list[dict[str, Any]] = ledger.table("observed").to_pylist()
    return [row for row in before if row["stated_by"] != REPORTER_COLUMN or row["chain"] not in own]


def _also(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what lanes promised, and what they promise beside it now; that nothing more will happen holds only now."""
    kept = [row for row in before if (row["promise"], row["stated_by"]) != (SETTLED, REPORTER_COLUMN)]
    return kept + [row for row in now if row not in kept]


def to_ledger_table(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return rows as a table of a ledger."""
    texts = pa.schema([(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in schema])
    return pa.Table.from_pylist(rows, texts).cast(schema)
