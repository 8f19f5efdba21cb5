"""Convert drafts to ledger rows and value logs to movements.

Names replace numbers, and times replace ticks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.order import U64, find_positions

from causeway.core.frame import Frame, repeat_text
from causeway.core.vocabulary import (
    CHAIN_HOLDERS,
    NO_CHAIN,
    NO_INDEX,
    PAIR_HOLDERS,
    PROGRAM_HOLDERS,
    ROOT_OWNER,
    Asset,
    Kind,
    ValueHolder,
    ValueReason,
)
from causeway.ledger.encodings import NameCodes
from causeway.ledger.lake.messages import LOGS, NO_PLACE, DraftName, build_drafts
from causeway.ledger.row_order import EVENTS
from causeway.ledger.schema import LEDGER_SCHEMA, REPORTER_COLUMN, VALUE_SCHEMA
from causeway.ledger.schema import LedgerKind as Stored

__all__ = [
    "LOCAL_LANES",
    "NO_NAME",
    "REPORTER_COLUMN",
    "REVERTED_MOVEMENTS",
    "VALUE_LOG",
    "RunNames",
    "build_value_rows",
    "concatenate_texts",
    "format_lane_names",
    "lane_name",
    "ledger_rows",
    "mask_numbers",
    "names_from_codes",
]

LETTERS = {Kind.INGRESS: "i", Kind.REQUEST: "q", Kind.RESPONSE: "r", Kind.REFUND: "f", Kind.CONTROL: "c"}
"""Class letter of each kind in a ``message_id``."""

LOCAL_LANES = "local-"
"""Prefix of lane names from a chain to itself."""

NO_NAME = 2**64 - 1
"""Number of a sender or receiver that is not a program."""

_KINDS = [kind.value for kind in Stored]
_OF_KIND = {
    Kind.INGRESS: Stored.REQUEST,
    Kind.REQUEST: Stored.REQUEST,
    Kind.RESPONSE: Stored.RESPONSE,
    Kind.REFUND: Stored.REFUND,
    Kind.CONTROL: Stored.CONTROL,
}


@dataclass(frozen=True)
class RunNames:
    """Names behind the numbers in the logs of a run.

    Attributes:
        protocol: Name of the protocol.
        asset: Name of the asset.
        chains: Names by position.
        numbers: Numbers of programs, ascending.
        programs: Name of each of these programs.
        tick_micros: Length of a tick, in microseconds.
    """

    protocol: str
    asset: str
    chains: tuple[str, ...]
    numbers: U64
    programs: tuple[str, ...]
    tick_micros: int

    @cached_property
    def program_names(self) -> pa.Array:
        """Names of programs, followed by null."""
        return pa.array([*self.programs, None], pa.string())

    def chain_column(self, positions: npt.NDArray[np.uint32]) -> pa.DictionaryArray:
        """Return the names of chains, null outside of their range."""
        return names_from_codes(positions.astype(np.int64), len(self.chains), self.chains)

    def times(self, ticks: npt.NDArray[np.int64]) -> pa.Array:
        """Return the begin of ticks; tick 0 is at 1970-01-01."""
        return pa.array(ticks * np.int64(self.tick_micros)).cast(pa.timestamp("us", "UTC"))

    def programs_column(self, numbers: U64) -> pa.Array:
        """Return the names of programs, or their numbers; null for ``NO_NAME``."""
        coded = pa.array(np.ascontiguousarray(numbers)).dictionary_encode()
        distinct = coded.dictionary.to_numpy()
        found = find_positions(self.numbers, distinct)
        names = self.program_names.take(pa.array(np.where(found >= 0, found, len(self.programs))))
        texts = pc.if_else(pa.array(distinct == np.uint64(NO_NAME)), None, coded.dictionary.cast(pa.string()))
        return pc.coalesce(names, texts).take(coded.indices)


def lane_name(substream: int, own: bool) -> str:
    """Return the name of a lane; ``own``: from a chain to itself.

    Args:
        substream: Number of the lane between two chains.
        own: Source and destination are the same chain.

    Returns:
        The name.
    """
    return f"{LOCAL_LANES if own else ''}{substream}"


def ledger_rows(drafts: Frame, names: RunNames, reasons: NameCodes) -> pa.Table:
    """Convert drafts to ledger rows (``LEDGER_SCHEMA``).

    Args:
        drafts: Drafts of rows.
        names: Names of the run.
        reasons: Names behind the column ``detail``.

    Returns:
        The rows.
    """
    count = len(drafts)
    digits = {name: pa.array(np.ascontiguousarray(drafts[name])).cast(pa.string()) for name in ("sender", "receiver")}
    by_call = drafts["named"] == DraftName.CALL
    answers = by_call & (drafts["kind"] == Kind.RESPONSE)
    request_kinds = np.full(int(answers.sum()), Kind.REQUEST, dtype=np.uint8)
    reversed_digits = {"sender": digits["receiver"], "receiver": digits["sender"]}
    valued = ~drafts["valued"]
    # A control row about no message is in no lane; its ends are those of its slice, channel or client.
    loose, no_chain = drafts["named"] == DraftName.CONTROL, np.uint32(NO_CHAIN)
    columns = {
        "protocol": repeat_text(names.protocol, count),
        "source": names.chain_column(np.where(loose, no_chain, drafts["source"])),
        "destination": names.chain_column(np.where(loose, no_chain, drafts["destination"])),
        "lane": _lanes_of(drafts),
        "index": mask_numbers(drafts["index"], drafts["index"] == np.uint64(NO_PLACE)),
        "message_id": _message_ids(drafts, digits, names),
        "answers": _spread(
            _call_ids(drafts, digits=reversed_digits, names=names, rows=answers, kinds=request_kinds), answers
        ),
        "kind": _kinds(drafts),
        "event": names_from_codes(drafts["event"].astype(np.int64), len(EVENTS), EVENTS),
        "chain": names.chain_column(drafts["chain"]),
        "height": pa.array(np.ascontiguousarray(drafts["height"])),
        "position": mask_numbers(drafts["position"], drafts["position"] == np.uint64(NO_PLACE)),
        "tick": pa.array(drafts["tick"].astype(np.uint64)),
        "time": names.times(drafts["tick"]),
        "sender": _senders(drafts, names),
        "receiver": _receivers(drafts, names),
        "payload_hash": _hashes(drafts),
        "asset": names_from_codes(np.where(drafts["valued"], 0, -1), 1, [names.asset]),
        "amount_0": mask_numbers(drafts["amount_low"], valued),
        "amount_1": mask_numbers(drafts["amount_high"], valued),
        "amount_2": mask_numbers(np.zeros(count, dtype=np.uint64), valued),
        "amount_3": mask_numbers(np.zeros(count, dtype=np.uint64), valued),
        "code": pa.array(drafts["code"].astype(np.int64)),
        "detail": names_from_codes(drafts["detail"].astype(np.int64), len(reasons), reasons.known()),
        "stated_by": repeat_text(REPORTER_COLUMN, count),
        "source_file": names_from_codes(drafts["log"].astype(np.int64), len(LOGS), LOGS),
        "source_row": pa.array(np.ascontiguousarray(drafts["number"])),
    }
    arrays = [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in LEDGER_SCHEMA]
    return pa.Table.from_arrays(
        [array.cast(field.type) for array, field in zip(arrays, LEDGER_SCHEMA, strict=True)], schema=LEDGER_SCHEMA
    )


def drafts_from_rows(rows: pa.Table, names: RunNames) -> Frame:
    """Convert ledger rows of messages that wait for a lane back to drafts."""
    kinds = {letter: kind for kind, letter in LETTERS.items()}
    calls = [_CALL_ID.fullmatch(text) for text in rows["message_id"].to_pylist()]
    parts = [(0, 0, "q", 0) if found is None else found.groups() for found in calls]
    chains = [names.chains.index(name) for name in rows["chain"].to_pylist()]
    numbers = {
        "sender": [int(part[0]) for part in parts],
        "receiver": [int(part[1]) for part in parts],
        "kind": [int(kinds[part[2]]) for part in parts],
        "callback": [int(part[3]) for part in parts],
        "chain": chains,
        "owner": chains,
        "amount_low": rows["amount_0"].to_pylist(),
        "amount_high": rows["amount_1"].to_pylist(),
        "number": rows["source_row"].to_pylist(),
        "log": [LOGS.index(name) for name in rows["source_file"].to_pylist()],
        "event": [EVENTS.index(name) for name in rows["event"].to_pylist()],
        **{name: rows[name].to_pylist() for name in ("code", "height", "tick")},
    }
    columns: dict[str, Any] = {name: np.array(values, dtype=np.uint64) for name, values in numbers.items()}
    hashes = rows["payload_hash"].to_pylist()
    columns["hash"] = np.frombuffer(b"".join(hashes), dtype=np.uint8).reshape(-1, 32)
    return build_drafts(rows.num_rows, **columns, at=columns["height"], hashed=np.ones(rows.num_rows, dtype=bool))


_CALL_ID = re.compile(r"[^:]*:(\d+)>(\d+)/([a-z])#(\d+)")


def _message_ids(drafts: Frame, digits: dict[str, pa.Array], names: RunNames) -> pa.Array:
    """Return the stable ``message_id`` of each row.

    ``protocol:sender>receiver/class#number``: a message; programs and callbacks are numbers, the class is ``i`` (user
    message), ``q`` (request), ``r`` (response) or ``f`` (refund). ``protocol:user>receiver/i!tick.place``: a refused
    user message without a number in any queue; the place, from 1, is its arrival position in the tick.
    ``protocol:source>destination/c#lane.index``: a control message in a lane. ``protocol:chain/c#height.row``: a
    control row about no message: the row of the chain at the height.
    """
    named = drafts["named"]
    parts, order = [], []
    for name in DraftName:
        rows = named == name
        if not rows.any():
            continue
        order.append(np.flatnonzero(rows))
        if name == DraftName.CALL:
            parts.append(_call_ids(drafts, digits, names, rows, drafts["kind"][rows]))
            continue
        chosen = drafts.filter(rows)
        if name == DraftName.REFUSED:
            ends = [_chosen(digits[side], rows) for side in ("sender", "receiver")]
            place = [pa.array(chosen["came"]).cast(pa.string()), pa.array(chosen["place"]).cast(pa.string())]
            parts.append(concatenate_texts(f"{names.protocol}:", ends[0], ">", ends[1], "/i!", place[0], ".", place[1]))
        elif name == DraftName.PLACE:
            ends = [_text(names.chain_column(chosen[side])) for side in ("source", "destination")]
            lane = _text(_lanes_of(chosen))
            index = pa.array(chosen["index"]).cast(pa.string())
            parts.append(concatenate_texts(f"{names.protocol}:", ends[0], ">", ends[1], "/c#", lane, ".", index))
        else:
            place = [pa.array(chosen[column]).cast(pa.string()) for column in ("at", "number")]
            chain = _text(names.chain_column(chosen["owner"]))
            parts.append(concatenate_texts(f"{names.protocol}:", chain, "/c#", place[0], ".", place[1]))
    if not parts:
        return pa.array([], pa.string())
    if len(parts) == 1:
        return parts[0]
    at = np.empty(len(drafts), dtype=np.int64)
    at[np.concatenate(order)] = np.arange(len(drafts))
    return pa.concat_arrays(parts).take(pa.array(at))


def _call_ids(
    drafts: Frame,
    digits: dict[str, pa.Array],
    names: RunNames,
    rows: npt.NDArray[np.bool_],
    kinds: npt.NDArray[np.uint8],
) -> pa.Array:
    """Return the ids of messages by their calls. ``kinds``: kind of each chosen row."""
    letters = pa.array([f"/{LETTERS[Kind(kind)]}#" for kind in range(len(Kind))], pa.string())
    callback = pa.array(np.ascontiguousarray(drafts["callback"][rows])).cast(pa.string())
    ends = [_chosen(digits[side], rows) for side in ("sender", "receiver")]
    letter = letters.take(pa.array(kinds.astype(np.int64)))
    return concatenate_texts(f"{names.protocol}:", ends[0], ">", ends[1], letter, callback)


def concatenate_texts(*parts: pa.Array | str) -> pa.Array:
    """Concatenate texts row by row, null where one is null."""
    return pc.binary_join_element_wise(*parts, "")


def _chosen(column: pa.Array, rows: npt.NDArray[np.bool_]) -> pa.Array:
    return column if rows.all() else column.filter(pa.array(rows))


def _spread(values: pa.Array, rows: npt.NDArray[np.bool_]) -> pa.Array:
    """Return values at their rows, null at all others."""
    if rows.all():
        return values
    at = np.where(rows, np.cumsum(rows) - 1, 0)
    return values.take(pa.array(at, mask=~rows)) if len(values) else pa.nulls(len(rows), values.type)


def _text(column: pa.DictionaryArray) -> pa.Array:
    return column.cast(pa.string()).fill_null("?")


def format_lane_names(
    source: npt.NDArray[np.uint32], destination: npt.NDArray[np.uint32], substream: U64, there: npt.NDArray[np.bool_]
) -> pa.DictionaryArray:
    """Return the names of lanes, null outside of lanes (mask ``there``).

    Args:
        source: Source of each row, shape (n,), uint32.
        destination: Destination of each row, shape (n,), uint32.
        substream: Number of the lane, shape (n,), uint64.
        there: Mask of rows in lanes, shape (n,).

    Returns:
        Dictionary column of n texts.
    """
    coded_lanes = pa.array(np.ascontiguousarray(substream)).dictionary_encode()
    distinct, at = coded_lanes.dictionary.to_pylist(), coded_lanes.indices.to_numpy()
    texts = [lane_name(each, own) for own in (False, True) for each in distinct]
    codes = np.where(there, at + np.where(source == destination, len(distinct), 0), -1)
    return names_from_codes(codes, len(texts), texts)


def _lanes_of(drafts: Frame) -> pa.DictionaryArray:
    in_lane = drafts["index"] != np.uint64(NO_PLACE)
    return format_lane_names(drafts["source"], drafts["destination"], drafts["substream"], in_lane)


def _kinds(drafts: Frame) -> pa.DictionaryArray:
    code_of = np.array([_KINDS.index(_OF_KIND[Kind(kind)]) for kind in range(len(Kind))], dtype=np.int64)
    codes = code_of[drafts["kind"]]
    codes[(drafts["kind"] == Kind.RESPONSE) & (drafts["code"] > 0)] = _KINDS.index(Stored.REJECT)
    return names_from_codes(codes, len(_KINDS), _KINDS)


def _senders(drafts: Frame, names: RunNames) -> pa.Array:
    programs = _known(names.programs_column(drafts["sender"]), drafts["of_programs"])
    users = drafts["kind"] == Kind.INGRESS
    if users.any():
        numbers = pa.array(np.ascontiguousarray(drafts["sender"])).cast(pa.string())
        programs = pc.if_else(pa.array(users), concatenate_texts("user/", numbers), programs)
    return _or_ends(programs, drafts, names, "source")


def _receivers(drafts: Frame, names: RunNames) -> pa.Array:
    programs = _known(names.programs_column(drafts["receiver"]), drafts["of_programs"])
    return _or_ends(programs, drafts, names, "destination")


def _or_ends(programs: pa.Array, drafts: Frame, names: RunNames, end: str) -> pa.Array:
    """Return program names, or for a control row about no message the chain at its ``end``."""
    loose = (drafts["named"] == DraftName.CONTROL) & ~drafts["of_programs"]
    if not loose.any():
        return programs
    return pc.if_else(pa.array(loose), names.chain_column(drafts[end]).cast(pa.string()), programs)


def _hashes(drafts: Frame) -> pa.Array:
    kind = LEDGER_SCHEMA.field("payload_hash").type
    data = np.ascontiguousarray(drafts["hash"])
    hashed = drafts["hashed"]
    valid = None if hashed.all() else pa.py_buffer(np.packbits(hashed, bitorder="little"))
    return pa.FixedSizeBinaryArray.from_buffers(kind, len(drafts), [valid, pa.py_buffer(data)])


def _known(column: pa.Array, there: npt.NDArray[np.bool_]) -> pa.Array:
    return column if there.all() else pc.if_else(pa.array(np.ascontiguousarray(there)), column, None)


def mask_numbers(values: npt.NDArray[np.uint64], missing: npt.NDArray[np.bool_]) -> pa.Array:
    """Return numbers with nulls where ``missing``.

    Args:
        values: Numbers, shape (n,), uint64.
        missing: Mask, shape (n,).

    Returns:
        uint64 column of n values.
    """
    return pa.array(np.ascontiguousarray(values), mask=np.ascontiguousarray(missing) if missing.any() else None)


def names_from_codes(codes: npt.NDArray[np.int64], count: int, names: Sequence[str]) -> pa.DictionaryArray:
    """Return names by code, null for codes out of range.

    Args:
        codes: Index of a name for each row, shape (n,), int64.
        count: Number of valid codes, from 0 to it exclusive.
        names: The names, at least ``count``.

    Returns:
        Dictionary column of n texts.
    """
    missing = (codes < 0) | (codes >= count)
    indices = pa.array(np.where(missing, 0, codes).astype(np.int32), mask=missing if missing.any() else None)
    return pa.DictionaryArray.from_arrays(indices, pa.array(list(names), pa.string()))


VALUE_LOG = "value"

REVERTED_MOVEMENTS = "reverted"
"""Reason of movements that undo those of reverted blocks."""

_WHY = [*(why.name.lower() for why in ValueReason), REVERTED_MOVEMENTS]


def build_value_rows(rows: Frame, names: RunNames, *, at: tuple[int, int] | None = None) -> pa.Table:
    """Convert rows of the value log to movements (``VALUE_SCHEMA``).

    A holder is ``holder`` or ``holder:name``, such as ``account:alice`` and ``unconfirmed:left>right``.

    Args:
        rows: Rows of the value log, with ``height``, ``tick`` and ``number``.
        names: Names of the run.
        at: Height and tick of the fork that reverted them; then each movement is reversed, at that height.

    Returns:
        The movements.
    """
    count = len(rows)
    of_message = rows["index"] != np.uint64(NO_INDEX)
    sides = [_holders(rows[f"{side}_holder"], rows[f"{side}_number"], names) for side in ("from", "to")]
    why, height, tick = rows["why"].astype(np.int64), rows["height"], rows["tick"]
    if at is not None:
        sides.reverse()
        why = np.full(count, _WHY.index(REVERTED_MOVEMENTS), dtype=np.int64)
        height, tick = np.full(count, at[0], dtype=np.uint64), np.full(count, at[1], dtype=np.int64)
    lanes = format_lane_names(rows["source"], rows["destination"], rows["substream"], of_message)
    assets = [names.asset, *(asset.name.lower() for asset in Asset if asset != Asset.UNITS)]
    nothing = np.zeros(count, dtype=bool)
    columns = {
        "protocol": repeat_text(names.protocol, count),
        "source": names.chain_column(rows["source"]),
        "destination": names.chain_column(rows["destination"]),
        "lane": lanes,
        "index": mask_numbers(rows["index"], ~of_message),
        "chain": names.chain_column(rows["chain"]),
        "height": pa.array(np.ascontiguousarray(height)),
        "tick": pa.array(tick.astype(np.uint64)),
        "time": names.times(tick),
        "asset": names_from_codes(rows["asset"].astype(np.int64), len(assets), assets),
        "amount_0": mask_numbers(rows["amount_low"], nothing),
        "amount_1": mask_numbers(rows["amount_high"], nothing),
        "amount_2": mask_numbers(np.zeros(count, dtype=np.uint64), nothing),
        "amount_3": mask_numbers(np.zeros(count, dtype=np.uint64), nothing),
        "why": names_from_codes(why, len(_WHY), _WHY),
        "from": sides[0],
        "to": sides[1],
        "stated_by": repeat_text(REPORTER_COLUMN, count),
        "source_file": repeat_text(VALUE_LOG, count),
        "source_row": pa.array(np.ascontiguousarray(rows["number"])),
    }
    arrays = [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in VALUE_SCHEMA]
    typed = [array.cast(field.type) for array, field in zip(arrays, VALUE_SCHEMA, strict=True)]
    return pa.Table.from_arrays(typed, schema=VALUE_SCHEMA)


def _holders(holders: npt.NDArray[np.uint8], numbers: U64, names: RunNames) -> pa.Array:
    """Return holders: the kind, and after a colon the program, chain, pair of chains or number."""
    kinds = [f"{holder.name.lower()}" for holder in ValueHolder]
    texts = pa.array(kinds, pa.string()).take(pa.array(holders.astype(np.int64)))
    upper, lower = (numbers >> np.uint64(32)).astype(np.uint32), (numbers & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    chain = _text(names.chain_column(lower))
    pair = concatenate_texts(_text(names.chain_column(upper)), ">", chain)
    digits = pa.array(np.ascontiguousarray(numbers)).cast(pa.string())
    program = names.programs_column(numbers)
    root = (holders == ValueHolder.DEPOSITS) & (numbers == np.uint64(ROOT_OWNER))
    qualifier = pa.nulls(len(numbers), pa.string())
    for chosen, column in (
        (np.isin(holders, PROGRAM_HOLDERS), program),
        (np.isin(holders, CHAIN_HOLDERS), chain),
        (np.isin(holders, PAIR_HOLDERS), pair),
        (holders == ValueHolder.OPERATOR, digits),
        (root, pa.array(["root"], pa.string()).take(pa.array(np.zeros(len(numbers), dtype=np.int64)))),
    ):
        if chosen.any():
            qualifier = pc.if_else(pa.array(chosen), column, qualifier)
    return pc.coalesce(concatenate_texts(texts, ":", qualifier), texts)
