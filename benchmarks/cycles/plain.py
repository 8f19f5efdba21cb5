"""The same cycles message by message, in plain Python: dictionaries, ``hashlib``, a proof and a verification for each.

Two zones, no programs, no signatures, no lake: what is left is the queues, the trees, and ICS-23 proofs.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left

from causeway_proofs.ics23.proof_specs import TENDERMINT_SPEC
from causeway_proofs.ics23.verify import verify_membership
from causeway_proofs.wire.ics23_pb2 import CommitmentProof, ExistenceProof, HashOp, InnerOp

from benchmarks.process import BenchmarkFailed
from causeway.protocols.ibc.keys import QueuePurpose, index_key
from causeway.protocols.ibc.packets import Packet, Receipt, decode_packet, decode_receipt

ZONES = ("zone-0", "zone-1")
TYPE = "call"
INNER = b"\x01"


class PlainZone:
    """A zone: its store as a dictionary, and the tree over it as it was committed last."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.entries: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []
        self._levels: list[list[bytes]] = []

    @property
    def root(self) -> bytes:
        """Return the root that was committed."""
        return self._levels[-1][0]

    def commit(self) -> None:
        """Build the tree over all entries."""
        sha256 = hashlib.sha256
        self._keys = sorted(self.entries)
        level = [
            sha256(b"\x00%c%b\x20%b" % (len(key), key, sha256(self.entries[key]).digest())).digest()
            for key in self._keys
        ]
        self._levels = [level]
        while len(level) > 1:
            pairs = len(level) // 2 * 2
            above = [sha256(INNER + level[left] + level[left + 1]).digest() for left in range(0, pairs, 2)]
            level = above + level[pairs:]
            self._levels.append(level)

    def prove(self, key: bytes) -> bytes:
        """Return the proof, encoded, that the committed store has an entry under ``key``."""
        position = bisect_left(self._keys, key)
        path = []
        for level in self._levels[:-1]:
            beside = position ^ 1
            if beside < len(level):
                if beside < position:
                    path.append(InnerOp(hash=HashOp.SHA256, prefix=INNER + level[beside]))
                else:
                    path.append(InnerOp(hash=HashOp.SHA256, prefix=INNER, suffix=level[beside]))
            position //= 2
        exist = ExistenceProof(key=key, value=self.entries[key], leaf=TENDERMINT_SPEC.leaf_spec, path=path)
        return CommitmentProof(exist=exist).SerializeToString(deterministic=True)


def plain_cycles(bodies: list[bytes]) -> int:
    """Run one cycle for each body, half of them from each of two zones; return how many came to their end.

    Raises:
        BenchmarkFailed: an answer is not what was sent.
    """
    zones = [PlainZone(name) for name in ZONES]
    sent: list[dict[int, bytes]] = [{}, {}]
    for number, body in enumerate(bodies):
        source = number % 2
        index = len(sent[source])
        sent[source][index] = body
        zones[source].entries[index_key(ZONES[1 - source], QueuePurpose.SEND, index)] = Packet(TYPE, body).encode()
    for zone in zones:
        zone.commit()
    for source, packets in enumerate(sent):
        _relay(zones[source], zones[1 - source], len(packets))
    for zone in zones:
        zone.commit()
    return sum(_answer(zones[1 - source], zones[source], packets) for source, packets in enumerate(sent))


def _relay(source: PlainZone, target: PlainZone, count: int) -> None:
    """Bring the packets of one zone to the other, which answers each with its data."""
    for index in range(count):
        key = index_key(target.name, QueuePurpose.SEND, index)
        value, proof = source.entries[key], source.prove(key)
        verify_membership(TENDERMINT_SPEC, source.root, proof, key, value)
        receipt = Receipt(0, decode_packet(value).data)
        target.entries[index_key(source.name, QueuePurpose.RECEIPT, index)] = receipt.encode()


def _answer(source: PlainZone, target: PlainZone, packets: dict[int, bytes]) -> int:
    """Bring the receipts of one zone to the other, which forgets their packets."""
    for index, body in packets.items():
        key = index_key(target.name, QueuePurpose.RECEIPT, index)
        value, proof = source.entries[key], source.prove(key)
        verify_membership(TENDERMINT_SPEC, source.root, proof, key, value)
        if decode_receipt(value).result != body:
            raise BenchmarkFailed(f"packet {index} of {target.name} has another's answer")
        del target.entries[index_key(source.name, QueuePurpose.SEND, index)]
    target.commit()
    return len(packets)
