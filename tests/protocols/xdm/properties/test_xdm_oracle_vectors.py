"""The oracle of cross-domain messaging against the published vectors, with its encoding and decoding."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tests.spec.xdm.channels import initiate_channel
from tests.spec.xdm.errors import DispatchError, dispatch, name_of
from tests.spec.xdm.keys import blake2b, confirmed_key, outbox_key, responses_key
from tests.spec.xdm.mmr import Mmr, keccak256, root_of, size
from tests.spec.xdm.options import Options
from tests.spec.xdm.proofs import read_message
from tests.spec.xdm.relay import validate
from tests.spec.xdm.scale import Reader, compact, vec
from tests.spec.xdm.state import ChainNode, State
from tests.spec.xdm.trie import EMPTY_ROOT, Trie, read_storage, walk
from tests.spec.xdm.values import (
    CONSENSUS,
    ChannelOpen,
    CollectedFee,
    ConsensusProof,
    EndpointCall,
    EndpointRequest,
    EndpointResponse,
    Message,
    MmrLeaf,
    ProtocolResponse,
    decode_message,
    decode_receipt,
    decode_xdm,
    encode_leaf,
    encode_message,
    encode_receipt,
    encode_xdm,
)
from tests.support.xdm.properties.xdm_errors import error_of
from tests.vectors import decode_all, load_states, load_vectors

FIXTURES = (
    "from_consensus_relay_message_channel_open",
    "from_consensus_relay_message_response",
    "from_domains_relay_message",
    "from_domains_relay_message_channel_open",
    "between_domains_relay_message",
)


@cache
def fixture(name: str) -> Any:
    """Return a test vector: its state root, envelope, all fields, and kind."""
    case = next(case for case in load_vectors("substrate_proofs")["envelopes"] if case["case"] == name)
    kind = "response" if case["item"] == "InboxResponses" else "request"
    return bytes.fromhex(case["state_root"]), bytes.fromhex(case["envelope"]), case, kind


# Vectors


@pytest.mark.parametrize("name", FIXTURES)
def test_recorded_message_yields_its_body(name: str) -> None:
    root, data, decoded, kind = fixture(name)
    x = decode_xdm(data)
    assert encode_xdm(x) == data
    assert (x.channel_id, x.nonce) == (decoded["channel"], decoded["nonce"])
    if x.proof.domain_proof is not None:
        value = read_storage(root, x.proof.domain_proof, confirmed_key(x.src))
        assert encode_receipt(decode_receipt(value)) == value
        root = decode_receipt(value).final_state_root
    assert root.hex() == decoded["message_root"]
    m = read_message(x.dst, root, x, kind, True)
    assert encode_message(m).hex() == decoded["message"]
    assert m.last_delivered == decoded["last_delivered"]
    if "open" in decoded["payload"]:
        assert m.payload == ChannelOpen(decoded["payload"]["open"])


@pytest.mark.parametrize("name", FIXTURES)
def test_recorded_message_under_an_mmr_is_valid_end_to_end(name: str) -> None:
    """The recorded state root becomes a leaf, as no such vector exists.

    The vector between domains carries no domain proof, which only the lax validator accepts.
    """
    root, data, _, kind = fixture(name)
    x = decode_xdm(data)
    leaves = [encode_leaf(MmrLeaf(n, bytes([n]) * 32, root if n == 4 else bytes(32), bytes(32))) for n in range(11)]
    mmr = Mmr()
    for leaf in leaves:
        mmr.append(keccak256(leaf))
    head = ConsensusProof(9, b"h" * 32, leaves[4], mmr.prove(4, 9))
    x = replace(x, proof=replace(x.proof, consensus=head))
    lax = name == "between_domains_relay_message"
    for strict in ("on", "off"):
        c = ChainNode(x.dst, Options(strict_envelope=strict))
        c.view.best = 12
        c.view.hashes[9], c.view.roots[9], c.view.leaves = b"h" * 32, mmr.root(9), {n: n for n in range(11)}
        if kind == "response" or x.nonce:  # the channel needed by such a message
            initiating = ChainNode(x.src, c.options, state=State(balances={c.root: 100}))
            initiate_channel(initiating, c.root, x.dst)
            ch = replace(initiating.state.channels[x.dst, 0], next_inbox_nonce=x.nonce)
            c.state.channels[x.src, 0], c.state.next_channel_id[x.src] = ch, 1
        if lax and strict == "on":
            assert error_of(validate, c, x, kind) == "BadProof"
        else:
            m = validate(c, x, kind)
            assert (m.src, m.dst, m.nonce) == (x.src, x.dst, x.nonce)
            c.view.roots[9] = bytes(32)
            assert error_of(validate, c, x, kind) == "BadProof"


@pytest.mark.parametrize("name", FIXTURES)
def test_extra_missing_or_duplicate_node_is_rejected(name: str) -> None:
    root, data, decoded, _ = fixture(name)
    nodes = decode_xdm(data).proof.message_proof
    key, root = bytes.fromhex(decoded["message_key"]), bytes.fromhex(decoded["message_root"])
    assert error_of(read_storage, root, nodes, key) is None
    assert error_of(read_storage, root, (*nodes, b"\x41\x01\x04\x07"), key) == "UnusedNodesInTheProof"
    assert error_of(read_storage, root, (*nodes, nodes[0]), key) == "UnusedNodesInTheProof"
    for i in range(len(nodes)):
        assert error_of(read_storage, root, nodes[:i] + nodes[i + 1 :], key) == "InvalidProof"


def test_mountain_range_equals_the_published_one() -> None:
    v = load_vectors("mountain_range")
    mmr = Mmr()
    for n in range(1, 8):
        parts = (n - 1).to_bytes(8, "little") + bytes([n]) * 32, n.to_bytes(8, "little") + b"\0"
        mmr.append(keccak256(b"".join(b"\1" + keccak256(part) for part in parts)))
    for count, root in v["roots"] + v["derived_roots"]:
        assert mmr.root(count).hex() == root
    assert all(size(count) == nodes for count, nodes in v["sizes"])
    for p in v["proofs"]:
        leaves = {i: mmr.levels[0][i] for i in p["indices"]}
        items = tuple(map(bytes.fromhex, p["items"]))
        assert root_of(leaves, p["leaves"], items).hex() == p["root"]
        if len(leaves) == 1:
            assert mmr.prove(p["indices"][0], p["leaves"]).items == items
        assert error_of(root_of, leaves, p["leaves"], (*items, bytes(32))) == "BadProof"
        assert error_of(root_of, leaves, p["leaves"], items[:-1]) == "BadProof"


def test_storage_proofs_and_roots_equal_the_published_ones() -> None:
    case = load_vectors("substrate_proofs")["storage"]
    root, proof = bytes.fromhex(case["root"]), decode_all(case["nodes"])
    nodes = {blake2b(node): node for node in proof}
    for check in case["reads"]:
        key = bytes.fromhex(check["key"])
        if check["status"] == "incomplete":
            assert error_of(walk, root, nodes, key) == "InvalidProof"
        else:
            value, _ = walk(root, nodes, key)
            assert value == (bytes.fromhex(check["value"]) if check["status"] == "value" else None)
    states = [state for state in load_states() if len(state.pairs) < 200]
    assert states
    for state in states:
        entries = dict(state.pairs)
        assert (Trie(entries, None).root, Trie(entries).root) == state.roots


# Encodings


def test_examples_of_the_reference() -> None:
    opening = Message(1, 0, 0, 0, ChannelOpen(25))
    text = "01 01000000 01 00000000" + "00" * 64 + "01 00 00 00 19000000 00"
    assert encode_message(opening) == bytes.fromhex(text)
    assert outbox_key(0, 0, 0)[:32].hex() == "19bc6099459d33e46fffbc8449a0e7012c21e4b0f37ac179db1f62b4785c1ed8"
    assert responses_key(0, 0, 0)[:32].hex() == "19bc6099459d33e46fffbc8449a0e701b2ed8354857ed27f97e3281ace1f074a"
    assert confirmed_key(5).hex() == "0b41d0c7f7b4485bd7be1d66066b00ad78eb157453dd150fae6ca26d23f578bd05000000"
    assert EMPTY_ROOT.hex() == "03170a2e7597b7b7e3d84c05391d139a62b157e78786d8c082f29dcf4c111314"


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    "payload",
    [
        ChannelOpen(25),
        EndpointCall(EndpointRequest(1, 2**63, b"x" * 70), CollectedFee(2**127, 3)),
        ProtocolResponse(dispatch("ChainNotAllowed")),
        EndpointResponse(b""),
        EndpointResponse(DispatchError(8, b"\1")),
    ],
)
def test_messages_of_both_versions_round_trip(payload, version: int) -> None:
    if version == 0 and isinstance(payload, ChannelOpen):
        payload = replace(payload, relay_fee=9)
    if version == 0 and isinstance(payload, EndpointCall):
        payload = replace(payload, collected_fee=None)
    m = Message(CONSENSUS, 3, 2**64 + 5, 2**255, payload, 2**200, version)
    data = encode_message(m)
    assert decode_message(data) == m
    assert error_of(decode_message, data + b"\0") == "FailedToDecode"
    assert error_of(decode_message, data[:-1]) == "FailedToDecode"


def test_only_the_shortest_compact_is_accepted() -> None:
    for value in (0, 63, 64, 2**14 - 1, 2**14, 2**30 - 1, 2**30, 2**100):
        assert Reader(compact(value)).compact() == value
    assert error_of(Reader(b"\x01\x00").compact) == "FailedToDecode"
    assert error_of(Reader(b"\x03\x01\x00\x00\x00").compact) == "FailedToDecode"
    assert Reader(vec([b"\1", b"\2"])).vec(lambda: 0) == [0, 0]


def test_every_error_is_returned_by_name() -> None:
    for name in ("InvalidChain", "FailedToNoteTransferOut", "LowBalance", "Overflow", "Exhausted", "Other"):
        assert name_of(dispatch(name)) == name
    assert dispatch("OutboxFull") == DispatchError(3, b"\x3c\x05\0\0\0")
