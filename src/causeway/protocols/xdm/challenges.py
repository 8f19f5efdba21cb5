"""Receipts on the consensus chain: taken in, challenged, pruned, taken in again, and confirmed (XDM reference 1.4, 2.7,
X-3, X-6; G4).

In a block fraud proofs come before everything else, also before what would be confirmed in it. A false receipt is
pruned with all that were built on it; honest operators submit receipts of the same blocks in the same block, and
the challenge period of these begins with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.frame import Frame, concat, empty_frame
from causeway.proofs.hashing import DIGEST_BYTES
from causeway.proofs.substrate.hashing import blake2_256
from causeway.proofs.xdm import RECEIPTS
from causeway.protocols.contract import View
from causeway.protocols.xdm.books import Books
from causeway.protocols.xdm.carried import Receipts
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.consensus import TAKEN_SCHEMA, confirm, receipts
from causeway.protocols.xdm.context import Context, block_number
from causeway.protocols.xdm.foreign_receipts import take_receipts
from causeway.protocols.xdm.fraud_tables import FRAUDS_SCHEMA, NEVER_FOUND, PRUNED_SCHEMA
from causeway.protocols.xdm.notices import OPERATOR_SLASHED, Notice
from causeway.protocols.xdm.small_tables import of_domains, rows_of, table_of
from causeway.protocols.xdm.state import State
from causeway.protocols.xdm.tables import RECEIPTED_SCHEMA

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


def fraud_of(receipt: bytes, executed: bytes) -> str | None:
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
) -> tuple[State, Frame, list[Notice]]:
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
    for row in rows_of(view.tables["claims"]):
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
        frauds = concat([state["frauds"], table_of(rows, FRAUDS_SCHEMA)])
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
    for row in rows_of(pruned):
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
) -> tuple[State, Frame, list[Notice]]:
    """Return the state without the receipts whose fraud is proved in this block, those that are submitted instead
    (``TAKEN_SCHEMA``), and the notices."""
    frauds = state["frauds"]
    due = frauds["found"] <= np.uint64(context.number)
    if not due.any():
        return state, empty_frame(TAKEN_SCHEMA), []
    found, pruned = [], []
    for row in rows_of(frauds.filter(due)):
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
    gone = concat([state["pruned"], table_of(pruned, PRUNED_SCHEMA)])
    state = state.with_tables(
        frauds=frauds.filter(~due),
        receipted=of_domains(state["receipted"], table_of(heads, RECEIPTED_SCHEMA)),
        pruned=gone.take(np.lexsort((gone["first"], gone["domain"]))),
    )
    # Return, of each fraud, that it was proved, as what the receipt is refused, whose stake goes, and what is
    # pruned.
    notices = []
    for one in found:
        ends, first = (CONSENSUS_POSITION, one.domain), one.numbers[0]
        notices.append(Notice(*ends, FRAUD_PROVED, index=first, amount=len(one.numbers)))
        notices.append(Notice(*ends, one.fraud, index=first, refused=True))
        notices.append(Notice(*ends, OPERATOR_SLASHED, index=first))
        notices += [Notice(*ends, RECEIPT_PRUNED, index=number) for number in one.numbers]
    # The receipts that come instead of those that are pruned (`TAKEN_SCHEMA`).
    receipts = [
        {
            **{"chain": CONSENSUS_POSITION, "domain": one.domain, "number": number},
            **{"receipt": receipt, "executed": b"", "operators": operators},
        }
        for one in found
        for number, receipt, operators in zip(one.numbers, one.receipts, one.operators, strict=True)
    ]
    return state, table_of(receipts, TAKEN_SCHEMA), notices


def _proved(domain: int, rows: Frame) -> _Pruned:
    """Return what is pruned with the first of ``rows``, and the receipts of honest operators for the same blocks.

    Raises ``InvalidInput``: the first receipt says what honest execution does, and nothing is to be proved.
    """
    receipts, executed = rows["receipt"].to_pylist(), rows["executed"].to_pylist()
    numbers = rows["number"].tolist()
    fraud = fraud_of(receipts[0], executed[0] or receipts[0])
    if fraud is None:
        raise InvalidInput(f"the receipt of block {numbers[0]} of domain {domain} is not false")
    parent, honest = receipts[0][PARENT_AT : PARENT_AT + DIGEST_BYTES], []
    for submitted, other in zip(receipts, executed, strict=True):
        content = other or submitted
        honest.append(content[:PARENT_AT] + parent + content[PARENT_AT + DIGEST_BYTES :])
        parent = blake2_256(honest[-1])
    return _Pruned(domain, fraud, numbers, honest, rows["operators"].to_pylist())
