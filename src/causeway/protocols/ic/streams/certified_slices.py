"""Certified slices: what endpoints serve, and their check.

A slice is a row of ``endpoint.SLICE_COLUMNS`` and ``state.OFFERS_SCHEMA`` (encoded header, digests up to the root of
the source's state, certification of that root), with ``receiver``, the subnet that the stream leads to. Its messages
are rows of the lake, or decoded from the wire. The check encodes them again, so it covers the very columns that a round
uses.

A check needs the digests of the messages ``read_begin`` to ``read_end`` - 1. Those outside the slice enter the check
only; a remote server would send their digests.

Reference:
    IC reference 2.7, 2.9, 3.9 (3), 3.10.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from causeway_proofs.ic.primitives import METADATA_SUBTREE
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
from causeway.protocols.shared.checks import first_failed
from causeway.protocols.shared.messages import LANE, message_columns

MISSING = "MissingMessages"
"""The cause of an invalid slice whose announced messages are missing or different."""


def serve_slices(view: View, expected_of: ExpectedIndexes, context: Context, age: int = 0) -> Frame:
    """Return the slices that endpoints serve to ``context.chains`` (``get_stream``).

    They ascend by (destination, source).

    Args:
        view: The visible state of other chains.
        expected_of: The expected indexes, where the slices start.
        context: The metadata of the round.
        age: The number of heights before the last certified height of each stream.
    """
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
    # For an index outside the stream, an endpoint serves the header alone.
    outside = (slices["message_begin"] < slices["begin"]) | (slices["message_begin"] > slices["end"])
    return slices.with_columns(message_end=np.where(outside, slices["message_begin"], slices["message_end"]))


def has_certification(offers: Frame) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows with a certification."""
    lengths: npt.NDArray[np.int32] = pc.binary_length(offers["certification"]).to_numpy(zero_copy_only=False)
    return lengths > 0


def add_read_ranges(slices: Frame) -> Frame:
    """Add the ranges of messages that the check of slices needs: ``read_begin``, ``read_end``.

    They are empty for a slice without messages, since the digest of all messages is beside the header, and for a slice
    that claims messages outside the stream.
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
    """Result of the check of slices.

    Attributes:
        causes: The error of each slice, empty if it is valid.
        leaves: The digests of the messages read for the slices, shape (messages, 32).
        starts: The first digest of each slice.
        counts: The number of digests of each slice.
    """

    causes: list[str]
    leaves: npt.NDArray[np.uint8]
    starts: Rows
    counts: Rows


def check_certified(slices: Frame, messages: Frame, context: Context, certifier: Certifier) -> SliceCheck:
    """Check that sources have certified slices, from the bytes that are used afterwards.

    The checks in order: the header decodes, the stream leads to the receiver, the messages are present; the root of
    messages, digests and header is the certified root of the stated height; the source's key has signed it.

    Args:
        slices: Slices with certification columns, ``read_begin`` and ``read_end``, one a lane. Slices checked before
            have the digests ``beside`` their messages (``AGREED_SCHEMA``), so only their own messages are read.
        messages: The messages read (``OUTBOUND_SCHEMA``), in any order.
        context: The metadata of the round.
        certifier: The certifier, for the public keys.
    """
    if len(slices) == 0:
        no_rows = np.empty(0, dtype=np.int64)
        return SliceCheck([], np.empty((0, DIGEST_BYTES), dtype=np.uint8), no_rows, no_rows)
    # In the order of the messages, their digests need not be moved.
    runs = group_rows(*(messages[name] for name in LANE))
    lane = lookup_rows(slices, messages.select(LANE).take(runs.starts), LANE, ordered=False)
    known = np.flatnonzero(lane >= 0)
    rank = np.full(len(slices), len(runs), dtype=np.uint64)
    rank[lane[known]] = known
    order = stable_order(rank)
    slices = slices.take(order)
    headers = decode_stream_headers(slices["header"], context.options.version, MAX_COLUMN_BYTES)
    # Read nothing for slices that claim messages outside the stream.
    begin, end = slices["read_begin"], slices["read_end"]
    inside = (begin < end) & (begin >= headers.begin) & (end <= headers.end)
    if not inside.all():
        nothing = np.uint64(0)
        slices = slices.with_columns(
            read_begin=np.where(inside, begin, nothing), read_end=np.where(inside, end, nothing)
        )
    counts = (slices["read_end"] - slices["read_begin"]).astype(np.int64)
    leaves, missing, unread = _collect_digests(slices, counts, messages, runs, context)
    malformed = np.zeros(len(slices), dtype=bool)
    malformed[list(headers.errors)] = True
    claimed = (slices["message_end"] > slices["message_begin"]) & (slices["read_end"] <= slices["read_begin"])
    siblings = _siblings(slices, counts)
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
    differs = {name: slices[name] != getattr(headers, name) for name in ("begin", "end", "signals_end")}
    checks = (
        (malformed, DecodeFailed.__name__),
        (slices["receiver"] != slices["destination"], "InvalidDestination"),
        # The round uses these columns, so they must equal the certified header.
        (np.logical_or.reduce(list(differs.values())), "RootHashMismatch"),
        (unread, DecodeFailed.__name__),
        (missing | claimed, MISSING),
        (np.asarray(errors) != 0, "WitnessPruningFailed"),
    )
    names = [*(cause for _, cause in checks), ""]
    causes = [names[check] for check in first_failed([failed for failed, _ in checks], len(slices)).tolist()]
    _verify_roots(causes, slices, roots, context, certifier)
    back = np.argsort(order)
    return SliceCheck([causes[row] for row in back.tolist()], leaves, (np.cumsum(counts) - counts)[back], counts[back])


def _collect_digests(
    slices: Frame, counts: Rows, messages: Frame, runs: Groups, context: Context
) -> tuple[Digests, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Collect the digests of each slice's messages.

    Args:
        slices: The slices, with the ranges to read.
        counts: The number of messages to read for each slice.
        messages: The messages read.
        runs: The runs of messages of one lane.
        context: The metadata of the round.

    Returns:
        The joined digests, and masks of slices with missing or duplicated messages, and with malformed ones.
    """
    starts = np.cumsum(counts) - counts
    total = int(counts.sum())
    missing, unread = np.zeros(len(slices), dtype=bool), np.zeros(len(slices), dtype=bool)
    lane = lookup_rows(slices, messages.select(LANE).take(runs.starts), LANE, ordered=False)
    slice_rows = runs.spread(lane)
    if total and _are_in_place(slices, messages, runs, lane):
        # Merge adjacent runs to few ranges.
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
    return leaves, missing, unread


def _siblings(slices: Frame, counts: Rows) -> pa.BinaryArray:
    """Return the digests beside each slice's messages.

    They are that of all messages for an empty slice, none for a full one.
    """
    begin, end = slices["begin"], slices["end"]
    bare, is_full = (counts == 0) & (end > begin), (counts > 0) & (slices["read_begin"] == begin)
    if not bare.any() and not is_full.any():
        return slices["siblings"]
    siblings = slices["siblings"].to_pylist()
    for row in np.flatnonzero(bare | (counts == 0) | is_full).tolist():
        siblings[row] = slices["messages"][row].tobytes() if bare[row] else b""
    return pa.array(siblings, pa.binary())


def _verify_roots(causes: list[str], slices: Frame, roots: Digests, context: Context, certifier: Certifier) -> None:
    """Compare the roots of valid slices with the certified ones, and verify the certifications."""
    unverified: dict[tuple[bytes, int], Certification] = {}
    encoded = slices["certification"].to_pylist()
    sources, numbers = slices["source"].tolist(), slices["number"].tolist()
    certifications: dict[bytes, Certification | str] = {}
    decoded: dict[bytes, Certification] = {}
    for data in dict.fromkeys(data for row, data in enumerate(encoded) if not causes[row]):
        try:
            decoded[data] = decode_certification(data)
        except ProofError as error:
            certifications[data] = type(error).__name__
    # From version 24 on the state contains the height, so a certification without its witness is invalid.
    needs_witness = context.options.version >= METADATA_SUBTREE
    for (data, certification), witnessed in zip(decoded.items(), verify_heights(list(decoded.values())), strict=True):
        if isinstance(witnessed, ProofError):
            certifications[data] = type(witnessed).__name__
        else:
            certifications[data] = certification if witnessed or not needs_witness else DecodeFailed.__name__
    for row, data in enumerate(encoded):
        if causes[row]:
            continue
        found = certifications[data]
        if isinstance(found, str):
            causes[row] = found
        elif found.height != numbers[row] or roots[row].tobytes() != found.root_hash:
            causes[row] = "RootHashMismatch"
        else:
            unverified[data, sources[row]] = found
    if unverified:
        refused = verify_certifications(
            [certification.root_hash for certification in unverified.values()],
            [certification.signature for certification in unverified.values()],
            [certifier.public_key(source) for _, source in unverified],
        )
        wrong = {key: type(error).__name__ for key, error in zip(unverified, refused, strict=True) if error is not None}
        for row, data in enumerate(encoded):
            if not causes[row]:
                causes[row] = wrong.get((data, sources[row]), "")


def _owners(counts: Rows) -> Rows:
    """Return the slice of each message."""
    return np.repeat(np.arange(len(counts)), counts)


def _digests_of(
    messages: Frame, slice_of: Rows, context: Context, ranges: Sequence[tuple[int, int]] = ()
) -> tuple[Digests, npt.NDArray[np.bool_]]:
    """Return the digest of each message, and a mask of malformed ones.

    A message is malformed if it has no encoding, or a field that its encoding leaves out: neither is certified.

    Args:
        messages: The messages.
        slice_of: The slice of each message, -1 for none.
        context: The metadata of the round.
        ranges: The rows of all messages with a slice, if others are to be left out.
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
    """Return True if the messages are exactly those that the slices need, in order.

    Whole lanes without a slice (``lane`` is -1) may lie between them.
    """
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


def _counts_outside(slices: Frame, counts: Rows) -> tuple[Rows, Rows]:
    """Return the numbers of messages read before and after those of each slice."""
    some = counts > 0
    before = np.where(some, slices["message_begin"] - slices["read_begin"], np.uint64(0))
    after = np.where(some, slices["read_end"] - slices["message_end"], np.uint64(0))
    return before.astype(np.int64), after.astype(np.int64)


def _fill_beside(slices: Frame, starts: Rows, leaves: npt.NDArray[np.uint8], filled: npt.NDArray[np.bool_]) -> None:
    counts = (slices["read_end"] - slices["read_begin"]).astype(np.int64)
    before, after = _counts_outside(slices, counts)
    for row in np.flatnonzero(before + after > 0).tolist():
        digests = np.frombuffer(slices["beside"][row].as_py(), dtype=np.uint8).reshape(-1, DIGEST_BYTES)
        start, stop = int(starts[row]), int(starts[row] + counts[row])
        for first, part in ((start, digests[: before[row]]), (stop - int(after[row]), digests[before[row] :])):
            leaves[first : first + len(part)] = part
            filled[first : first + len(part)] = True


def proof_digests(slices: Frame, rows: Rows, checked: SliceCheck) -> pa.BinaryArray:
    """Return the joined digests of the messages read for slices but outside them.

    Args:
        slices: The slices.
        rows: The row of each slice, or of the slice it is a prefix of, in ``checked``.
        checked: The results of the check.
    """
    starts, counts = checked.starts[rows], checked.counts[rows]
    before, after = _counts_outside(slices, np.where(slices["message_end"] > slices["message_begin"], counts, 0))
    found = []
    for start, count, first, last in zip(*(part.tolist() for part in (starts, counts, before, after)), strict=True):
        leaves = checked.leaves[start : start + count]
        found.append(leaves[:first].tobytes() + (leaves[count - last :].tobytes() if last else b""))
    return pa.array(found, pa.binary())
