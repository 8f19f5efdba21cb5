"""A small network that certifies: a root subnet, two others, and a state with a stream in it."""

from __future__ import annotations

from causeway_proofs.ic.bls import SecretKey
from causeway_proofs.ic.certificate import encode_certificate
from causeway_proofs.ic.certification import RangesForm, SubnetRecord, certify, delegate, state_tree
from causeway_proofs.ic.hash_tree import HashTree, Path
from causeway_proofs.ic.lookup import prune
from causeway_proofs.ic.stream_tree import StreamTree

from tests.oracles.ic.streams import streams_witness

ROOT = SecretKey.derive(b"root")
SUBNET = SecretKey.derive(b"subnet")
OTHER = SecretKey.derive(b"other")

SUBNET_ID = bytes(8) + b"\xfc\x01"
OTHER_ID = b"\x01" + bytes(7) + b"\xfc\x01"

NOW = 1_700_000_000_123_456_789
MESSAGES = [b"first", b"second", b"third", b"fourth", b"fifth"]
BEGIN = 254


def canister(number: int) -> bytes:
    return number.to_bytes(8, "big") + b"\x01\x01"


RANGES = tuple((canister(100 * at), canister(100 * at + 9)) for at in range(1, 8))
SUBNETS = {
    SUBNET_ID: SubnetRecord(SUBNET.public_key(), RANGES),
    OTHER_ID: SubnetRecord(OTHER.public_key(), ((canister(5000), canister(5999)),)),
}

CANISTER = canister(305)
CERTIFIED: Path = (b"canister", CANISTER, b"certified_data")


def state(time: int = NOW) -> HashTree:
    stream = StreamTree(b"header", BEGIN, MESSAGES)
    roots = {OTHER_ID: stream.root, b"\x02" + OTHER_ID[1:]: bytes(32)}
    shown = stream.witness(BEGIN + 1, BEGIN + 3, MESSAGES[1:3])
    contents = {
        b"canister": {canister(number): {b"certified_data": bytes([number % 256])} for number in range(300, 310)},
        b"streams": streams_witness(roots, OTHER_ID, shown),
        b"metadata": {b"height": b"\x07"},
    }
    return state_tree(contents, time)


PATHS: list[Path] = [(b"time",), CERTIFIED, (b"canister", canister(299)), (b"streams",)]


def certificate(form: RangesForm | None = RangesForm.PIECES, time: int = NOW) -> bytes:
    """A certificate of the subnet with the ranges in ``form``; with None, one of the root subnet."""
    pruned = prune(state(time), PATHS)
    if form is None:
        return encode_certificate(certify(pruned, ROOT.sign))
    delegation = delegate(SUBNETS, SUBNET_ID, NOW, ROOT.sign, form=form, canister_id=CANISTER, ranges_a_piece=2)
    return encode_certificate(certify(pruned, SUBNET.sign, delegation))
