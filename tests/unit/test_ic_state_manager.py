"""The state manager of one subnet: which states there are, what is certified when, and how slices are refused (2.8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from causeway.model.errors import InvalidInput
from causeway.proofs.ic.certified_streams import (
    InvalidSliceBegin,
    InvalidSliceIndices,
    NoStreamForSubnet,
    StoredStream,
)
from causeway.proofs.ic.errors import InvalidDestination
from causeway.proofs.ic.leb128 import encode_leb128
from causeway.proofs.ic.messages import encode_stream_message
from causeway.proofs.ic.slice import CertifiedStreamSlice, encode_certified_stream_slice
from causeway.proofs.ic.stream_header import StreamHeader, encode_stream_header
from causeway.proofs.ic.stream_tree import StreamTree
from causeway.protocols.ic.certifying import Certifier
from causeway.protocols.ic.options import IcOptions
from causeway.protocols.ic.state_manager import (
    Canonical,
    InvalidSignature,
    Scope,
    SerializationError,
    StateManager,
    StateNotCommittedYet,
    StateRemoved,
)
from tests.unit.ic_streams import OTHER, OWN, REMOTE, message

BEGIN = 250
CERTIFIER = Certifier(np.array([2, 1], dtype=np.uint64), 5, IcOptions(certification="bls"))
KEYS = {REMOTE: CERTIFIER.public_key(0), OWN: CERTIFIER.public_key(1)}


def stored(end: int, begin: int = BEGIN) -> StoredStream:
    messages = pa.array([encode_stream_message(message(index)) for index in range(begin, end)], pa.binary())
    return StoredStream(StreamTree(encode_stream_header(StreamHeader(begin, end, 9)), begin, messages), messages)


def canonical(end: int) -> Canonical:
    """A state is the end of its stream to OWN."""
    sections = {b"accounts": bytes([end % 256]) * 32}
    return Canonical({OWN: stored(end), OTHER: stored(BEGIN)}, {b"causeway": sections, b"time": encode_leb128(end)})


def certify(height: int, root: bytes, witness: bytes | None) -> bytes | None:
    return CERTIFIER.certify(0, height, root, witness).certification


def manager(
    delay: int = 0, certified: Callable[[int, bytes, bytes | None], bytes | None] = certify
) -> StateManager[int]:
    return StateManager(canonical, certified, lambda version: KEYS if version else {}, delay=delay)


def encoded(found: CertifiedStreamSlice) -> bytes:
    return encode_certified_stream_slice(found)


def test_states_are_committed_taken_and_removed_by_height() -> None:
    states = manager()
    with pytest.raises(StateNotCommittedYet):
        states.take_tip_at(0)
    for height in range(4):
        states.commit_and_certify(BEGIN + height, height)
        assert states.take_tip_at(height) == states.get_state_at(height) == BEGIN + height
    assert states.get_state_at(1) == BEGIN + 1
    with pytest.raises(StateRemoved, match="state of height 2: the newest one is of height 3") as removed:
        states.take_tip_at(2)
    assert removed.value.height == 2
    for ask in (states.take_tip_at, states.get_state_at):
        with pytest.raises(StateNotCommittedYet, match="state of height 4: the next one"):
            ask(4)
    states.remove_states_below(2)
    with pytest.raises(StateRemoved, match="from height 2 on"):
        states.get_state_at(1)
    states.remove_states_below(9)
    assert states.take_tip_at(3) == BEGIN + 3, "the newest one stays"
    for height in (3, 5):
        with pytest.raises(InvalidInput, match=f"a state of height {height} is to be committed, the next height is 4"):
            states.commit_and_certify(BEGIN, height)


def test_roots_follow_on_each_other_and_the_scope_decides_what_is_in_them() -> None:
    states = manager()
    first = states.commit_and_certify(BEGIN, 0)
    with_sections = states.commit_and_certify(BEGIN + 1, 1)
    again = manager()
    assert again.commit_and_certify(BEGIN, 0) == first
    without = again.commit_and_certify(BEGIN + 1, 1, Scope.METADATA)
    assert without == again.root != with_sections
    restored: StateManager[int] = StateManager(canonical, certify, lambda _: KEYS, first=1, previous=first)
    assert restored.commit_and_certify(BEGIN + 1, 1) == with_sections
    with pytest.raises(StateRemoved):
        restored.get_state_at(0)
    own: StateManager[int] = StateManager(lambda _: Canonical({}, {b"metadata": b""}), certify, lambda _: KEYS)
    with pytest.raises(InvalidInput, match="metadata"):
        own.commit_and_certify(1, 0)


def test_slices_are_of_the_latest_certified_state() -> None:
    states = manager(delay=2)
    for height in range(5):
        if height < 3:
            assert states.certified is None and states.subnets_with_certified_streams() == ()
            with pytest.raises(NoStreamForSubnet, match="no state is certified yet"):
                states.encode_certified_stream_slice(OWN)
        states.commit_and_certify(BEGIN + height, height)
        if height < 2:
            continue
        found = states.encode_certified_stream_slice(OWN)
        assert found.certification.height == height - 2 and found.payload.header.end == BEGIN + height - 2
        read = states.decode_certified_stream(1, OWN, REMOTE, encoded(found))
        assert [index for index, _ in read.messages] == list(range(BEGIN, BEGIN + height - 2))
        assert states.decode_valid_certified_stream(OWN, encoded(found)) == read
        states.remove_states_below(height)
        assert states.get_state_at(height - 1) == BEGIN + height - 1, "it is still to be certified"
    assert states.subnets_with_certified_streams() == [OWN, OTHER]
    with pytest.raises(InvalidSliceBegin):
        states.encode_certified_stream_slice(OWN, msg_begin=BEGIN - 1)
    with pytest.raises(InvalidSliceIndices):
        states.encode_certified_stream_slice(OWN, witness_begin=BEGIN + 1, msg_begin=BEGIN)


def test_a_height_that_too_few_nodes_sign_is_passed_over() -> None:
    states = manager(certified=lambda height, root, witness: None if height == 1 else certify(height, root, witness))
    for height in range(3):
        states.commit_and_certify(BEGIN + height, height)
        assert states.encode_certified_stream_slice(OWN).certification.height == (0 if height == 1 else height)


def test_slices_are_refused_by_name() -> None:
    states = manager()
    states.commit_and_certify(BEGIN + 3, 0)
    found = states.encode_certified_stream_slice(OWN)
    with pytest.raises(InvalidDestination) as refused:
        states.decode_certified_stream(1, OTHER, REMOTE, encoded(found))
    assert (refused.value.sender, refused.value.receiver) == (REMOTE, OWN)
    with pytest.raises(InvalidDestination):
        states.decode_valid_certified_stream(OTHER, encoded(found))
    for version, remote in ((0, REMOTE), (1, OTHER), (1, OWN)):
        with pytest.raises(InvalidSignature) as unsigned:
            states.decode_certified_stream(version, OWN, remote, encoded(found))
        assert unsigned.value.remote == remote
    messages = (*found.payload.messages[:-1], encode_stream_message(message(7)))
    altered = replace(found, payload=replace(found.payload, messages=messages))
    with pytest.raises(InvalidSignature, match="the slice has the root"):
        states.decode_certified_stream(1, OWN, REMOTE, encoded(altered))
    assert len(states.decode_valid_certified_stream(OWN, encoded(altered)).messages) == 3
    higher = replace(found, certification=replace(found.certification, height=1))
    with pytest.raises(InvalidSignature, match="height 1 and its witness"):
        states.decode_certified_stream(1, OWN, REMOTE, encoded(higher))
    fewer = replace(found, payload=replace(found.payload, messages=found.payload.messages[:-1]))
    bare = replace(found, certification=replace(found.certification, height_witness=None))
    for data in (b"", encoded(found)[:-1], encoded(fewer), encoded(bare)):
        with pytest.raises(SerializationError):
            states.decode_certified_stream(1, OWN, REMOTE, data)
    with pytest.raises(SerializationError):
        states.decode_valid_certified_stream(OWN, b"")


def test_a_state_that_is_changed_before_it_is_certified_is_found() -> None:
    """Trees of streams can be changed; what is certified later must be what was committed."""
    held = stored(BEGIN + 3)
    states: StateManager[int] = StateManager(
        lambda _: Canonical({OWN: held}, {b"time": b"\x01"}), certify, lambda _: KEYS, delay=1
    )
    states.commit_and_certify(1, 0)
    held.tree.header = encode_stream_header(StreamHeader(BEGIN, BEGIN + 3, 10))
    with pytest.raises(InvalidInput, match="the state has the root"):
        states.commit_and_certify(2, 1)
