"""The kernel's payload log: what its subnets agreed on and executed, batch by batch, from its own tables. G12 is held
against it as against the oracle's."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from causeway_proofs.errors import InvariantViolation
from causeway_proofs.ic.stream_columns import encode_stream_messages

from causeway.core.frame import Frame
from causeway.protocols.ic.options import IcOptions
from causeway.protocols.shared.messages import MESSAGE_COLUMNS
from tests.spec import ic
from tests.spec.ic import guarantees
from tests.spec.ic.payloads import Proposal
from tests.spec.ic.sizes import run_bytes

Read = Any
"""Returns the messages of ranges (lane, ``begin``, ``end``)."""


@dataclass
class Round:
    """What one call of the kernel agreed on and executed: frames of slices, and the ``chains`` that ran. ``headers``:
    the lengths of the encoded headers that were brought, by ``KEY``."""

    chains: list[int]
    agreed: Frame
    executed: Frame
    headers: Mapping[tuple[int, ...], int]


@dataclass
class PayloadLog:
    """The log of a run. A batch has the number of the rounds that its subnet has run."""

    options: IcOptions
    batches: Counter[int] = field(default_factory=Counter)
    proposals: list[Proposal] = field(default_factory=list)
    executed: list[ic.Event] = field(default_factory=list)
    sized: int = 0

    def add(self, made: Round, read: Read) -> None:
        """Take a round; ``read`` still has all its messages."""
        ahead, limit = self.options.blocks_ahead, self.options.payload_bytes or None
        agreed, executed = slices_of(made.agreed), slices_of(made.executed)
        sizes: Counter[int] = Counter()
        for row, chain in enumerate(made.agreed["destination"].tolist()):
            sizes[chain] += self._size(made, made.agreed.slice(row, row + 1), read) if limit else 0
        for chain in made.chains:
            self.batches[chain] += 1
            now = self.batches[chain]
            slices = agreed[chain]
            self.proposals.append(Proposal(chain, now + ahead, now - 1, ahead, True, sizes[chain], limit, slices))
            for remote, detail in executed[chain].items():
                self.executed.append(ic.Event("received", chain, now, "control", remote=remote, detail=detail))

    def refuse(self, error: InvariantViolation) -> None:
        """Take the refusal of an honest payload."""
        for chain in np.atleast_1d(error.chains).tolist():
            now = self.batches[chain]
            self.proposals.append(Proposal(chain, now + 1, now, 0, True, 0, None, {}, str(error)))

    def _size(self, made: Round, row: Frame, read: Read) -> int:
        """The size (2.10) of a slice, by the oracle's formula."""
        values = {name: int(row[name][0]) for name in BOUNDS}
        key = tuple(int(row[name][0]) for name in KEY)
        header = len(row["header"][0].as_py()) if "header" in row else made.headers[key]
        lane = row.select(["source", "destination", "substream"])
        messages = read(lane.with_columns(begin=row["message_begin"], end=row["message_end"]))
        columns = {name: messages[name] for name in MESSAGE_COLUMNS}
        lengths = [len(blob) for blob in encode_stream_messages(columns, self.options.version).to_pylist()]
        self.sized += 1
        return run_bytes(values["begin"], values["end"], values["message_begin"], header, lengths)

    def violations(self) -> list[str]:
        """What G12 says of all payloads that were due."""
        due = [row for row in self.proposals if row.height <= self.batches[row.chain]]
        return guarantees.g12_payloads(due, self.executed, last=max(self.batches.values(), default=0))


BOUNDS = ("begin", "end", "signals_end", "message_begin", "message_end")
KEY = ("source", "destination", "begin", "end", "signals_end")


def headers_of(*brought: Frame) -> dict[tuple[int, ...], int]:
    """The lengths of the headers of slices by ``KEY``."""
    found: dict[tuple[int, ...], int] = {}
    for frame in brought:
        keys = zip(*(frame[name].tolist() for name in KEY), strict=True)
        found |= {key: len(header) for key, header in zip(keys, frame["header"].to_pylist(), strict=True)}
    return found


def slices_of(frame: Frame) -> dict[int, dict[int, Any]]:
    """The slices of each subnet by the remote one that they are from, as the checker reads them (positions)."""
    found: dict[int, dict[int, Any]] = defaultdict(dict)
    rows = zip(*(frame[name].tolist() for name in ("destination", "source", "substream", *BOUNDS)), strict=True)
    for chain, remote, substream, begin, end, signals_end, first, stop in rows:
        if chain != remote:
            indices = (first, stop) if stop > first else (None, None)
            detail = (substream, begin, end, signals_end, *indices)
            found[chain][remote] = (*found[chain].get(remote, ()), detail)
    return found
