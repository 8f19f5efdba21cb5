"""Receipts of domains that other lakes run, on the consensus chain (XDM reference 2.4, X-3).

Nobody here executes those domains. Their operators' keys sign the receipts, each follows on the one before it, and what
one says of transfers must be covered by the books when it is confirmed: no domain takes out more than it was given. One
that is not covered is never confirmed, and so none is that follows on it: nothing more of that domain can be proved.

Receipts on the consensus chain: taken in, challenged, pruned, taken in again, and confirmed (XDM reference 1.4, 2.7,
X-3, X-6; G4).

In a block fraud proofs come before everything else, also before what would be confirmed in it. A false receipt is
pruned with all that were built on it; honest operators submit receipts of the same blocks in the same block, and
the challenge period of these begins with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.hashing import DIGEST_BYTES
from causeway_proofs.substrate.storage_keys import blake2_256
from causeway_proofs.xdm import RECEIPTS
from causeway_proofs.xdm.envelope import ExecutionReceipt

from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.joins import lookup_rows
from causeway.protocols.contract import View
from causeway.protocols.shared.digests import list_digests
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.consensus.chain import TAKEN_SCHEMA, confirm, receipt_transfers, receipts
from causeway.protocols.xdm.context import Context, block_number
from causeway.protocols.xdm.errors import CallFailed
from causeway.protocols.xdm.events import OPERATOR_SLASHED, ChainEvent
from causeway.protocols.xdm.operators import receipt_signing_bytes
from causeway.protocols.xdm.state import State, named_rows, replace_domain_rows, table_from_rows
from causeway.protocols.xdm.tables import FRAUDS_SCHEMA, NEVER_FOUND, PRUNED_SCHEMA, RECEIPTED_SCHEMA
from causeway.protocols.xdm.transactions import MAX_RECEIPT_BYTES, Receipts, SignedReceipt
from causeway.protocols.xdm.value.books import Books, TransferRecord


def take_receipts(
    state: State, taken: Frame, known: Frame, brought: Iterable[Receipts], context: Context
) -> tuple[Frame, Frame, list[ChainEvent]]:
    """Return the receipts that the consensus chain takes in (``TAKEN_SCHEMA``), and of which it knows after them
    (``RECEIPTED_SCHEMA``), with those that were carried; and what was refused.

    ``taken``, ``known``: those of the domains of this lake. A receipt that is refused leaves an event with the name:
    InvalidChain (the domain is none of another lake), BadSignature, InvalidReceipt, Stale (that block, or a later one,
    is known), UnknownParent (it does not follow on the last one that is), UnknownConsensusBlock.
    """
    ends = zip(known["number"].tolist(), list_digests(known["hash"]), strict=True)
    last = dict(zip(known["domain"].tolist(), ends, strict=True))
    rows: list[dict[str, Any]] = []
    notices = []
    for one in (receipt for transaction in brought for receipt in transaction.receipts):
        position = one.domain + 1
        try:
            number = _checked(one, last.get(position), state, context)
        except CallFailed as refused:
            foreign = position if position < len(context.network.names) else CONSENSUS_POSITION
            notices.append(ChainEvent(CONSENSUS_POSITION, foreign, refused.name, refused=True))
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
    added = table_from_rows(rows, TAKEN_SCHEMA)
    return concat([taken, added]), replace_domain_rows(known, table_from_rows(after, RECEIPTED_SCHEMA)), notices


def _checked(one: SignedReceipt, last: tuple[int, bytes] | None, state: State, context: Context) -> int:
    """Return the number of the block that a receipt is of, if it may be taken in. Raises ``CallError``."""
    position = one.domain + 1
    if position not in context.network.external:
        raise CallFailed("InvalidChain")
    name = context.network.names[position]
    if not context.signers.public(name).accepts(one.signature, receipt_signing_bytes(name, one.receipt)):
        raise CallFailed("BadSignature")
    if len(one.receipt) > MAX_RECEIPT_BYTES:
        raise CallFailed("InvalidReceipt")
    try:
        receipt = ExecutionReceipt.decode(one.receipt)
    except ProofError:
        raise CallFailed("InvalidReceipt") from None
    (moves,) = receipt_transfers(RECEIPTS.decode(pa.array([one.receipt], pa.large_binary())).require_all())
    others = [other for what, other, _ in moves if what != TransferRecord.BURNT]
    if any(other >= len(context.network.names) or other == position for other in others):
        raise CallFailed("InvalidReceipt")
    if last is not None and receipt.domain_block_number <= last[0]:
        raise CallFailed("Stale")
    parent = bytes(DIGEST_BYTES) if last is None else last[1]
    if bytes(receipt.fields["parent_domain_block_receipt_hash"]) != parent:
        raise CallFailed("UnknownParent")
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
    row = lookup_rows(blocks, Frame({"number": np.array([number], dtype=np.uint64)}, 1), ["number"])
    if row[0] < 0 or blocks["hash"][row[0]].tobytes() != receipt.consensus_block_hash:
        raise CallFailed("UnknownConsensusBlock")


FRAUD_PROVED, RECEIPT_PRUNED = "FraudProved", "ReceiptPruned"
"""What notices say of a fraud: that it was proved, of which domain and block; and of each receipt that goes."""

PARENT_AT = 1 + 4 + 2 * DIGEST_BYTES
"""Where a receipt has the hash of its parent: behind the version, the number, the block's hash and extrinsics root."""

FRAUDS = {
    "inboxed_bundles": "InvalidBundles",
    "domain_block_extrinsic_root": "InvalidExtrinsicsRoot",
    "final_state_root": "InvalidStateTransition",
    "execution_trace": "InvalidStateTransition",
    "execution_trace_root": "InvalidStateTransition",
    "consensus_storage_fee": "InvalidBlockFees",
    "domain_execution_fee": "InvalidBlockFees",
    "burned_balance": "InvalidBlockFees",
    "chain_rewards": "InvalidBlockFees",
    "transfers_in": "InvalidTransfers",
    "transfers_out": "InvalidTransfers",
    "rejected_transfers_claimed": "InvalidTransfers",
    "transfers_rejected": "InvalidTransfers",
    "domain_block_hash": "InvalidDomainBlockHash",
}
"""The fields of a receipt in the order in which they are compared, and the fraud that each shows."""


def receipt_fraud(receipt: bytes, executed: bytes) -> str | None:
    """Return the fraud that a receipt is, given that of the block's honest execution; None where it is none.

    What a receipt was built on is not looked at. Raises ``InvalidInput``: one of them is no receipt.
    """
    rows = RECEIPTS.decode(pa.array([receipt, executed], pa.large_binary())).require_all()
    said, due = ({field: rows[field][row].as_py() for field in FRAUDS} for row in range(2))
    return next((name for field, name in FRAUDS.items() if said[field] != due[field]), None)


def settle_receipts(
    state: State,
    view: View,
    logged: Frame,
    due: int,
    books: Books,
    brought: Iterable[Receipts],
    context: Context,
) -> tuple[State, Frame, list[ChainEvent]]:
    """Return the state of the consensus chain after fraud proofs, new receipts, and confirmations up to those that
    block ``due`` took in; what was taken in (``TAKEN_SCHEMA``), and what is to be said of it.

    ``logged``: the rows that the plan asked for (``wanted_heights``); ``books``: change with what is confirmed;
    ``brought``: receipts of domains that other lakes run, as they were carried.
    """
    blocks = block_numbers(logged)
    state, again, notices = _find(state, logged, blocks, context)
    # The claims about blocks of domains of which the consensus chain has no receipts (`receipted`), by domain:
    # those that begin with the block, and those that go on from a receipt that it has (`frauds`).
    taken_to = dict(zip(state["receipted"]["domain"].tolist(), state["receipted"]["number"].tolist(), strict=True))
    standing_known = set(zip(state["frauds"]["domain"].tolist(), state["frauds"]["number"].tolist(), strict=True))
    found = {}
    for row in named_rows(view.tables["claims"]):
        begins = row["origin"] == row["number"]
        if row["number"] > taken_to.get(row["chain"], -1) and (
            begins or (row["chain"], row["origin"]) in standing_known
        ):
            found[row["chain"]] = row
    claims = found
    taken, known = receipts(view, state, claims, context.operators)
    taken, known, others = take_receipts(state, taken, known, brought, context)
    begun = [claim for claim in claims.values() if claim["origin"] == claim["number"]]
    # The state with the false receipts that this block takes in.
    state = state.with_tables(receipted=known)
    if begun:
        rows = [
            {
                "chain": CONSENSUS_POSITION,
                "domain": claim["chain"],
                "number": claim["number"],
                "taken": context.number,
                "found": NEVER_FOUND if claim["found_after"] == NEVER_FOUND else context.number + claim["found_after"],
            }
            for claim in begun
        ]
        frauds = concat([state["frauds"], table_from_rows(rows, FRAUDS_SCHEMA)])
        state = state.with_tables(frauds=frauds.take(np.argsort(frauds["domain"], kind="stable")))
    confirmed = (blocks > int(state["range"]["confirmed_to"][0])) & (blocks <= due)
    confirmed &= ~is_pruned(logged, blocks, state["pruned"])
    state, refused = confirm(state, logged.filter(confirmed), due, books, set(context.network.external.tolist()))
    # The state without what was pruned so long ago that the receipts that came instead are final.
    pruned, anchored = state["pruned"], state["anchored"]
    if len(pruned):
        final = dict(zip(anchored["domain"].tolist(), anchored["number"].tolist(), strict=True))
        ends = zip(pruned["domain"].tolist(), pruned["last"].tolist(), strict=True)
        kept = np.array([final.get(domain, -1) < last for domain, last in ends], dtype=bool)
        state = state if kept.all() else state.with_tables(pruned=pruned.filter(kept))
    return state, concat([again, taken]), [*notices, *others, *refused]


def block_numbers(logged: Frame) -> npt.NDArray[np.int64]:
    """Return the number of the consensus block that each row of the log is of."""
    return np.asarray(block_number(logged["tick"].astype(np.int64)))


def is_pruned(logged: Frame, blocks: npt.NDArray[np.int64], pruned: Frame) -> npt.NDArray[np.bool_]:
    """Return which receipts of the log, taken in by ``blocks``, do not hold any more."""
    found = np.zeros(len(logged), dtype=bool)
    number = logged["number"].astype(np.int64)
    for row in named_rows(pruned):
        mine = (logged["domain"] == row["domain"]) & (number >= row["first"]) & (number <= row["last"])
        found |= mine & (blocks >= row["taken"]) & (blocks < row["found"])
    return found


@dataclass(frozen=True)
class _Pruned:
    """Receipts that one fraud proof prunes (rows of the log, ascending), and those that come instead."""

    domain: int
    fraud: str
    numbers: list[int]
    receipts: list[bytes]
    operators: list[bytes]


def _find(
    state: State, logged: Frame, blocks: npt.NDArray[np.int64], context: Context
) -> tuple[State, Frame, list[ChainEvent]]:
    """Return the state without the receipts whose fraud is proved in this block, those that are submitted instead
    (``TAKEN_SCHEMA``), and the notices."""
    frauds = state["frauds"]
    due = frauds["found"] <= np.uint64(context.number)
    if not due.any():
        return state, empty_frame(TAKEN_SCHEMA), []
    found, pruned = [], []
    for row in named_rows(frauds.filter(due)):
        mine = (logged["domain"] == row["domain"]) & (blocks >= row["taken"])
        rows = logged.filter(mine & (logged["number"].astype(np.int64) >= row["number"]))
        one = _proved(row["domain"], rows)
        found.append(one)
        pruned.append(
            {
                "chain": CONSENSUS_POSITION,
                "domain": row["domain"],
                "first": one.numbers[0],
                "last": one.numbers[-1],
                "taken": row["taken"],
                "found": context.number,
            }
        )
    heads = [
        {
            "chain": CONSENSUS_POSITION,
            "domain": one.domain,
            "number": one.numbers[-1],
            "hash": blake2_256(one.receipts[-1]),
        }
        for one in found
    ]
    gone = concat([state["pruned"], table_from_rows(pruned, PRUNED_SCHEMA)])
    state = state.with_tables(
        frauds=frauds.filter(~due),
        receipted=replace_domain_rows(state["receipted"], table_from_rows(heads, RECEIPTED_SCHEMA)),
        pruned=gone.take(np.lexsort((gone["first"], gone["domain"]))),
    )
    # Return, of each fraud, that it was proved, as what the receipt is refused, whose stake goes, and what is
    # pruned.
    notices = []
    for one in found:
        ends, first = (CONSENSUS_POSITION, one.domain), one.numbers[0]
        notices.append(ChainEvent(*ends, FRAUD_PROVED, index=first, amount=len(one.numbers)))
        notices.append(ChainEvent(*ends, one.fraud, index=first, refused=True))
        notices.append(ChainEvent(*ends, OPERATOR_SLASHED, index=first))
        notices += [ChainEvent(*ends, RECEIPT_PRUNED, index=number) for number in one.numbers]
    # The receipts that come instead of those that are pruned (`TAKEN_SCHEMA`).
    receipts = [
        {
            **{"chain": CONSENSUS_POSITION, "domain": one.domain, "number": number},
            **{"receipt": receipt, "executed": b"", "operators": operators},
        }
        for one in found
        for number, receipt, operators in zip(one.numbers, one.receipts, one.operators, strict=True)
    ]
    return state, table_from_rows(receipts, TAKEN_SCHEMA), notices


def _proved(domain: int, rows: Frame) -> _Pruned:
    """Return what is pruned with the first of ``rows``, and the receipts of honest operators for the same blocks.

    Raises ``InvalidInput``: the first receipt says what honest execution does, and nothing is to be proved.
    """
    receipts, executed = rows["receipt"].to_pylist(), rows["executed"].to_pylist()
    numbers = rows["number"].tolist()
    fraud = receipt_fraud(receipts[0], executed[0] or receipts[0])
    if fraud is None:
        raise InvalidInput(f"the receipt of block {numbers[0]} of domain {domain} is not false")
    parent, honest = receipts[0][PARENT_AT : PARENT_AT + DIGEST_BYTES], []
    for submitted, other in zip(receipts, executed, strict=True):
        content = other or submitted
        honest.append(content[:PARENT_AT] + parent + content[PARENT_AT + DIGEST_BYTES :])
        parent = blake2_256(honest[-1])
    return _Pruned(domain, fraud, numbers, honest, rows["operators"].to_pylist())
