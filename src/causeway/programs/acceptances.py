"""What handlers accepted of requests that stay open, as columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from causeway.model.frame import Frame, empty_frame
from causeway.programs.outputs import WORD
from causeway.programs.scalar import Acceptance
from causeway.protocols.execution import ACCEPTED_SCHEMA


def acceptance_rows(found: Sequence[tuple[int, int, Acceptance]]) -> Frame:
    """Return acceptances, each with the row of its input and its program, as rows (``ACCEPTED_SCHEMA``)."""
    if not found:
        return empty_frame(ACCEPTED_SCHEMA)
    rows = []
    for row, program, each in found:
        sender, callback, _, deadline = each.ref
        rows.append((row, program, sender, callback, deadline, *divmod(each.before, WORD), *divmod(each.after, WORD)))
    columns = zip(ACCEPTED_SCHEMA, zip(*rows, strict=True), strict=True)
    return Frame({field.name: np.array(column, field.type.to_pandas_dtype()) for field, column in columns}, len(rows))
