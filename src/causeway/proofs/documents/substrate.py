"""Documents of Substrate chains: storage proofs, and the queues whose roots and heads a chain keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from causeway.model.errors import InvalidInput
from causeway.proofs.documents.answers import notes_on
from causeway.proofs.documents.document import ProofDocument, Track, hexed, one_claim_a_key, root_in, stored
from causeway.proofs.documents.trust import IcmpHead, RootTrust, Trust
from causeway.proofs.documents.validation import EITHER, PARTS, PLAIN
from causeway.proofs.documents.values import Bytes, Digest, Listed, Number, Section, Text
from causeway.proofs.errors import ProofError
from causeway.proofs.limits import MAX_PROOF_BYTES
from causeway.proofs.steps import Step
from causeway.proofs.substrate.egress import egress_root, verify_queue
from causeway.proofs.substrate.errors import UnusedNodesInTheProof
from causeway.proofs.substrate.known_items import known_item
from causeway.proofs.substrate.message_queue_chain import (
    FIRST_HEAD,
    QueuedMessage,
    heads,
    verify_message_queue_chain,
)
from causeway.proofs.substrate.node import StateVersion
from causeway.proofs.substrate.proof import (
    ProofReader,
    describe_repetition,
    read_storage_proof,
    verify_storage_proof,
)
from causeway.proofs.substrate.scale import ScaleTypes
from causeway.proofs.substrate.storage_keys import HASHERS, storage_key

U32_MAX = 2**32 - 1

CLAIMS_SHOWN = 4

NODES = ScaleTypes({})
"""Knows lists of byte strings: the form in which a chain's programs write a proof."""

HasherName = Literal["Identity", "Blake2_128", "Blake2_128Concat", "Blake2_256", "Twox64Concat", "Twox128", "Twox256"]


def _no_truth(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be 0 or 1")
    return value


Layout = Annotated[Literal[0, 1], BeforeValidator(_no_truth)]
"""A version of the state's layout; true is not 1."""

Nodes = Annotated[Annotated[Bytes, PLAIN] | Annotated[Listed[Bytes], PARTS], EITHER]
"""The nodes of a storage proof: a list of them, or in SCALE."""


class MapKey(Section):
    """A key of a storage map: the SCALE encoding of it, and the map's hasher by its name in the metadata."""

    hasher: HasherName
    key: Bytes


class StorageItem(Section):
    """An item of a runtime's storage by its names; of a map, with a key for each of its hashers."""

    pallet: Text
    item: Text
    keys: Listed[MapKey] = Field(default_factory=list)

    @property
    def key(self) -> bytes:
        """Return the storage key."""
        return storage_key(self.pallet, self.item, *[(HASHERS[part.hasher], part.key) for part in self.keys])


class StorageEntry(Section):
    """What is stored under a key, or under a named item; ``value`` null says that nothing is."""

    key: Bytes | None = None
    storage: StorageItem | None = None
    value: Bytes | None

    @property
    def text(self) -> str:
        """Return what is claimed, in one line."""
        item = self.storage
        known = known_item(self.key or b"" if item is None else item.key)
        if known is not None:
            where = f"{known[0]}.{known[1]}({', '.join(map(str, known[2]))})"
        elif item is None:
            return stored(self.key or b"", self.value)
        else:
            keys = ", ".join(hexed(part.key) for part in item.keys)
            where = f"{item.pallet}.{item.item}" + (f"({keys})" if keys else "")
        return f"nothing is stored in {where}" if self.value is None else f"{hexed(self.value)} is stored in {where}"


class SubstrateStorage(ProofDocument):
    """Storage under a state root: ``proof`` is a list of trie nodes, as ``state_getReadProof`` answers with.

    In a binary file, ``proof`` is the SCALE encoding of that list. ``state_version`` 0 refuses values stored by their
    hash; without it, a node says itself how its value is stored.
    """

    kind: Literal["substrate_storage"]
    entries: Annotated[Listed[StorageEntry], Field(min_length=1)]
    state_version: Layout | None = None
    proof: Nodes
    accepts: ClassVar[tuple[type[Trust], ...]] = (RootTrust, IcmpHead)
    too_odd: ClassVar[type[ProofError]] = UnusedNodesInTheProof

    def claim(self) -> str:
        """Return what is claimed, in one line."""
        if len(self.entries) <= CLAIMS_SHOWN:
            return "; ".join(entry.text for entry in self.entries)
        there = sum(entry.value is not None for entry in self.entries)
        return f"{there} values are stored, {len(self.entries) - there} keys are absent"

    def lines(self) -> Sequence[str]:
        """Return the entries, a line each, where one line does not say them all."""
        return [entry.text for entry in self.entries] if len(self.entries) > CLAIMS_SHOWN else ()

    def notes(self, trust: Trust) -> Sequence[str]:
        """Return what true entries do not say (``answers``)."""
        items = {entry.storage.key: entry.storage for entry in self.entries if entry.storage is not None}
        names = {key: f"{item.pallet}.{item.item}" for key, item in items.items()}
        return notes_on(self._claimed(), names, trust.number if isinstance(trust, IcmpHead) else None)

    def remarks(self, trust: Trust) -> Sequence[str]:
        """Return that nodes are repeated, where they are."""
        return repetitions_in(self.proof)

    def verify(self, trust: Trust) -> tuple[Track, ...]:
        """Return the way of every key to the root; errors as of ``verify_storage_proof``."""
        root, nodes, claimed = root_in(trust), nodes_in(self.proof), self._claimed()
        verify_storage_proof(root, nodes, claimed, self._version())
        reads = read_storage_proof(root, nodes, claimed, self._version())
        return tuple(Track(text, read.steps) for text, read in zip(self._texts(), reads, strict=True))

    def sketch(self, trust: Trust) -> tuple[Track, ...]:
        """Return the nodes that the way down from the root meets, as far as the proof has them."""
        reader = ProofReader(root_in(trust), nodes_in(self.proof), self._version())
        reads = [reader.read(key) for key in self._claimed()]
        return tuple(
            Track(f"{text} (in the proof: {read.status.value})", read.steps)
            for text, read in zip(self._texts(), reads, strict=True)
        )

    def _version(self) -> StateVersion | None:
        return None if self.state_version is None else StateVersion(self.state_version)

    def _texts(self) -> list[str]:
        return list(dict(zip(self._keys(), (entry.text for entry in self.entries), strict=True)).values())

    def _claimed(self) -> dict[bytes, bytes | None]:
        return one_claim_a_key(zip(self._keys(), (entry.value for entry in self.entries), strict=True), "entries")

    def _keys(self) -> list[bytes]:
        keys = []
        for position, entry in enumerate(self.entries):
            if (entry.key is None) == (entry.storage is None):
                raise InvalidInput(f"entries[{position}]: give either key or storage")
            keys.append(entry.storage.key if entry.storage is not None else entry.key or b"")
        return keys


def nodes_in(proof: bytes | list[bytes]) -> list[bytes]:
    """Return the nodes of a storage proof, however it is written.

    Raises:
        FailedToDecode: it is no list of byte strings in SCALE.
    """
    if isinstance(proof, list):
        return proof
    nodes: list[bytes] = NODES.decode("Vec<Vec<u8>>", proof, "a storage proof", MAX_PROOF_BYTES)
    return nodes


def repetitions_in(*proofs: bytes | list[bytes]) -> Sequence[str]:
    """Return a line for each storage proof that repeats a node.

    Raises:
        FailedToDecode: one of them is no list of byte strings in SCALE.
    """
    found = [describe_repetition(nodes_in(proof)) for proof in proofs]
    return [line for line in found if line is not None]


class SubstrateOrderedRoot(ProofDocument):
    """A whole list under its root (R of the ICMP reference): extrinsics of a block, messages of an egress queue."""

    kind: Literal["substrate_ordered_root"]
    values: Listed[Bytes]
    state_version: Layout = 0
    accepts: ClassVar[tuple[type[Trust], ...]] = (RootTrust,)

    def claim(self) -> str:
        """Return what is claimed, in one line."""
        return f"the list has exactly these {len(self.values)} values, in this order"

    def verify(self, trust: Trust) -> tuple[Track, ...]:
        """Return the step from the list to its root; errors as of ``verify_queue``."""
        steps = verify_queue(root_in(trust), self.values, StateVersion(self.state_version))
        return (Track(self.claim(), steps),)

    def sketch(self, trust: Trust) -> tuple[Track, ...]:
        """Return the root of the list."""
        root = egress_root(self.values, StateVersion(self.state_version))
        return (Track(self.claim(), (Step("root", f"{len(self.values)} values in order", root),)),)


class HrmpMessage(Section):
    """A message of a channel: the number of the relay block in which it was sent, and its bytes."""

    sent_at: Number
    data: Bytes


class HrmpQueue(ProofDocument):
    """Messages of a channel, all since the head ``previous``: they lead to the trusted head (a trust of kind root).

    Without ``previous`` they are all that were ever sent. The downward queue of a parachain is such a channel, too.
    """

    kind: Literal["hrmp_queue"]
    previous: Digest = FIRST_HEAD
    messages: Listed[HrmpMessage]
    accepts: ClassVar[tuple[type[Trust], ...]] = (RootTrust,)

    def claim(self) -> str:
        """Return what is claimed, in one line."""
        since = "ever" if self.previous == FIRST_HEAD else f"since the head {hexed(self.previous)}"
        return f"exactly these {len(self.messages)} messages were sent {since}"

    def verify(self, trust: Trust) -> tuple[Track, ...]:
        """Return the links to the trusted head; errors as of ``verify_message_queue_chain``."""
        links = verify_message_queue_chain(self.previous, self._queue(), root_in(trust))
        return (Track(self.claim(), links),)

    def sketch(self, trust: Trust) -> tuple[Track, ...]:
        """Return the links to wherever they lead."""
        queue = self._queue()
        found = zip(queue, heads(queue, self.previous), strict=True)
        links = [Step("link", f"sent at block {message.sent_at}", head) for message, head in found]
        return (Track(self.claim(), tuple(links)),)

    def _queue(self) -> list[QueuedMessage]:
        for position, message in enumerate(self.messages):
            if message.sent_at > U32_MAX:
                raise InvalidInput(f"messages[{position}]: sent_at: {message.sent_at}: must be at most {U32_MAX}")
        return [QueuedMessage(message.sent_at, message.data) for message in self.messages]
