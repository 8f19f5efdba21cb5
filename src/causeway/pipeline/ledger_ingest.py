"""Recorded traffic into a stored ledger: each record of each file once, whatever was killed before.

One call is one commit. What is in memory is a batch of rows, however many there are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from causeway.ingest.chunks import BadFile
from causeway.ingest.mapping import MappingDocument
from causeway.ingest.reader import is_divisible
from causeway.ledger.order import MOST_BUCKETS
from causeway.model.errors import InvalidInput
from causeway.pipeline.allocator import keep_memory
from causeway.pipeline.ledger_commit import COUNTED, Done, commit_files
from causeway.pipeline.ledger_commits import LEDGER_FILE
from causeway.pipeline.ledger_runners import MOST_THREADS, InThreads, OnSpark, Runner
from causeway.pipeline.ledger_sources import Known, Source, no_files, sources_of
from causeway.pipeline.ledger_store import Ledger, create_ledger, open_ledger
from causeway.pipeline.ledger_upkeep import keep_up, sweep
from causeway.pipeline.masters import cores_here
from causeway.pipeline.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXECUTORS = ("auto", "in_process", "spark")

SPARK_BYTES = 16 << 30
"""From so many bytes on ``auto`` takes Spark."""

_ROW_BYTES = {"csv": 200, "jsonl": 1000, "parquet": 20}
"""About how many bytes a record takes, by the format: to choose how many buckets a new ledger has."""

_BUCKET_ROWS, _MOST_ROWS = 400_000, 2_000_000
_FEW_BUCKETS = 64

Progress = Callable[[int, int], None]
"""Told how many bytes are read, and of how many."""


@dataclass
class Ingested:
    """What one call did. ``commit``: the number of the commit, None: nothing was new. ``records``: that were read;
    ``rows``: of the ledger that were written; ``repeated``: rows that say again what another one said; ``taken``:
    records that gave rows, ``ignored``, ``blank``: those that gave none; ``quarantined``: those that could not be read,
    by the reason; ``failed``: files that could not be read at all, with a text; ``skipped``: files of which all was
    taken before; ``others``: files of the folder that are of another format; ``movements`` of value, ``headers`` and
    ``watermarks``: rows of these tables."""

    commit: int | None
    files: int
    records: int
    rows: int
    repeated: int
    taken: int
    ignored: int
    blank: int
    quarantined: dict[str, int]
    failed: dict[str, str]
    skipped: int
    others: int
    movements: int = 0
    headers: int = 0
    watermarks: int = 0


def ingest(
    source: str,
    lake: str,
    mapping: MappingDocument,
    *,
    buckets: int | None = None,
    executor: str = "auto",
    session: SparkSession | None = None,
    master: str = "local[*]",
    settings: Mapping[str, str] = MappingProxyType({}),
    set_aside: bool = False,
    progress: Progress | None = None,
) -> Ingested:
    """Take the files of ``source``, a file or a folder (paths or URIs), into the ledger at ``lake``, made if need be.

    A file of which the same mapping took all bytes before is skipped, whatever it is called; of one that has grown by
    whole records, what was appended is taken.

    Args:
        source: what is taken.
        lake: where the ledger is.
        mapping: what the records mean.
        buckets: of a new ledger; default: by the size of the files.
        executor: ``in_process``, ``spark``, or ``auto``: Spark where a ``session`` is given, or from ``SPARK_BYTES``
            on.
        session: the Spark session that is used; without one, ``open_session(master, extra=settings)`` opens one where
            Spark is used.
        master, settings: as of ``open_session``.
        set_aside: whether a file that cannot be read at all goes to the table ``quarantine`` and the others are taken.
            If not, it ends the call.
        progress: is told of the bytes that are read, from any thread.

    Raises ``InvalidInput`` for files that are not as the mapping says, or when another process commits at the same
    time, ``LedgerDamaged``, and ``TaskFailed`` when a Spark task fails; nothing is committed then.
    """
    if executor not in EXECUTORS:
        raise InvalidInput(f"executor: {executor}: must be one of {', '.join(EXECUTORS)}")
    found, others = sources_of(source, mapping)
    known = identity(mapping)
    ledger = opened(lake, buckets)
    before = Known(() if ledger is None else ledger.taken(), known)
    takes, failed = before.new_in(found, mapping)
    if failed and not set_aside:
        raise InvalidInput(failed[min(failed)][1])
    skipped = len(found) - len(takes) - len(failed)
    if not takes:
        if ledger is None:
            raise no_files(source, mapping)
        return Ingested(None, 0, 0, 0, 0, 0, 0, 0, {}, {}, skipped, others)
    if ledger is None:
        ledger = create_ledger(lake, buckets_for(found, mapping) if buckets is None else buckets)
    size = sum(take.source.size - take.begin for take in takes)
    runner: Runner
    if executor == "spark" or (executor == "auto" and (session is not None or size >= SPARK_BYTES)):
        from causeway.pipeline.session import open_session

        runner = OnSpark(session or open_session(master, extra=settings))
    else:
        keep_memory()
        runner = InThreads()
    done = commit_files(ledger, takes, mapping, known, runner, strict=not set_aside, progress=progress)
    done.failed |= failed
    if done.commit is not None:
        sweep(keep_up(ledger.after(done.commit), min(cores_here(), MOST_THREADS)))
    return ingested(done, skipped, others)


def ingested(done: Done, skipped: int, others: int) -> Ingested:
    """Return what a commit did."""
    counts = done.counts
    return Ingested(
        None if done.commit is None else done.commit.number,
        done.files,
        counts["records"],
        done.rows,
        done.repeated,
        counts["taken"],
        counts["ignored"],
        counts["blank"],
        dict(sorted(done.reasons.items())),
        {name: text for name, (_, text) in sorted(done.failed.items())},
        skipped,
        others,
        **{name: done.beside[table] for table, name in COUNTED.items()},
    )


def identity(mapping: MappingDocument) -> str:
    """Return the digest of what a mapping says."""
    text = json.dumps(mapping.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def opened(lake: str, buckets: int | None = None) -> Ledger | None:
    """Return the ledger at a path or URI, None where there is none yet. ``buckets``: that it must have, or may be made
    with; None: any. Raises ``InvalidInput``."""
    if not lake:
        raise InvalidInput("lake: empty; give a folder or URI")
    if buckets is not None and not 1 <= buckets <= MOST_BUCKETS:
        raise InvalidInput(f"buckets: {buckets}: must be from 1 to {MOST_BUCKETS}")
    ledger = open_ledger(lake) if Storage(lake).exists(LEDGER_FILE) else None
    if ledger is not None and buckets is not None and buckets != ledger.buckets:
        raise InvalidInput(f"buckets: {buckets}: the ledger at {lake} has {ledger.buckets}, for good")
    return ledger


def buckets_for(sources: Sequence[Source], mapping: MappingDocument) -> int:
    """Return how many buckets a new ledger gets: a power of two."""
    rows = 0
    for source in sources:
        size = source.size if is_divisible(source.path) else 5 * source.size
        rows += size // _ROW_BYTES[mapping.format_of(source.path)]
    few = min(1 << max(rows // _BUCKET_ROWS, 0).bit_length(), _FEW_BUCKETS)
    return min(max(few, 1 << max(rows // _MOST_ROWS, 0).bit_length()), MOST_BUCKETS)


__all__ = ["EXECUTORS", "BadFile", "Ingested", "buckets_for", "identity", "ingest", "ingested", "opened"]
