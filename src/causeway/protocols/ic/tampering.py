"""How faulty carriers and block makers alter slices: functions on columns, so that no rule knows of faults.

Slices are rows as endpoints serve them (``SLICE_COLUMNS`` and, where they are certified, the columns of the table
``offers`` and ``receiver``), messages are rows of the lake. What is altered stays well-formed wherever a decoder would
refuse it, so that what is tested is that it is not certified.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.frame import Frame, concat
from causeway.model.joins import lookup
from causeway.model.order import stable_order
from causeway.model.queues import MAX_INDEX
from causeway.proofs.hashing import DIGEST_BYTES
from causeway.proofs.ic.slice_certification import decode_certification, encode_certification
from causeway.proofs.ic.stream_header import decode_stream_header, encode_stream_header
from causeway.proofs.ic.versions import CertificationVersion
from causeway.protocols.ic.endpoint import by_stream
from causeway.protocols.ic.fault_kinds import (
    ALTERED,
    DESTINATION,
    FOREIGN,
    HEADER,
    HEIGHT,
    OVERSIZED,
    PAYLOAD,
    REORDER,
    SIBLING,
    SIGNATURE,
    STALE,
)
from causeway.protocols.interference import GAP, REPLAY
from causeway.protocols.messages import LANE

TAMPERED = "tampered"
"""A column of slices: what happens to their messages when they are read."""

UNTOUCHED, FLIPPED, EXCHANGED = 0, 1, 2
"""Its values: nothing; a bit of the first payload is flipped; the first two are exchanged."""


def altered(slices: Frame, part: str, version: CertificationVersion) -> Frame:
    """Return slices with one ``part`` altered, as a carrier offers them that does so.

    ``payload``: they are marked (``TAMPERED``) for ``altered_messages``. ``sibling``: a bit of the first digest
    beside the messages, of the last one above the stream where none is needed. ``signature``: its last bit.
    ``destination``: another subnet, the one that offers them. ``height``: one higher, in the certification too.
    ``header``: it signals one message more.
    """
    if part == PAYLOAD:
        return _marked(slices, FLIPPED)
    if part == SIBLING:
        siblings, paths = slices["siblings"].to_pylist(), slices["path"].to_pylist()
        first = slices["message_begin"]
        used = (slices["message_end"] > first) & (first >= slices["anchor"])
        for row, beside in enumerate(siblings):
            if beside and used[row]:
                siblings[row] = _flipped(beside, 0)
            else:
                paths[row] = _flipped(paths[row], len(paths[row]) - DIGEST_BYTES)
        return slices.with_columns(siblings=pa.array(siblings, pa.binary()), path=pa.array(paths, pa.binary()))
    if part == DESTINATION:
        return slices.with_columns(receiver=slices["source"])
    if part == HEADER:
        headers = [decode_stream_header(data, version) for data in slices["header"].to_pylist()]
        more = [replace(header, signals_end=min(header.signals_end + 1, MAX_INDEX)) for header in headers]
        return slices.with_columns(
            header=pa.array([encode_stream_header(header, version) for header in more], pa.binary()),
            signals_end=np.array([header.signals_end for header in more], dtype=np.uint64),
        )
    assert part in (SIGNATURE, HEIGHT), part
    found = [decode_certification(data) for data in slices["certification"].to_pylist()]
    if part == SIGNATURE:
        found = [replace(item, signature=_flipped(item.signature, -1)) for item in found]
    else:
        found = [replace(item, height=item.height + 1) for item in found]
        slices = slices.with_columns(number=slices["number"] + np.uint64(1))
    return slices.with_columns(certification=pa.array([encode_certification(item) for item in found], pa.binary()))


def proposed(honest: Frame, everything: Frame, older: Frame, does: str) -> Frame:
    """Return the slices that a malicious block maker proposes instead of the ``honest`` ones.

    ``everything``: all that endpoints serve it; ``older``: the same of the height before. It does as
    ``fault_kinds.BlockMakerSection`` says, and leaves a slice as it is where that cannot be done to it: it has no
    certificates but those of endpoints.
    """
    if does == FOREIGN:
        return honest.with_columns(receiver=honest["source"])
    if does in (REORDER, ALTERED):
        return _marked(honest, EXCHANGED if does == REORDER else FLIPPED)
    served = older if does == STALE else everything
    row = lookup(served, honest, LANE, ordered=False)
    hit = row >= 0
    if does in (GAP, OVERSIZED):
        hit &= honest["message_end"] > honest["message_begin"]
    false, first = served.select(honest.names).take(row[hit]), honest["message_begin"][hit]
    if does in (REPLAY, STALE):
        first = false["begin"]
    elif does == GAP:
        first = first + np.uint64(1)
    else:
        assert does == OVERSIZED, does
    false = false.with_columns(message_begin=first, message_end=np.maximum(false["end"], first))
    return by_stream(concat([honest.filter(~hit), false]))


def altered_messages(messages: Frame, slices: Frame) -> Frame:
    """Return the messages of slices as they arrive: altered where a slice says so (``TAMPERED``).

    ``messages``: rows with ``LANE`` and ``index``, in any order, those beside the slices too. A slice without messages
    has none to alter, one with a single message none to exchange.
    """
    if TAMPERED not in slices or not len(messages):
        return messages
    hit = slices.filter((slices[TAMPERED] != UNTOUCHED) & (slices["message_end"] > slices["message_begin"]))
    if not len(hit):
        return messages
    row = lookup(hit, messages, LANE, ordered=False)
    first = hit["message_begin"][row]
    flipped = (row >= 0) & (hit[TAMPERED][row] == FLIPPED) & (messages["index"] == first)
    if flipped.any():
        payloads = messages["payload"].filter(pa.array(flipped)).to_pylist()
        changed = pa.array([_flipped(payload, 0) for payload in payloads], messages["payload"].type)
        messages = messages.with_columns(payload=pc.replace_with_mask(messages["payload"], pa.array(flipped), changed))
    # Differences, not sums: an index may be the largest that there is.
    exchanged = (row >= 0) & (hit[TAMPERED][row] == EXCHANGED) & (messages["index"] >= first)
    exchanged &= messages["index"] - first < np.minimum(hit["message_end"][row] - first, np.uint64(2))
    # The messages with what those at `rows`, two a lane, carry exchanged: all but their positions.
    rows = np.flatnonzero(exchanged)
    if not len(rows):
        return messages
    order = rows[stable_order(*(messages[name][rows] for name in LANE), messages["index"][rows])]
    lanes = np.stack([messages[name][order].astype(np.uint64) for name in LANE])
    same = (lanes[:, 1:] == lanes[:, :-1]).all(axis=0)
    first, second = order[:-1][same], order[1:][same]
    taken = np.arange(len(messages))
    taken[first], taken[second] = second, first
    kept = {name: messages[name] for name in (*LANE, "index")}
    return messages.take(taken).with_columns(**kept)


def untouched(slices: Frame) -> Frame:
    """Return slices marked so that nothing happens to their messages."""
    return _marked(slices, UNTOUCHED)


def _marked(slices: Frame, what: int) -> Frame:
    return slices.with_columns(**{TAMPERED: np.full(len(slices), what, dtype=np.uint8)})


def _flipped(data: bytes, position: int) -> bytes:
    """Return bytes with the lowest bit of one flipped, empty ones with a byte."""
    changed = bytearray(data or b"\0")
    changed[position] ^= 1
    return bytes(changed)
