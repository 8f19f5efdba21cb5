"""A slice in its two forms: one row of columns, and the certified stream slice that travels between subnets.

As a row (``slice_columns``) it is the header's bytes, the messages, the digests beside them and the way to the state's
root; as a ``CertifiedStreamSlice`` the same digests stand in a witness, a tree. Both say the same, so that either can
be made of the other; the witness made here is the one that ``CertifiedStreams`` makes of the same state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from causeway_proofs.errors import MalformedProof
from causeway_proofs.hashing import DIGEST_BYTES
from causeway_proofs.ic.digest_columns import LEFT, RIGHT
from causeway_proofs.ic.errors import MissingHeader, MissingStream, MissingStreams, WitnessPruningFailed
from causeway_proofs.ic.primitives import CURRENT, CertificationVersion
from causeway_proofs.ic.slice import Certification, CertifiedStreamSlice
from causeway_proofs.ic.slice_columns import MOST_MESSAGES, SliceFault, Step, decode_path, path_witness
from causeway_proofs.ic.slice_payload import HEADER, MESSAGES, STREAMS, SlicePayload, index_label
from causeway_proofs.ic.stream_header import StreamHeader, decode_stream_header
from causeway_proofs.ic.witness import KNOWN, Witness, WitnessFork, WitnessKnown, WitnessNode, WitnessPruned
from causeway_proofs.merkle_forest import side_positions

from tests.oracles.ic.faults import slice_error
from tests.oracles.ic.paths import encode_path


@dataclass(frozen=True, slots=True)
class SliceRow:
    """One slice as columns hold it: what ``slice_roots`` takes, with the messages themselves.

    Attributes:
        destination: id of the subnet that the stream leads to.
        header: encoded.
        begin: index of the first message; of no meaning without messages.
        messages: encoded.
        siblings: digests, joined: see ``slice_roots``.
        path: labels and sibling digests on the path from the stream to the root of the state.
    """

    destination: bytes
    header: bytes
    begin: int
    messages: tuple[bytes, ...]
    siblings: bytes
    path: bytes


def to_certified_slice(
    row: SliceRow, certification: Certification, version: CertificationVersion = CURRENT
) -> CertifiedStreamSlice:
    """Return a slice with its witness; neither root nor signature are checked.

    Raises:
        DecodeError: the header is not one of that version.
        WitnessPruningFailed: messages, siblings and path do not fit together, as ``slice_roots`` has it.
    """
    header = decode_stream_header(row.header, version)
    begin = row.begin if row.messages else None
    payload = SlicePayload(row.destination, row.header, header, begin, row.messages)
    try:
        path = decode_path(row.path)
    except MalformedProof as error:
        raise WitnessPruningFailed(str(error)) from error
    stream: Witness = WitnessNode(HEADER, KNOWN)
    size = header.end - header.begin
    siblings = _siblings(row, header)
    if row.messages:
        first, count = row.begin - header.begin, len(row.messages)
        labels = [index_label(index) for index in range(row.begin, row.begin + count)]
        stream = WitnessFork(stream, WitnessNode(MESSAGES, _run_witness(labels, first, size, siblings)))
    elif size:
        stream = WitnessFork(stream, WitnessPruned(siblings[0]))
    return CertifiedStreamSlice(payload, path_witness(path, row.destination, stream), certification)


def from_certified_slice(certified: CertifiedStreamSlice) -> SliceRow:
    """Return a slice as a row of columns, from its witness; neither root nor signature are checked.

    Raises:
        MissingStreams, MissingStream, MissingHeader: the witness leads to something else.
        WitnessPruningFailed: it is not the least one of header and messages in a stream of the bounds that the header
            has; the witness of a slice that is to be appended to another one is not.
        OverLimit: the way to the root has more forks than a path may have.
    """
    payload = certified.payload
    above, top = _descend(certified.witness)
    if top.label != STREAMS:
        raise MissingStreams(f"the witness leads to {top.label.hex()}, not to the streams")
    below, stream = _descend(top.sub_witness)
    if stream.label != payload.subnet_id:
        raise MissingStream(f"the witness has the stream to {stream.label.hex()}, not to {payload.subnet_id.hex()}")
    size = payload.header.end - payload.header.begin
    siblings: list[bytes] = []
    match stream.sub_witness:
        case WitnessNode(label, WitnessKnown()) if label == HEADER and not payload.messages and size == 0:
            pass
        case WitnessFork(WitnessNode(label, WitnessKnown()), WitnessPruned(digest)) if (
            label == HEADER and not payload.messages and size > 0
        ):
            siblings.append(digest)
        case WitnessFork(WitnessNode(label, WitnessKnown()), WitnessNode(other, run)) if (label, other) == (
            HEADER,
            MESSAGES,
        ):
            siblings += _siblings_of(run, payload, size)
        case WitnessFork(WitnessNode(label), _) | WitnessNode(label) if label == HEADER:
            raise WitnessPruningFailed("the witness has more or less of the stream than the slice")
        case _:
            raise MissingHeader("the witness does not begin with the header of the stream")
    path = encode_path(below, above)
    begin = payload.messages_begin or 0
    return SliceRow(payload.subnet_id, payload.header_bytes, begin, payload.messages, b"".join(siblings), path)


def _siblings(row: SliceRow, header: StreamHeader) -> list[bytes]:
    """Return the digests beside a slice's messages, as many as their position calls for."""
    size, first, count = header.end - header.begin, row.begin - header.begin, len(row.messages)
    if not 0 <= size <= MOST_MESSAGES or (count and not 0 <= first <= first + count <= size):
        raise slice_error(SliceFault.OUTSIDE)
    if len(row.siblings) % DIGEST_BYTES:
        raise slice_error(SliceFault.SIBLING_BYTES)
    found = [row.siblings[at : at + DIGEST_BYTES] for at in range(0, len(row.siblings), DIGEST_BYTES)]
    needed = len(_sides(first, count, size)) if count else min(size, 1)
    if len(found) != needed:
        raise slice_error(SliceFault.SIBLING_COUNT)
    return found


def _sides(first: int, count: int, size: int) -> list[tuple[int, bool]]:
    """Return of each sibling of a run at which level it is, and whether on the right."""
    positions = side_positions(*(np.array([number], dtype=np.int64) for number in (first, count, size)))
    return list(zip(positions.level.tolist(), positions.right.tolist(), strict=True))


def _run_witness(labels: Sequence[bytes], first: int, size: int, siblings: Sequence[bytes]) -> Witness:
    """Return the witness of a run of a map's children, from the digests beside it."""
    nodes: list[Witness] = [WitnessNode(label, KNOWN) for label in labels]
    left = dict(zip(_sides(first, len(labels), size), siblings, strict=True))
    level = 0
    while left or len(nodes) > 1:
        for right in (False, True):
            digest = left.pop((level, right), None)
            if digest is not None:
                nodes.insert(len(nodes) if right else 0, WitnessPruned(digest))
        paired: list[Witness] = [WitnessFork(nodes[at], nodes[at + 1]) for at in range(0, len(nodes) - 1, 2)]
        # An odd last node is at the end of its level: it moves up.
        nodes = paired + nodes[2 * len(paired) :]
        level += 1
    return nodes[0]


def _descend(witness: Witness) -> tuple[list[Step], WitnessNode]:
    """Return the only child of a map that a witness knows, and the forks above it, from the child upwards."""
    steps: list[Step] = []
    while True:
        match witness:
            case WitnessNode() as node:
                return steps[::-1], node
            case WitnessFork(WitnessPruned(digest), inner):
                steps.append((LEFT, digest))
            case WitnessFork(inner, WitnessPruned(digest)):
                steps.append((RIGHT, digest))
            case _:
                raise WitnessPruningFailed("the witness knows more than one stream, or none")
        witness = inner


def _siblings_of(run: Witness, payload: SlicePayload, size: int) -> list[bytes]:
    """Return the digests beside a run of messages, from its witness in a stream of ``size`` messages."""
    begin = payload.messages_begin
    if begin is None:
        raise WitnessPruningFailed("the witness knows messages, the slice has none")
    first, last = begin - payload.header.begin, begin - payload.header.begin + len(payload.messages)
    if not 0 <= first <= last <= size:
        raise slice_error(SliceFault.OUTSIDE)
    found: dict[tuple[int, bool], bytes] = {}
    # A part of the witness, the messages under it, and its position as a sibling of a part of the run.
    stack: list[tuple[Witness, int, int, int, bool]] = [(run, 0, size, 0, False)]
    while stack:
        node, low, high, level, right = stack.pop()
        outside = high <= first or last <= low
        match node:
            case WitnessPruned(digest) if outside:
                found[level, right] = digest
            case WitnessNode(label, WitnessKnown()) if high - low == 1 and not outside:
                if label != index_label(payload.header.begin + low):
                    raise WitnessPruningFailed(f"the witness has {label.hex()} where message {low} of the stream is")
            case WitnessFork(one, other) if high - low > 1 and not outside:
                level = (high - low - 1).bit_length() - 1
                middle = low + (1 << level)
                stack += ((one, low, middle, level, False), (other, middle, high, level, True))
            case _:
                raise WitnessPruningFailed(
                    f"the witness is not the least one of messages [{first}, {last}) in a stream of {size}"
                )
    return [digest for _, digest in sorted(found.items())]
