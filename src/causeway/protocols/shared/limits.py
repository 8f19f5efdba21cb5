"""Sizes of data that travels between lakes, each derived from those above it.

Every message that may be sent can be proved, submitted, included in a block and answered over HTTP. A packet or receipt
of ``MAX_VALUE_BYTES`` fits, with its proof, into one transaction; a transaction into one block; the answer to a request
into one response. The sender refuses larger data (``MAX_DATA_BYTES``), so no message is stuck because of its size.
"""

from __future__ import annotations

from causeway_proofs.limits import MAX_MESSAGE_BYTES

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
