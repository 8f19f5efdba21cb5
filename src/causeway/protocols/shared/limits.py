"""The one table of sizes for what travels between lakes that run apart: each number follows from those above it.

What may be sent can always be proved, submitted, taken into a block and answered over HTTP: a packet or receipt of
``MAX_VALUE_BYTES`` fits, with its proof, into one transaction, a transaction into one block, and the answer to a
request for it into one response. Whoever sends refuses more (``MAX_DATA_BYTES``), so nothing can wait for ever because
it is too long to be carried.
"""

from __future__ import annotations

from causeway_proofs.limits import MAX_MESSAGE_BYTES

MAX_TRANSACTION_BYTES = MAX_MESSAGE_BYTES
"""Longest transaction in bytes: chains read no longer one, because parsing takes up to 38 times its length."""

MAX_PATH_BYTES = 16 << 10
"""What a submission has besides its value, at most: names, key, and the steps of a proof (128 of about 100 bytes)."""

VALUE_COPIES = 2
"""How often a value stands in a submission: as itself, and within its proof."""

MAX_VALUE_BYTES = (MAX_TRANSACTION_BYTES - MAX_PATH_BYTES) // VALUE_COPIES
"""Longest packet or receipt in a store that can be carried to another lake."""

MAX_ENVELOPE_BYTES = 1 << 10
"""What a packet has besides its data, and a receipt besides its result, at most: form, limits, type, lengths."""

MAX_DATA_BYTES = MAX_VALUE_BYTES - MAX_ENVELOPE_BYTES
"""Longest data of a packet, and result of a receipt, for a chain that another lake runs: more is refused at sending."""

MAX_CALLS = 200
"""Calls in a transaction."""

MAX_BLOCK_CALLS = 2_000
"""Calls of transactions, and messages of users, that go into one block at most: ten full transactions."""

MAX_BLOCK_BYTES = 20 * MAX_TRANSACTION_BYTES
"""Bytes of transactions and messages in one block at most; a block takes at least one, whatever its length."""

MAX_WAITING_BYTES = 64 << 20
"""Bytes of transactions and messages that wait for blocks at most: those of three full ones."""

DIGITS = 2
"""Hexadecimal digits a byte."""

MAX_JSON_BYTES = DIGITS * MAX_DATA_BYTES + (64 << 10)
"""Longest JSON body of a request: a message whose text is as long as data may be, in hexadecimal digits at worst."""

MAX_ANSWER_BYTES = 8 << 20
"""Longest answer of a served lake that is read: three submissions of the largest size in hexadecimal digits. A request
for more is answered in part, and made again for the rest."""

MAX_PROOF_BYTES = MAX_VALUE_BYTES + MAX_PATH_BYTES
"""Longest proof of one value in an answer."""

MAX_ITEMS = 100
"""Keys that one request may ask proofs for, and entries that it may read."""

MAX_SMALL_ANSWER_BYTES = 1 << 20
"""Longest answer that holds no values and no header."""
