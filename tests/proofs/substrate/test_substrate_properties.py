"""Tries against a dictionary: bulk builds, stepwise changes, proofs and altered proofs."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import numpy as np
import pytest
from causeway_proofs.errors import ProofError
from causeway_proofs.order import Groups
from causeway_proofs.substrate.byte_columns import decode_compact, encode_compact
from causeway_proofs.substrate.errors import InvalidProof, UnusedNodesInTheProof
from causeway_proofs.substrate.node import StateVersion, plain_root
from causeway_proofs.substrate.ordered_lists import ordered_root, ordered_roots
from causeway_proofs.substrate.parachains import QueuedMessage, chain_heads, verify_message_queue_chain
from causeway_proofs.substrate.proof import ReadStatus, read_storage_proof, verify_storage_proof
from causeway_proofs.substrate.trie import Trie, prove
from causeway_proofs.xdm.messages import (
    ChainId,
    ChannelClose,
    ChannelOpen,
    CollectedFee,
    DispatchError,
    EndpointRequest,
    EndpointResponse,
    Message,
    ProtocolResponse,
)
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.oracles.ordered_trie import OrderedTrie
from tests.tiers import sized

VERSIONS = st.sampled_from(StateVersion)
NEAR_KEYS = st.binary(max_size=5).map(lambda key: bytes(byte & 0x11 for byte in key))
"""Keys of few different nibbles: many are prefixes of others."""
LONG_KEYS = st.tuples(st.sampled_from([bytes(32), b"\xff" * 40]), st.binary(max_size=3)).map(b"".join)
KEYS = NEAR_KEYS | LONG_KEYS | st.binary(max_size=70)
VALUES = st.binary(max_size=4) | st.sampled_from([b"v" * length for length in (20, 28, 29, 31, 32, 33, 64, 16_384)])
STATES = st.dictionaries(KEYS, VALUES, max_size=30)
FEW = settings(max_examples=sized(27, 300), deadline=None, derandomize=True)


def one_by_one(state: dict[bytes, bytes], version: StateVersion) -> Trie:
    trie = Trie(version)
    for key, value in state.items():
        trie.insert(key, value)
        assert len(trie.root) == 32
    return trie


@FEW
@given(STATES, VERSIONS)
def test_single_and_bulk_insertions_yield_one_root(state: dict[bytes, bytes], version: StateVersion) -> None:
    built = Trie.build(state.keys(), state.values(), version)
    slow = one_by_one(state, version)
    assert built.root == slow.root == plain_root(state, version)
    assert dict(built.items()) == dict(slow.items()) == state
    assert list(built.items()) == sorted(state.items())
    every = list(state) or [b""]
    assert prove(built, every) == prove(slow, every)


@FEW
@given(STATES, st.lists(KEYS, min_size=1, max_size=5), VERSIONS, st.data())
def test_proofs_show_present_and_absent_keys(
    state: dict[bytes, bytes], others: list[bytes], version: StateVersion, data: st.DataObject
) -> None:
    trie = Trie.build(state.keys(), state.values(), version)
    present = data.draw(st.lists(st.sampled_from(sorted(state)), max_size=3)) if state else []
    entries = {key: state.get(key) for key in [*present, *others]}
    nodes = prove(trie, entries)
    assert verify_storage_proof(trie.root, nodes, entries, version)
    for place in range(len(nodes)):
        rest = nodes[:place] + nodes[place + 1 :]
        if state:
            with pytest.raises(InvalidProof):
                verify_storage_proof(trie.root, rest, entries, version)
        # Claims decided with fewer nodes have the same verdict.
        for read in read_storage_proof(trie.root, rest, entries, version):
            assert read.status is ReadStatus.INCOMPLETE or read.value == entries[read.key]
        repeated = [*nodes, nodes[place]]
        assert verify_storage_proof(trie.root, repeated, entries, version) == verify_storage_proof(
            trie.root, nodes, entries, version
        )
        with pytest.raises(UnusedNodesInTheProof, match="repeat another one"):
            verify_storage_proof(trie.root, repeated, entries, version, strict=True)


@FEW
@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=8), VERSIONS, st.data())
def test_every_change_of_a_proof_is_detected(
    state: dict[bytes, bytes], version: StateVersion, data: st.DataObject
) -> None:
    trie = Trie.build(state.keys(), state.values(), version)
    key = data.draw(st.sampled_from(sorted(state)))
    nodes = prove(trie, [key])
    place = data.draw(st.integers(0, len(nodes) - 1))
    part = nodes[place]
    bit = data.draw(st.integers(0, 8 * len(part) - 1))
    flipped = bytearray(part)
    flipped[bit // 8] ^= 1 << bit % 8
    for changed in (bytes(flipped), part[:-1], part + b"\x00", part[1:], b"", part + part):
        with pytest.raises(ProofError):
            verify_storage_proof(trie.root, [*nodes[:place], changed, *nodes[place + 1 :]], {key: state[key]})
    with pytest.raises(ProofError):
        verify_storage_proof(trie.root, nodes, {key: state[key] + b"\x00"})
    with pytest.raises(ProofError):
        verify_storage_proof(trie.root, nodes, {key: None})


class TrieMachine(RuleBasedStateMachine):
    """A trie and a dictionary with the same changes, with snapshots of both."""

    @initialize(state=STATES, version=VERSIONS)
    def start(self, state: dict[bytes, bytes], version: StateVersion) -> None:
        self.version = version
        self.trie = Trie.build(state.keys(), state.values(), version)
        self.state = dict(state)
        self.kept: list[tuple[Trie, dict[bytes, bytes]]] = []

    @rule(key=KEYS, value=VALUES)
    def insert(self, key: bytes, value: bytes) -> None:
        self.trie.insert(key, value)
        self.state[key] = value

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.state)) | KEYS if self.state else KEYS)
        assert self.trie.delete(key) == (self.state.pop(key, None) is not None)

    @rule(prefix=KEYS, length=st.integers(0, 4))
    def clear(self, prefix: bytes, length: int) -> None:
        gone = [key for key in self.state if key.startswith(prefix[:length])]
        assert self.trie.clear_prefix(prefix[:length]) == len(gone)
        for key in gone:
            del self.state[key]

    @rule(state=STATES)
    def update(self, state: dict[bytes, bytes]) -> None:
        self.trie.update(state.keys(), state.values())
        self.state.update(state)

    @rule(state=STATES)
    def rebuild(self, state: dict[bytes, bytes]) -> None:
        self.trie.update([*state] * 30, [*state.values()] * 30)
        self.state.update(state)

    @rule(keys=st.lists(KEYS, max_size=5), often=st.sampled_from([1, 200]), data=st.data())
    def remove(self, keys: list[bytes], often: int, data: st.DataObject) -> None:
        if self.state:
            keys += data.draw(st.lists(st.sampled_from(sorted(self.state)), max_size=5))
        gone = {key for key in keys if key in self.state}
        assert self.trie.remove(keys * often) == len(gone)
        for key in gone:
            del self.state[key]

    @rule()
    def keep(self) -> None:
        self.kept.append((self.trie.snapshot(), dict(self.state)))

    @invariant()
    def is_as_if_built_now(self) -> None:
        for trie, state in [(self.trie, self.state), *self.kept]:
            assert len(trie) == len(state)
            assert trie.root == Trie.build(state.keys(), state.values(), self.version).root
        assert list(self.trie.items()) == sorted(self.state.items())


TestTrieMachine = TrieMachine.TestCase
TestTrieMachine.settings = settings(max_examples=sized(11, 99), stateful_step_count=12, deadline=None, derandomize=True)


@FEW
@given(st.lists(st.integers(0, 70), max_size=5), VERSIONS)
def test_many_queues_at_once(counts: list[int], version: StateVersion) -> None:
    starts = np.cumsum([0, *counts])[:-1].astype(np.int64)
    total = sum(counts)
    messages = [bytes([index % 251]) * (index * 7 % 40) for index in range(total)]
    groups = Groups(starts[: len(counts)], np.array(counts, dtype=np.int64), total)
    roots = ordered_roots(messages, groups, version)
    for start, count, root in zip(starts.tolist(), counts, roots, strict=False):
        assert bytes(root) == ordered_root(messages[start : start + count], version)


@FEW
@given(st.lists(st.integers(0, 90), max_size=4), st.integers(0, 90), VERSIONS)
def test_queues_grow_and_shrink_at_either_end(steps: list[int], cut: int, version: StateVersion) -> None:
    queue, values = OrderedTrie(version), list[bytes]()
    for step in steps:
        fresh = [bytes([len(values) + index & 0xFF]) * 35 for index in range(step)]
        queue.append(fresh)
        values += fresh
        assert queue.root == ordered_root(values, version)
    end = min(cut, len(values))
    queue.truncate(end)
    assert queue.root == ordered_root(values[:end], version)
    begin = end // 2
    queue.trim(begin)
    left = {encode_compact(index): values[index] for index in range(begin, end)}
    assert queue.root == Trie.build(left.keys(), left.values(), version).root


def test_deep_tries_need_no_recursion() -> None:
    keys = [b"\x11" * length for length in range(1_200)]
    values = [bytes([length % 256]) * (length % 40) for length in range(1_200)]
    trie = Trie.build(keys, values, StateVersion.V1)
    slow = Trie(StateVersion.V1)
    for key, value in zip(keys[:300], values[:300], strict=True):
        slow.insert(key, value)
    assert slow.root == Trie.build(keys[:300], values[:300], StateVersion.V1).root
    nodes = prove(trie, [keys[-1]])
    assert verify_storage_proof(trie.root, nodes, {keys[-1]: values[-1]})
    trie.delete(keys[600])
    assert trie.root == Trie.build(keys[:600] + keys[601:], values[:600] + values[601:]).root


@pytest.mark.parametrize("version", StateVersion)
def test_thousands_of_entries_at_once(version: StateVersion) -> None:
    chance = random.Random(3)
    beginnings = [chance.randbytes(length) for length in (0, 0, 1, 2, 17, 32)]
    keys = {chance.choice(beginnings) + chance.randbytes(chance.randrange(4)) for _ in range(4_000)}
    state = {key: chance.randbytes(chance.choice([0, 1, 5, 30, 31, 32, 33, 70])) for key in sorted(keys)}
    built = Trie.build(state.keys(), state.values(), version)
    assert built.root == one_by_one(state, version).root
    some = {key: state.get(key) for key in [*chance.sample(sorted(state), 50), *beginnings, b"absent"]}
    assert verify_storage_proof(built.root, prove(built, some), some, version)


@FEW
@given(st.integers(0, (1 << 536) - 1) | st.integers(0, 1 << 33))
def test_compact_integers_round_trip(number: int) -> None:
    data = encode_compact(number)
    assert decode_compact(b"\xff" + data + b"\x00", 1, "it") == (number, 1 + len(data))
    for end in range(len(data)):
        with pytest.raises(ProofError):
            decode_compact(data[:end], 0, "it")


CHAINS = st.none() | st.integers(0, (1 << 32) - 1)
WIDE = st.integers(0, (1 << 256) - 1)
BALANCES = st.integers(0, (1 << 128) - 1)
ENDPOINTS = st.integers(0, (1 << 64) - 1)
ERRORS = st.sampled_from(
    [DispatchError("Other"), DispatchError("Token", "Frozen"), DispatchError("Module", b"\x07\x00\x01\x02\x03")]
)
PAYLOADS = (
    st.builds(ChannelOpen, st.integers(0, (1 << 32) - 1))
    | st.just(ChannelClose())
    | st.builds(ProtocolResponse, st.none() | ERRORS)
    | st.builds(EndpointResponse, st.binary(max_size=80) | ERRORS)
    | st.builds(
        EndpointRequest, ENDPOINTS, ENDPOINTS, st.binary(max_size=80), st.builds(CollectedFee, BALANCES, BALANCES)
    )
)


@FEW
@given(st.builds(ChainId, CHAINS), st.builds(ChainId, CHAINS), WIDE, WIDE, PAYLOADS, st.none() | WIDE, st.data())
def test_messages_round_trip_and_have_one_form(
    source: ChainId,
    destination: ChainId,
    channel: int,
    nonce: int,
    payload: ChannelOpen,
    last: int | None,
    data: st.DataObject,
) -> None:
    message = Message(source, destination, channel, nonce, payload, last)
    encoding = message.encode()
    assert Message.decode(encoding) == message
    changed = bytearray(encoding)
    bit = data.draw(st.integers(0, 8 * len(encoding) - 1))
    changed[bit // 8] ^= 1 << bit % 8
    try:
        other = Message.decode(bytes(changed))
    except ProofError:
        return
    assert other != message and other.encode() == changed


@FEW
@given(st.lists(st.tuples(st.integers(0, (1 << 32) - 1), st.binary(max_size=70)), min_size=1, max_size=6), st.data())
def test_every_change_of_a_message_queue_is_detected(sent: list[tuple[int, bytes]], data: st.DataObject) -> None:
    messages = [QueuedMessage(*item) for item in sent]
    head = chain_heads(messages)[-1]
    assert len(verify_message_queue_chain(bytes(32), messages, head)) == len(messages)
    place = data.draw(st.integers(0, len(messages) - 1))
    one = messages[place]
    for changed in ([QueuedMessage(one.sent_at ^ 1, one.data)], [QueuedMessage(one.sent_at, one.data + b"\x00")], []):
        with pytest.raises(ProofError):
            verify_message_queue_chain(bytes(32), [*messages[:place], *changed, *messages[place + 1 :]], head)
