"""Payments out of messages, by message and asset, from the movements of a bucket.

A movement with ``from`` = ``MESSAGE`` is paid out of its message. A reversal of a fork with ``to`` = ``MESSAGE`` gives
it back. Movements of a message lie in the bucket of its rows, so that one pass finds both.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.order import distinct_with_codes, group_rows, stable_order

from causeway.audit.arrays import MIN_DELAY, Codes, Ints, Words, all_valid_rows, raw_words, to_single_array
from causeway.audit.bucket import BucketMessages
from causeway.audit.columns import NO_TIME, Bools
from causeway.ledger.encodings import NameCodes
from causeway.ledger.row_order import number_lanes
from causeway.ledger.schema import LIMBS, MESSAGE, REVERTED, LedgerEvent
from causeway.ledger.windows import Lane

WORDS_PER_SUM = 5

FEES_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("protocol", "source", "destination", "lane", "asset", "of")),
        *(pa.field(name, pa.binary(40)) for name in ("paid", "given")),
    ]
)
"""Amounts paid out of messages of a lane and given back, by asset, as words. ``of``: all payments (``""``), or those
in the message's own asset that reduce ``refunded`` or ``pending``."""

BACKING_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("chain", "other", "asset", "of")),
        *((name, pa.binary(8 * WORDS_PER_SUM)) for name in ("left", "back")),
        ("timeless", pa.bool_()),
        ("time", pa.int64()),
        *(("height", pa.uint64()), ("position", pa.uint64()), ("stated_by", pa.string())),
        *(("source_file", pa.string()), ("source_row", pa.uint64())),
    ]
)
"""Last movement ``of`` a kind, by chain, other chain and asset; for all movements (``backing``) also the amounts
that left and came back, and a flag for unknown times."""


@dataclass(frozen=True)
class PaidAmounts:
    """Payments out of the messages of a bucket.

    Attributes:
        rows: Counted movements, by message and asset.
        reversal: Mask of movements that give back.
        message: Message number of each movement.
        lanes: Lanes of messages.
        lane: Lane number of each message, in ledger order.
        indexed: Mask of messages with an index.
        index: Index of each message.
        ident: Number of each message's id in ``idents``.
        idents: Ids of messages without index.
        begins: First group of each message.
        ends: Group after the last one of each message.
        unseen: Mask of messages with an unknown amount or asset.
        unseen_paid: Mask of messages with an unknown amount or asset of a payment.
        given_back: Mask of messages with a reversal.
        assets: Names of assets.
        asset: Asset of each group (message and asset).
        amounts: Mask of groups with known amounts.
        paid: Paid sum of each group.
        given: Given back sum of each group.
        found: Mask of messages with a sent or received row in a run.
        latest: Latest send time of a lower index of the lane in the bucket.
    """

    rows: pa.Table
    reversal: Bools
    message: Ints
    lanes: list[Lane]
    lane: Ints
    indexed: Bools
    index: Words
    ident: Ints
    idents: pa.Array
    begins: Ints
    ends: Ints
    unseen: Bools
    unseen_paid: Bools
    given_back: Bools
    assets: list[str]
    asset: Codes
    amounts: Bools
    paid: Words
    given: Words
    found: Bools = field(compare=False)
    latest: Ints = field(compare=False)

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self.lane)


def collect_payments(value: pa.Table) -> PaidAmounts | None:
    """Sum the payments of a bucket's movements (``VALUE_SCHEMA``); return None without any.

    Args:
        value: Movements of a bucket (``VALUE_SCHEMA``).

    Returns:
        Payments out of messages and their reversals, by message and asset.
    """
    from causeway.audit.value_loops import add_rows

    reversed_movements = _is(value["why"], REVERTED)
    out, back = _is(value["from"], MESSAGE) & ~reversed_movements, _is(value["to"], MESSAGE) & reversed_movements
    of_message = np.asarray(value["index"].is_valid()) | np.asarray(value["message_id"].is_valid())
    chosen = np.flatnonzero((out | back) & of_message)
    if not len(chosen):
        return None
    rows, reversal = value.take(pa.array(chosen)).unify_dictionaries().combine_chunks(), back[chosen]
    lanes, lane = number_lanes(rows)
    indexed = np.asarray(rows["index"].is_valid())
    index = rows["index"].fill_null(0).to_numpy()
    names = to_single_array(rows["message_id"]).take(pa.array(np.flatnonzero(~indexed))).dictionary_encode()
    idents = names.dictionary.cast(pa.string())
    ident = np.full(len(indexed), -1, np.int64)
    ident[~indexed] = names.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    known = NameCodes()
    asset = known.codes(rows["asset"])
    keys = [lane.astype(np.uint64), (~indexed).astype(np.uint64), index, (ident + 1).astype(np.uint64)]
    keys.append((asset + 1).astype(np.uint64))
    order = stable_order(*keys)
    groups, messages = group_rows(*(key[order] for key in keys)), group_rows(*(key[order] for key in keys[:-1]))
    rows, reversal, asset = rows.take(pa.array(order)), reversal[order], asset[order]
    limbs = [to_single_array(rows[name]) for name in LIMBS]
    seen = (all_valid_rows(limbs) == 1) & (asset >= 0)
    group = groups.spread(np.arange(len(groups)))
    sums = [np.zeros((len(groups), WORDS_PER_SUM), np.uint64) for _ in range(2)]
    one, two, three, four = (raw_words(limb) for limb in limbs)
    add_rows(np.where(seen, group, -1), reversal.view(np.uint8), one, two, three, four, *sums)
    at = order[messages.starts]
    number = messages.spread(np.arange(len(messages)))
    return PaidAmounts(
        rows=rows,
        reversal=reversal,
        message=number,
        lanes=[(a, b, c, d) for a, b, c, d in lanes],
        lane=lane[at],
        indexed=indexed[at],
        index=index[at],
        ident=ident[at],
        idents=idents,
        begins=np.searchsorted(groups.starts, messages.starts).astype(np.int64),
        ends=np.searchsorted(groups.starts, messages.starts + messages.counts).astype(np.int64),
        unseen=_any(number, ~seen, len(messages)),
        unseen_paid=_any(number, ~seen & ~reversal, len(messages)),
        given_back=_any(number, reversal, len(messages)),
        assets=known.known(),
        asset=asset[groups.starts],
        amounts=_any(group, seen, len(groups)),
        paid=sums[0],
        given=sums[1],
        found=np.zeros(len(messages), bool),
        latest=np.full(len(messages), MIN_DELAY, np.int64),
    )


def settle_payments(bucket: BucketMessages, paid: PaidAmounts) -> pa.Table:
    """Include payments in the value outcomes of a run's messages (``BucketMessages.messages``).

    Args:
        bucket: Rows of a run and the outcome of its messages.
        paid: Payments out of messages of the bucket.

    Returns:
        The part of the payments that reduces refunded or pending amounts (``FEES_SCHEMA``).
    """
    from causeway.audit.value_loops import settle_messages

    columns, messages = bucket.columns, bucket.messages
    own = find_paid_messages(bucket, paid)
    codes = {name: code for code, name in enumerate(columns.assets)}
    # -2 matches no asset code of the run.
    table = np.array([*(codes.get(name, -2) for name in paid.assets), -2], np.int32)
    asset = table[paid.asset]
    settle_messages(
        *(own, paid.begins, paid.ends, asset, paid.unseen.view(np.uint8), paid.paid, paid.given),
        *(columns.starts, columns.alive, columns.event, messages.again, columns.asset, columns.has_amount),
        *columns.limbs,
        *(bucket.first(LedgerEvent.SENT), bucket.counted_receipts, bucket.refunds, messages.undone),
        *(messages.value, messages.value_by, messages.value_row),
    )
    return _payment_deductions(bucket, paid, own, asset)


def find_paid_messages(bucket: BucketMessages, paid: PaidAmounts) -> Ints:
    """Return the run's message number for each paid message, -1 for none.

    Marks the found messages, and updates the latest send time of lower indices.

    Args:
        bucket: Rows of a run and the outcome of its messages.
        paid: Payments out of messages of the bucket; ``found`` and ``latest`` are updated.

    Returns:
        Message numbers, shape (``paid.count``,), int64.
    """
    columns = bucket.columns
    found = np.full(paid.count, -1, np.int64)
    numbers = {lane: number for number, lane in enumerate(paid.lanes)}
    first = columns.starts[:-1]
    bounds = np.append(columns.lane_starts, len(first))
    ordered = bucket.promised("ordered_sends")
    for code, lane in enumerate(columns.lanes):
        number = numbers.get(lane)
        if number is None:
            continue
        own = np.arange(np.searchsorted(paid.lane, number), np.searchsorted(paid.lane, number, side="right"))
        begin, end = int(bounds[code]), int(bounds[code + 1])
        rows = first[begin:end]
        indexed_count = int(np.count_nonzero(columns.indexed[rows]))
        named = own[paid.indexed[own]]
        index = columns.index[rows[:indexed_count]]
        at = np.searchsorted(index, paid.index[named])
        if ordered[code] and indexed_count:
            sent = bucket.first(LedgerEvent.SENT)[begin : begin + indexed_count]
            time = columns.time[np.maximum(sent, 0)]
            times = np.maximum.accumulate(np.where((sent >= 0) & (time != NO_TIME), time, MIN_DELAY))
            before = np.where(at > 0, times[np.maximum(at - 1, 0)], MIN_DELAY)
            paid.latest[named] = np.maximum(paid.latest[named], before)
        if indexed_count:
            same = index[np.minimum(at, indexed_count - 1)] == paid.index[named]
            found[named[same]] = begin + at[same]
        others = own[~paid.indexed[own]]
        if len(others) and indexed_count < len(rows):
            names = columns.rows.take(("message_id",), rows[indexed_count:])["message_id"].combine_chunks()
            places = pc.index_in(paid.idents.take(pa.array(paid.ident[others])), value_set=names.cast(pa.string()))
            places = places.fill_null(-1).to_numpy(zero_copy_only=False)
            found[others[places >= 0]] = begin + indexed_count + places[places >= 0]
    shown = np.flatnonzero(found >= 0)
    paid.found[shown] |= bucket.messages.value[found[shown]] > 0
    return found


def _payment_deductions(bucket: BucketMessages, paid: PaidAmounts, own: Ints, asset: Codes) -> pa.Table:
    from causeway.audit.value_loops import subtract_payments

    columns = bucket.columns
    message = np.repeat(own, paid.ends - paid.begins)
    deducted = np.zeros_like(paid.paid)
    subtract_payments(
        *(message, asset, paid.paid, paid.given, columns.starts, columns.alive, columns.event, bucket.messages.again),
        *(columns.asset, columns.has_amount, *columns.limbs, bucket.counted_receipts, deducted),
    )
    counts = deducted.any(axis=1)
    if not counts.any():
        return FEES_SCHEMA.empty_table()
    back = (bucket.refunds >= 0) | (bucket.messages.undone > 0)
    refunded = back[np.maximum(message, 0)] if len(back) else np.zeros(len(message), bool)
    each = ((counts & refunded, "refunded"), (counts & ~refunded, "pending"))
    return pa.concat_tables([_fees(paid, which, of, (deducted, np.zeros_like(deducted))) for which, of in each])


def collect_fees(paid: PaidAmounts) -> pa.Table:
    """Return the payments out of all messages (``FEES_SCHEMA``).

    Args:
        paid: Payments out of messages of a bucket.

    Returns:
        Rows of ``FEES_SCHEMA`` by lane and asset, with ``of`` empty; unknown amounts do not count.
    """
    return _fees(paid, paid.amounts, "", (paid.paid, paid.given))


def _fees(paid: PaidAmounts, chosen: Bools, of: str, words: tuple[Words, Words]) -> pa.Table:
    from causeway.audit.value_loops import add_groups

    rows = np.flatnonzero(chosen & (paid.asset >= 0))
    if not len(rows):
        return FEES_SCHEMA.empty_table()
    lane = np.repeat(paid.lane, paid.ends - paid.begins)[rows]
    pairs, slot = distinct_with_codes((lane * len(paid.assets) + paid.asset[rows]).astype(np.uint64))
    totals = [np.zeros((len(pairs), WORDS_PER_SUM), np.uint64) for _ in range(2)]
    for sums, total in zip(words, totals, strict=True):
        add_groups(slot, np.ascontiguousarray(sums[rows]), total)
    lanes = [paid.lanes[pair // len(paid.assets)] for pair in pairs.tolist()]
    content = {name: [lane[place] for lane in lanes] for place, name in enumerate(FEES_SCHEMA.names[:4])}
    content |= {"asset": [paid.assets[pair % len(paid.assets)] for pair in pairs.tolist()], "of": [of] * len(pairs)}
    columns = {name: pa.array(texts, pa.string()) for name, texts in content.items()}
    columns |= {name: sums_to_column(total) for name, total in zip(("paid", "given"), totals, strict=True)}
    return pa.table(columns, FEES_SCHEMA)


def sums_to_column(words: Words) -> pa.Array:
    """Convert sums to a binary column.

    Args:
        words: Sums, shape (n, 5), uint64.

    Returns:
        One value of 40 bytes a sum.
    """
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(8 * WORDS_PER_SUM), len(words), [None, pa.py_buffer(np.ascontiguousarray(words))]
    )


def _is(column: pa.ChunkedArray, text: str) -> Bools:
    return np.asarray(pc.fill_null(pc.equal(column.cast(pa.string()), text), False))


def _any(group: Ints, mask: Bools, groups: int) -> Bools:
    found = np.zeros(groups, bool)
    found[group[mask]] = True
    return found


__all__ = [
    "BACKING_SCHEMA",
    "FEES_SCHEMA",
    "PaidAmounts",
    "collect_fees",
    "collect_payments",
    "find_paid_messages",
    "settle_payments",
    "sums_to_column",
]
