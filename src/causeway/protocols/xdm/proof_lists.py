"""The nodes of a proof as one value: a list of byte strings in ascending order, in SCALE."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.proofs.substrate import ScaleColumns
from causeway.proofs.xdm.types import XDM_TYPES

_LISTS = ScaleColumns(XDM_TYPES, "BTreeSet<Vec<u8>>", "the nodes of a proof")
_NODES = _LISTS.schema.field(0)


def encode_lists(lists: Sequence[Sequence[bytes]]) -> pa.LargeBinaryArray:
    """Return each list of nodes as one value."""
    return _LISTS.encode({_NODES.name: pa.array([list(nodes) for nodes in lists], _NODES.type)})


def decode_lists(values: pa.LargeBinaryArray) -> tuple[pa.LargeListArray, npt.NDArray[np.bool_]]:
    """Return the nodes of each value, and which values are such lists to their last byte; the others are empty."""
    decoded = _LISTS.decode(values)
    good = decoded.verdicts.codes == 0
    lists = decoded.columns[0]
    return lists if bool(good.all()) else lists.fill_null([]), good
