"""Receipts of domains that other lakes run, on the consensus chain (XDM reference 2.4, X-3).

Nobody here executes those domains. Their operators' keys sign the receipts, each follows on the one before it, and what
one says of transfers must be covered by the books when it is confirmed: no domain takes out more than it was given. One
that is not covered is never confirmed, and so none is that follows on it: nothing more of that domain can be proved.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame, concat
from causeway.model.joins import lookup
from causeway.proofs.errors import ProofError
from causeway.proofs.hashing import DIGEST_BYTES
from causeway.proofs.substrate.hashing import blake2_256
from causeway.proofs.xdm import RECEIPTS
from causeway.proofs.xdm.envelope import ExecutionReceipt
from causeway.protocols.digests import hashes
from causeway.protocols.xdm.books import Moved
from causeway.protocols.xdm.carried import MAX_RECEIPT_BYTES, Receipts, SignedReceipt
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.consensus import TAKEN_SCHEMA, moves_of
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.errors import CallError
from causeway.protocols.xdm.notices import Notice
from causeway.protocols.xdm.signing import signed_receipt
from causeway.protocols.xdm.small_tables import of_domains, table_of
from causeway.protocols.xdm.state import State
from causeway.protocols.xdm.tables import RECEIPTED_SCHEMA


def take_receipts(
    state: State, taken: Frame, known: Frame, brought: Iterable[Receipts], context: Context
) -> tuple[Frame, Frame, list[Notice]]:
    """Return the receipts that the consensus chain takes in (``TAKEN_SCHEMA``), and of which it knows after them
    (``RECEIPTED_SCHEMA``), with those that were carried; and what was refused.

    ``taken``, ``known``: those of the domains of this lake. A receipt that is refused leaves an event with the name:
    InvalidChain (the domain is none of another lake), BadSignature, InvalidReceipt, Stale (that block, or a later one,
    is known), UnknownParent (it does not follow on the last one that is), UnknownConsensusBlock.
    """
    ends = zip(known["number"].tolist(), hashes(known["hash"]), strict=True)
    last = dict(zip(known["domain"].tolist(), ends, strict=True))
    rows: list[dict[str, Any]] = []
    notices = []
    for one in (receipt for transaction in brought for receipt in transaction.receipts):
        position = one.domain + 1
        try:
            number = _checked(one, last.get(position), state, context)
        except CallError as refused:
            foreign = position if position < len(context.network.names) else CONSENSUS_POSITION
            notices.append(Notice(CONSENSUS_POSITION, foreign, refused.name, refused=True))
            continue
        last[position] = number, blake2_256(one.receipt)
        rows.append(
            {
                "chain": CONSENSUS_POSITION,
                "domain": position,
                "number": number,
                "receipt": one.receipt,
                "executed": b"",
                "operators": b"",
            }
        )
    if not rows:
        return taken, known, notices
    after = [
        {"chain": CONSENSUS_POSITION, "domain": domain, "number": last[domain][0], "hash": last[domain][1]}
        for domain in sorted({row["domain"] for row in rows})
    ]
    added = table_of(rows, TAKEN_SCHEMA)
    return concat([taken, added]), of_domains(known, table_of(after, RECEIPTED_SCHEMA)), notices


def _checked(one: SignedReceipt, last: tuple[int, bytes] | None, state: State, context: Context) -> int:
    """Return the number of the block that a receipt is of, if it may be taken in. Raises ``CallError``."""
    position = one.domain + 1
    if position not in context.network.external:
        raise CallError("InvalidChain")
    name = context.network.names[position]
    if not context.signers.public(name).accepts(one.signature, signed_receipt(name, one.receipt)):
        raise CallError("BadSignature")
    if len(one.receipt) > MAX_RECEIPT_BYTES:
        raise CallError("InvalidReceipt")
    try:
        receipt = ExecutionReceipt.decode(one.receipt)
    except ProofError:
        raise CallError("InvalidReceipt") from None
    (moves,) = moves_of(RECEIPTS.decode(pa.array([one.receipt], pa.large_binary())).require_all())
    others = [other for what, other, _ in moves if what != Moved.BURNT]
    if any(other >= len(context.network.names) or other == position for other in others):
        raise CallError("InvalidReceipt")
    if last is not None and receipt.domain_block_number <= last[0]:
        raise CallError("Stale")
    parent = bytes(DIGEST_BYTES) if last is None else last[1]
    if bytes(receipt.fields["parent_domain_block_receipt_hash"]) != parent:
        raise CallError("UnknownParent")
    _require_block(receipt, state, context)
    return receipt.domain_block_number


def _require_block(receipt: ExecutionReceipt, state: State, context: Context) -> None:
    """Refuse a receipt that was derived from a block which this chain has not made; those that are no longer
    remembered cannot be told."""
    number, blocks = receipt.consensus_block_number, state["blocks"]
    if number == 0 and not any(receipt.consensus_block_hash):
        return  # derived before anything of the consensus chain was known
    if len(blocks) and number < int(blocks["number"][0]):
        return
    row = lookup(blocks, Frame({"number": np.array([number], dtype=np.uint64)}, 1), ["number"])
    if row[0] < 0 or blocks["hash"][row[0]].tobytes() != receipt.consensus_block_hash:
        raise CallError("UnknownConsensusBlock")
