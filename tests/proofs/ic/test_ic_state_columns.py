"""Canonical states of many subnets: roots and paths match the tree built node by node (2.9)."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.ic.hash_tree import build_tree, digest, fork_digest, labeled_digest, leaves, require_well_formed
from causeway_proofs.ic.lookup import prune
from causeway_proofs.ic.primitives import CertificationVersion
from causeway_proofs.ic.slice import Certification
from causeway_proofs.ic.state_columns import (
    CanonicalStates,
    CertifiedData,
    SectionColumns,
    StreamColumns,
    state_contents,
    state_roots,
    verify_heights,
)
from causeway_proofs.ic.stream_tree import StreamTree
from causeway_proofs.ic.witness import encode_witness

from causeway.protocols.ic.ids import canister_id, canister_ids, stream_labels, subnet_id
from tests.oracles.ic.mixed_tree import split_hash_tree
from tests.support.ic.ic_states import generated

VERSIONS = tuple(CertificationVersion)
LABELS = ("accounts", "input_queues", "program:ledger", "turns")


def climb(path: bytes, root: bytes, destination: bytes) -> bytes:
    """Return the root at the end of a stream's path, as documented."""
    first, second = path[0], path[1]
    steps = [path[start : start + 33] for start in range(2, len(path), 33)]
    assert len(steps) == first + second and len(steps[-1]) == 33
    node = labeled_digest(destination, root)
    for at, step in enumerate(steps):
        if at == first:
            node = labeled_digest(b"streams", node)
        node = fork_digest(step[1:], node) if step[0] == 0 else fork_digest(node, step[1:])
    return node


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("labels", [None, (), LABELS[:1], LABELS])
def test_roots_and_paths_match_the_tree_built_node_by_node(
    version: CertificationVersion, labels: tuple[str, ...] | None
) -> None:
    states = generated(len(LABELS if labels is None else labels) + version, 17, version, labels)
    found = state_roots(states)
    witnesses = found.height_witnesses(np.arange(len(states)))
    for row in range(len(states)):
        tree = build_tree(state_contents(states, row))
        require_well_formed(tree)
        assert digest(tree) == found.roots[row].tobytes()
        height = int(states.heights[row])
        encoded = witnesses[row]
        assert (encoded is None) == (version < 24)
        if encoded is not None:
            assert encoded == encode_witness(split_hash_tree(prune(tree, [(b"metadata", b"height")]))[1])
            assert Certification(height, digest(tree), b"", None, encoded).verify_height()
    for at, (row, path) in enumerate(zip(states.streams.subnets.tolist(), found.paths.to_pylist(), strict=True)):
        destination = states.streams.destinations[at].tobytes()
        assert climb(path, found.stream_roots[at].tobytes(), destination) == found.roots[row].tobytes()


@pytest.mark.parametrize("version", VERSIONS)
def test_verdicts_on_heights_together_equal_those_of_one_by_one(version: CertificationVersion) -> None:
    """An error of one of them, first or last, of any shape, changes no other verdict."""
    states = generated(3, 17, version, LABELS)
    found = state_roots(states)
    honest = [
        Certification(int(height), root.tobytes(), b"", None, witness)
        for height, root, witness in zip(
            states.heights, found.roots, found.height_witnesses(np.arange(len(states))), strict=True
        )
    ]
    one = honest[5]
    false = [replace(one, height=one.height + 1), replace(one, root_hash=bytes(32)), replace(one, height_witness=None)]
    witness = one.height_witness or b""
    for at in range(0, len(witness), 7):
        false.append(replace(one, height_witness=witness[:at] + bytes([witness[at] ^ 1]) + witness[at + 1 :]))
        false.append(replace(one, height_witness=witness[:at]))
    for given in ([*honest, *false], [*false, *honest], honest[:1], []):
        expected = [single_verdict(certification) for certification in given]
        assert [comparable_verdict(verdict) for verdict in verify_heights(given)] == expected
        assert expected.count(True) == (version >= 24) * len([one for one in given if one in honest])


def single_verdict(certification: Certification) -> object:
    """Return the verdict on one certification's height alone."""
    try:
        return certification.verify_height()
    except ProofError as error:
        return comparable_verdict(error)


def comparable_verdict(verdict: bool | ProofError) -> object:
    return (type(verdict), str(verdict)) if isinstance(verdict, ProofError) else verdict


def leaf(value: bytes) -> bytes:
    return sha256(b"\x10ic-hashtree-leaf" + value).digest()


def named(label: bytes, below: bytes) -> bytes:
    return sha256(b"\x13ic-hashtree-labeled" + label + below).digest()


def forked(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x10ic-hashtree-fork" + left + right).digest()


def test_state_has_the_expected_leaf_at_each_label() -> None:
    """One small state against a tree written by hand, so that both forms cannot be wrong together."""
    header, messages = b"header", [b"one", b"two", b"three"]
    stream = StreamTree(header, 5, messages)
    states = CanonicalStates(
        heights=np.array([300], dtype=np.uint64),
        previous=np.full((1, 32), 7, dtype=np.uint8),
        has_previous=np.array([True]),
        times=np.array([128], dtype=np.uint64),
        sections=SectionColumns(("turns",), np.full((1, 1, 32), 9, dtype=np.uint8), np.array([True])),
        certified_data=CertifiedData(
            np.array([0]), canister_ids(np.array([258], dtype=np.uint64)), pa.array([b"data"], pa.binary())
        ),
        streams=StreamColumns(
            np.array([0]),
            stream_labels(np.array([258], dtype=np.uint64), np.zeros(1, dtype=np.uint64), flat=True),
            pa.array([header], pa.binary()),
            np.frombuffer(stream.messages.root, dtype=np.uint8).reshape(1, 32),
            np.array([3], dtype=np.uint64),
        ),
    )
    canister, subnet = b"\0\0\0\0\0\0\x01\x02\x01\x01", b"\x02\x01\0\0\0\0\0\0\xfc\x01"
    assert (canister, subnet) == (canister_id(258), subnet_id(258))
    index = [named(bytes(7) + bytes([at]), leaf(value)) for at, value in enumerate(messages, 5)]
    below = forked(named(b"header", leaf(header)), named(b"messages", forked(forked(*index[:2]), index[2])))
    tops = [
        named(b"canister", named(canister, named(b"certified_data", leaf(b"data")))),
        named(b"causeway", named(b"turns", leaf(bytes([9]) * 32))),
        named(
            b"metadata",
            forked(named(b"height", leaf(b"\xac\x02")), named(b"prev_state_hash", leaf(bytes([7]) * 32))),
        ),
        named(b"streams", named(subnet, below)),
        named(b"time", leaf(b"\x80\x01")),
    ]
    expected = forked(forked(forked(*tops[:2]), forked(*tops[2:4])), tops[4])
    assert state_roots(states).roots.tobytes() == expected
    assert state_roots(replace(states, sections=None)).roots.tobytes() == forked(
        forked(tops[0], tops[2]), forked(*tops[3:])
    )
    paths = [path for path, _ in leaves(build_tree(state_contents(states, 0)))]
    assert paths == [
        (b"canister", canister, b"certified_data"),
        (b"causeway", b"turns"),
        (b"metadata", b"height"),
        (b"metadata", b"prev_state_hash"),
        (b"streams", subnet, b"header"),
        (b"time",),
    ]


def test_columns_out_of_order_or_of_unknown_subnets_are_refused() -> None:
    states = generated(3, 9, CertificationVersion.V25, LABELS)
    streams, data = states.streams, states.certified_data
    with pytest.raises(InvalidInput, match=r"streams do not ascend: \(\d, [0-9a-f]{20}\) comes before"):
        replace(states, streams=replace(streams, subnets=streams.subnets[::-1]))
    twice = streams.destinations.copy()
    row = int((streams.subnets[1:] == streams.subnets[:-1]).argmax())
    twice[row] = twice[row + 1]
    with pytest.raises(InvalidInput, match="streams do not ascend"):
        replace(states, streams=replace(streams, destinations=twice))
    with pytest.raises(InvalidInput, match="certified data name a subnet from 0 to 9, there are 9"):
        replace(states, certified_data=replace(data, subnets=np.append(data.subnets[1:] * 0, 9)))
    with pytest.raises(InvalidInput, match="headers, "):
        replace(states, streams=replace(streams, headers=streams.headers[1:]))
    with pytest.raises(InvalidInput, match=r"roots before have the shape \(8, 32\), \(9, 32\) is needed"):
        replace(states, previous=states.previous[1:])
    with pytest.raises(InvalidInput, match="labels of sections do not ascend"):
        replace(states, sections=SectionColumns(LABELS[::-1], np.zeros((9, 4, 32), np.uint8), states.has_previous))


def test_no_subnets_have_no_roots() -> None:
    states = generated(1, 0, CertificationVersion.V25, LABELS)
    found = state_roots(states)
    assert len(found.roots) == len(found.paths) == 0
