"""Sums of chains: issued, held, burned, paid and transferred value.

``ChainSums.move`` is the only place where a sum changes, and it adds a row to the value log for each change.

Reference: XDM, section 3.8; G7, G8.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from causeway_proofs.order import U64

from causeway.core.frame import Frame, concat, empty_frame, repeat_value
from causeway.core.vocabulary import ISSUED, NO_CHAIN, NO_INDEX, VALUE_SCHEMA, Asset, ValueHolder, ValueReason
from causeway.protocols.shared.messages import LANE_COLUMNS
from causeway.protocols.shared.state_tables import blank_rows
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.events import ChainEvent
from causeway.protocols.xdm.state import State
from causeway.protocols.xdm.tables import MADE_SCHEMA, MONEY_SCHEMA, OPERATORS_SCHEMA
from causeway.protocols.xdm.value.books import MAX_BALANCE, WORD, BookError, Books, CoveredValue, TransferRecord

_HALF = np.uint64(32)
_MASK = np.uint64(2**32 - 1)


def pair_sums(
    first: npt.NDArray[np.uint32], second: npt.NDArray[np.uint32], *words: npt.NDArray[np.uint64]
) -> list[tuple[int, int, int]]:
    """Return (first, second, sum) of every pair of chains with a nonzero sum, ascending.

    Args:
        first: First chain of each row.
        second: Second chain of each row.
        words: 64-bit words of each row's amount, lowest first.
    """
    if len(first) == 0:
        return []
    pairs, group = np.unique(first.astype(np.uint64) << _HALF | second, return_inverse=True)
    totals = [0] * len(pairs)
    for word, column in enumerate(words):
        for half, shift in ((column & _MASK, 0), (column >> _HALF, 32)):
            parts = np.zeros(len(pairs), dtype=np.uint64)
            np.add.at(parts, group, half)
            totals = [total + (part << (shift + 64 * word)) for total, part in zip(totals, parts.tolist(), strict=True)]
    sums = zip(pairs.tolist(), totals, strict=True)
    return [(pair >> 32, pair & 0xFFFFFFFF, total) for pair, total in sums if total]


SUMS = tuple(name.removesuffix("_high") for name in MONEY_SCHEMA.names if name.endswith("_high"))

_SUM_OF = {
    ValueHolder.INBOX_FEES: "inbox_held",
    ValueHolder.OUTBOX_FEES: "outbox_held",
    ValueHolder.DEPOSITS: "reserved",
    ValueHolder.BURNED: "burned",
    ValueHolder.ROOT: "root",
}
"""The sum of each holder; ``issuance`` sums all of ``ISSUED``."""

U32 = npt.NDArray[np.uint32]


def split_words(amounts: Iterable[int]) -> tuple[U64, U64]:
    """Return the upper and the lower words of amounts."""
    listed = list(amounts)
    high = np.array([amount // WORD for amount in listed], dtype=np.uint64)
    return high, np.array([amount % WORD for amount in listed], dtype=np.uint64)


def join_words(frame: Frame, name: str) -> list[int]:
    """Return the amounts in ``name_high`` and ``name_low``."""
    high, low = frame[f"{name}_high"].tolist(), frame[f"{name}_low"].tolist()
    return [upper * WORD + lower for upper, lower in zip(high, low, strict=True)]


class Purse(NamedTuple):
    """A holder of value, with one number for all rows or a number a row."""

    holder: ValueHolder
    number: U64 | U32 | int = 0


OUTBOX_FEES, INBOX_FEES, MESSAGES = (
    Purse(ValueHolder.OUTBOX_FEES),
    Purse(ValueHolder.INBOX_FEES),
    Purse(ValueHolder.MESSAGES),
)
NOWHERE, BURNED = Purse(ValueHolder.NOWHERE), Purse(ValueHolder.BURNED)


class RewardDue(NamedTuple):
    """Reward of ``chain`` for the receipt of block ``number``, in units.

    It sums the fees of ``messages`` messages.
    """

    chain: int
    number: int
    amount: int
    messages: int


class ChainSums:
    """The sums of chains under change by a block.

    The consensus chain books its own transfers at once; those of a domain go into its receipt.

    Args:
        state: State before the block.
        cover: Available value of other lakes' domains.
    """

    def __init__(self, state: State, cover: CoveredValue | None = None) -> None:
        self._cover = cover
        money, operators = state["money"], state["operators"]
        self._chains = money["chain"].tolist()
        self._sums: dict[str, dict[int, int]] = {
            name: dict(zip(self._chains, join_words(money, name), strict=True)) for name in SUMS
        }
        pairs = zip(operators["chain"].tolist(), operators["operator"].tolist(), strict=True)
        self.operators = dict(zip(pairs, join_words(operators, "balance"), strict=True))
        self.dues: dict[tuple[int, int], RewardDue] = {}
        self._made: dict[tuple[int, int, int], int] = {}
        self.rows: list[Frame] = []
        self.books = Books(state["books"])
        self.refused: list[ChainEvent] = []

    def of(self, chain: int, name: str) -> int:
        """Return a sum of a chain."""
        return self._sums[name][chain]

    def move(
        self,
        why: ValueReason,
        chain: U32,
        giver: Purse,
        taker: Purse,
        low: U64,
        high: U64 | None = None,
        message: Frame | None = None,
    ) -> None:
        """Move an amount a row between purses, and record transfers to other chains and burns.

        Args:
            why: Reason for the value log.
            chain: Chain of each row.
            giver: Purse to debit.
            taker: Purse to credit.
            low: Lower words of the amounts; rows of amount 0 are skipped.
            high: Upper words of the amounts.
            message: Message of each row (``LANE_COLUMNS``).
        """
        nonzero = low > 0 if high is None else (low | high) > 0
        if not nonzero.any():
            return
        rows = value_rows(why, chain, giver, taker, low, high, message)
        if not nonzero.all():
            rows = rows.filter(nonzero)
        self.rows.append(rows)
        out = taker.holder == ValueHolder.ABROAD
        foreign = rows["to_number" if out else "from_number"] if out or giver.holder == ValueHolder.ABROAD else None
        other = repeat_value(np.uint32(0), len(rows)) if foreign is None else foreign.astype(np.uint32)
        for local, second, amount in pair_sums(rows["chain"], other, rows["amount_low"], rows["amount_high"]):
            for holder, change in ((giver.holder, -amount), (taker.holder, amount)):
                if holder in _SUM_OF:
                    self._sums[_SUM_OF[holder]][local] += change
                if holder in ISSUED:
                    self._sums["issuance"][local] += change
            if foreign is not None:
                self._note(
                    local,
                    TransferRecord.OUT
                    if out
                    else TransferRecord.CLAIMED
                    if why == ValueReason.CLAIMED
                    else TransferRecord.IN,
                    second,
                    amount,
                )
            elif taker.holder == ValueHolder.BURNED and local != CONSENSUS_POSITION:
                self._note(local, TransferRecord.BURNT, CONSENSUS_POSITION, amount)

    def move_amount(
        self, why: ValueReason, chain: int, giver: Purse, taker: Purse, amount: int, message: tuple[int, int, int, int]
    ) -> None:
        """Move one amount; ``message`` is source, destination, substream, index."""
        high, low = split_words([amount])
        kinds = (np.uint32, np.uint32, np.uint64, np.uint64)
        named = {name: np.array([part], kind) for name, part, kind in zip(LANE_COLUMNS, message, kinds, strict=True)}
        self.move(why, np.array([chain], np.uint32), giver, taker, low, high, Frame(named, 1))

    def pay(self, chain: U32, held: Purse, fees: U64, number: U64, message: Frame) -> None:
        """Make held fees due to the submitters of the receipts of blocks ``number``."""
        self.move(ValueReason.FEE_PAID, chain, held, Purse(ValueHolder.REWARDS), fees, message=message)
        nonzero = fees > 0
        receipts = chain[nonzero], number[nonzero].astype(np.uint32)
        counts = pair_sums(*receipts, np.ones(int(nonzero.sum()), dtype=np.uint64))
        for (payer, block, amount), (*_, messages) in zip(pair_sums(*receipts, fees[nonzero]), counts, strict=True):
            before = self.dues.get((payer, block), RewardDue(payer, block, 0, 0))
            self.dues[payer, block] = RewardDue(payer, block, before.amount + amount, before.messages + messages)

    def count_withheld_fees(self, chain: int) -> int:
        """Return the number of messages with a fee put on hold in this block."""
        fee_rows = [rows for rows in self.rows if int(rows["why"][0]) in (ValueReason.FEE_HELD, ValueReason.FEE_MINTED)]
        return sum(int((rows["chain"] == chain).sum()) for rows in fee_rows)

    def note_rejected(self, chain: U32, foreign: U32, low: U64, high: U64) -> None:
        """Record value from ``foreign`` that ``chain`` refuses; its source claims it."""
        for local, other, amount in pair_sums(chain, foreign, low, high):
            self._note(local, TransferRecord.REJECTED, other, amount)

    def _note(self, chain: int, record: TransferRecord, foreign: int, amount: int) -> None:
        """Record a transfer; log a refusal by the books."""
        if chain == CONSENSUS_POSITION:
            try:
                self.books.apply(chain, record, foreign, amount)
            except BookError as error:
                seen = min(amount, WORD - 1)
                self.refused.append(ChainEvent(chain, foreign, error.error.name, amount=seen, refused=True))
            return
        key = chain, int(record), foreign
        self._made[key] = self._made.get(key, 0) + amount

    def unnoted(
        self, record: TransferRecord, chain: U32, foreign: U32, parts: Sequence[tuple[U64, U64]], *, whole: bool
    ) -> npt.NDArray[np.int64]:
        """Return the first part of each row that cannot be recorded, -1 if all can.

        Rows and their parts are recorded in order.

        Args:
            record: Kind of transfer.
            chain: Chain of each row.
            foreign: Other chain of each row.
            parts: Lower and upper words of each part.
            whole: Record nothing of a failing row.
        """
        failed = np.full(len(chain), -1, dtype=np.int64)
        wanted: dict[tuple[int, int], int] = {}
        for words in parts:
            for local, other, amount in pair_sums(chain, foreign, *words):
                wanted[local, other] = wanted.get((local, other), 0) + amount
        for (local, other), total in wanted.items():
            if local == CONSENSUS_POSITION:
                room = self.books.room(record, other)
            else:
                room = MAX_BALANCE - self._made.get((local, int(record), other), 0)
                cover = self._cover
                if cover is not None and record != TransferRecord.OUT and cover.is_limited(local, other):
                    claimed = record == TransferRecord.CLAIMED
                    kinds = (record,) if claimed else (TransferRecord.IN, TransferRecord.REJECTED)
                    recorded = sum(self._made.get((local, int(kind), other), 0) for kind in kinds)
                    room = min(room, cover.left(local, other, record) - recorded)
            if total <= room:
                continue
            for row in np.flatnonzero((chain == local) & (foreign == other)).tolist():
                available = room
                for part, (low, high) in enumerate(parts):
                    amount = int(high[row]) * WORD + int(low[row])
                    if amount > available:
                        failed[row] = part
                        available = room if whole else available
                        break
                    available -= amount
                room = available
        return failed

    def close(self, state: State) -> tuple[State, Frame]:
        """Return the state with the sums after the block."""
        columns = {}
        for name in SUMS:
            columns[f"{name}_high"], columns[f"{name}_low"] = split_words(
                self._sums[name][chain] for chain in self._chains
            )
        before = state["money"]
        if any(not np.array_equal(before[name], column) for name, column in columns.items()):
            state = state.with_tables(money=before.with_columns(**columns).select(MONEY_SCHEMA.names))
        high, low = split_words(self.operators[key] for key in sorted(self.operators))
        known = state["operators"]
        if not (np.array_equal(known["balance_low"], low) and np.array_equal(known["balance_high"], high)):
            after = known.with_columns(balance_high=high, balance_low=low)
            state = state.with_tables(operators=after.select(OPERATORS_SCHEMA.names))
        if self.books.rows:
            state = state.with_tables(books=self.books.frame())
        if self._cover is not None and (drawn := self._cover.after(self._made)) is not None:
            state = state.with_tables(drawn=drawn)
        keys = np.array(sorted(self._made), dtype=np.int64).reshape(-1, 3)
        high, low = split_words(self._made[key] for key in sorted(self._made))
        records = blank_rows(
            MADE_SCHEMA,
            len(keys),
            chain=keys[:, 0].astype(np.uint32),
            what=keys[:, 1].astype(np.uint8),
            foreign=keys[:, 2].astype(np.uint32),
            amount_high=high,
            amount_low=low,
        )
        if len(records) or len(state["made"]):
            state = state.with_tables(made=records)
        booked = [self.books.log()] if self.books.rows else []
        return state, concat([empty_frame(VALUE_SCHEMA), *self.rows, *booked])


def value_rows(
    why: ValueReason,
    chain: U32,
    giver: Purse,
    taker: Purse,
    low: U64,
    high: U64 | None = None,
    message: Frame | None = None,
) -> Frame:
    """Create a row of the value log (``VALUE_SCHEMA``) for each movement.

    The arguments are those of ``ChainSums.move``.
    """
    count = len(low)
    no_message = {
        "source": repeat_value(np.uint32(NO_CHAIN), count),
        "destination": repeat_value(np.uint32(NO_CHAIN), count),
        "substream": repeat_value(np.uint64(0), count),
        "index": repeat_value(np.uint64(NO_INDEX), count),
    }
    named = no_message if message is None else {name: message[name] for name in LANE_COLUMNS}
    giver_number, taker_number = (
        repeat_value(np.uint64(number), count) if isinstance(number, int) else number.astype(np.uint64, copy=False)
        for number in (giver.number, taker.number)
    )
    return Frame(
        {
            "chain": chain,
            "asset": repeat_value(np.uint8(Asset.UNITS), count),
            "why": repeat_value(np.uint8(why), count),
            "from_holder": repeat_value(np.uint8(giver.holder), count),
            "from_number": giver_number,
            "to_holder": repeat_value(np.uint8(taker.holder), count),
            "to_number": taker_number,
            "amount_high": repeat_value(np.uint64(0), count) if high is None else high,
            "amount_low": low,
            **named,
        },
        count,
    )
