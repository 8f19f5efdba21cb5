"""Complete rows by other records of the input, such as the chain at the other end of a lane.

Strategy: two passes. The first one reduces rows to an index of small columns (``index_links``), and the index of all
files is searched (``resolve_links``). The second one builds the rows again and completes them (``LaneLinks.apply``).
Messages are compared by 64-bit words of SHA-256, so that the result is independent of parts, order and process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.hashing import HashFunction, digest_slices
from causeway_proofs.order import U64, group_rows

from causeway.ledger.encodings import NameCodes, text_slices
from causeway.ledger.ingest.mapping import Link
from causeway.ledger.schema import LANE, LEDGER_SCHEMA, REVISION_SHIFT, LedgerEvent, LedgerKind

LaneEnd = tuple[str, str, str, str | None]
"""An end of a lane with an unknown other end: protocol, ``source`` or ``destination``, chain, lane."""

_SOURCE, _DESTINATION = "source", "destination"
_MESSAGE = (*LANE, "index", "ident")
_PACKET = ("protocol", "lane", "index", "ident", "content")
_EFFECT = (*_MESSAGE, "chain", "transaction")
_RECORD = (*_MESSAGE, "event", "chain", "height", "transaction")
_EFFECTS = (LedgerEvent.EXECUTED.value, LedgerEvent.ANSWERED.value, LedgerEvent.FAILED.value)
_ENDS_AT_SOURCE = (LedgerEvent.ACKNOWLEDGED.value, LedgerEvent.TIMED_OUT.value)
_ARRIVALS = (LedgerEvent.RECEIVED.value, LedgerEvent.EXECUTED.value, LedgerEvent.FAILED.value)
_CONTENT = ("payload_hash", "timeout_revision", "timeout_height", "timeout_time")
_NO_WORDS: U64 = np.zeros(0, dtype=np.uint64)


@dataclass(frozen=True)
class LaneLinks:
    """Links found in the index of all records.

    Attributes:
        counterparties: Chain at the other end of each lane end, None if unknown.
        redundant: Words of records without effect.
        failed: Words of messages that failed and were not executed.
        names: Id of the paired sending, by lane word and message id.
        continues: Id of the continued message, by lane word and message id.
    """

    counterparties: Mapping[LaneEnd, str | None] = field(default_factory=dict)
    redundant: U64 = field(default_factory=lambda: _NO_WORDS)
    failed: U64 = field(default_factory=lambda: _NO_WORDS)
    names: Mapping[tuple[int, str], str] = field(default_factory=dict)
    continues: Mapping[tuple[int, str], str] = field(default_factory=dict)

    def apply(self, rows: pa.Table) -> pa.Table:
        """Complete rows of the ledger.

        Args:
            rows: Rows as the mapping builds them (``LEDGER_SCHEMA``).

        Returns:
            The completed rows, followed by refunds of failed messages.
        """
        rows = _with_ends(rows, self.counterparties)
        if len(self.redundant) or len(self.failed):
            rows = self._with_events(rows)
        if self.names or self.continues:
            rows = self._with_names(rows)
        return rows

    def _with_events(self, rows: pa.Table) -> pa.Table:
        index = _index(rows)
        events = rows["event"].cast(pa.string())
        redundant = np.isin(_words(index, _RECORD), self.redundant)
        rows = _replace_values(rows, "detail", redundant, events)
        rows = _replace_values(rows, "event", redundant, LedgerEvent.REDUNDANT.value)
        acknowledged = np.asarray(pc.equal(rows["event"].cast(pa.string()), LedgerEvent.ACKNOWLEDGED.value))
        failed_acks = acknowledged & np.asarray(rows["code"].is_null()) & np.isin(_words(index, _MESSAGE), self.failed)
        if not failed_acks.any():
            return rows
        refunds = rows.filter(pa.array(failed_acks))
        refunds = _replace_values(refunds, "event", np.ones(refunds.num_rows, dtype=bool), LedgerEvent.REFUNDED.value)
        return pa.concat_tables([_replace_values(rows, "code", failed_acks, 1), refunds])

    def _with_names(self, rows: pa.Table) -> pa.Table:
        known = pa.array(sorted({name for _, name in (*self.names, *self.continues, *self._renamed())}), pa.string())
        chosen_rows = np.flatnonzero(np.asarray(pc.and_(pc.is_in(rows["message_id"], known), rows["index"].is_null())))
        if not len(chosen_rows):
            return rows
        selected = rows.take(pa.array(chosen_rows))
        names, ids, continued = _words(selected, LANE).tolist(), selected["message_id"].to_pylist(), list[str | None]()
        for place, lane in enumerate(names):
            ids[place] = self.names.get((lane, ids[place]), ids[place])
            continued.append(self.continues.get((lane, ids[place])))
        chosen = np.zeros(rows.num_rows, dtype=bool)
        chosen[chosen_rows] = True
        rows = _replace_values(rows, "message_id", chosen, pa.array(ids, pa.string()))
        return _replace_values(rows, "continues", chosen, pa.array(continued, pa.string()))

    def _renamed(self) -> Iterable[tuple[int, str]]:
        return ((lane, name) for (lane, _), name in self.names.items())


def index_links(rows: pa.Table, links: Collection[Link]) -> pa.Table:
    """Reduce rows of the ledger to the index that ``resolve_links`` needs.

    Args:
        rows: Rows as the mapping builds them (``LEDGER_SCHEMA``).
        links: Kinds of links to find.

    Returns:
        An index row for each relevant row: names, numbers and words.
    """
    requests = pc.equal(rows["kind"].cast(pa.string()), LedgerKind.REQUEST.value)
    if "counterparty" not in links:
        events = {LedgerEvent.SENT.value, LedgerEvent.RELAYED.value, *_ARRIVALS, *_EFFECTS, *_ENDS_AT_SOURCE}
        requests = pc.and_(requests, pc.is_in(rows["event"].cast(pa.string()), pa.array(sorted(events))))
    return _index(rows.filter(requests))


def resolve_links(
    links: Collection[Link], indices: Sequence[pa.Table], before: Mapping[LaneEnd, str | None] | None = None
) -> LaneLinks:
    """Search the index of all records.

    Args:
        links: Kinds of links to find.
        indices: Results of ``index_links`` for all parts of the input, in any order.
        before: Counterparties found by earlier commits; they stay, even if unknown.

    Returns:
        The links.
    """
    if not indices:
        return LaneLinks(dict(before or {}))
    index = pa.concat_tables(indices).unify_dictionaries().combine_chunks()
    counterparties = _counterparties(index, before or {}) if "counterparty" in links else {}
    index = _with_ends(index, counterparties)
    names = _pair_receipts(index) if "order" in links else {}
    return LaneLinks(
        counterparties,
        _redundant(index) if "redundant" in links else _NO_WORDS,
        _failed(index) if "errors" in links else _NO_WORDS,
        names,
        _find_continuations(index, names) if "continues" in links else {},
    )


# ---- index


def _index(rows: pa.Table) -> pa.Table:
    """Return the index of rows, one row each."""
    indexed = rows["index"].is_valid()
    above = pc.shift_left(pc.fill_null(rows["revision"], 0), pa.scalar(REVISION_SHIFT, pa.uint64()))
    return pa.table(
        {
            **{name: rows[name] for name in (*LANE, "event", "chain", "index", "message_id")},
            "ident": pc.if_else(indexed, pa.scalar(None, pa.string()), rows["message_id"]),
            "height": pc.bit_wise_or(rows["height"], above),
            "time": rows["time"].cast(pa.int64()),
            "transaction": _word_column(rows, ("transaction",)),
            "journeyless": rows["journey"].is_null(),
            "content": _word_column(rows, _CONTENT),
            "payload": _word_column(rows, ("payload_hash",)),
        }
    )


def _word_column(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """Return a word for the values of each row, null where all of them are null."""
    seen = np.logical_or.reduce([np.asarray(rows[name].is_valid()) for name in names])
    return pa.array(_words(rows, names), mask=~seen)


def _words(rows: pa.Table, names: Sequence[str]) -> U64:
    """Return a word for each row, equal where all values are equal or both null."""
    parts = []
    for name in names:
        text = _text(rows[name])
        parts += [pc.fill_null(pc.binary_length(text).cast(pa.string()), "-"), pc.fill_null(text, "")]
    whole = pc.binary_join_element_wise(*parts, ":")
    data, offsets = text_slices(whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole)
    digests = digest_slices(HashFunction.SHA256, data, offsets[:-1], offsets[1:])
    return np.ascontiguousarray(digests[:, :8]).view("<u8").reshape(-1).astype(np.uint64, copy=False)


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_fixed_size_binary(column.type):
        values = [None if value is None else value.hex() for value in column.to_pylist()]
        return pa.chunked_array([pa.array(values, pa.string())])
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return column.cast(pa.string())


# ---- search


def _roles(rows: pa.Table) -> tuple[NameCodes, dict[str, npt.NDArray[np.int32]], npt.NDArray[np.int8]]:
    """Return chains as codes, and each row's lane end: 0 source, 1 destination, -1 both/neither."""
    names = NameCodes()
    codes = {name: names.codes(rows[name]).copy() for name in (_SOURCE, _DESTINATION, "chain")}
    source, destination, chain = codes.values()
    role = np.full(rows.num_rows, -1, dtype=np.int8)
    role[(source >= 0) & (source == chain) & (destination < 0)] = 0
    role[(destination >= 0) & (destination == chain) & (source < 0)] = 1
    return names, codes, role


def _ends(rows: pa.Table, names: NameCodes, chain: npt.NDArray[np.int32], role: npt.NDArray[np.int8]) -> tuple[
    list[LaneEnd], npt.NDArray[np.int64]
]:  # fmt: skip
    """Return the lane ends of rows, and the number of each row's."""
    protocols, lanes = NameCodes(), NameCodes()
    columns: list[npt.NDArray[Any]] = [protocols.codes(rows["protocol"]), role, chain, lanes.codes(rows["lane"])]
    matrix: npt.NDArray[np.int64] = np.stack([each.astype(np.int64) for each in columns])
    distinct, numbers = np.unique(matrix, axis=1, return_inverse=True)
    known, of_lanes = names.known(), [*lanes.known(), None]
    ends: list[LaneEnd] = [
        (protocols.known()[protocol], (_SOURCE, _DESTINATION)[side], known[at], of_lanes[lane])
        for protocol, side, at, lane in distinct.T.tolist()
    ]
    return ends, numbers.reshape(-1)


def _with_ends(rows: pa.Table, counterparties: Mapping[LaneEnd, str | None]) -> pa.Table:
    """Fill in the other ends of lanes where known."""
    if not any(counterparties.values()):
        return rows
    names, codes, role = _roles(rows)
    one_sided = np.flatnonzero(role >= 0)
    if not len(one_sided):
        return rows
    ends, numbers = _ends(rows.take(pa.array(one_sided)), names, codes["chain"][one_sided], role[one_sided])
    found = np.array([names.code(counterparties.get(end)) for end in ends], dtype=np.int32)[numbers]
    for side, name in enumerate((_DESTINATION, _SOURCE)):
        codes[name][one_sided[role[one_sided] == side]] = found[role[one_sided] == side]
        rows = rows.set_column(
            rows.schema.get_field_index(name), name, names.column(codes[name]).cast(rows.schema.field(name).type)
        )
    return rows


def _counterparties(index: pa.Table, before: Mapping[LaneEnd, str | None]) -> dict[LaneEnd, str | None]:
    """Find the chain at the other end of each lane: the only one with the same messages."""
    names, codes, role = _roles(index)
    one_sided = np.flatnonzero(role >= 0)
    if not len(one_sided):
        return dict(before)
    index, role, chain = index.take(pa.array(one_sided)), role[one_sided], codes["chain"][one_sided]
    ends, numbers = _ends(index, names, chain, role)
    events, words = index["event"].cast(pa.string()), _words(index, _PACKET)
    sides = []
    for side, event in enumerate((LedgerEvent.SENT.value, LedgerEvent.RECEIVED.value)):
        rows = np.flatnonzero((role == side) & np.asarray(pc.equal(events, event)))
        sides.append(pa.table({"word": words[rows], f"end_{side}": numbers[rows]}))
    pairs = sides[0].join(sides[1], "word", join_type="inner").group_by(["end_0", "end_1"]).aggregate([])
    matches = [(ends[one], ends[other]) for one, other in zip(*(pairs[f"end_{side}"].to_pylist() for side in (0, 1)),
                                                            strict=True) if ends[one][2] != ends[other][2]]  # fmt: skip
    others: dict[LaneEnd, set[LaneEnd]] = {}
    for one, other in matches:
        others.setdefault(one, set()).add(other)
        others.setdefault(other, set()).add(one)
    found: dict[LaneEnd, str | None] = dict.fromkeys(sorted(ends, key=str))
    for end in found:
        alone = others.get(end, set())
        if len(alone) == 1 and len(others[other := next(iter(alone))]) == 1 and before.get(other, end[2]) == end[2]:
            found[end] = other[2]
    return {**found, **before}


def _redundant(index: pa.Table) -> U64:
    """Find relays without effect.

    These are further receipts of a message whose transaction shows no effect of them, and all but the first
    acknowledgement and time-out of a message. A message with both an acknowledgement and a time-out keeps both: a
    correct chain records only one of them.
    """
    event = index["event"].cast(pa.string())
    placed = np.asarray(index["transaction"].is_valid())
    effects = _words(index.filter(pc.is_in(event, pa.array(_EFFECTS))), _EFFECT)
    found = []
    for each in (LedgerEvent.RECEIVED.value, *_ENDS_AT_SOURCE):
        rows = index.take(pa.array(np.flatnonzero(placed & np.asarray(pc.equal(event, each)))))
        if not rows.num_rows:
            continue
        message, place = _words(rows, (*_MESSAGE, "chain")), [
            rows[name].fill_null(0).to_numpy() for name in ("transaction", "time", "height")
        ]  # fmt: skip
        order = np.lexsort((*place, message))
        rows, message, place = rows.take(pa.array(order)), message[order], [values[order] for values in place]
        groups = group_rows(message)
        repeated = np.zeros(rows.num_rows, dtype=bool)
        for values in (place[0], place[2]):
            repeated |= values != groups.spread(values[groups.starts])
        if each == LedgerEvent.RECEIVED.value:
            effective = np.isin(_words(rows, _EFFECT), effects)
            shown = groups.spread(np.logical_or.reduceat(effective, groups.starts))
            repeated = np.where(shown, ~effective, repeated)
        found.append(_words(rows.filter(pa.array(repeated)), _RECORD))
    return np.unique(np.concatenate([_NO_WORDS, *found]))


def _failed(index: pa.Table) -> U64:
    """Find failed messages; executed ones are excluded, as their acknowledgement is ambiguous."""
    event = index["event"].cast(pa.string())
    failed, done = (
        _words(index.filter(pc.is_in(event, pa.array(events))), _MESSAGE)
        for events in ([LedgerEvent.FAILED.value], [LedgerEvent.EXECUTED.value, LedgerEvent.ANSWERED.value])
    )
    return np.setdiff1d(failed, done)


def _pair_receipts(index: pa.Table) -> dict[tuple[int, str], str]:
    """Pair receipts of unknown ids with sendings of equal content, in the order of their times.

    A sending has at most one receipt, and none before it. Ids of messages of a journey count as they are.
    """
    index = index.filter(index["journeyless"])
    places: dict[str, dict[tuple[int, int], dict[str, tuple[int, int]]]] = {}
    for lane, row in _named(index):
        kind = LedgerEvent.RECEIVED.value if row["event"] in _ARRIVALS else row["event"]
        own = places.setdefault(kind, {}).setdefault((lane, row["payload"]), {})
        place = (row["time"] or 0, row["height"] or 0)
        own[row["message_id"]] = min(place, own.get(row["message_id"], place))
    sent, names = places.pop(LedgerEvent.SENT.value, {}), dict[tuple[int, str], str]()
    for kind in sorted(places):
        for key, arrived in sorted(places[kind].items()):
            sendings = sorted((place, name) for name, place in sent.get(key, {}).items() if name not in arrived)
            for place, name in sorted(
                (place, name) for name, place in arrived.items() if name not in sent.get(key, {})
            ):
                if sendings and sendings[0][0][0] <= place[0]:
                    names.setdefault((key[0], name), sendings.pop(0)[1])
    return names


def _find_continuations(index: pa.Table, names: Mapping[tuple[int, str], str]) -> dict[tuple[int, str], str]:
    """Find messages that continue another one, relayed in the same block with the same content."""
    relayed: dict[tuple[Any, ...], set[str]] = {}
    sent: list[tuple[tuple[Any, ...], int, str]] = []
    for lane, row in _named(index):
        place, name = (row["chain"], row["height"], row["payload"]), row["message_id"]
        if row["event"] == LedgerEvent.RELAYED.value:
            relayed.setdefault(place, set()).add(names.get((lane, name), name))
        elif row["event"] == LedgerEvent.SENT.value:
            sent.append((place, lane, name))
    found = {}
    for place, lane, name in sent:
        others = relayed.get(place, set()) - {name}
        if len(others) == 1:
            found[lane, name] = next(iter(others))
    return found


def _named(index: pa.Table) -> Iterable[tuple[int, dict[str, Any]]]:
    """Yield rows of messages with an id and a content, with the word of their lane."""
    rows = index.filter(pc.and_(index["ident"].is_valid(), index["payload"].is_valid()))
    names = ("event", "chain", "height", "time", "message_id", "payload")
    return zip(_words(rows, LANE).tolist(), rows.select(names).to_pylist(), strict=True)


def _replace_values(rows: pa.Table, name: str, chosen: npt.NDArray[np.bool_], values: Any) -> pa.Table:
    """Replace values in chosen rows: by one value, one a row, or one for each chosen row."""
    if not chosen.any():
        return rows
    place, kind = rows.schema.get_field_index(name), LEDGER_SCHEMA.field(name).type
    plain = pa.string() if pa.types.is_dictionary(kind) else kind
    column, mask = rows[name].cast(plain).combine_chunks(), pa.array(chosen)
    if isinstance(values, pa.Array):
        replaced = pc.replace_with_mask(column, mask, values.cast(plain))
    else:
        replaced = pc.if_else(mask, values if isinstance(values, pa.ChunkedArray) else pa.scalar(values, plain), column)
    replaced = replaced.combine_chunks() if isinstance(replaced, pa.ChunkedArray) else replaced
    return rows.set_column(
        place, rows.schema.field(name), replaced.dictionary_encode().cast(kind) if plain != kind else replaced
    )


__all__ = ["LaneEnd", "LaneLinks", "index_links", "resolve_links"]
