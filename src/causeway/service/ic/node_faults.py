"""What faulty nodes serve: too late, what is old, or slices altered in every way that certification must find (IC
reference, hazard 5)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from causeway.proofs.ic.bls import SecretKey
from causeway.proofs.ic.slice import CertifiedStreamSlice
from causeway.proofs.ic.witness import Fork, Node, Pruned, Witness

SLOW_SECONDS = 7.0
"""A slow node takes so much longer: more than anybody waits."""

STALE_HEIGHTS = 5
"""A node that is behind serves what was certified so many heights ago."""

_LIAR = SecretKey.derive(b"a node that lies")


def altered_message(held: CertifiedStreamSlice) -> CertifiedStreamSlice:
    """Return the slice with another last byte of its last message; of a slice without messages, another root."""
    messages = held.payload.messages
    if not messages:
        root = held.certification.root_hash
        return replace(held, certification=replace(held.certification, root_hash=bytes([root[0] ^ 1]) + root[1:]))
    last = messages[-1][:-1] + bytes([messages[-1][-1] ^ 1])
    return replace(held, payload=replace(held.payload, messages=(*messages[:-1], last)))


def altered_sibling(held: CertifiedStreamSlice) -> CertifiedStreamSlice:
    """Return the slice with another digest of the first pruned node of its witness; of one without any, as it is."""
    return replace(held, witness=_altered(held.witness))


def _altered(witness: Witness) -> Witness:
    match witness:
        case Pruned(digest):
            return Pruned(bytes([digest[0] ^ 1]) + digest[1:])
        case Fork(left, right):
            changed = _altered(left)
            return Fork(changed, right) if changed is not left else Fork(left, _altered(right))
        case Node(label, below):
            changed = _altered(below)
            return Node(label, changed) if changed is not below else witness
        case _:
            return witness


def forged_signature(held: CertifiedStreamSlice) -> CertifiedStreamSlice:
    """Return the slice signed by somebody else."""
    certification = held.certification
    return replace(held, certification=replace(certification, signature=_LIAR.sign(certification.signed_bytes())))


def other_destination(held: CertifiedStreamSlice) -> CertifiedStreamSlice:
    """Return the slice as one of a stream to another subnet."""
    subnet = held.payload.subnet_id
    return replace(held, payload=replace(held.payload, subnet_id=bytes([subnet[0] ^ 1]) + subnet[1:]))


def other_height(held: CertifiedStreamSlice) -> CertifiedStreamSlice:
    """Return the slice as one that was certified at a later height."""
    certification = held.certification
    return replace(held, certification=replace(certification, height=certification.height + 1))


LIES: Mapping[str, Callable[[CertifiedStreamSlice], CertifiedStreamSlice]] = {
    "message": altered_message,
    "sibling": altered_sibling,
    "signature": forged_signature,
    "destination": other_destination,
    "height": other_height,
}


@dataclass
class Liar:
    """Alters every slice, each in the next of the ways in ``LIES``."""

    _turns: Iterator[str]

    @classmethod
    def made(cls) -> Liar:
        """Return one that has not lied yet."""
        return cls(itertools.cycle(LIES))

    def __call__(self, held: CertifiedStreamSlice) -> CertifiedStreamSlice:
        """Return what is served instead of a slice."""
        return LIES[next(self._turns)](held)
