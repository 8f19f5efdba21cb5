"""How far a network of Substrate chains goes: numbers of blocks have 32 bits on the wire (XDM reference 2.4, ICMP
reference 2.2), and that of a block is its tick plus 1 at most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from causeway_proofs.errors import InvalidInput
from pydantic import Field

from causeway.config.faults import FOR_EVER, FaultRule

LAST_NUMBER = 2**32 - 1
"""The largest number of a block."""

LAST_TICK = 2**31 - 1
"""The last tick for which anything may be planned: what waits has as many again until the numbers end."""

MOST_BLOCKS = 2**28
"""No distance in blocks is longer: what goes to another domain and back passes two of each."""

PlannedTick = Annotated[int, Field(ge=0, le=LAST_TICK)]


def check_faults(faults: Sequence[FaultRule]) -> None:
    """Check that faults begin and end before the numbers of blocks do, or last for ever. Raises ``InvalidInput``."""
    for fault in faults:
        for key, tick in (("from", fault.first), ("until", fault.last if fault.last < FOR_EVER else 0)):
            if tick > LAST_TICK:
                text = f"allowed: ticks from 0 to {LAST_TICK}, since numbers of blocks have 32 bits"
                raise InvalidInput(f'faults: kind = "{fault.kind}": {key} = {tick}: {text}')


def check_number(number: int) -> None:
    """Check that there may be a block of this number. Raises ``InvalidInput``: what a scenario plans takes longer."""
    if number > LAST_NUMBER:
        text = f"numbers of blocks have 32 bits: at most {LAST_NUMBER}"
        raise InvalidInput(f"tick {number - 1}: its blocks would have the number {number}, and {text}")
