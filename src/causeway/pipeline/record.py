"""What came from outside while a lake was run: written into the lake before the tick that takes it in.

So a tick is a function of files alone, whoever runs it again: ``record/<tick>-ingress.parquet`` are messages of users,
``record/<tick>-carried.parquet`` wire bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.traffic import CARRIED_SCHEMA, INGRESS_SCHEMA
from causeway.pipeline.storage import Storage

FOLDER = "record"

_SCHEMAS = {"ingress": INGRESS_SCHEMA, "carried": CARRIED_SCHEMA}


@dataclass(frozen=True)
class Record:
    """The record of one lake. Picklable."""

    storage: Storage

    def write(self, tick: int, *, ingress: pa.Table | None = None, carried: pa.Table | None = None) -> None:
        """Write down what goes into ``tick``, which must not have been run: ``INGRESS_SCHEMA``, ``CARRIED_SCHEMA``.

        What was written for the tick before, by an attempt that failed, goes.
        """
        self.storage.make_folder(FOLDER)
        for what, table in (("ingress", ingress), ("carried", carried)):
            path = _path(tick, what)
            if table is not None and table.num_rows:
                self.storage.write_table(path, table.cast(_SCHEMAS[what]))
            elif self.storage.exists(path):
                self.storage.remove(path)

    def forget(self, since: int) -> None:
        """Remove what was written down for ticks from ``since`` on, which were never committed.

        For the holder of the claim.
        """
        for name in self.storage.list(FOLDER):
            if int(name.split("-")[0]) >= since:
                self.storage.remove(f"{FOLDER}/{name}")

    def ingress(self, tick: int, chains: npt.NDArray[np.uint64]) -> pa.Table:
        """Return the messages of users to ``chains`` (numbers) in ``tick``, in the order in which they came."""
        return self._rows("ingress", tick, chains)

    def carried(self, tick: int, chains: npt.NDArray[np.uint64]) -> pa.Table:
        """Return the wire bytes carried to ``chains`` (numbers) in ``tick``, in the order in which they came."""
        return self._rows("carried", tick, chains)

    def _rows(self, what: str, tick: int, chains: npt.NDArray[np.uint64]) -> pa.Table:
        path = _path(tick, what)
        if not self.storage.exists(path):
            return _SCHEMAS[what].empty_table()
        rows = self.storage.read_table(path).cast(_SCHEMAS[what])
        return rows.filter(pa.array(np.isin(rows["chain"].to_numpy(), chains)))


def _path(tick: int, what: str) -> str:
    return f"{FOLDER}/{tick:020d}-{what}.parquet"
