"""The pool of a destination: what it takes for one and the same transaction (XDM reference D-8, hazard 17)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame
from causeway.model.order import groups_of, stable_order
from causeway.protocols.xdm.errors import Validity

_TAG = ("destination", "substream", "index")


def pooled(rows: Frame, verdicts: npt.NDArray[np.int64], pool_tag: str) -> npt.NDArray[np.int64]:
    """Return the verdicts on envelopes after the pool.

    ``pool_tag = without_src``: of valid messages with the same channel and nonce that come from different chains in one
    block only the first chain's is kept; the others are ``AlreadyImported`` until their operators bring them again.
    """
    if pool_tag == "with_src":
        return verdicts
    valid = np.flatnonzero(verdicts == Validity.VALID)
    order = valid[stable_order(*(rows[key][valid] for key in (*_TAG, "source")))]
    groups = groups_of(*(rows[key][order] for key in _TAG))
    other = rows["source"][order] != groups.spread(rows["source"][order][groups.starts])
    verdicts = verdicts.copy()
    verdicts[order[other]] = Validity.AlreadyImported
    return verdicts
