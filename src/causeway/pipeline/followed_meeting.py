"""Lets rows of different runs of a ledger that is followed meet (``audit.meeting``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.audit.arrays import Ints
from causeway.audit.bucket import Bucket
from causeway.audit.candidates import NAMED, Met
from causeway.audit.columns import Columns
from causeway.audit.meeting import Meeting, Waiting
from causeway.model.errors import CausewayError
from causeway.pipeline.followed_answers import FollowedAnswers, Named
from causeway.pipeline.followed_rows import FollowedRows

_RUN_BITS = 32
"""A row's place is the number of its run, shifted by so many bits, and its number in the run."""


class BucketLost(CausewayError):
    """A bucket that was read before can no longer be read."""


@dataclass(frozen=True)
class MetRuns:
    """Lets rows of runs meet. ``answers``: what is known of requests and responses; ``serial``: of the windows;
    ``parallel``: does something for some numbers at once, and returns of each what came of
    it, or the error with which a bucket cannot be read."""

    passes: FollowedRows
    answers: FollowedAnswers
    serial: int
    parallel: Callable[[Callable[[int], Any], Iterable[int]], list[tuple[int, Any]]]

    def met(self, meeting: Meeting) -> list[Met]:
        """Return what meets, a part each. Raises ``BucketLost``."""
        whole = {bucket: runs for bucket, runs in meeting.runs.items() if self.passes.is_whole(bucket)}
        meeting, found = replace(meeting, runs=whole), []
        if meeting.answering is not None:
            found += self.answers.met(meeting, self.serial, self._all)
        if meeting.pressure is not None:
            found += self._pressed(replace(meeting, answering=None), range(meeting.parts)[-meeting.pressure.count :])
        return found

    def _pressed(self, meeting: Meeting, parts: range) -> list[Met]:
        """Return what messages in flight show, of all runs of lanes in which too many may be."""
        with Waiting() as waiting:

            def give(bucket: int) -> None:
                for number in meeting.runs[bucket]:
                    run = number // 2
                    rows, _ = self.passes.run_with(bucket, run)
                    own = Bucket(Columns.of(rows), meeting.known)
                    for piece in meeting.records(own, (run << 32) + np.arange(rows.num_rows), bucket):
                        waiting.add(piece)

            self._all(give, meeting.runs)
            return [each for _, each in self.parallel(lambda part: meeting.met(waiting.of(part)), parts)]

    def rows(self, wanted: Mapping[int, Ints]) -> Mapping[int, pa.Table]:
        """Return rows of buckets (``NAMED``) by their places, ascending. Raises ``BucketLost``."""

        def taken(bucket: int) -> pa.Table:
            of = wanted[bucket] >> _RUN_BITS
            parts = []
            for run in np.unique(of).tolist():
                places = wanted[bucket][of == run] - (run << _RUN_BITS)
                stamp = self.passes.held[bucket][run].stamp
                known = self.answers.named.get((bucket, run))
                if known is None or known.stamp != stamp or not np.isin(places, known.places).all():
                    rows, _ = self.passes.run_with(bucket, run)
                    known = self.answers.named[bucket, run] = Named(stamp, places, rows.take(NAMED, places))
                parts.append(known.rows.take(pa.array(np.searchsorted(known.places, places))))
            return pa.concat_tables(parts).unify_dictionaries().combine_chunks()

        return dict(self._all(taken, [*wanted]))

    def _all(self, judge: Callable[[int], Any], buckets: Iterable[int]) -> list[tuple[int, Any]]:
        found = self.parallel(judge, buckets)
        for bucket, each in found:
            if isinstance(each, CausewayError):
                self.passes.fail(bucket, each)
                raise BucketLost(str(each))
        return found


__all__ = ["BucketLost", "MetRuns"]
