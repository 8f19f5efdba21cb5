"""Canonical state trees of many subnets: their roots, and the paths of streams to them.

The labels of a state, in order (IC reference 2.9): ``canister / <id> / certified_data``; ``causeway / <section>``
(digests of subnet-private state; full scope only); ``metadata`` (the height and the previous root; the latter alone up
to certification version 23); ``streams / <subnet> / {header, messages}``; ``time``. A label with an empty subtree is
absent.

Height witnesses of one shape differ only in digests, at the same positions. So one of them is built, or parsed and
verified, individually; the others are processed as columns of digests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_pairs, digest_rows, sha256
from causeway_proofs.ic.certificate import TIME
from causeway_proofs.ic.digest_columns import (
    RIGHT,
    ForkSteps,
    fork_roots,
    fork_steps,
    identified_digests,
    labeled_digests,
    leaf_digests,
)
from causeway_proofs.ic.hash_tree import FORK_DOMAIN, LEAF_DOMAIN, NestedTree, Pruned
from causeway_proofs.ic.packed_cbor import write_item
from causeway_proofs.ic.primitives import CURRENT, METADATA_SUBTREE, CertificationVersion, encode_leb128
from causeway_proofs.ic.slice import HEIGHT, METADATA, Certification
from causeway_proofs.ic.slice_columns import encode_paths
from causeway_proofs.ic.slice_payload import STREAMS
from causeway_proofs.ic.stream_tree import HEADER, MESSAGES_LABEL, roots_of_streams
from causeway_proofs.ic.witness import (
    KNOWN,
    Witness,
    WitnessFork,
    WitnessKnown,
    WitnessNode,
    WitnessPruned,
    decode_witness,
    encode_witness,
)
from causeway_proofs.order import U64, Groups, Rows


@dataclass(frozen=True, slots=True)
class SystemMetadata:
    """Link to the previous state: its root, or None in the first state."""

    prev_state_hash: bytes | None = None


def encode_system_metadata(metadata: SystemMetadata) -> bytes:
    """Encode ``metadata`` canonically: the hash as an array of numbers, not as a byte string.

    A leaf up to certification version 23; a subtree of leaves from 24 on.

    Args:
        metadata: the metadata.

    Returns:
        The encoding.
    """
    return write_item({} if metadata.prev_state_hash is None else {1: list(metadata.prev_state_hash)})


Bytes = npt.NDArray[np.uint8]

Steps = Sequence[tuple[int, bytes]]
"""Forks from a node upwards: side (``digest_columns.LEFT`` or ``RIGHT``) and digest."""


def _height_witness(previous: bytes | None, steps: Steps) -> Witness:
    """Build the witness of ``metadata / height`` in a state.

    Args:
        previous: labeled digest of the previous root, the height's sibling, or None.
        steps: the forks above ``metadata``.
    """
    witness: Witness = WitnessNode(HEIGHT, KNOWN)
    if previous is not None:
        witness = WitnessFork(witness, WitnessPruned(previous))
    witness = WitnessNode(METADATA, witness)
    for side, sibling in steps:
        witness = (
            WitnessFork(witness, WitnessPruned(sibling))
            if side == RIGHT
            else WitnessFork(WitnessPruned(sibling), witness)
        )
    return witness


def encode_height_witnesses(with_previous: bool, sides: Sequence[int], digests: npt.NDArray[np.uint8]) -> list[bytes]:
    """Encode witnesses of one shape.

    Args:
        with_previous: the states have a previous root; its labeled digest is then the first one of a witness.
        sides: sides of the siblings above ``metadata``, bottom-up.
        digests: all pruned nodes, shape (n, nodes, 32).
    """
    marks = [_mark(at) for at in range(with_previous + len(sides))]
    steps = list(zip(sides, marks[with_previous:], strict=True))
    encoded = encode_witness(_height_witness(marks[0] if with_previous else None, steps))
    rows = np.tile(np.frombuffer(encoded, dtype=np.uint8), (len(digests), 1))
    for at, mark in enumerate(marks):
        start = encoded.index(mark)
        rows[:, start : start + DIGEST_BYTES] = digests[:, at]
    return [row.tobytes() for row in rows]


def verify_heights(certifications: Sequence[Certification]) -> list[bool | ProofError]:
    """Return the result of ``Certification.verify_height`` for each certification, or its error.

    Among witnesses of one length, those with the shape of the first valid one are verified in columns.
    """
    found: list[bool | ProofError] = [False] * len(certifications)
    lengths: dict[int, list[int]] = {}
    for row, certification in enumerate(certifications):
        if certification.height_witness is not None:
            lengths.setdefault(len(certification.height_witness), []).append(row)
    for rows in lengths.values():
        waiting = iter(rows)
        for row in waiting:
            found[row] = _verify(certifications[row])
            if found[row] is True:
                others = list(waiting)
                holds = _hold_alike(certifications[row], [certifications[other] for other in others])
                for other, holding in zip(others, holds, strict=True):
                    found[other] = True if holding else _verify(certifications[other])
    return found


def _verify(certification: Certification) -> bool | ProofError:
    try:
        return certification.verify_height()
    except ProofError as error:
        return error


def _hold_alike(first: Certification, others: Sequence[Certification]) -> npt.NDArray[np.bool_]:
    """Return a mask of ``others`` with the witness shape of ``first`` and a matching root.

    ``first`` holds, and all witnesses have one length.
    """
    shape = _Shape.of(first.height_witness or b"")
    encoded = b"".join(other.height_witness or b"" for other in others)
    rows = np.frombuffer(encoded, dtype=np.uint8).reshape(len(others), len(shape.is_digest))
    heights = pa.array([encode_leb128(other.height) for other in others], pa.binary())
    certified = np.frombuffer(b"".join(other.root_hash for other in others), dtype=np.uint8).reshape(-1, DIGEST_BYTES)
    alike = (rows == shape.encoded)[:, ~shape.is_digest].all(axis=1)
    holds: npt.NDArray[np.bool_] = alike & (shape.roots(leaf_digests(heights), rows) == certified).all(axis=1)
    return holds


@dataclass(frozen=True)
class _Shape:
    """A witness with marks for digests, and the positions of the digests in its encoding.

    ``encoded`` is a valid witness, so it has no labels but those of the height.
    """

    encoded: Bytes
    witness: Witness
    starts: dict[bytes, int]
    is_digest: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, encoded: bytes) -> _Shape:
        marked = _Marking()
        witness = marked.of(decode_witness(encoded))
        written = encode_witness(witness)
        starts = {mark: written.index(mark) for mark in marked.marks}
        is_digest = np.zeros(len(written), dtype=bool)
        for start in starts.values():
            is_digest[start : start + DIGEST_BYTES] = True
        return cls(np.frombuffer(encoded, dtype=np.uint8), witness, starts, is_digest)

    def roots(self, leaves: Digests, rows: Bytes) -> Digests:
        """Return the roots of witnesses of this shape from known leaves and encodings."""
        return self._above(self.witness, leaves, rows)

    def _above(self, node: Witness, leaves: Digests, rows: Bytes) -> Digests:
        match node:
            case WitnessFork(left, right):
                sides = self._above(left, leaves, rows), self._above(right, leaves, rows)
                return digest_pairs(HashFunction.SHA256, FORK_DOMAIN, *sides)
            case WitnessNode(label, below):
                return labeled_digests(label, self._above(below, leaves, rows))
            case WitnessPruned(mark):
                start = self.starts[mark]
                return np.ascontiguousarray(rows[:, start : start + DIGEST_BYTES])
            case WitnessKnown():
                return leaves


@dataclass
class _Marking:
    """Replaces each digest by a mark."""

    marks: list[bytes] = field(default_factory=list)

    def of(self, node: Witness) -> Witness:
        match node:
            case WitnessFork(left, right):
                return WitnessFork(self.of(left), self.of(right))
            case WitnessNode(label, below):
                return WitnessNode(label, self.of(below))
            case WitnessPruned():
                self.marks.append(_mark(len(self.marks)))
                return WitnessPruned(self.marks[-1])
            case WitnessKnown():
                return node


def _mark(number: int) -> bytes:
    """Return a digest that occurs nowhere else."""
    return sha256(b"mark" + number.to_bytes(8, "big"))


CANISTER, CERTIFIED_DATA, SECTIONS = b"canister", b"certified_data", b"causeway"
PREVIOUS = b"prev_state_hash"

_TOP = (CANISTER, SECTIONS, METADATA, STREAMS, TIME)
_WORD_BYTES = 8

Ids = npt.NDArray[np.uint8]
"""Identifiers of one width, a row each."""


@dataclass(frozen=True)
class SectionColumns:
    """Digests of the subnet-private parts of states.

    Attributes:
        labels: labels of the sections, ascending, equal in every state.
        digests: shape (subnets, sections, 32).
        full: shape (subnets,): True if the subnet certifies with full scope; else it has no sections.
    """

    labels: tuple[str, ...]
    digests: npt.NDArray[np.uint8]
    full: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class CertifiedData:
    """Certified data of canisters, ascending by subnet and canister id.

    Attributes:
        subnets: row of each canister's subnet.
        canisters: ids, shape (n, width).
        values: the certified data.
    """

    subnets: Rows
    canisters: Ids
    values: pa.BinaryArray


@dataclass(frozen=True)
class StreamColumns:
    """Streams, ascending by source subnet and destination id.

    The loopback stream is included up to certification version 19 only; the caller omits it from then on.

    Attributes:
        subnets: row of each source subnet.
        destinations: ids of the destination subnets, shape (n, width).
        headers: encoded headers.
        message_roots: root of each subtree ``messages``, shape (n, 32).
        counts: number of messages; for 0 the root is ignored.
    """

    subnets: Rows
    destinations: Ids
    headers: pa.BinaryArray
    message_roots: Digests
    counts: U64

    def __len__(self) -> int:
        return len(self.subnets)


@dataclass(frozen=True)
class CanonicalStates:
    """The canonical states of some subnets, a row each.

    Attributes:
        heights: height of each subnet.
        previous: root of each previous state, shape (subnets, 32).
        has_previous: mask of states with a previous one; ``previous`` is ignored elsewhere.
        times: batch times in nanoseconds.
        sections: the private parts, or None.
        certified_data, streams: by subnet.
        version: encoding of the states.

    Raises:
        InvalidInput: columns differ in length, name an unknown subnet, or are not in order.
    """

    heights: U64
    previous: Digests
    has_previous: npt.NDArray[np.bool_]
    times: U64
    sections: SectionColumns | None
    certified_data: CertifiedData
    streams: StreamColumns
    version: CertificationVersion = CURRENT

    def __post_init__(self) -> None:
        rows = len(self.heights)
        data, streams = self.certified_data, self.streams
        _require_shape(self.previous, (rows, DIGEST_BYTES), "roots before")
        _require_shape(self.has_previous, (rows,), "marks of a root before")
        _require_shape(self.times, (rows,), "batch times")
        if self.sections is not None:
            labels = self.sections.labels
            _require_shape(self.sections.digests, (rows, len(labels), DIGEST_BYTES), "digests of sections")
            _require_shape(self.sections.full, (rows,), "scopes")
            names = [label.encode() for label in labels]
            if any(after <= before for before, after in pairwise(names)):
                raise InvalidInput(f"labels of sections do not ascend: {', '.join(labels)}")
        _require_order(data.subnets, data.canisters, rows, "certified data")
        _require_order(streams.subnets, streams.destinations, rows, "streams")
        for noun, column, expected in (
            ("values of certified data", data.values, len(data.subnets)),
            ("headers", streams.headers, len(streams)),
            ("counts of messages", streams.counts, len(streams)),
        ):
            if len(column) != expected:
                raise InvalidInput(f"{len(column)} {noun}, {expected} are needed")
        _require_shape(streams.message_roots, (len(streams), DIGEST_BYTES), "roots of messages")

    def __len__(self) -> int:
        return len(self.heights)


@dataclass(frozen=True)
class StateRoots:
    """Result of ``state_roots``.

    Attributes:
        roots: roots of the states, shape (subnets, 32).
        stream_roots: roots of the streams, shape (streams, 32).
        paths: path of each stream from its root to its state's root, encoded by ``slice_columns.encode_paths``.
    """

    roots: Digests
    stream_roots: Digests
    paths: pa.BinaryArray
    _states: CanonicalStates
    _metadata: ForkSteps
    """The forks above each state's ``metadata``."""

    def height_witnesses(self, rows: Rows) -> list[bytes | None]:
        """Return each row's encoded witness of ``metadata / height``, None before version 24."""
        states = self._states
        found: list[bytes | None] = [None] * len(rows)
        if states.version < METADATA_SUBTREE:
            return found
        used, steps, with_previous = self._metadata.used[rows], self._metadata.steps[rows], states.has_previous[rows]
        shapes = np.concatenate([with_previous[:, None], used, used & (steps[:, :, 0] == RIGHT)], axis=1)
        previous = labeled_digests(PREVIOUS, _leaves_of(states.previous[rows]))
        for shape in np.unique(shapes, axis=0):
            alike = np.flatnonzero((shapes == shape).all(axis=1))
            first = alike[0]
            forks = np.flatnonzero(used[first])
            digests = steps[alike][:, forks, 1:]
            if with_previous[first]:
                digests = np.concatenate([previous[alike][:, None], digests], axis=1)
            sides = steps[first, forks, 0].tolist()
            encoded = encode_height_witnesses(bool(with_previous[first]), sides, digests)
            for row, witness in zip(alike.tolist(), encoded, strict=True):
                found[row] = witness
        return found


def state_roots(states: CanonicalStates) -> StateRoots:
    """Return the roots of ``states``, and the paths of their streams.

    Raises:
        OverLimit: the paths take 2 GiB or more.
    """
    rows, streams = len(states), states.streams
    everybody = np.arange(rows, dtype=np.int64)
    stream_roots = roots_of_streams(streams.headers, streams.message_roots, streams.counts > 0)
    with_streams, lengths = np.unique(streams.subnets, return_counts=True)
    streams_below, stream_steps = fork_steps(identified_digests(streams.destinations, stream_roots), lengths)
    below = {
        CANISTER: _canisters(states.certified_data),
        SECTIONS: _sections(states.sections),
        METADATA: (everybody, _metadata(states)),
        STREAMS: (with_streams, streams_below),
        TIME: (everybody, _numbers(states.times)),
    }
    owners = np.concatenate([below[label][0] for label in _TOP])
    kinds = np.repeat(np.arange(len(_TOP)), [len(below[label][0]) for label in _TOP])
    nodes = np.concatenate([labeled_digests(label, below[label][1]) for label in _TOP])
    order = np.lexsort((kinds, owners))
    roots, steps = fork_steps(nodes[order], np.bincount(owners, minlength=rows))
    kinds = kinds[order]
    top = steps.take((kinds == _TOP.index(STREAMS)).nonzero()[0])
    paths = encode_paths(stream_steps, top.take(np.repeat(np.arange(len(lengths)), lengths)))
    metadata = steps.take((kinds == _TOP.index(METADATA)).nonzero()[0])
    return StateRoots(roots, stream_roots, paths, states, metadata)


def state_contents(states: CanonicalStates, row: int) -> dict[bytes, bytes | NestedTree]:
    """Return the state of ``row`` as nested maps, for ``build_tree``, with ``messages`` pruned.

    Replace a pruned ``messages`` by a witness to include messages.
    """
    previous = states.previous[row].tobytes() if states.has_previous[row] else None
    contents: dict[bytes, bytes | NestedTree] = {
        METADATA: metadata_contents(int(states.heights[row]), previous, states.version),
        TIME: encode_leb128(int(states.times[row])),
    }
    data, streams, sections = states.certified_data, states.streams, states.sections
    if sections is not None and sections.labels and sections.full[row]:
        digests = sections.digests[row]
        contents[SECTIONS] = {
            label.encode(): digest.tobytes() for label, digest in zip(sections.labels, digests, strict=True)
        }
    first, last = np.searchsorted(data.subnets, [row, row + 1]).tolist()
    if first < last:
        contents[CANISTER] = {
            data.canisters[at].tobytes(): {CERTIFIED_DATA: data.values[at].as_py()} for at in range(first, last)
        }
    first, last = np.searchsorted(streams.subnets, [row, row + 1]).tolist()
    if first < last:
        contents[STREAMS] = {streams.destinations[at].tobytes(): _stream(streams, at) for at in range(first, last)}
    return contents


def metadata_contents(height: int, previous: bytes | None, version: CertificationVersion) -> bytes | NestedTree:
    """Return the content of ``metadata`` at a height, with the previous root (32 bytes) if any."""
    if version < METADATA_SUBTREE:
        return encode_system_metadata(SystemMetadata(previous))
    return {HEIGHT: encode_leb128(height), **({} if previous is None else {PREVIOUS: previous})}


def _stream(streams: StreamColumns, at: int) -> NestedTree:
    header = {HEADER: streams.headers[at].as_py()}
    return {**header, MESSAGES_LABEL: Pruned(streams.message_roots[at].tobytes())} if streams.counts[at] else header


def _canisters(data: CertifiedData) -> tuple[Rows, Digests]:
    subnets, lengths = np.unique(data.subnets, return_counts=True)
    leaves = labeled_digests(CERTIFIED_DATA, leaf_digests(data.values))
    return subnets, fork_roots(identified_digests(data.canisters, leaves), _joined(lengths))


def _sections(sections: SectionColumns | None) -> tuple[Rows, Digests]:
    """Return the subnets with sections, and the root of each one's."""
    if sections is None or not sections.labels:
        return np.empty(0, dtype=np.int64), np.empty((0, DIGEST_BYTES), dtype=np.uint8)
    rows = sections.full.nonzero()[0]
    count = len(sections.labels)
    leaves = _leaves_of(sections.digests[rows].reshape(-1, DIGEST_BYTES)).reshape(len(rows), count, DIGEST_BYTES)
    nodes = [labeled_digests(label.encode(), leaves[:, at]) for at, label in enumerate(sections.labels)]
    lengths = np.full(len(rows), count, dtype=np.int64)
    return rows, fork_roots(np.stack(nodes, axis=1).reshape(-1, DIGEST_BYTES), _joined(lengths))


def _metadata(states: CanonicalStates) -> Digests:
    """Return the root of each subtree ``metadata``, or its leaf."""
    if states.version < METADATA_SUBTREE:
        known = zip(states.previous, states.has_previous.tolist(), strict=True)
        metadata = [SystemMetadata(root.tobytes() if is_known else None) for root, is_known in known]
        return leaf_digests(pa.array([encode_system_metadata(one) for one in metadata], pa.binary()))
    heights = labeled_digests(HEIGHT, _numbers(states.heights))
    previous = labeled_digests(PREVIOUS, _leaves_of(states.previous[states.has_previous]))
    nodes = np.empty((len(heights) + len(previous), DIGEST_BYTES), dtype=np.uint8)
    lengths = 1 + states.has_previous.astype(np.int64)
    groups = _joined(lengths)
    nodes[groups.starts] = heights
    nodes[groups.starts[states.has_previous] + 1] = previous
    return fork_roots(nodes, groups)


def _leaves_of(digests: Digests) -> Digests:
    """Return the digest of a leaf with each digest."""
    return digest_rows(HashFunction.SHA256, np.ascontiguousarray(digests), prefix=LEAF_DOMAIN)


def _numbers(values: U64) -> Digests:
    """Return the digest of a leaf with each number."""
    return leaf_digests(pa.array([encode_leb128(value) for value in values.tolist()], pa.binary()))


def _joined(counts: Rows) -> Groups:
    """Return consecutive groups of these lengths."""
    ends = np.cumsum(counts)
    return Groups(ends - counts, counts, int(ends[-1]) if len(ends) else 0)


def _require_shape(array: npt.NDArray[np.generic], shape: tuple[int, ...], noun: str) -> None:
    if array.shape != shape:
        raise InvalidInput(f"{noun} have the shape {array.shape}, {shape} is needed")


def _require_order(subnets: Rows, ids: Ids, rows: int, noun: str) -> None:
    """Reject rows that name no subnet or do not ascend by subnet and id."""
    _require_shape(ids, (len(subnets), ids.shape[-1]), f"ids of {noun}")
    if not len(subnets):
        return
    if not 0 <= int(subnets.min()) <= int(subnets.max()) < rows:
        raise InvalidInput(f"{noun} name a subnet from {subnets.min()} to {subnets.max()}, there are {rows}")
    words = np.zeros((len(ids), -(-ids.shape[1] // _WORD_BYTES) * _WORD_BYTES), dtype=np.uint8)
    words[:, : ids.shape[1]] = ids
    ascends = np.zeros(len(ids) - 1, dtype=bool)
    is_same = np.ones(len(ids) - 1, dtype=bool)
    for key in (subnets, *words.view(">u8").T):
        ascends |= is_same & (key[1:] > key[:-1])
        is_same &= key[1:] == key[:-1]
    if not ascends.all():
        at = int((~ascends).argmax())
        raise InvalidInput(
            f"{noun} do not ascend: ({subnets[at]}, {ids[at].tobytes().hex()}) comes before "
            f"({subnets[at + 1]}, {ids[at + 1].tobytes().hex()})"
        )
