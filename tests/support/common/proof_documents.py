"""One true document of each kind, small, with what is trusted in it: made by the builders of each family."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from causeway_proofs.ic.bls import SecretKey
from causeway_proofs.ic.certificate import certification_message, encode_certificate
from causeway_proofs.ic.certification import SubnetRecord, certify, delegate, state_tree
from causeway_proofs.ic.lookup import prune
from causeway_proofs.ic.messages import StreamRequest, encode_stream_message
from causeway_proofs.ic.slice import Certification, encode_certified_stream_slice
from causeway_proofs.ic.slice_payload import payload_tree
from causeway_proofs.ic.stream_header import StreamHeader, encode_stream_header
from causeway_proofs.ics23.entries import Entries
from causeway_proofs.ics23.simple_store import SimpleStore
from causeway_proofs.mmr.mountain_range import leaf_hash
from causeway_proofs.substrate.node import StateVersion
from causeway_proofs.substrate.ordered_lists import ordered_key, ordered_root
from causeway_proofs.substrate.parachains import (
    QueuedMessage,
    chain_heads,
    encode_queues,
    encode_watermark,
    unrouted_key,
    watermark_key,
)
from causeway_proofs.substrate.storage_keys import blake2_128_concat, storage_key
from causeway_proofs.substrate.trie import Trie, prove
from causeway_proofs.tendermint.building import create_validators, make_header, sign_header
from causeway_proofs.tendermint.header import SECOND
from causeway_proofs.tendermint.light_client import encode_consensus_state
from causeway_proofs.tendermint.trust import HeaderUpdate, TrustedHeader
from causeway_proofs.tendermint.validators import SigningKey
from causeway_proofs.xdm.envelope import (
    INBOX_RESPONSES,
    OUTBOX,
    ConsensusChainMmrProof,
    CrossDomainMessage,
    EnvelopeProof,
    ExecutionReceipt,
    MmrLeaf,
    message_storage_key,
    receipt_storage_key,
)
from causeway_proofs.xdm.messages import (
    CONSENSUS,
    ChainId,
    CollectedFee,
    EndpointRequest,
    EndpointResponse,
    Message,
    WeightTag,
)

from tests.oracles.ic.slices import build_certified_stream_slice
from tests.oracles.ic.witness_builder import build_witness, digest_tree
from tests.oracles.ics23.batches import batch_proof, compress
from tests.oracles.ics23.iavl_store import IavlStore
from tests.oracles.ics23.multi_store import MultiStore
from tests.oracles.ics23.smt import SmtStore
from tests.oracles.mmr import MountainRange, prove_ancestry, prove_leaves

Document = dict[str, Any]

ROOT_KEY, SUBNET_KEY = SecretKey.derive(b"root"), SecretKey.derive(b"subnet")
SUBNET, OTHER = bytes(8) + b"\xfc\x01", b"\x01" + bytes(7) + b"\xfc\x01"
TIME = 1_700_000_000 * SECOND


def canister(number: int) -> bytes:
    return number.to_bytes(8, "big") + b"\x01\x01"


RANGES = ((canister(100), canister(199)),)


def ic_key(key: SecretKey, **fields: str) -> Document:
    return {"kind": "ic_public_key", "key": key.public_key().hex(), **fields}


def root(digest: bytes, **fields: int) -> Document:
    return {"kind": "root", "root": digest.hex(), **fields}


def ic_certificate(delegated: bool = False) -> Document:
    contents = {b"canister": {canister(number): {b"certified_data": b"ready"} for number in (101, 103, 500)}}
    paths = [(b"time",), (b"canister", canister(101), b"certified_data"), (b"canister", canister(102))]
    tree = prune(state_tree(contents, TIME), [*paths, (b"canister", canister(500), b"certified_data")])
    if delegated:
        subnets = {SUBNET: SubnetRecord(SUBNET_KEY.public_key(), RANGES)}
        certificate = certify(tree, SUBNET_KEY.sign, delegate(subnets, SUBNET, TIME, ROOT_KEY.sign))
    else:
        certificate = certify(tree, ROOT_KEY.sign)
    return {
        "kind": "ic_certificate",
        "trust": ic_key(ROOT_KEY),
        "paths": [
            {"path": ["canister", "0x" + canister(101).hex(), "certified_data"], "value": "text:ready"},
            {"path": ["canister", "0x" + canister(102).hex()], "absent": True},
        ],
        "freshness": {"now": "2023-11-14T22:18:00Z", "max_age": "5m"},
        "proof": encode_certificate(certificate).hex(),
    }


def ic_stream_slice() -> Document:
    header = encode_stream_header(StreamHeader(3, 6, 9))
    request = StreamRequest(canister(7), canister(101), 1, 0, "ping", b"")
    messages = {index: encode_stream_message(request) for index in range(3, 6)}
    payload = payload_tree(OTHER, header, {4: messages[4]})
    full = digest_tree(payload_tree(OTHER, header, messages))
    signature = SUBNET_KEY.sign(certification_message(full.digest))
    certified = build_certified_stream_slice(
        payload, build_witness(full, payload), Certification(8, full.digest, signature)
    )
    return {
        "kind": "ic_stream_slice",
        "trust": ic_key(SUBNET_KEY, subnet_id=SUBNET.hex()),
        "source": SUBNET.hex(),
        "destination": OTHER.hex(),
        "header": {"begin": 3, "end": 6, "signals_end": 9},
        "messages": {"begin": 4, "end": 5},
        "proof": encode_certified_stream_slice(certified).hex(),
    }


KEYS = pa.array([b"alice", b"bob", b"carol", b"dave", b"erin"], pa.binary())
VALUES = pa.array([b"10", b"20", b"30", b"40", b"50"], pa.binary())


def ics23(spec: str = "iavl", absent: bool = False) -> Document:
    stores = {
        "iavl": lambda: IavlStore().commit(Entries.of(KEYS, VALUES), KEYS.slice(0, 0)),
        "tendermint": lambda: SimpleStore.of(KEYS, VALUES),
        "smt": lambda: SmtStore(KEYS, VALUES),
    }
    store = stores[spec]()
    return {
        "kind": "ics23",
        "trust": root(store.root),
        "spec": spec,
        "key": "text:bill" if absent else "text:bob",
        "value": None if absent else "text:20",
        "proof": store.prove(b"bill" if absent else b"bob").hex(),
    }


def ics23_batch(compressed: bool = True) -> Document:
    store = SimpleStore.of(KEYS, VALUES)
    batch = batch_proof(store, [b"bob", b"carl", b"erin"])
    return {
        "kind": "ics23_batch",
        "trust": root(store.root),
        "spec": "tendermint",
        "items": [
            {"key": "text:bob", "value": "text:20"},
            {"key": "text:carl", "value": None},
            {"key": "text:erin", "value": "text:50"},
        ],
        "proof": (compress(batch) if compressed else batch).SerializeToString().hex(),
    }


def ics23_chained(absent: bool = False) -> Document:
    bank = IavlStore().commit(Entries.of(KEYS, VALUES), KEYS.slice(0, 0))
    stores = MultiStore({"bank": bank, "ibc": SimpleStore.of(KEYS, VALUES)})
    return {
        "kind": "ics23_chained",
        "trust": root(stores.root),
        "specs": ["iavl", "tendermint"],
        "path": ["bank", "bill" if absent else "bob"],
        "value": None if absent else "text:20",
        "proof": stores.prove("bank", b"bill" if absent else b"bob").hex(),
    }


def ics23_range() -> Document:
    store = SimpleStore.of(KEYS, VALUES)
    return {
        "kind": "ics23_range",
        "trust": root(store.root),
        "entries": [{"key": "text:bob", "value": "text:20"}, {"key": "text:carol", "value": "text:30"}],
        "begins_store": False,
        "ends_store": False,
        "proof": store.range_proof(1, 2).hex(),
    }


def tendermint_update() -> Document:
    validators, keys = create_validators({SigningKey.from_name(name): 10 for name in ("ann", "ben", "cleo", "dan")})
    first = make_header("zone-1", 7, TIME, bytes([7]) * 32, validators)
    second = make_header("zone-1", 9, TIME + 12 * SECOND, bytes([9]) * 32, validators)
    voting = dict(sorted(keys.items())[:3])
    update = HeaderUpdate.on(7, validators, sign_header(second, validators, voting), validators)
    return {
        "kind": "tendermint_update",
        "trust": {
            "kind": "tendermint_trust",
            "chain_id": "zone-1",
            "height": 7,
            "consensus_state": encode_consensus_state(TrustedHeader.of(first)).hex(),
            "rule": "deployed",
            "trust_level": "1/3",
            "trusting_period": "14d",
            "max_clock_drift": "5s",
        },
        "now": "2023-11-14T22:14:00Z",
        "height": 9,
        "app_hash": second.app_hash.hex(),
        "proof": update.encode().hex(),
    }


def substrate_storage() -> Document:
    alice, bob = b"\x01" * 4, b"\x02" * 4
    trie = Trie(StateVersion.V1)
    names = [storage_key("System", "Account", (blake2_128_concat, who)) for who in (alice, bob)]
    number = storage_key("System", "Number")
    for key, value in ((names[0], b"\x0a" * 40), (number, b"\x07\0\0\0"), (b":code", b"\0asm")):
        trie.insert(key, value)
    account = {"pallet": "System", "item": "Account"}
    return {
        "kind": "substrate_storage",
        "trust": root(trie.root),
        "state_version": 1,
        "entries": [
            {
                "storage": {**account, "keys": [{"hasher": "Blake2_128Concat", "key": alice.hex()}]},
                "value": (b"\x0a" * 40).hex(),
            },
            {"storage": {**account, "keys": [{"hasher": "Blake2_128Concat", "key": bob.hex()}]}, "value": None},
            {"key": number.hex(), "value": "07000000"},
        ],
        "proof": [node.hex() for node in prove(trie, [*names, number])],
    }


def substrate_ordered_root() -> Document:
    values = [b"\x01\x02\x03", b"\x07\x08\x09"]
    return {
        "kind": "substrate_ordered_root",
        "trust": root(ordered_root(values)),
        "values": [value.hex() for value in values],
    }


def hrmp_queue() -> Document:
    messages = [QueuedMessage(3, b"\x01\x02\x03"), QueuedMessage(4, b"\x04\x05\x06")]
    return {
        "kind": "hrmp_queue",
        "trust": root(chain_heads(messages)[-1]),
        "messages": [{"sent_at": message.sent_at, "data": message.data.hex()} for message in messages],
    }


def xdm_message(response: bool = False, plain: bool = False) -> Document:
    """Return a message of domain 7 to the consensus chain, or one of the consensus chain to the domain if ``plain``."""
    domain, channel, nonce = ChainId(7), 1 << 65, 3
    source, destination = (CONSENSUS, domain) if plain else (domain, CONSENSUS)
    payload = EndpointResponse(b"paid") if response else EndpointRequest(1, 2, b"pay", CollectedFee(3, 4))
    message = Message(source, destination, channel, nonce, payload)
    key = message_storage_key(INBOX_RESPONSES if response else OUTBOX, destination, channel, nonce)
    storage = Trie.build([key], [message.encode()])
    consensus, domain_proof = storage, None
    if not plain:
        fields = dict(ExecutionReceipt.decode(bytes(256)).fields, final_state_root=storage.root)
        receipt_key = receipt_storage_key(7)
        consensus = Trie.build([receipt_key], [ExecutionReceipt(0, b"", 0, b"", b"", fields).encode()])
        domain_proof = tuple(prove(consensus, [receipt_key]))
    leaves = [MmrLeaf(block, bytes(32), consensus.root, bytes(32)).encode() for block in range(3)]
    grown = MountainRange()
    for leaf in leaves:
        grown.append(leaf_hash(leaf))
    made = prove_leaves(grown, [1])
    block = b"\xb3" * 32
    shown = ConsensusChainMmrProof(3, block, leaves[1], made.leaf_indices, made.leaf_count, made.items)
    proof = EnvelopeProof(shown, tuple(prove(storage, [key])), domain_proof)
    return {
        "kind": "xdm_message",
        "trust": root(grown.root(), leaf_count=3),
        "source": "consensus" if plain else 7,
        "destination": 7 if plain else "consensus",
        "channel_id": str(channel),
        "nonce": nonce,
        "response": response,
        "message": message.encode().hex(),
        "consensus_block": {"number": 3, "hash": block.hex()},
        "proof": CrossDomainMessage(source, destination, channel, nonce, proof, WeightTag()).encode().hex(),
    }


def icmp_message() -> Document:
    """Return the second message of three that parachain 3 has for 5, posted by relay block 7."""
    messages = [bytes([number]) * (30 + number) for number in range(3)]
    queue = Trie.build([ordered_key(number) for number in range(3)], messages, StateVersion.V0)
    posted = {1: bytes(32), 3: queue.root, 4: b"\x04" * 32}
    state = {unrouted_key(7, 5): encode_queues([*posted.items()]), unrouted_key(6, 5): encode_queues([(3, bytes(32))])}
    state |= {watermark_key(para): encode_watermark(5, bytes(32)) for para in range(1, 6)}
    relay = Trie.build([*state], [*state.values()])
    return {
        "kind": "icmp_message",
        "trust": root(relay.root),
        "source": 3,
        "destination": 5,
        "block": 7,
        "index": 1,
        "message": messages[1].hex(),
        "proof": [node.hex() for node in prove(relay, [unrouted_key(7, 5)])],
        "queue_proof": [node.hex() for node in prove(queue, [ordered_key(1)])],
    }


@cache
def mountains(count: int = 7) -> MountainRange:
    grown = MountainRange()
    rows = b"".join(leaf_hash(bytes([number])) for number in range(count))
    grown.extend(np.frombuffer(rows, dtype=np.uint8).reshape(-1, 32))
    return grown


def mmr_leaf(parts: bool = True) -> Document:
    proof = prove_leaves(mountains(), [4])
    items = [item.hex() for item in proof.items]
    return {
        "kind": "mmr_leaf",
        "trust": root(mountains().root(), leaf_count=7),
        "leaves": [{"data": "04"}],
        "proof": {"leaf_indices": [4], "leaf_count": 7, "items": items} if parts else proof.encode().hex(),
    }


def mmr_ancestry(parts: bool = True) -> Document:
    proof = prove_ancestry(mountains(), 3)
    fields = {
        "prev_peaks": [peak.hex() for peak in proof.prev_peaks],
        "prev_leaf_count": 3,
        "leaf_count": 7,
        "items": [{"position": position, "hash": digest.hex()} for position, digest in proof.items],
    }
    return {
        "kind": "mmr_ancestry",
        "trust": root(mountains().root(), leaf_count=7),
        "prev_root": mountains().root(3).hex(),
        "proof": fields if parts else proof.encode().hex(),
    }


def mmr() -> Document:
    return {
        "kind": "mmr",
        "trust": root(mountains().root(3)),
        "leaves": [{"data": "00"}, leaf_hash(b"\x01").hex(), {"data": "02"}],
    }


def documents() -> dict[str, Document]:
    """Return true documents of all kinds, some in several forms, by name."""
    found = {
        "ic_certificate": ic_certificate(),
        "ic_certificate delegated": ic_certificate(delegated=True),
        "ic_stream_slice": ic_stream_slice(),
        **{f"ics23 {spec}": ics23(spec) for spec in ("iavl", "tendermint", "smt")},
        **{f"ics23 {spec} absent": ics23(spec, absent=True) for spec in ("iavl", "tendermint", "smt")},
        "ics23_batch": ics23_batch(),
        "ics23_batch plain": ics23_batch(compressed=False),
        "ics23_chained": ics23_chained(),
        "ics23_chained absent": ics23_chained(absent=True),
        "ics23_range": ics23_range(),
        "tendermint_update": tendermint_update(),
        "substrate_storage": substrate_storage(),
        "substrate_ordered_root": substrate_ordered_root(),
        "hrmp_queue": hrmp_queue(),
        "icmp_message": icmp_message(),
        "xdm_message": xdm_message(),
        "xdm_message response": xdm_message(response=True),
        "xdm_message plain": xdm_message(plain=True),
        "mmr_leaf": mmr_leaf(),
        "mmr_leaf encoded": mmr_leaf(parts=False),
        "mmr_ancestry": mmr_ancestry(),
        "mmr_ancestry encoded": mmr_ancestry(parts=False),
        "mmr": mmr(),
    }
    return found
