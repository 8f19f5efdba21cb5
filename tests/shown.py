"""What chains of a network in memory see of the height before, for every protocol's test network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from causeway.model.frame import Frame, concat
from causeway.protocols.contract import Chains, Kernel, Shown
from causeway.protocols.partition import in_order


def shown_to(kernel: Kernel[Any, Any], states: Sequence[Any], group: Chains) -> dict[str, Frame]:
    """Return the tables of a view (``contract.View``): of all states what a group of chains is shown, nothing else."""
    tables = {}
    for name, table in kernel.tables().items():
        if table.shown is Shown.NOBODY:
            continue
        rows = concat([state.frames()[name] for state in states])
        if table.shown is Shown.DESTINATION:
            rows = rows.filter(np.isin(rows[table.shown_to], group))
        tables[name] = in_order(table, rows)
    return tables
