"""Slices of growing streams equal those of a newly certified state, byte for byte."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput, MalformedProof
from causeway_proofs.ic.bls import SecretKey
from causeway_proofs.ic.certificate import certification_message
from causeway_proofs.ic.certified_streams import (
    InvalidSliceBegin,
    InvalidSliceIndices,
    NoStreamForSubnet,
    OfferedStreams,
    SliceRequestError,
)
from causeway_proofs.ic.errors import RootHashMismatch
from causeway_proofs.ic.slice import Certification, encode_certified_stream_slice
from causeway_proofs.ic.slice_columns import decode_path
from causeway_proofs.ic.slice_payload import STREAMS
from causeway_proofs.ic.state_columns import (
    CanonicalStates,
    CertifiedData,
    SectionColumns,
    StateRoots,
    StreamColumns,
    state_contents,
    state_roots,
)
from causeway_proofs.ic.stream_header import StreamHeader, encode_stream_header
from causeway_proofs.ic.stream_tree import StreamTree

from causeway.protocols.ic.ids import subnet_id
from tests.oracles.ic.certified_streams import CertifiedStreams, StoredStream

KEY = SecretKey.derive(b"a subnet whose streams go on")
SUBNETS = [subnet_id(number) for number in (2, 3, 5, 9)]


def column(messages: list[bytes]) -> pa.BinaryArray:
    return pa.array(messages, pa.binary())


class Growing:
    """A subnet at a height: the messages of its streams, by destination, from an index on."""

    def __init__(self, seed: int) -> None:
        self.random, self.height = random.Random(seed), 0
        self.begins = dict.fromkeys(SUBNETS[:3], 1)
        self.held: dict[bytes, list[bytes]] = {subnet: [] for subnet in self.begins}

    def step(self) -> None:
        """Append to some streams, collect from some, and let one begin."""
        self.height += 1
        if self.height == 3:
            self.begins[SUBNETS[3]], self.held[SUBNETS[3]] = 1, []
        for subnet, held in self.held.items():
            held += [self.random.randbytes(self.random.randint(0, 40)) for _ in range(self.random.choice([0, 1, 9]))]
            gone = self.random.randint(0, len(held))
            self.begins[subnet] += gone
            del held[:gone]

    def headers(self) -> dict[bytes, StreamHeader]:
        return {
            subnet: StreamHeader(self.begins[subnet], self.begins[subnet] + len(held), self.height)
            for subnet, held in self.held.items()
        }

    def states(self) -> CanonicalStates:
        trees = {
            subnet: StreamTree(encode_stream_header(header), header.begin, self.held[subnet])
            for subnet, header in self.headers().items()
        }
        roots = b"".join(tree.messages.root for tree in trees.values())
        return CanonicalStates(
            heights=np.array([self.height], np.uint64),
            previous=np.full((1, 32), 7, np.uint8),
            has_previous=np.array([True]),
            times=np.array([10**9 * self.height], np.uint64),
            sections=SectionColumns(("accounts", "turns"), np.full((1, 2, 32), 9, np.uint8), np.array([True])),
            certified_data=CertifiedData(np.empty(0, np.int64), np.empty((0, 10), np.uint8), column([])),
            streams=StreamColumns(
                np.zeros(len(trees), np.int64),
                np.frombuffer(b"".join(trees), np.uint8).reshape(-1, 10),
                column([tree.header for tree in trees.values()]),
                np.frombuffer(roots, np.uint8).reshape(-1, 32),
                np.array([len(held) for held in self.held.values()], np.uint64),
            ),
        )

    def whole(self) -> CertifiedStreams:
        """Return the state certified as a whole."""
        contents = dict(state_contents(self.states(), 0))
        contents.pop(STREAMS, None)
        streams = {
            subnet: StoredStream(
                StreamTree(encode_stream_header(header), header.begin, self.held[subnet]), column(self.held[subnet])
            )
            for subnet, header in self.headers().items()
        }
        return CertifiedStreams(streams, contents, self.height, KEY.sign)

    def certification(self, found: StateRoots) -> Certification:
        root = found.roots[0].tobytes()
        signature = KEY.sign(certification_message(root))
        return Certification(self.height, root, signature, height_witness=found.height_witnesses(np.array([0]))[0])

    def update(self, offered: OfferedStreams) -> None:
        """Let an endpoint take over the state."""
        found = state_roots(self.states())
        certification = self.certification(found)
        for place, (subnet, header) in enumerate(self.headers().items()):
            end = offered.end(subnet)
            since = max(header.begin, header.begin if end is None else end)
            new = self.held[subnet][since - header.begin :]
            path = found.paths[place].as_py()
            offered.update(subnet, encode_stream_header(header), column(new), path, certification)


@pytest.mark.parametrize("seed", range(4))
def test_slices_of_growing_streams_equal_those_of_a_certified_state(seed: int) -> None:
    subnet, offered = Growing(seed), OfferedStreams()
    draw = random.Random(seed)
    for step in range(12):
        subnet.step()
        if step % 3 == 1:
            continue  # heights may be skipped
        subnet.update(offered)
        whole = subnet.whole()
        assert offered.subnets_with_certified_streams() == whole.subnets_with_certified_streams()
        for destination, header in subnet.headers().items():
            begin = draw.randint(header.begin, header.end)
            for asked in (
                {},
                {"msg_begin": begin, "msg_limit": draw.randint(0, 5)},
                {"msg_begin": begin, "witness_begin": draw.randint(header.begin, begin), "byte_limit": 60},
                {"byte_limit": draw.randint(0, 100)},
            ):
                ours, theirs = (one.encode_certified_stream_slice(destination, **asked) for one in (offered, whole))
                assert encode_certified_stream_slice(ours) == encode_certified_stream_slice(theirs)
    offered.drop(SUBNETS[0])
    assert offered.subnets_with_certified_streams() == SUBNETS[1:]


def test_unservable_requests_are_refused_as_for_a_whole_state() -> None:
    subnet, offered = Growing(7), OfferedStreams()
    while not subnet.held[SUBNETS[1]] or subnet.begins[SUBNETS[1]] == 1:
        subnet.step()
    subnet.update(offered)
    header = subnet.headers()[SUBNETS[1]]
    for asked, error in (
        ({"msg_begin": header.begin - 1}, InvalidSliceBegin),
        ({"msg_begin": header.end + 1}, InvalidSliceBegin),
        ({"msg_begin": header.begin, "witness_begin": header.begin + 1}, InvalidSliceIndices),
        ({"witness_begin": header.begin}, InvalidSliceIndices),
        ({"msg_limit": -1}, InvalidInput),
    ):
        texts = []
        for one in (offered, subnet.whole()):
            with pytest.raises(error) as refused:
                one.encode_certified_stream_slice(SUBNETS[1], **asked)
            texts.append(str(refused.value))
        assert texts[0] == texts[1]
    with pytest.raises(NoStreamForSubnet) as nothing:
        offered.encode_certified_stream_slice(subnet_id(77))
    assert isinstance(nothing.value, SliceRequestError)


def test_stream_that_differs_from_the_certified_one_is_not_served() -> None:
    subnet, offered = Growing(3), OfferedStreams()
    for _ in range(4):
        subnet.step()
    found = state_roots(subnet.states())
    certification, path = subnet.certification(found), found.paths[0].as_py()
    header, held = encode_stream_header(subnet.headers()[SUBNETS[0]]), subnet.held[SUBNETS[0]]
    assert held
    other = replace(certification, root_hash=bytes(32))
    with pytest.raises(RootHashMismatch):
        offered.update(SUBNETS[0], header, column(held), path, other)
    with pytest.raises(RootHashMismatch):
        offered.update(SUBNETS[0], header, column([*held[:-1], b"another"]), path, certification)
    with pytest.raises(InvalidInput, match="do not make it"):
        offered.update(SUBNETS[0], header, column(held[1:]), path, certification)
    for wrong in (b"", path[:-1], path[:1], bytes([path[0] + 1]) + path[1:], path[:2] + b"\x02" + path[3:]):
        with pytest.raises(MalformedProof):
            offered.update(SUBNETS[0], header, column(held), wrong, certification)
        with pytest.raises(MalformedProof):
            decode_path(wrong)
    assert offered.subnets_with_certified_streams() == []
    offered.update(SUBNETS[0], header, column(held), path, certification)
    assert offered.subnets_with_certified_streams() == SUBNETS[:1]
