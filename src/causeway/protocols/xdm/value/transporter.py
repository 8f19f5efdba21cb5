"""The transporter: value transfers between accounts of different chains, endpoint 1.

A program requests a transfer by a call with method ``METHOD`` to a program on the other chain; the attached value is
the amount. The transfer credits the called program's account, or the account in the payload, a ``MultiAccountId`` in
SCALE. No handler runs on the other chain. The requesting program gets an empty answer, or a reject with the error's
name and the amount.

``OutgoingTransfers`` has the payloads of pending transfers. An entry follows from the request in the outbox and equals
the value that the response settles.

Reference: XDM, X-3.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.order import U64, find_positions
from causeway_proofs.substrate import ScaleColumns, ScaleTypes, enum, limbs_column, numbers_column, struct, to_limbs

from causeway.core.frame import Frame
from causeway.core.vocabulary import Kind, ValueHolder, ValueReason
from causeway.protocols.shared.execution import credit_accounts
from causeway.protocols.shared.limits import MAX_DATA_BYTES
from causeway.protocols.xdm.chains import TRANSPORTER_ENDPOINT, chain_ids
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.errors import OK, TRANSPORTER_ERRORS, TransporterError
from causeway.protocols.xdm.state import State
from causeway.protocols.xdm.value.balances import ChainSums, Purse
from causeway.protocols.xdm.wire import ACCOUNT_BYTES, DecodedBodies

METHOD = "transporter.transfer"

REFUSALS = (TransporterError.MinimumTransferAmount, TransporterError.InvalidAccountId, TransporterError.LowBalance)
"""Reasons for refusing a transfer at its source, in order of the checks."""

PALLET, OUTGOING_TRANSFERS = "Transporter", "OutgoingTransfers"
"""Storage location of pending transfers."""

_ACCOUNT_32, _BYTES_20 = 0, 20
"""Variant of ``MultiAccountId`` for programs, and the width of the second variant."""

_TYPES = ScaleTypes(
    {
        "ChainId": enum("Consensus", ("Domain", "u32")),
        "MultiAccountId": enum(("AccountId32", "[u8; 32]"), ("AccountId20", "[u8; 20]"), ("Raw", "Vec<u8>")),
        "Location": struct(("chain_id", "ChainId"), ("account_id", "MultiAccountId")),
        "Transfer": struct(("amount", "u128"), ("sender", "Location"), ("receiver", "Location")),
    }
)

TRANSFERS = ScaleColumns(_TYPES, "Transfer", "a transfer", MAX_DATA_BYTES)
"""Columns of transfers.

They are ``amount``, and chain and account (variant and content) of ``sender`` and ``receiver``.
"""

ACCOUNTS = ScaleColumns(_TYPES, "MultiAccountId", "an account", MAX_DATA_BYTES, tags={"MultiAccountId": "variant"})
"""Columns of accounts in a call's payload."""


def is_transfer(messages: Frame) -> npt.NDArray[np.bool_]:
    """Return a mask of transfer requests among messages (``MESSAGE_FIELDS``)."""
    methods = messages["method"]
    names = methods.dictionary.to_pylist()
    if METHOD not in names:
        return np.zeros(len(messages), dtype=bool)
    chosen = methods.indices.to_numpy(zero_copy_only=False) == names.index(METHOD)
    return np.asarray(chosen & (messages["kind"] == Kind.REQUEST))


def transfer_refusals(
    messages: Frame, is_requested: npt.NDArray[np.bool_], accounts: Frame, minimum: int
) -> npt.NDArray[np.int64]:
    """Return the refusal of each transfer at its source (``TransporterError``), -1 for none.

    The first of ``REFUSALS`` counts; other messages get -1.

    Args:
        messages: ``MESSAGE_FIELDS``.
        is_requested: Mask of transfers.
        accounts: Accounts after the debit; the sender keeps a positive balance (3.3 step 4).
        minimum: Minimum amount, in units.
    """
    refusals = np.full(len(messages), -1, dtype=np.int64)
    rows = messages.filter(is_requested)
    if len(rows) == 0:
        return refusals
    payer = accounts.take(find_positions(accounts["program"], rows["sender"]))
    emptied = (payer["balance_over"] | payer["balance_high"] | payer["balance_low"]) == 0
    small = (rows["amount_high"] == 0) & (rows["amount_low"] < np.uint64(minimum))
    _, no_account = _named(rows)
    refusals[is_requested] = np.select([small, no_account, emptied], [int(error) for error in REFUSALS], -1)
    return refusals


def encode_transfers(messages: Frame) -> pa.LargeBinaryArray:
    """Encode the ``Transfer`` of each message (``MESSAGE_FIELDS``, ``source``, ``destination``)."""
    named, _ = _named(messages)
    count = len(messages)
    return TRANSFERS.encode(
        {
            "amount": limbs_column(np.stack([messages["amount_low"], messages["amount_high"]], axis=1)),
            "sender_chain_id": chain_ids(messages["source"]),
            "sender_account_id": pa.array(np.full(count, _ACCOUNT_32, dtype=np.uint8)),
            "sender_account_id_accountid32": numbers_column(messages["sender"], ACCOUNT_BYTES),
            "receiver_chain_id": chain_ids(messages["destination"]),
            **{f"receiver_{name}": column for name, column in named.items()},
        }
    )


class ProvenTransfers(NamedTuple):
    """Proved transfers: mask of readable ones, columns, lower and upper words of the amounts."""

    readable: npt.NDArray[np.bool_]
    columns: pa.RecordBatch
    low: U64
    high: U64


def receive_transfers(
    state: State,
    rows: Frame,
    bodies: DecodedBodies,
    transfers: ProvenTransfers,
    before: npt.NDArray[np.uint8],
    short: npt.NDArray[np.bool_],
    money: ChainSums,
    context: Context,
) -> tuple[State, npt.NDArray[np.uint8]]:
    """Credit proved transfers at their destination, and record accepted and refused value.

    The first applicable error counts: InvalidPayload (unknown amount, nothing is recorded), InvalidTransferRequest,
    UnexpectedMessage, the messenger's error, InvalidAccountId, BalanceUnderflow.

    Args:
        state: State before the transfers.
        rows: Lane and ``index`` of each.
        bodies: Content of the requests.
        transfers: Content of the transfers.
        before: Error of the messenger's checks.
        short: Mask of amounts that the books do not cover.
        money: Sums of the chains, changed in place.
        context: Context of the block.
    """
    readable, columns, low, high = transfers
    program, is_program = _program_of(columns, "receiver_account_id")
    accounts = state["accounts"]
    at = find_positions(accounts["program"], program)
    host = context.network.host_of(program)
    known = is_program & (at >= 0) & (host == rows["destination"].view(np.int32))
    failures: list[tuple[npt.NDArray[np.bool_], Any]] = [
        (~readable, TRANSPORTER_ERRORS + TransporterError.InvalidPayload),
        (rows["source"] == rows["destination"], TRANSPORTER_ERRORS + TransporterError.InvalidTransferRequest),
        (bodies.src_endpoint != TRANSPORTER_ENDPOINT, TRANSPORTER_ERRORS + TransporterError.UnexpectedMessage),
        (before != OK, before.astype(np.int64)),
        (~known, TRANSPORTER_ERRORS + TransporterError.InvalidAccountId),
        (short, TRANSPORTER_ERRORS + TransporterError.BalanceUnderflow),
    ]
    error = np.select([failed for failed, _ in failures], [code for _, code in failures], OK).astype(np.uint8)
    credited, refused = error == OK, (error != OK) & readable & ~short
    if credited.any():
        state = state.with_tables(accounts=credit_accounts(accounts, at[credited], high[credited], low[credited]))
    arrivals = rows.filter(credited)
    giver, taker = Purse(ValueHolder.ABROAD, arrivals["source"]), Purse(ValueHolder.ACCOUNT, program[credited])
    money.move(ValueReason.RECEIVED, arrivals["destination"], giver, taker, low[credited], high[credited], arrivals)
    money.note_rejected(rows["destination"][refused], rows["source"][refused], low[refused], high[refused])
    return state, error


def _named(messages: Frame) -> tuple[dict[str, pa.Array], npt.NDArray[np.bool_]]:
    """Return the account of each message: that of its payload, else that of its receiver.

    Returns the columns of ``ACCOUNTS`` with prefix ``account_id``, and a mask of malformed payloads and zero accounts.
    The account of a called program never counts as zero.
    """
    payload = messages["payload"].cast(pa.large_binary())
    has_payload = pc.greater(pc.binary_length(payload), 0).to_numpy(zero_copy_only=False)
    decoded = ACCOUNTS.decode(payload)
    named = decoded.columns
    own = numbers_column(messages["receiver"], ACCOUNT_BYTES)
    mask = pa.array(has_payload)
    variant = pc.if_else(mask, named["variant"], pa.scalar(_ACCOUNT_32, pa.uint8()))
    columns = {
        "account_id": variant,
        "account_id_accountid32": pc.if_else(mask, named["accountid32"], own),
        "account_id_accountid20": named["accountid20"],
        "account_id_raw": named["raw"],
    }
    zero = decoded.verdicts.codes != 0
    for name, width in (("accountid32", ACCOUNT_BYTES), ("accountid20", _BYTES_20)):
        zero |= pc.equal(named[name], bytes(width)).fill_null(False).to_numpy(zero_copy_only=False)
    return columns, has_payload & zero


def _program_of(columns: pa.RecordBatch, prefix: str) -> tuple[U64, npt.NDArray[np.bool_]]:
    """Return the program of each account, and a mask of program accounts."""
    words = to_limbs(columns[f"{prefix}_accountid32"].fill_null(bytes(ACCOUNT_BYTES)))
    formed = columns[f"{prefix}_accountid32"].is_valid().to_numpy(zero_copy_only=False)
    return words[:, 0].copy(), formed & (words[:, 1:] == 0).all(axis=1)
