"""The event log: the relations of 1.1, one row each. A column that does not apply is None.

Decisions. `at` is the consensus block that a row's block came from, so that rows of several chains have one clock (G4).
`payload_hash` is the Blake2b-256 of the whole encoded message, and stands also beside what is processed: G2 compares
bytes. FeeBurn has what is burned for the other chain (dst_fee); what stays here on hold is `src_fee` of OutboxMessage.
FeePay names the request whose answer, or acknowledgement, makes a fee due, and the own block whose `receipt` it is due
for; `FeeShare` has one row an operator and receipt. Beyond 1.1: `Transfer`
(kind out, in, back; X-3), without which G7 and G8 could not be checked from the log, and ReceiptConfirmed, where a book
moves; `CallSent` and `CallAnswered`, what programs call over there (`by`: the program's account, `nonce`: the number of
its call). A deposit's moves are (held, released, burned).
"""

from dataclasses import dataclass

from tests.spec.xdm.values import Chain


@dataclass(frozen=True)
class Event:
    event: str
    chain: Chain
    block: int
    at: int
    foreign: Chain | None = None
    channel_id: int | None = None
    nonce: int | None = None
    by: bytes | None = None
    deposit: tuple[int, int, int] = (0, 0, 0)
    payload_hash: bytes | None = None
    kind: str | None = None
    src_fee: int = 0
    dst_fee: int = 0
    last_delivered: int | None = None
    proof_block: int | None = None
    relayer: str | None = None
    result: str | None = None
    amount: int = 0
    to: bytes | None = None
    call: str | None = None
    error: str | None = None
    root: bytes | None = None
    confirmed_at: int | None = None
    limit: int | None = None
    receipt: int | None = None
