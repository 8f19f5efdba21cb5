"""Answers of a stored ledger that travel over lanes of their own, to requests of any bucket."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from causeway.audit.known import Known
from causeway.audit.windows import Promises, Windows
from causeway.figures.replies import OPEN_SCHEMA, REPLIES_SCHEMA, first_of, open_in, replies_in
from causeway.figures.shown import outcomes_of
from causeway.pipeline.ledger_parts import bucket_parts
from causeway.pipeline.ledger_passes import Passes, Shared
from causeway.pipeline.ledger_store import Ledger
from causeway.pipeline.ledger_tasks import once

TOGETHER = 4_000_000
"""Requests whose answers are looked for at a time."""

_WORD = 1 << 64


@dataclass(frozen=True)
class Gathered:
    """Rows that a bucket gives."""

    rows: pa.Table


@dataclass(frozen=True)
class _Search:
    """What the buckets share. ``first``, ``last``: of the digests that are looked for; ``asked``: those, ascending."""

    key: str
    ledger: Ledger
    observed: pa.Table
    promises: pa.Table
    first: int
    last: int
    asked: pa.Array | None = None


def replies_of(ledger: Ledger, passes: Passes, asking: Sequence[int], naming: Sequence[int], count: int) -> pa.Table:
    """Return the answers to requests that nothing else tells the answer of (``REPLIES_SCHEMA``), by ``id_0``.

    Args:
        ledger: as of a commit.
        passes: who looks.
        asking: the buckets with such requests.
        naming: those with responses that name what they answer.
        count: about how many such requests there are.

    Raises as ``ledger_figures.figures_of``.
    """
    tables = ledger.table("observed"), ledger.table("promises")
    rounds = max(-(-count // TOGETHER), 1)
    found = [REPLIES_SCHEMA.empty_table()]
    for number in range(rounds):
        first, last = number * _WORD // rounds, (number + 1) * _WORD // rounds - 1
        search = _Search(uuid.uuid4().hex, ledger, *tables, first, last)
        gathered = [each.rows for _, each in passes.over(asking, _open_in, search, Gathered)]
        asked = np.unique(pa.concat_tables([OPEN_SCHEMA.empty_table(), *gathered])["id_0"].to_numpy())
        if len(asked):
            search = replace(search, asked=pa.array(asked))
            came = [each.rows for _, each in passes.over(naming, _replies_in, search, Gathered)]
            found.append(first_of(pa.concat_tables([REPLIES_SCHEMA.empty_table(), *came])))
    return pa.concat_tables(found).unify_dictionaries().combine_chunks()


def _open_in(shared: Shared, bucket: int) -> Iterator[tuple[int, Gathered]]:
    search: _Search = shared.value
    for number, outcomes in enumerate(outcomes_of(bucket_parts(search.ledger, bucket), _known(search))):
        rows = open_in(outcomes.columns, outcomes.base, outcomes.unanswered)
        words = rows["id_0"].to_numpy()
        inside = (words >= np.uint64(search.first)) & (words <= np.uint64(search.last))
        yield number, Gathered(rows.filter(pa.array(inside)))


def _replies_in(shared: Shared, bucket: int) -> Iterator[tuple[int, Gathered]]:
    search: _Search = shared.value
    asked = np.zeros(0, np.uint64) if search.asked is None else search.asked.to_numpy()
    for number, outcomes in enumerate(outcomes_of(bucket_parts(search.ledger, bucket), _known(search))):
        yield number, Gathered(replies_in(outcomes.bucket, asked))


def _known(search: _Search) -> Known:
    return once(search.key, lambda: Known(Windows(search.observed), Promises(search.promises)))


__all__ = ["replies_of"]
