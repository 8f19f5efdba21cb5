"""Slices of certified streams: what endpoints serve, and whether a slice is what its source has certified (IC reference
2.7, 2.9, 3.9 (3), 3.10).

A slice is a row: ``endpoint.SLICE_COLUMNS``, and beside them those of ``state.OFFERS_SCHEMA`` (the bytes of the header,
the digests beside the messages up to the root of the source's state, the certification of that root) and ``receiver``,
the subnet that the stream leads to. Its messages are rows of the lake,
or were decoded off the wire. They are encoded again where the slice is taken, so that what is checked are the very
columns that a round then uses.

A check needs the digests beside the messages from ``read_begin`` to ``read_end`` - 1, which are read for it; those that
are not in the slice enter the check only: whoever serves the slice would have sent their digests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.hashing import DIGEST_BYTES, Digests
from causeway_proofs.ic.certification import verify_certifications
from causeway_proofs.ic.digest_columns import stream_digests
from causeway_proofs.ic.errors import DecodeFailed, EncodeError
from causeway_proofs.ic.primitives import METADATA_SUBTREE, CertificationVersion
from causeway_proofs.ic.slice import Certification, decode_certification
from causeway_proofs.ic.slice_columns import slice_roots
from causeway_proofs.ic.state_columns import verify_heights
from causeway_proofs.ic.stream_columns import MAX_COLUMN_BYTES, decode_stream_headers
from causeway_proofs.order import Groups, Rows, group_rows, stable_order
from causeway_proofs.work import count_proof_column

from causeway.core.frame import Frame, empty_frame
from causeway.core.joins import lookup_rows
from causeway.core.vocabulary import Kind
from causeway.protocols.contract import View
from causeway.protocols.ic.ids import stream_labels
from causeway.protocols.ic.registry import Context
from causeway.protocols.ic.state import REJECTS_ORDER, REJECTS_SCHEMA
from causeway.protocols.ic.streams.endpoint import ExpectedIndexes, cut_slices, sort_by_stream
from causeway.protocols.ic.subnet_keys import Certifier
from causeway.protocols.shared.messages import LANE, message_columns

MISSING = "MissingMessages"
"""The cause of an invalid slice that says it has messages, and brings others or none."""


def serve_slices(view: View, expected_of: ExpectedIndexes, context: Context, age: int = 0) -> Frame:
    """Return what ``get_stream`` of all endpoints serves to ``context.chains``: of each stream the height that is
    certified last, or one that is ``age`` older, from the expected index on; in order of (destination, source)."""
    offers = view.tables["offers"]
    offers = offers.filter(np.isin(offers["destination"], context.chains) & has_certification(offers))
    lanes = group_rows(*(offers[name] for name in LANE))
    newest = lanes.starts + lanes.counts - 1
    if age:
        wanted = np.maximum(offers["number"][newest], np.uint64(age)) - np.uint64(age)
        offers = offers.filter(offers["number"] == lanes.spread(wanted))
    else:
        offers = offers.take(newest)
    headers = decode_stream_headers(offers["header"], context.options.version, MAX_COLUMN_BYTES)
    streams = offers.with_columns(
        receiver=offers["destination"], begin=headers.begin, end=headers.end, signals_end=headers.signals_end
    )
    slices = sort_by_stream(cut_slices(streams, expected_of, context))
    # An endpoint that is asked for what is no more, or not yet, in the stream serves the header alone.
    outside = (slices["message_begin"] < slices["begin"]) | (slices["message_begin"] > slices["end"])
    return slices.with_columns(message_end=np.where(outside, slices["message_begin"], slices["message_end"]))


def has_certification(offers: Frame) -> npt.NDArray[np.bool_]:
    """Return which rows have a certification."""
    lengths: npt.NDArray[np.int32] = pc.binary_length(offers["certification"]).to_numpy(zero_copy_only=False)
    return lengths > 0


def add_read_ranges(slices: Frame) -> Frame:
    """Return slices with the messages that must be read to check them: ``read_begin``, ``read_end``.

    Of those that bring no message none are read: the digest of all messages is beside the header. A slice that says it
    brings what is not in the stream brings none.
    """
    begin, end, first, stop = (slices[name] for name in ("begin", "end", "message_begin", "message_end"))
    some = (stop > first) & (first >= begin) & (stop <= end)
    start = np.where(first >= slices["anchor"], slices["anchor"], begin)
    nothing = np.uint64(0)
    return slices.with_columns(read_begin=np.where(some, start, nothing), read_end=np.where(some, end, nothing))


def read_rejects(slices: Frame, context: Context) -> Frame:
    """Return the REJECT signals in the headers of slices (``REJECTS_SCHEMA``)."""
    headers = decode_stream_headers(slices["header"], context.options.version, MAX_COLUMN_BYTES)
    rows = headers.reject_row
    if len(rows) == 0:
        return empty_frame(REJECTS_SCHEMA)
    found = Frame(
        {
            "destination": slices["source"][rows],
            "source": slices["destination"][rows],
            "substream": slices["substream"][rows],
            "index": headers.reject_index,
            "reason": headers.reject_reason,
        }
    )
    return found.take(stable_order(*(found[name] for name in REJECTS_ORDER)))


@dataclass(frozen=True)
class SliceCheck:
    """Which slices are not what their source has certified, and of each the name of what is wrong with it (empty:
    nothing); the digests of the messages that were read for them, where those of each begin and how many they are."""

    causes: list[str]
    leaves: npt.NDArray[np.uint8]
    starts: Rows
    counts: Rows

    @property
    def invalid(self) -> npt.NDArray[np.bool_]:
        """Return which slices are invalid."""
        return np.array([bool(cause) for cause in self.causes], dtype=bool)


def check_certified(slices: Frame, messages: Frame, context: Context, certifier: Certifier) -> SliceCheck:
    """Check that slices are what their sources have certified, from the bytes that are then used.

    ``slices``: rows with the columns above, ``read_begin`` and ``read_end``, no lane twice; ``messages``: what was read
    (``OUTBOUND_SCHEMA``), in any order. Steps: the header can be read, the stream leads to us, the messages are there;
    messages, digests beside them and header have a root, which is the certified one, of the height that is said; the
    source's key has signed it. Slices that were checked before have the digests of the messages ``beside`` theirs
    (``AGREED_SCHEMA``), and only theirs are read.
    """
    causes = [""] * len(slices)
    if len(slices) == 0:
        nothing = np.empty(0, dtype=np.int64)
        return SliceCheck(causes, np.empty((0, DIGEST_BYTES), dtype=np.uint8), nothing, nothing)
    # In the order in which the messages stand their digests need not be moved.
    runs = group_rows(*(messages[name] for name in LANE))
    lane = lookup_rows(slices, messages.select(LANE).take(runs.starts), LANE, ordered=False)
    known = np.flatnonzero(lane >= 0)
    rank = np.full(len(slices), len(runs), dtype=np.uint64)
    rank[lane[known]] = known
    order = stable_order(rank)
    checked = _check(slices.take(order), messages, runs, context, certifier)
    for row, cause in zip(order.tolist(), checked.causes, strict=True):
        causes[row] = cause
    back = np.argsort(order)
    return SliceCheck(causes, checked.leaves, checked.starts[back], checked.counts[back])


def _check(slices: Frame, messages: Frame, runs: Groups, context: Context, certifier: Certifier) -> SliceCheck:
    causes = [""] * len(slices)
    headers = decode_stream_headers(slices["header"], context.options.version, MAX_COLUMN_BYTES)
    for row in headers.errors:
        causes[row] = DecodeFailed.__name__
    _note(causes, slices["receiver"] != slices["destination"], "InvalidDestination")
    # Whoever takes the slice uses these columns: they say what the header says, which is what is certified.
    for name in ("begin", "end", "signals_end"):
        _note(causes, slices[name] != getattr(headers, name), "RootHashMismatch")
    # Slices of which none reads what its header says is not in the stream.
    begin, end = slices["read_begin"], slices["read_end"]
    inside = (begin < end) & (begin >= headers.begin) & (end <= headers.end)
    if not inside.all():
        nothing = np.uint64(0)
        slices = slices.with_columns(
            read_begin=np.where(inside, begin, nothing), read_end=np.where(inside, end, nothing)
        )
    # The digests of the messages of each slice, joined, how many each has, which slices lack some or have one
    # twice, and which have one that is no message.
    counts = (slices["read_end"] - slices["read_begin"]).astype(np.int64)
    starts = np.cumsum(counts) - counts
    total = int(counts.sum())
    missing, unread = np.zeros(len(slices), dtype=bool), np.zeros(len(slices), dtype=bool)
    lane = lookup_rows(slices, messages.select(LANE).take(runs.starts), LANE, ordered=False)
    slice_rows = runs.spread(lane)
    if total and _are_in_place(slices, messages, runs, lane):
        # The rows of some runs, as few ranges as there can be.
        in_slices = lane >= 0
        range_starts = runs.starts[in_slices & ~np.append(False, in_slices[:-1])]
        stops = (runs.starts + runs.counts)[in_slices & ~np.append(in_slices[1:], False)]
        leaves, malformed = _digests_of(
            messages, slice_rows, context, list(zip(range_starts.tolist(), stops.tolist(), strict=True))
        )
        unread[slice_rows[malformed]] = True
    else:
        leaves = np.zeros((total, DIGEST_BYTES), dtype=np.uint8)
        filled = np.zeros(total, dtype=bool)
        if len(messages):
            read_begins = slices["read_begin"][slice_rows]
            mine = (
                (slice_rows >= 0)
                & (messages["index"] >= read_begins)
                & (messages["index"] < slices["read_end"][slice_rows])
            )
            rows = slice(None) if mine.all() else np.flatnonzero(mine)
            positions = starts[slice_rows[rows]] + (messages["index"][rows] - read_begins[rows]).astype(np.int64)
            wanted = messages if mine.all() else messages.filter(mine)
            leaves[positions], malformed = _digests_of(wanted, slice_rows[rows], context)
            unread[slice_rows[rows][malformed]] = True
            filled[positions] = True
            if len(positions) > np.count_nonzero(filled):
                missing[_owners(counts)[np.bincount(positions, minlength=total) > 1]] = True
        if "beside" in slices:
            _fill_beside(slices, starts, leaves, filled)
        if not filled.all():
            missing[_owners(counts)[~filled]] = True
    _note(causes, unread, DecodeFailed.__name__)
    claimed = (slices["message_end"] > slices["message_begin"]) & (slices["read_end"] <= slices["read_begin"])
    _note(causes, missing | claimed, MISSING)
    # The digests that each slice has beside its messages: without messages that of all messages, none where the
    # messages are all of the stream's.
    begin, end = slices["begin"], slices["end"]
    bare, whole = (counts == 0) & (end > begin), (counts > 0) & (slices["read_begin"] == begin)
    if not bare.any() and not whole.any():
        siblings = slices["siblings"]
    else:
        found = slices["siblings"].to_pylist()
        for bare_row in np.flatnonzero(bare | (counts == 0) | whole).tolist():
            found[bare_row] = slices["messages"][bare_row].tobytes() if bare[bare_row] else b""
        siblings = pa.array(found, pa.binary())
    for column in (slices["header"], siblings, slices["path"], slices["certification"]):
        count_proof_column(column)
    roots, errors = slice_roots(
        slices["header"],
        stream_labels(context.registry.subnets[slices["destination"]], slices["substream"], flat=context.options.flat),
        leaves,
        counts,
        np.where(counts > 0, slices["read_begin"] - headers.begin, 0).astype(np.uint64),
        headers.end - headers.begin,
        siblings,
        slices["path"],
    )
    for row in np.flatnonzero(errors).tolist():
        causes[row] = causes[row] or "WitnessPruningFailed"
    # Compare the roots of slices with those that are certified, and check the certifications.
    asked: dict[tuple[bytes, int], Certification] = {}
    encoded = slices["certification"].to_pylist()
    sources, numbers = slices["source"].tolist(), slices["number"].tolist()
    known = _read(dict.fromkeys(data for row, data in enumerate(encoded) if not causes[row]), context.options.version)
    for row, data in enumerate(encoded):
        if causes[row]:
            continue
        certification = known[data]
        if isinstance(certification, str):
            causes[row] = certification
        elif certification.height != numbers[row] or roots[row].tobytes() != certification.root_hash:
            causes[row] = "RootHashMismatch"
        else:
            asked[data, sources[row]] = certification
    if asked:
        refused = verify_certifications(
            [certification.root_hash for certification in asked.values()],
            [certification.signature for certification in asked.values()],
            [certifier.public_key(source) for _, source in asked],
        )
        wrong = {key: type(error).__name__ for key, error in zip(asked, refused, strict=True) if error is not None}
        for row, data in enumerate(encoded):
            if not causes[row]:
                causes[row] = wrong.get((data, sources[row]), "")
    return SliceCheck(causes, leaves, np.cumsum(counts) - counts, counts)


def _note(causes: list[str], wrong: npt.NDArray[np.bool_], cause: str) -> None:
    for row in np.flatnonzero(wrong).tolist():
        causes[row] = causes[row] or cause


def _owners(counts: Rows) -> Rows:
    """Return which slice each of their messages is of."""
    return np.repeat(np.arange(len(counts)), counts)


def _digests_of(
    messages: Frame, slice_of: Rows, context: Context, ranges: Sequence[tuple[int, int]] = ()
) -> tuple[Digests, npt.NDArray[np.bool_]]:
    """Return the digest of each message, and which messages are none: what has no encoding is not certified, and
    neither is a field of theirs that the encoding leaves out.

    ``slice_of``: the slice that each is for, -1 if it is for none; ``ranges``: the rows of all that are for one, if
    there are others, whose digests are left out.
    """
    request = messages["kind"] == Kind.REQUEST
    method = messages["method"]
    named = pc.binary_length(method.dictionary).to_numpy(zero_copy_only=False) > 0
    names = method.indices.to_numpy(zero_copy_only=False)
    wrong: npt.NDArray[np.bool_] = np.where(request, messages["code"] > 0, named[names] if len(named) else False)
    wrong &= slice_of >= 0
    version = context.options.version
    try:
        return stream_digests(message_columns(messages), messages["index"], version, ranges), wrong
    except (EncodeError, InvalidInput):
        digests = np.zeros((len(messages), DIGEST_BYTES), dtype=np.uint8)
    for at in np.unique(slice_of[slice_of >= 0]).tolist():
        rows = np.flatnonzero(slice_of == at)
        part = messages.take(rows)
        try:
            digests[rows] = stream_digests(message_columns(part), part["index"], version)
        except (EncodeError, InvalidInput):
            wrong[rows] = True
    return np.concatenate([digests[start:stop] for start, stop in ranges]) if ranges else digests, wrong


def _are_in_place(slices: Frame, messages: Frame, runs: Groups, lane: Rows) -> bool:
    """Return whether the messages, but for whole lanes of which there is no slice (``lane`` is -1), are those that the
    slices need, in the slices' order, each of them once."""
    index, begin, end = messages["index"], slices["read_begin"], slices["read_end"]
    some, ours = np.flatnonzero(end > begin), lane >= 0
    starts, counts = runs.starts[ours], runs.counts[ours]
    if not np.array_equal(lane[ours], some) or not np.array_equal(index[starts], begin[some]):
        return False
    if not np.array_equal(counts.astype(np.uint64), end[some] - begin[some]):
        return False
    breaks = np.flatnonzero(index[1:] != index[:-1] + np.uint64(1)) + 1
    at = np.searchsorted(runs.starts, breaks, side="right") - 1
    return bool(((runs.starts[at] == breaks) | ~ours[at]).all())


def _outside(slices: Frame, counts: Rows) -> tuple[Rows, Rows]:
    """Return how many messages were read before, and how many after, those of each slice."""
    some = counts > 0
    before = np.where(some, slices["message_begin"] - slices["read_begin"], np.uint64(0))
    after = np.where(some, slices["read_end"] - slices["message_end"], np.uint64(0))
    return before.astype(np.int64), after.astype(np.int64)


def _fill_beside(slices: Frame, starts: Rows, leaves: npt.NDArray[np.uint8], filled: npt.NDArray[np.bool_]) -> None:
    counts = (slices["read_end"] - slices["read_begin"]).astype(np.int64)
    before, after = _outside(slices, counts)
    for row in np.flatnonzero(before + after > 0).tolist():
        digests = np.frombuffer(slices["beside"][row].as_py(), dtype=np.uint8).reshape(-1, DIGEST_BYTES)
        start, stop = int(starts[row]), int(starts[row] + counts[row])
        for first, given in ((start, digests[: before[row]]), (stop - int(after[row]), digests[before[row] :])):
            leaves[first : first + len(given)] = given
            filled[first : first + len(given)] = True


def proof_digests(slices: Frame, rows: Rows, checked: SliceCheck) -> pa.BinaryArray:
    """Return the digests of the messages that were read to check slices, and that are in none of them, joined.

    ``rows``: which of the slices that were ``checked`` each is, or is the beginning of.
    """
    starts, counts = checked.starts[rows], checked.counts[rows]
    before, after = _outside(slices, np.where(slices["message_end"] > slices["message_begin"], counts, 0))
    found = []
    for start, count, first, last in zip(*(part.tolist() for part in (starts, counts, before, after)), strict=True):
        leaves = checked.leaves[start : start + count]
        found.append(leaves[:first].tobytes() + (leaves[count - last :].tobytes() if last else b""))
    return pa.array(found, pa.binary())


def _read(encoded: Iterable[bytes], version: CertificationVersion) -> dict[bytes, Certification | str]:
    """Return certifications, their heights checked, or the names of what is wrong with them: from version 24 on the
    height is in the state, and one that is not shown is nothing but the sender's word."""
    found: dict[bytes, Certification | str] = {}
    read: dict[bytes, Certification] = {}
    for data in encoded:
        try:
            read[data] = decode_certification(data)
        except ProofError as error:
            found[data] = type(error).__name__
    for (data, certification), shown in zip(read.items(), verify_heights(list(read.values())), strict=True):
        if isinstance(shown, ProofError):
            found[data] = type(shown).__name__
        else:
            found[data] = certification if shown or version < METADATA_SUBTREE else DecodeFailed.__name__
    return found
