"""Views of chains in memory on the previous height, for the test network of every protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from causeway.core.frame import Frame, concat
from causeway.protocols.contract import Chains, Kernel, Visibility
from causeway.protocols.shared.state_tables import sort_table


def shown_to(kernel: Kernel[Any, Any], states: Sequence[Any], group: Chains) -> dict[str, Frame]:
    """Return the tables of a view (``contract.View``): exactly the state visible to a group of chains."""
    tables = {}
    for name, table in kernel.tables().items():
        if table.shown is Visibility.NOBODY:
            continue
        rows = concat([state.frames()[name] for state in states])
        if table.shown is Visibility.DESTINATION:
            rows = rows.filter(np.isin(rows[table.shown_to], group))
        tables[name] = sort_table(table, rows)
    return tables
