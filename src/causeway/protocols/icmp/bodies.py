"""Which bodies a parachain's collators have at a tick, by what the options say (ICMP reference 3.9; hazards 1, 2, 17).

How bodies travel is the simulator's matter. Here each queue comes to its recipient so many ticks after the relay block
that posted it was made, or never; with ``fallback_request`` the recipient's validators bring it after
``fallback_after`` ticks at the latest, from a validator of the sending chain.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame
from causeway.model.order import U64, groups_of
from causeway.protocols.draws import Draw, drawn
from causeway.protocols.icmp.options import IcmpOptions

NEVER = 2**62
"""So many ticks later comes what does not come."""


def there(listed: Frame, tick: int, numbers: U64, seed: int, options: IcmpOptions) -> npt.NDArray[np.bool_]:
    """Return which queues of ``ingress(B, p)`` (by to, number, source) their recipients have at ``tick``.

    ``numbers``: of the chains, by position.
    """
    if options.bodies == "ideal" or len(listed) == 0:
        return np.ones(len(listed), dtype=bool)
    delays = np.empty(len(listed), dtype=np.int64)
    groups = groups_of(listed["to"], listed["number"])
    for start, count in zip(groups.starts.tolist(), groups.counts.tolist(), strict=True):
        to, number = int(numbers[listed["to"][start]]), int(listed["number"][start])
        every = _delays(seed, to, number, len(numbers), options.body_ticks, options.body_loss)
        delays[start : start + count] = every[listed["source"][start : start + count]]
    if options.fallback_request == "on":
        delays = np.minimum(delays, options.fallback_after)
    # A block is seen in the tick after its own.
    came: npt.NDArray[np.bool_] = listed["tick"].astype(np.int64) + delays < tick
    return came


@lru_cache(maxsize=1 << 16)
def _delays(seed: int, to: int, number: int, count: int, mean: float, loss: float) -> npt.NDArray[np.int64]:
    """Return after how many ticks the queues of one relay block come to one parachain, by the sender's position."""
    words = np.random.Generator(drawn(Draw.BODY, seed, to, number)).random((2, count))
    ticks = np.floor(-np.log1p(-words[0]) * mean).astype(np.int64)
    return np.where(words[1] < loss, NEVER, ticks)
