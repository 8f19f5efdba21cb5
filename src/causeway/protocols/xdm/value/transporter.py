"""The transporter: value from an account of one chain to one of another (XDM reference X-3), endpoint 1.

A program asks for a transfer by a call with the method ``METHOD`` to a program on the other chain; what it attaches is
the amount. The account that is credited is that of the program called, or the one that the payload names, a
``MultiAccountId`` in SCALE. No handler runs on the other chain; the program that asked gets an empty answer, or a
reject with the error's name and the amount.

``OutgoingTransfers`` has the payloads of the transporter's requests that have no response: an entry is a function of
the request in the outbox, and equal to what the response settles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

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
from causeway.protocols.xdm.errors import OK, TransporterError, transporter_error_number
from causeway.protocols.xdm.state import State
from causeway.protocols.xdm.value.balances import ChainSums, Purse
from causeway.protocols.xdm.wire import ACCOUNT_BYTES, DecodedBodies

METHOD = "transporter.transfer"

REFUSALS = (TransporterError.MinimumTransferAmount, TransporterError.InvalidAccountId, TransporterError.LowBalance)
"""Why a transfer does not leave, in the order in which it is found."""

PALLET, OUTGOING_TRANSFERS = "Transporter", "OutgoingTransfers"
"""Where the storage of a chain has the transfers that are on their way."""

_ACCOUNT_32, _BYTES_20 = 0, 20
"""The variant of ``MultiAccountId`` that programs' accounts are of, and the width of the second."""

_TYPES = ScaleTypes(
    {
        "ChainId": enum("Consensus", ("Domain", "u32")),
        "MultiAccountId": enum(("AccountId32", "[u8; 32]"), ("AccountId20", "[u8; 20]"), ("Raw", "Vec<u8>")),
        "Location": struct(("chain_id", "ChainId"), ("account_id", "MultiAccountId")),
        "Transfer": struct(("amount", "u128"), ("sender", "Location"), ("receiver", "Location")),
    }
)

TRANSFERS = ScaleColumns(_TYPES, "Transfer", "a transfer", MAX_DATA_BYTES)
"""Transfers: ``amount``, and the chain and the account (its variant and content) of ``sender`` and ``receiver``."""

ACCOUNTS = ScaleColumns(_TYPES, "MultiAccountId", "an account", MAX_DATA_BYTES, tags={"MultiAccountId": "variant"})
"""Accounts as the payload of a call names them."""


def is_transfer(messages: Frame) -> npt.NDArray[np.bool_]:
    """Return which messages (``MESSAGE_FIELDS``) ask for a transfer."""
    methods = messages["method"]
    names = methods.dictionary.to_pylist()
    if METHOD not in names:
        return np.zeros(len(messages), dtype=bool)
    chosen = methods.indices.to_numpy(zero_copy_only=False) == names.index(METHOD)
    return np.asarray(chosen & (messages["kind"] == Kind.REQUEST))


@dataclass(frozen=True)
class TransferResult:
    """What came of transfers. ``state``: with the amounts credited; ``error``: what the response of each says
    (``errors``), ``OK`` where it was credited."""

    state: State
    error: npt.NDArray[np.uint8]


def transfer_refusals(
    messages: Frame, asked: npt.NDArray[np.bool_], accounts: Frame, minimum: int
) -> npt.NDArray[np.int64]:
    """Return why each message that asks for a transfer may not leave (``TransporterError``), -1 where it may, and for
    other messages; the first of ``REFUSALS``.

    ``accounts``: after the amounts left them; an account must stay alive (3.3 step 4).
    """
    found = np.full(len(messages), -1, dtype=np.int64)
    rows = messages.filter(asked)
    if len(rows) == 0:
        return found
    payer = accounts.take(find_positions(accounts["program"], rows["sender"]))
    emptied = (payer["balance_over"] | payer["balance_high"] | payer["balance_low"]) == 0
    small = (rows["amount_high"] == 0) & (rows["amount_low"] < np.uint64(minimum))
    nobody = _named(rows).zero
    found[asked] = np.select([small, nobody, emptied], [int(error) for error in REFUSALS], -1)
    return found


def encode_transfers(messages: Frame) -> pa.LargeBinaryArray:
    """Return the ``Transfer`` of each message (``MESSAGE_FIELDS``, ``source``, ``destination``) that asks for one."""
    named = _named(messages)
    count = len(messages)
    return TRANSFERS.encode(
        {
            "amount": limbs_column(np.stack([messages["amount_low"], messages["amount_high"]], axis=1)),
            "sender_chain_id": chain_ids(messages["source"]),
            "sender_account_id": pa.array(np.full(count, _ACCOUNT_32, dtype=np.uint8)),
            "sender_account_id_accountid32": numbers_column(messages["sender"], ACCOUNT_BYTES),
            "receiver_chain_id": chain_ids(messages["destination"]),
            **{f"receiver_{name}": column for name, column in named.columns.items()},
        }
    )


class ProvenTransfers(NamedTuple):
    """Transfers as they were proved: which are any, their columns, the lower and the upper words of their amounts."""

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
) -> TransferResult:
    """Credit transfers that were proved to their destination, and note in the books what came and what is refused.

    ``rows``: lane and ``index`` of each; ``before``: what the messenger found (the pre-check); ``short``: amounts that
    the books do not have. The first of: InvalidPayload (nothing is noted: the amount is not known),
    InvalidTransferRequest, UnexpectedMessage, what the messenger found, InvalidAccountId, BalanceUnderflow.
    """
    readable, columns, low, high = transfers
    program, formed = _program_of(columns, "receiver_account_id")
    accounts = state["accounts"]
    at = find_positions(accounts["program"], program)
    host = context.network.host_of(program)
    known = formed & (at >= 0) & (host == rows["destination"].view(np.int32))
    error = np.select(
        [
            ~readable,
            rows["source"] == rows["destination"],
            bodies.src_endpoint != TRANSPORTER_ENDPOINT,
            before != OK,
            ~known,
            short,
        ],
        [
            transporter_error_number(TransporterError.InvalidPayload),
            transporter_error_number(TransporterError.InvalidTransferRequest),
            transporter_error_number(TransporterError.UnexpectedMessage),
            before.astype(np.int64),
            transporter_error_number(TransporterError.InvalidAccountId),
            transporter_error_number(TransporterError.BalanceUnderflow),
        ],
        OK,
    ).astype(np.uint8)
    taken, back = error == OK, (error != OK) & readable & ~short
    if taken.any():
        state = state.with_tables(accounts=credit_accounts(accounts, at[taken], high[taken], low[taken]))
    came = rows.filter(taken)
    giver, taker = Purse(ValueHolder.ABROAD, came["source"]), Purse(ValueHolder.ACCOUNT, program[taken])
    money.move(ValueReason.RECEIVED, came["destination"], giver, taker, low[taken], high[taken], came)
    money.note_rejected(rows["destination"][back], rows["source"][back], low[back], high[back])
    return TransferResult(state, error)


@dataclass(frozen=True)
class _Named:
    """The accounts that messages name. ``columns``: of ``ACCOUNTS``, with ``account_id`` before each name; ``zero``:
    payloads that are none, or the zero account. The account of a program that is called is none of these, whatever its
    number."""

    columns: dict[str, pa.Array]
    zero: npt.NDArray[np.bool_]


def _named(messages: Frame) -> _Named:
    """Return the account that each message names: its payload, or that of its receiver where there is none."""
    payload = messages["payload"].cast(pa.large_binary())
    given = pc.greater(pc.binary_length(payload), 0).to_numpy(zero_copy_only=False)
    decoded = ACCOUNTS.decode(payload)
    named = decoded.columns
    own = numbers_column(messages["receiver"], ACCOUNT_BYTES)
    mask = pa.array(given)
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
    return _Named(columns, given & zero)


def _program_of(columns: pa.RecordBatch, prefix: str) -> tuple[U64, npt.NDArray[np.bool_]]:
    """Return the program that each account is of, and which are accounts of programs at all."""
    words = to_limbs(columns[f"{prefix}_accountid32"].fill_null(bytes(ACCOUNT_BYTES)))
    formed = columns[f"{prefix}_accountid32"].is_valid().to_numpy(zero_copy_only=False)
    return words[:, 0].copy(), formed & (words[:, 1:] == 0).all(axis=1)
