"""Receipts on the consensus chain: acceptance, challenge, pruning and confirmation.

In a block fraud proofs come first, before confirmations. A fraud proof prunes a false receipt and all its successors.
Honest operators submit replacements in the same block, with a new challenge period.

Domains of other lakes are not executed here. Each of their receipts must have its operator's signature and follow its
predecessor. The books must cover its transfers at confirmation: no domain exports more than it received. An uncovered
receipt is never confirmed, nor its successors, and nothing more of that domain can be proved.

Reference: XDM, sections 1.4, 2.4 and 2.7; X-3, X-6; G4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    state: State, accepted: Frame, known: Frame, delivered: Iterable[Receipts], context: Context
) -> tuple[Frame, Frame, list[ChainEvent]]:
    """Accept receipts of other lakes' domains.

    A refusal leaves an event: InvalidChain (not a domain of another lake), BadSignature, InvalidReceipt, Stale (not
    newer than the last one), UnknownParent (not its successor), UnknownConsensusBlock.

    Args:
        state: State of the consensus chain.
        accepted: Receipts of this lake's domains (``TAKEN_SCHEMA``).
        known: Last accepted receipt of each domain (``RECEIPTED_SCHEMA``).
        delivered: Delivered receipts.
        context: Context of the block.

    Returns:
        All accepted receipts, the last one of each domain, and the events.
    """
    ends = zip(known["number"].tolist(), list_digests(known["hash"]), strict=True)
    last = dict(zip(known["domain"].tolist(), ends, strict=True))
    rows: list[dict[str, Any]] = []
    notices = []
    for signed in (receipt for transaction in delivered for receipt in transaction.receipts):
        position = signed.domain + 1
        try:
            number = _check_receipt(signed, last.get(position), state, context)
        except CallFailed as refused:
            foreign = position if position < len(context.network.names) else CONSENSUS_POSITION
            notices.append(ChainEvent(CONSENSUS_POSITION, foreign, refused.name, refused=True))
            continue
        last[position] = number, blake2_256(signed.receipt)
        rows.append(
            {
                "chain": CONSENSUS_POSITION,
                "domain": position,
                "number": number,
                "receipt": signed.receipt,
                "executed": b"",
                "operators": b"",
            }
        )
    if not rows:
        return accepted, known, notices
    after = [
        {"chain": CONSENSUS_POSITION, "domain": domain, "number": last[domain][0], "hash": last[domain][1]}
        for domain in sorted({row["domain"] for row in rows})
    ]
    added = table_from_rows(rows, TAKEN_SCHEMA)
    return concat([accepted, added]), replace_domain_rows(known, table_from_rows(after, RECEIPTED_SCHEMA)), notices


def _check_receipt(signed: SignedReceipt, last: tuple[int, bytes] | None, state: State, context: Context) -> int:
    """Return the block number of a valid receipt.

    Raises:
        CallFailed: The receipt is refused.
    """
    position = signed.domain + 1
    if position not in context.network.external:
        raise CallFailed("InvalidChain")
    name = context.network.names[position]
    if not context.signers.public(name).accepts(signed.signature, receipt_signing_bytes(name, signed.receipt)):
        raise CallFailed("BadSignature")
    if len(signed.receipt) > MAX_RECEIPT_BYTES:
        raise CallFailed("InvalidReceipt")
    try:
        receipt = ExecutionReceipt.decode(signed.receipt)
    except ProofError:
        raise CallFailed("InvalidReceipt") from None
    (moves,) = receipt_transfers(RECEIPTS.decode(pa.array([signed.receipt], pa.large_binary())).require_all())
    others = [other for kind, other, _ in moves if kind != TransferRecord.BURNT]
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
    """Refuse a receipt derived from an unknown consensus block; forgotten blocks pass.

    Raises:
        CallFailed: UnknownConsensusBlock.
    """
    number, blocks = receipt.consensus_block_number, state["blocks"]
    if number == 0 and not any(receipt.consensus_block_hash):
        return  # derived before the first known consensus block
    if len(blocks) and number < int(blocks["number"][0]):
        return
    row = lookup_rows(blocks, Frame({"number": np.array([number], dtype=np.uint64)}, 1), ["number"])
    if row[0] < 0 or blocks["hash"][row[0]].tobytes() != receipt.consensus_block_hash:
        raise CallFailed("UnknownConsensusBlock")


FRAUD_PROVED, RECEIPT_PRUNED = "FraudProved", "ReceiptPruned"
"""Event names of a proved fraud (domain and first block), and of each pruned receipt."""

PARENT_AT = 1 + 4 + 2 * DIGEST_BYTES
"""Byte offset of the parent hash: after version, number, block hash and extrinsics root."""

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
"""Fields of a receipt in order of comparison, with the fraud that each proves."""


def receipt_fraud(receipt: bytes, executed: bytes) -> str | None:
    """Return the fraud of a receipt, or None; the parent is not compared.

    Args:
        receipt: Submitted receipt.
        executed: Receipt of the honest execution.

    Raises:
        InvalidInput: One of them is malformed.
    """
    rows = RECEIPTS.decode(pa.array([receipt, executed], pa.large_binary())).require_all()
    submitted, honest = ({field: rows[field][row].as_py() for field in FRAUDS} for row in range(2))
    return next((name for field, name in FRAUDS.items() if submitted[field] != honest[field]), None)


def settle_receipts(
    state: State,
    view: View,
    logged: Frame,
    due: int,
    books: Books,
    delivered: Sequence[Receipts],
    context: Context,
) -> tuple[State, Frame, list[ChainEvent]]:
    """Apply fraud proofs, new receipts and confirmations on the consensus chain.

    Args:
        state: State of the consensus chain.
        view: Tables that chains published at the previous height.
        logged: Logged receipts requested by the plan (``due_heights``).
        due: Block that confirmations advance to.
        books: Books, changed in place.
        delivered: Delivered receipts of other lakes' domains.
        context: Context of the block.

    Returns:
        The state after, the accepted receipts (``TAKEN_SCHEMA``), and the events.
    """
    blocks = np.asarray(block_number(logged["tick"].astype(np.int64)))
    replacements, notices = empty_frame(TAKEN_SCHEMA), list[ChainEvent]()
    if (state["frauds"]["found"] <= np.uint64(context.number)).any():
        state, replacements, notices = _prune_frauds(state, logged, blocks, context)
    # Claims about blocks without a receipt: new frauds, and those that continue an accepted false receipt.
    taken_to = dict(zip(state["receipted"]["domain"].tolist(), state["receipted"]["number"].tolist(), strict=True))
    standing_known = set(zip(state["frauds"]["domain"].tolist(), state["frauds"]["number"].tolist(), strict=True))
    claims = {}
    for row in named_rows(view.tables["claims"]) if len(view.tables["claims"]) else []:
        begins = row["origin"] == row["number"]
        if row["number"] > taken_to.get(row["chain"], -1) and (
            begins or (row["chain"], row["origin"]) in standing_known
        ):
            claims[row["chain"]] = row
    accepted, known = receipts(view, state, claims, context.operators)
    if delivered:
        accepted, known, others = take_receipts(state, accepted, known, delivered, context)
        notices += others
    new_frauds = [claim for claim in claims.values() if claim["origin"] == claim["number"]]
    state = state.with_tables(receipted=known)
    if new_frauds:
        rows = [
            {
                "chain": CONSENSUS_POSITION,
                "domain": claim["chain"],
                "number": claim["number"],
                "taken": context.number,
                "found": NEVER_FOUND if claim["found_after"] == NEVER_FOUND else context.number + claim["found_after"],
            }
            for claim in new_frauds
        ]
        frauds = concat([state["frauds"], table_from_rows(rows, FRAUDS_SCHEMA)])
        state = state.with_tables(frauds=frauds.take(np.argsort(frauds["domain"], kind="stable")))
    confirmed = (blocks > int(state["range"]["confirmed_to"][0])) & (blocks <= due)
    if len(state["pruned"]):
        confirmed &= ~is_pruned(logged, blocks, state["pruned"])
    state, refused = confirm(state, logged.filter(confirmed), due, books, set(context.network.external.tolist()))
    # Forget pruned receipts with final replacements.
    pruned, anchored = state["pruned"], state["anchored"]
    if len(pruned):
        final = dict(zip(anchored["domain"].tolist(), anchored["number"].tolist(), strict=True))
        ends = zip(pruned["domain"].tolist(), pruned["last"].tolist(), strict=True)
        pending = np.array([final.get(domain, -1) < last for domain, last in ends], dtype=bool)
        state = state if pending.all() else state.with_tables(pruned=pruned.filter(pending))
    return state, concat([replacements, accepted]), [*notices, *refused]


def is_pruned(logged: Frame, blocks: npt.NDArray[np.int64], pruned: Frame) -> npt.NDArray[np.bool_]:
    """Return a mask of logged receipts pruned by a fraud proof; ``blocks`` accepted them."""
    found = np.zeros(len(logged), dtype=bool)
    number = logged["number"].astype(np.int64)
    for row in named_rows(pruned):
        in_range = (logged["domain"] == row["domain"]) & (number >= row["first"]) & (number <= row["last"])
        found |= in_range & (blocks >= row["taken"]) & (blocks < row["found"])
    return found


@dataclass(frozen=True)
class _Pruned:
    """Receipts pruned by one fraud proof, ascending, and their replacements."""

    domain: int
    fraud: str
    numbers: list[int]
    receipts: list[bytes]
    operators: list[bytes]


def _prune_frauds(
    state: State, logged: Frame, blocks: npt.NDArray[np.int64], context: Context
) -> tuple[State, Frame, list[ChainEvent]]:
    """Prune receipts with a fraud proof in this block.

    Returns the state, the replacements (``TAKEN_SCHEMA``) and the events.
    """
    frauds = state["frauds"]
    due = frauds["found"] <= np.uint64(context.number)
    found, pruned = [], []
    for row in named_rows(frauds.filter(due)):
        successors = (logged["domain"] == row["domain"]) & (blocks >= row["taken"])
        rows = logged.filter(successors & (logged["number"].astype(np.int64) >= row["number"]))
        fraud = _replace_receipts(row["domain"], rows)
        found.append(fraud)
        pruned.append(
            {
                "chain": CONSENSUS_POSITION,
                "domain": row["domain"],
                "first": fraud.numbers[0],
                "last": fraud.numbers[-1],
                "taken": row["taken"],
                "found": context.number,
            }
        )
    heads = [
        {
            "chain": CONSENSUS_POSITION,
            "domain": fraud.domain,
            "number": fraud.numbers[-1],
            "hash": blake2_256(fraud.receipts[-1]),
        }
        for fraud in found
    ]
    pruned_rows = concat([state["pruned"], table_from_rows(pruned, PRUNED_SCHEMA)])
    state = state.with_tables(
        frauds=frauds.filter(~due),
        receipted=replace_domain_rows(state["receipted"], table_from_rows(heads, RECEIPTED_SCHEMA)),
        pruned=pruned_rows.take(np.lexsort((pruned_rows["first"], pruned_rows["domain"]))),
    )
    notices = []
    for fraud in found:
        ends, first = (CONSENSUS_POSITION, fraud.domain), fraud.numbers[0]
        notices.append(ChainEvent(*ends, FRAUD_PROVED, index=first, amount=len(fraud.numbers)))
        notices.append(ChainEvent(*ends, fraud.fraud, index=first, refused=True))
        notices.append(ChainEvent(*ends, OPERATOR_SLASHED, index=first))
        notices += [ChainEvent(*ends, RECEIPT_PRUNED, index=number) for number in fraud.numbers]
    receipts = [
        {
            **{"chain": CONSENSUS_POSITION, "domain": fraud.domain, "number": number},
            **{"receipt": receipt, "executed": b"", "operators": operators},
        }
        for fraud in found
        for number, receipt, operators in zip(fraud.numbers, fraud.receipts, fraud.operators, strict=True)
    ]
    return state, table_from_rows(receipts, TAKEN_SCHEMA), notices


def _replace_receipts(domain: int, rows: Frame) -> _Pruned:
    """Return the pruned receipts of one fraud, with the honest receipts of the same blocks.

    Raises:
        InvalidInput: The first receipt is not false.
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
