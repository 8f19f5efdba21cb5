"""What has become of every queue on one chain of relay blocks (3.1, D-3, D-12, 5.1 (2)), by the log alone.

A queue that a receipt names is, after a block of the chain that includes it, consumed by a candidate that the chain
includes as well; or it is unrouted, and may still be; or it is gone: its recipient did not want to hear its sender, or
was deregistered, or had its watermark moved past it.
"""

from typing import Literal, NamedTuple

from tests.spec.icmp.history import History
from tests.spec.icmp.relay import Hash, ParaId

Fate = Literal["consumed", "unrouted", "gone"]


class Sent(NamedTuple):
    """The queue that the candidate of ``source``, included in ``block``, has for ``to``."""

    candidate: Hash
    block: Hash
    source: ParaId
    to: ParaId


def fates(h: History, B: Hash) -> dict[Sent, Fate]:
    """What has become of all queues that the receipts of the chain of B name; no row of the chain is missing."""
    chain = h.chain(B) or ()
    receipts = [row for block in chain for row in h.included[block]]
    took = {
        (row.block_of_origin, row.sender, row.para) for receipt in receipts for row in h.consumed[receipt.candidate]
    }
    pending, found = h.books(B).pending, dict[Sent, Fate]()
    for receipt in receipts:
        for to, _ in receipt.egress:
            sent = Sent(receipt.candidate, receipt.block, receipt.para, to)
            unrouted = receipt.para in pending.get((h.blocks[receipt.block].number, to), {})
            if (receipt.block, receipt.para, to) in took:
                found[sent] = "consumed"
            else:
                found[sent] = "unrouted" if unrouted else "gone"
    return found
