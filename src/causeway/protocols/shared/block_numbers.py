"""Range of block numbers of Substrate chains: 32 bits on the wire.

The number of a block is at most its tick plus 1.

Reference:
    XDM reference 2.4, ICMP reference 2.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from causeway_proofs.errors import InvalidInput
from pydantic import Field

from causeway.config.faults import FOR_EVER, FaultRule

LAST_NUMBER = 2**32 - 1
"""The greatest block number."""

LAST_TICK = 2**31 - 1
"""The last tick that a scenario may use; as many numbers remain for pending messages."""

MOST_BLOCKS = 2**28
"""Maximum distance in blocks: a round trip to another domain passes two of each."""

PlannedTick = Annotated[int, Field(ge=0, le=LAST_TICK)]


def check_faults(faults: Sequence[FaultRule]) -> None:
    """Check that faults begin and end within the range of block numbers, or last for ever.

    Raises:
        InvalidInput: A tick is out of range.
    """
    for fault in faults:
        for key, tick in (("from", fault.first), ("until", fault.last if fault.last < FOR_EVER else 0)):
            if tick > LAST_TICK:
                text = f"allowed: ticks from 0 to {LAST_TICK}, since numbers of blocks have 32 bits"
                raise InvalidInput(f'faults: kind = "{fault.kind}": {key} = {tick}: {text}')


def check_number(number: int) -> None:
    """Check that a block number is in range.

    Raises:
        InvalidInput: The scenario runs too long.
    """
    if number > LAST_NUMBER:
        text = f"numbers of blocks have 32 bits: at most {LAST_NUMBER}"
        raise InvalidInput(f"tick {number - 1}: its blocks would have the number {number}, and {text}")
