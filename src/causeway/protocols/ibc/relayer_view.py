"""The relayers' view of other zones, and the schema of their submissions.

Reference:
    IBC reference 3.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from causeway_proofs.order import U64

from causeway.core.frame import Frame
from causeway.core.joins import lookup_rows
from causeway.protocols.contract import UINT8, UINT32, UINT64, View, table_schema
from causeway.protocols.ibc.client import header_times
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.state import connection_rows
from causeway.protocols.shared.messages import LANE, LANE_FIELDS


class SubmissionKind(IntEnum):
    """The kind of a submission, in order of processing for one relayer and chain."""

    RECEIVE = 0
    RECEIPT = 1
    TIMEOUT = 2
    CLEANUP = 3
    UPDATE = 4
    """Nothing but the header, which everything else brings, too: it is always the first."""
    MISBEHAVIOUR = 5
    """Evidence against a chain, before everything else; never among the submissions of the plan."""


NO_PROOF = -1
"""The ``proof`` of a submission without one."""


class Alteration(IntEnum):
    """The alteration of a submission by a malicious relayer."""

    NONE = 0
    TAMPERED = 1
    STALE_HEADER = 2
    FOREIGN = 3


SUBMISSIONS_SCHEMA = table_schema(
    *LANE_FIELDS, relayer=UINT32, call=UINT8, begin=UINT64, end=UINT64, alteration=UINT8, proof=pa.int64()
)
"""One row a run that a relayer submits to ``destination``.

It holds the entries ``begin`` to ``end`` - 1 of the queue ``substream`` that ``source`` keeps for ``destination``.
``proof``: the row of the covering proof in the view.
"""


@dataclass(frozen=True)
class RelayerView:
    """The relayers' view for the zones that make a block.

    Attributes:
        queues: Other zones' queues for them.
        proofs: The proofs of other zones for them.
        headers: One row a zone (``HEADERS_SCHEMA``) of the previous height.
        under: The headers of queues and proofs, at most one a connection (``chain``, ``counterparty``, ``height``,
            ``time``); None for those of the previous height.
    """

    queues: Frame
    proofs: Frame
    headers: Frame
    under: Frame | None = None

    @classmethod
    def of(cls, view: View, context: Context) -> RelayerView:
        """Return the view of ``context.chains``."""
        queues, proofs = (
            view.tables[name].filter(
                (view.tables[name]["source"] != view.tables[name]["destination"])
                & np.isin(view.tables[name]["destination"], context.chains)
            )
            for name in ("queues", "proofs")
        )
        return cls(queues, proofs, view.headers)

    @cached_property
    def signed_headers(self) -> Mapping[int, bytes]:
        """Return the signed header of each visible zone, empty if it has none yet."""
        headers = self.headers
        return dict(zip(headers["chain"].tolist(), headers["certification"].to_pylist(), strict=True))

    def ends(self, lanes: Frame) -> tuple[U64, U64]:
        """Return head and tail of other zones' queues; 0 for invisible ones."""
        return self._counter("begin", lanes), self._counter("next_index", lanes)

    def ready(self, lanes: Frame) -> U64:
        """Return the end of the written entries of these queues (``QUEUES_SCHEMA``).

        It is 0 for invisible queues.
        """
        return self._counter("ready", lanes)

    def headers_of(self, chain: Any, counterparty: Any, context: Context) -> tuple[U64, U64]:
        """Return height and time (ns) of each counterparty's header in the view; time 0 for none."""
        if self.under is None:
            headers = self.headers.filter(np.isin(self.headers["chain"], counterparty))
            times = header_times(headers)
            found = np.array([times.get(zone, 0) for zone in counterparty.tolist()], dtype=np.uint64)
            return np.full_like(found, context.height - 1), found
        rows = connection_rows(self.under, chain, counterparty)
        known = rows >= 0
        heights, times_of = np.zeros(len(rows), dtype=np.uint64), np.zeros(len(rows), dtype=np.uint64)
        heights[known], times_of[known] = (self.under[name][rows[known]] for name in ("height", "time"))
        return heights, times_of

    def _counter(self, name: str, lanes: Frame) -> U64:
        rows = lookup_rows(self.queues, lanes, LANE)
        found = np.zeros(len(rows), dtype=np.uint64)
        found[rows >= 0] = self.queues[name][rows[rows >= 0]]
        return found
