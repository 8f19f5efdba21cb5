"""Sizes of data that travels between lakes, each derived from those above it.

Every message that may be sent can be proved, submitted, included in a block and answered over HTTP. A packet or receipt
of ``MAX_VALUE_BYTES`` fits, with its proof, into one transaction; a transaction into one block; the answer to a request
into one response. The sender refuses larger data (``MAX_DATA_BYTES``), so no message is stuck because of its size.

Range of block numbers of Substrate chains: 32 bits on the wire.

The number of a block is at most its tick plus 1.

Reference:
    XDM reference 2.4, ICMP reference 2.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from causeway_proofs.errors import InvalidInput
from causeway_proofs.limits import MAX_MESSAGE_BYTES
from pydantic import Field

from causeway.config.faults import FOR_EVER, FaultRule

MAX_TRANSACTION_BYTES = MAX_MESSAGE_BYTES
"""Maximum size of a transaction; parsing takes up to 38 times as much memory."""

MAX_PATH_BYTES = 16 << 10
"""Maximum bytes of a submission besides its value.

They hold names, key, and 128 proof steps of about 100 bytes.
"""

VALUE_COPIES = 2
"""Number of copies of the value in a submission: itself, and in its proof."""

MAX_VALUE_BYTES = (MAX_TRANSACTION_BYTES - MAX_PATH_BYTES) // VALUE_COPIES
"""Maximum size of a stored packet or receipt that can be carried to another lake."""

MAX_ENVELOPE_BYTES = 1 << 10
"""Maximum bytes of a packet or receipt besides data or result: form, limits, type, lengths."""

MAX_DATA_BYTES = MAX_VALUE_BYTES - MAX_ENVELOPE_BYTES
"""Maximum size of packet data and receipt results for a chain of another lake.

More is not sent.
"""

MAX_CALLS = 200
"""Maximum calls in a transaction."""

MAX_BLOCK_CALLS = 2_000
"""Maximum calls of transactions and users' messages in one block: ten full transactions."""

MAX_BLOCK_BYTES = 20 * MAX_TRANSACTION_BYTES
"""Maximum bytes of transactions and messages in one block, except that one always fits."""

MAX_WAITING_BYTES = 64 << 20
"""Maximum bytes of pending transactions and messages: three full blocks."""

DIGITS = 2
"""Hexadecimal digits a byte."""

MAX_JSON_BYTES = DIGITS * MAX_DATA_BYTES + (64 << 10)
"""Maximum JSON body of a request: a message with maximum data in hexadecimal digits."""

MAX_ANSWER_BYTES = 8 << 20
"""Maximum answer of a served lake: three maximum submissions in hexadecimal digits.

Larger requests are answered in part, and repeated for the rest.
"""

MAX_PROOF_BYTES = MAX_VALUE_BYTES + MAX_PATH_BYTES
"""Maximum proof of one value in an answer."""

MAX_ITEMS = 100
"""Maximum keys of one request for proofs, and entries of one read."""

MAX_SMALL_ANSWER_BYTES = 1 << 20
"""Maximum answer without values and headers."""


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
