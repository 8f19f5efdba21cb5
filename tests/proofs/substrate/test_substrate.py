"""Facts of Substrate tries and of XDM without vector files, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import IndexOverflow, InvalidInput, MalformedProof, NotProven, OverLimit, RootMismatch
from causeway_proofs.order import Groups
from causeway_proofs.substrate.byte_columns import decode_compact, encode_compact
from causeway_proofs.substrate.egress import egress_root, verify_queue
from causeway_proofs.substrate.errors import (
    FailedToDecode,
    HeadMismatch,
    InvalidProof,
    MissingValue,
    UnusedNodesInTheProof,
)
from causeway_proofs.substrate.node import EMPTY_NODE, EMPTY_ROOT, WIDTH, StateVersion, decode_node, encode_node
from causeway_proofs.substrate.ordered_lists import ordered_root, ordered_roots
from causeway_proofs.substrate.parachains import (
    FIRST_HEAD,
    QueuedMessage,
    chain_heads,
    verify_channels,
    verify_message_queue_chain,
)
from causeway_proofs.substrate.proof import ReadStatus, read_storage_proof, read_value, verify_storage_proof
from causeway_proofs.substrate.storage_keys import (
    blake2_128,
    blake2_128_concat,
    blake2_256,
    identity,
    storage_key,
    storage_key_column,
    storage_prefix,
    twox_64_concat,
    twox_128,
    twox_256,
)
from causeway_proofs.substrate.trie import Trie, prove
from causeway_proofs.substrate.tries import ascending_order
from causeway_proofs.xdm.envelope import OUTBOX, message_storage_key
from causeway_proofs.xdm.messages import CONSENSUS

from tests.oracles.ordered_trie import OrderedTrie, compact_column
from tests.oracles.topics import queue_topic

V0, V1 = StateVersion


def test_check_values_of_the_reference() -> None:
    """ICMP reference 2.3 and 2.4."""
    assert EMPTY_ROOT.hex() == "03170a2e7597b7b7e3d84c05391d139a62b157e78786d8c082f29dcf4c111314"
    two = Trie(V0)
    two.insert(bytes.fromhex("4819"), b"\xfe")
    two.insert(bytes.fromhex("1314"), b"\xff")
    assert prove(two, [b""]) == [bytes.fromhex("80 1200 14 4303 14 04ff 14 4308 19 04fe")]
    roots = {
        (b"\x01\x02\x03", b"\x07\x08\x09"): "81d071a81ce63ac147f3367a088fa8ab33e76ad259b9dce75d8914f01bd61450",
        (b"\x01\x02\x03", b"\x04\x05\x06"): "7635f6bf2095206f4b6a23ff8b2cdda8b0b09812d23c35950eecfc26c7cfbe82",
        (
            b"static",
            b"even-keeled",
            b"Future-proofed",
        ): "d847b86d0219a384d11458e829e9f4f4cce7e3cc2e6dcd0e8a6ad6f12c64a737",
    }
    for messages, root in roots.items():
        assert egress_root(messages).hex() == root
    topic = queue_topic(egress_root([b"\x01\x02\x03", b"\x07\x08\x09"]))
    assert topic.hex() == "39c7440fbc6a7a5e5e2bab6cd5fd38ef96ca61d49b8cd17e224a4664ea399d01"


def test_storage_prefixes_of_the_messenger() -> None:
    """XDM reference 2.4."""
    messenger = "19bc6099459d33e46fffbc8449a0e701"
    for item, hashed in {
        "Outbox": "2c21e4b0f37ac179db1f62b4785c1ed8",
        "InboxResponses": "b2ed8354857ed27f97e3281ace1f074a",
        "Channels": "7759ccc18de172078306ca5973251a7b",
    }.items():
        assert storage_prefix("Messenger", item).hex() == messenger + hashed
    receipt = storage_prefix("Domains", "LatestConfirmedDomainExecutionReceipt").hex()
    assert receipt == "0b41d0c7f7b4485bd7be1d66066b00ad78eb157453dd150fae6ca26d23f578bd"


def test_hashers_and_keys_of_maps() -> None:
    assert twox_128(b"System").hex() == "26aa394eea5630e07c48ae0c9558cef7"
    assert twox_128(b"Account").hex() == "b99d880ec681799c0cf30e8886371da9"
    assert twox_256(b"abc")[:16] == twox_128(b"abc")
    assert twox_64_concat(b"abc") == twox_128(b"abc")[:8] + b"abc"
    assert blake2_256(b"").hex() == "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"
    assert blake2_128_concat(b"abc") == blake2_128(b"abc") + b"abc"
    key = storage_key("System", "Account", (blake2_128_concat, b"\x01" * 32))
    assert key == twox_128(b"System") + twox_128(b"Account") + blake2_128(b"\x01" * 32) + b"\x01" * 32
    double = storage_key("A", "B", (twox_64_concat, b"x"), (identity, b"y"))
    assert double == storage_prefix("A", "B") + twox_64_concat(b"x") + b"y"
    assert storage_key_column(storage_prefix("A", "B")).to_pylist() == [storage_prefix("A", "B")]
    with pytest.raises(InvalidInput):
        message_storage_key(OUTBOX, CONSENSUS, 1 << 256, 0)


def test_compact_integers() -> None:
    """XDM reference 2.3; ICMP reference 2.3: 0 -> 00, 1 -> 04, 63 -> fc, 64 -> 0101."""
    known = {
        0: "00",
        1: "04",
        63: "fc",
        64: "0101",
        16_383: "fdff",
        16_384: "02000100",
        (1 << 30) - 1: "feffffff",
        1 << 30: "0300000040",
        (1 << 32) - 1: "03ffffffff",
        1 << 32: "070000000001",
        (1 << 64) - 1: "13ffffffffffffffff",
    }
    for number, encoding in known.items():
        assert encode_compact(number).hex() == encoding
        assert decode_compact(bytes.fromhex(encoding), 0, "it") == (number, len(encoding) // 2)
    order = ascending_order(np.zeros(20_000, np.int64), compact_column(np.arange(20_000)))
    assert order is not None
    assert order.tolist() == sorted(range(20_000), key=encode_compact)
    largest = (1 << 536) - 1
    assert decode_compact(encode_compact(largest), 0, "it")[0] == largest
    for number in (-1, largest + 1):
        with pytest.raises(InvalidInput):
            encode_compact(number)


@pytest.mark.parametrize("encoding", ["", "01", "0100", "fd00", "02000000", "0300000000", "03ffffff3f", "070000004000"])
def test_compact_integers_have_one_form(encoding: str) -> None:
    with pytest.raises(FailedToDecode):
        decode_compact(bytes.fromhex(encoding), 0, "it")


@pytest.mark.parametrize("count", [0, 1, 14, 15, 16, 30, 31, 32, 62, 63, 64, 317, 318, 319, 65_534])
@pytest.mark.parametrize("length", [0, 32, 33])
def test_headers_of_long_partial_keys(count: int, length: int) -> None:
    partial, value = bytes(index % 16 for index in range(count)), bytes(length)
    for version in StateVersion:
        for children in (None, [b"\x41\x01\x04\x01", *[None] * (WIDTH - 2), bytes(32)]):
            data = encode_node(partial, value, children, version)
            node = decode_node(data)
            assert node is not None
            assert node.partial == partial
            hashed = version == V1 and length >= 33
            assert (node.value, node.value_digest) == ((None, blake2_256(value)) if hashed else (value, None))
            assert node.is_leaf == (children is None)
            with pytest.raises(InvalidProof):
                decode_node(data + b"\x00")
            with pytest.raises(InvalidProof):
                decode_node(data[:-1])


@pytest.mark.parametrize(
    "encoding",
    [
        "",
        "01",
        "0f",
        "0000",
        "411104aa",  # padding of an odd partial key
        "4101",  # no value
        "410101",  # a length not in its shortest form
        "4101080a",  # a truncated value
        "80000000",  # no children
        "800100040a",  # one child
        "8003000004",  # a child of no bytes
        "c00000040a",  # a value, no children
        "7fff",  # a truncated count
        "7f" + "ff" * 257 + "00",  # a count above 65,535
        "2101" + "00" * 31,  # a truncated hash
        "8003000400" + "84" + "00" * 33,  # a reference of more than 32 bytes
    ],
)
def test_empty_inputs_are_no_nodes(encoding: str) -> None:
    with pytest.raises(InvalidProof):
        decode_node(bytes.fromhex(encoding))


def test_values_of_33_bytes_are_hashed_from_v1_on() -> None:
    for length, same in ((32, True), (33, False)):
        roots = {Trie.build([b"key"], [bytes(length)], version).root for version in StateVersion}
        assert (len(roots) == 1) == same


def test_tries_without_entries() -> None:
    trie = Trie()
    assert trie.root == EMPTY_ROOT == ordered_root([]) == Trie.build([], []).root
    assert prove(trie, [b"key"]) == [EMPTY_NODE]
    assert verify_storage_proof(EMPTY_ROOT, [EMPTY_NODE], {b"key": None})
    assert verify_storage_proof(EMPTY_ROOT, [], {b"": None})
    assert not trie.delete(b"key")
    assert trie.clear_prefix(b"") == 0
    trie.insert(b"", b"value of the empty key")
    assert trie.get(b"") == b"value of the empty key"
    assert verify_storage_proof(trie.root, prove(trie, [b""]), {b"": b"value of the empty key"})
    assert trie.delete(b"")
    assert trie.root == EMPTY_ROOT


def test_proof_proves_only_the_values_of_its_nodes() -> None:
    trie = Trie.build([b"aa", b"ab", b"b"], [b"1" * 40, b"2" * 40, b"3" * 40], V1)
    proof = prove(trie, [b"aa"])
    assert verify_storage_proof(trie.root, proof, {b"aa": b"1" * 40})
    with pytest.raises(NotProven, match="another one should be"):
        verify_storage_proof(trie.root, proof, {b"aa": b"1" * 41})
    with pytest.raises(NotProven, match="nothing should be"):
        verify_storage_proof(trie.root, proof, {b"aa": None})
    with pytest.raises(InvalidProof, match="not enough nodes"):
        verify_storage_proof(trie.root, proof, {b"ab": b"2" * 40})
    with pytest.raises(MissingValue):
        verify_storage_proof(trie.root, prove(trie, [b"ac"]), {b"ac": b""})
    with pytest.raises(UnusedNodesInTheProof):
        read_value(trie.root, prove(trie, [b"aa", b"b"]), b"aa")
    # Without the node of the value itself it is undecided, not absent.
    short = [part for part in proof if part != b"1" * 40]
    assert read_storage_proof(trie.root, short, [b"aa"])[0].status is ReadStatus.INCOMPLETE
    with pytest.raises(InvalidProof):
        read_value(trie.root, proof, b"aa", V0)
    with pytest.raises(InvalidProof, match="not enough nodes"):
        read_value(bytes(32), proof, b"aa")
    with pytest.raises(MalformedProof):
        read_value(b"", proof, b"aa")


def test_limits_of_proofs_and_keys() -> None:
    with pytest.raises(OverLimit):
        read_value(bytes(32), [bytes((8 << 20) + 1)], b"")
    with pytest.raises(OverLimit):
        read_value(bytes(32), [b""] * ((1 << 17) + 1), b"")
    with pytest.raises(OverLimit):
        read_value(bytes(32), [], bytes(1 << 15))
    with pytest.raises(InvalidInput):
        Trie().insert(bytes(1 << 15), b"")
    with pytest.raises(InvalidInput):
        Trie.build([bytes(1 << 15)], [b""])
    with pytest.raises(InvalidInput):
        Trie.build([b"a", b"b"], [b""])


@pytest.mark.parametrize("column", [["ab"], [b"ab", "ab"], [None], [1], [b"ab", None]])
def test_columns_hold_byte_strings_only(column: list[Any]) -> None:
    """The digits of a key as text are another key than the key."""
    with pytest.raises(InvalidInput):
        Trie.build(column, [b""] * len(column))
    with pytest.raises(InvalidInput):
        ordered_root(column)
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        with pytest.raises(InvalidInput, match="text"):
            ordered_root(pa.array(["ab"], kind))


def test_pending_changes_must_be_byte_strings() -> None:
    trie = Trie()
    trie.insert(b"a", b"1")
    for key, value in ((b"b", "text"), ("b", b"2"), (b"a", None)):
        with pytest.raises(InvalidInput, match="byte strings"):
            trie.insert(key, value)  # type: ignore[arg-type]
    assert trie.root == Trie.build([b"a"], [b"1"]).root


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(2), pa.binary_view()])
def test_columns_of_every_kind_of_byte_string(kind: pa.DataType) -> None:
    whole = pa.array([b"zz", b"ab", b"cd", b"ef", b"zz"], kind)
    expected = Trie.build([b"ab", b"cd", b"ef"], [b"ab", b"cd", b"ef"]).root
    part = whole[1:4]
    pieces = pa.chunked_array([part[:1], part[1:]])
    for column in (part, pieces):
        assert Trie.build(column, column).root == expected


def test_self_made_roots_cannot_make_invalid_nodes_readable() -> None:
    """Nodes that no trie has are refused although their hashes fit."""
    short_value = b"value"
    stored_by_hash = bytes([0x20]) + blake2_256(short_value)
    with pytest.raises(InvalidProof, match="never are"):
        read_value(blake2_256(stored_by_hash), [stored_by_hash, short_value], b"")
    above = bytes.fromhex("80 0300 04 00 0c 40 04 01")
    with pytest.raises(InvalidProof, match="empty node"):
        read_value(blake2_256(above), [above], b"\x00")
    # The same by the empty node's hash, which needs no node in the proof; and a short leaf by its hash.
    leaf = bytes.fromhex("40 04 01")
    for short, given, what in ((EMPTY_NODE, [], "empty node"), (leaf, [leaf], "by its hash, not inside it")):
        above = bytes.fromhex("80 0300 80") + blake2_256(short) + bytes.fromhex("0c 40 04 01")
        with pytest.raises(InvalidProof, match=what):
            read_storage_proof(blake2_256(above), [above, *given], [b"\x00"])


def test_values_on_branches_beside_values_that_are_hashed() -> None:
    # Forty branches of one height, of which every other one has a value.
    keys = [b"", *[bytes([index, byte]) for index in range(40) for byte in (0x01, 0x02, 0x11)]]
    keys += [bytes([index]) for index in range(0, 40, 2)]
    values = [b"long" * 20, *[bytes([number]) * (number % 50) for number in range(len(keys) - 1)]]
    for version in StateVersion:
        slow = Trie(version)
        for key, value in zip(keys, values, strict=True):
            slow.insert(key, value)
        assert Trie.build(keys, values, version).root == slow.root


def test_growing_and_trimmed_queues() -> None:
    messages = [bytes([index % 7]) * (index % 70) for index in range(200)]
    queue = OrderedTrie(V0)
    for index in range(0, 200, 50):
        queue.append(messages[index : index + 50])
        assert queue.root == ordered_root(messages[: index + 50])
    before = queue.trie.snapshot()
    queue.truncate(70)
    assert queue.root == ordered_root(messages[:70])
    queue.trim(70)
    assert (queue.root, len(queue)) == (EMPTY_ROOT, 0)
    assert before.root == ordered_root(messages)
    with pytest.raises(InvalidInput):
        queue.trim(71)
    with pytest.raises(InvalidInput):
        ordered_roots(messages, Groups(np.array([0]), np.array([199]), 199))
    last = OrderedTrie(begin=(1 << 64) - 1)
    last.append([b"x"])
    last.append([])
    with pytest.raises(IndexOverflow):
        last.append([b"y"])


def test_changed_queue_has_another_root() -> None:
    messages = [b"a", b"b", b"c"]
    root = egress_root(messages)
    assert verify_queue(root, messages)
    for changed in ([b"b", b"a", b"c"], [b"a", b"b"], [*messages, b"c"], [], [b"a", b"b", b"d"]):
        with pytest.raises(RootMismatch):
            verify_queue(root, changed)


def test_message_queue_chains() -> None:
    """ICMP reference, X-6."""
    messages = [QueuedMessage(3, b"\x01\x02\x03"), QueuedMessage(4, b"\x04\x05\x06")]
    found = chain_heads(messages)
    assert found[-1].hex() == "a964fd3b4f3d3ce92a0e25e576b87590d92bb5cb7031909c7f29050e1f04a375"
    assert verify_message_queue_chain(FIRST_HEAD, [], FIRST_HEAD) == ()
    for wrong in (messages[::-1], messages[:1], [QueuedMessage(2, messages[0].data), messages[1]]):
        with pytest.raises(HeadMismatch):
            verify_message_queue_chain(FIRST_HEAD, wrong, found[-1])
    with pytest.raises(MalformedProof):
        verify_message_queue_chain(FIRST_HEAD, [QueuedMessage(1 << 32, b"")], FIRST_HEAD)
    with pytest.raises(MalformedProof):
        verify_message_queue_chain(b"", messages, found[-1])


def test_channels_of_one_receiver() -> None:
    first, second = QueuedMessage(1, b"a"), QueuedMessage(2, b"b")
    proven = {7: chain_heads([first, second])[-1], 8: chain_heads([second])[-1], 9: FIRST_HEAD}
    received = [(7, first), (7, second), (8, second)]
    assert len(verify_channels({}, received, proven)) == 3
    assert verify_channels(proven, [], proven) == ()
    with pytest.raises(HeadMismatch):
        verify_channels({}, received[:2], proven)
    with pytest.raises(HeadMismatch):
        verify_channels({}, [*received, (10, second)], proven)
    with pytest.raises(MalformedProof):
        verify_channels({}, [received[1], received[0], received[2]], proven)
