"""What came from outside while a lake was run: written into the lake before the tick that takes it in.

So a tick is a function of files alone, whoever runs it again: ``record/<tick>-ingress.parquet`` are messages of users,
``record/<tick>-carried.parquet`` wire bytes. What a server remembers of their senders lies beside them, and no tick
reads it: ``<tick>-taken.parquet``, ``<tick>-senders.parquet`` (``service/senders.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.traffic import CARRIED_SCHEMA, INGRESS_SCHEMA
from causeway.pipeline.storage import Storage

FOLDER = "record"

TAKEN_SCHEMA = pa.schema(
    [
        pa.field("hash", pa.binary(32), nullable=False),
        pa.field("sender", pa.binary(), nullable=False),
        pa.field("nonce", pa.uint64(), nullable=False),
        pa.field("height", pa.uint64(), nullable=False),
    ]
)
"""One row a message that a block has: its name, its sender's public key and nonce, the block's height."""

SENDERS_SCHEMA = pa.schema(
    [pa.field("sender", pa.binary(), nullable=False), pa.field("nonce", pa.uint64(), nullable=False)]
)
"""One row a sender: its public key and last nonce, by when that was used. The first row, with an empty key, has the
largest nonce of those that are forgotten."""

_SCHEMAS = {
    "ingress": INGRESS_SCHEMA,
    "carried": CARRIED_SCHEMA,
    "taken": TAKEN_SCHEMA,
    "senders": SENDERS_SCHEMA,
}


@dataclass(frozen=True)
class Record:
    """The record of one lake. Picklable."""

    storage: Storage

    def write(self, tick: int, **tables: pa.Table | None) -> None:
        """Write down what goes into ``tick``, which must not have been run.

        ``tables``: any of ``ingress`` (``INGRESS_SCHEMA``), ``carried`` (``CARRIED_SCHEMA``), ``taken``
        (``TAKEN_SCHEMA``), ``senders`` (``SENDERS_SCHEMA``). What an attempt that failed wrote for this tick goes.
        """
        self.storage.make_folder(FOLDER)
        for what in _SCHEMAS:
            path, table = _path(tick, what), tables.get(what)
            if table is not None and table.num_rows:
                self.storage.write_table(path, table.cast(_SCHEMAS[what]))
            elif self.storage.exists(path):
                self.storage.remove(path)

    def forget(self, since: int, but: int | None = None) -> None:
        """Remove what was written down for ticks from ``since`` on, which were never committed; not for tick ``but``.

        For the holder of the claim.
        """
        for name in self.storage.list(FOLDER):
            if (tick := int(name.split("-")[0])) >= since and tick != but:
                self.storage.remove(f"{FOLDER}/{name}")

    def ingress(self, tick: int, chains: npt.NDArray[np.uint64]) -> pa.Table:
        """Return the messages of users to ``chains`` (numbers) in ``tick``, in the order in which they came."""
        return self._rows("ingress", tick, chains)

    def carried(self, tick: int, chains: npt.NDArray[np.uint64]) -> pa.Table:
        """Return the wire bytes carried to ``chains`` (numbers) in ``tick``, in the order in which they came."""
        return self._rows("carried", tick, chains)

    def brings(self, tick: int) -> bool:
        """Return whether anything comes from outside in a tick."""
        return any(self.storage.exists(_path(tick, what)) for what in ("ingress", "carried"))

    def ticks(self, what: str) -> list[int]:
        """Return the ticks, ascending, of which there is a table: ``ingress``, ``carried``, ``taken``, ``senders``."""
        ending = f"-{what}.parquet"
        return sorted(int(name.split("-")[0]) for name in self.storage.list(FOLDER) if name.endswith(ending))

    def read(self, what: str, tick: int) -> pa.Table:
        """Return the table that was written for a tick, empty where there is none."""
        path = _path(tick, what)
        if not self.storage.exists(path):
            return _SCHEMAS[what].empty_table()
        return self.storage.read_table(path).cast(_SCHEMAS[what])

    def _rows(self, what: str, tick: int, chains: npt.NDArray[np.uint64]) -> pa.Table:
        rows = self.read(what, tick)
        return rows.filter(pa.array(np.isin(rows["chain"].to_numpy(), chains)))


def _path(tick: int, what: str) -> str:
    return f"{FOLDER}/{tick:020d}-{what}.parquet"
