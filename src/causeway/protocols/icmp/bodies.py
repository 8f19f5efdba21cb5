"""Which bodies a parachain's collators have at a tick, by what the options say (ICMP reference 3.9; hazards 1, 2, 17).

How bodies travel is the simulator's matter. Here each queue comes to its recipient some time after the relay block that
posted it was made, or never: drawn from a distribution, or as the table of a simulation says. With ``fallback_request``
the recipient's validators bring it after ``fallback_after`` ticks at the latest, from a validator of the sending chain.
"""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame
from causeway.model.order import U64, Rows
from causeway.protocols.icmp.body_table import NEVER
from causeway.protocols.icmp.column_draws import Draw, paired_words
from causeway.protocols.icmp.options import IcmpOptions

_MS = 1_000_000
"""Nanoseconds."""


def arrivals(listed: Frame, seed: int, tick_ns: int, options: IcmpOptions) -> Rows:
    """Return the tick before the one in which recipients have queues of ``ingress(B, p)`` (``to``, ``number``,
    ``source``): ``NEVER`` for those that do not come.

    ``tick_ns``: how long a tick is.
    """
    if options.bodies == "ideal" or len(listed) == 0:
        return np.full(len(listed), -1, dtype=np.int64)
    words = paired_words(seed, Draw.BODY, listed["to"], listed["source"], listed["number"])
    delays = _simulated(listed, words[0], tick_ns, options) if options.body_table else _drawn(words, options)
    if options.fallback_request == "on":
        delays = np.minimum(delays, options.fallback_after)
    # Ticks of blocks have 32 bits; a block is seen in the tick after its own.
    came: Rows = np.where(delays < NEVER, listed["tick"].astype(np.int64) + delays, NEVER)
    return came


def _drawn(words: tuple[U64, U64], options: IcmpOptions) -> Rows:
    """Return after how many ticks queues come: exponentially distributed, or never."""
    first, second = ((column >> np.uint64(11)).astype(np.float64) * 2.0**-53 for column in words)
    ticks = np.floor(-np.log1p(-first) * options.body_ticks).astype(np.int64)
    return np.where(second < options.body_loss, NEVER, ticks)


def _simulated(listed: Frame, words: U64, tick_ns: int, options: IcmpOptions) -> Rows:
    """Return after how many ticks queues come by the simulation's table; what has not come when the next tick begins
    comes with one of those after it."""
    assert options.body_table is not None
    delay = options.body_table.delays(listed, words)
    ticks = -(-np.minimum(delay, NEVER // _MS) * _MS // tick_ns)
    return np.where(delay >= NEVER, NEVER, np.maximum(ticks - 1, 0))
