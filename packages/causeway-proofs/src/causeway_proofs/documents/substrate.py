"""Proof documents of Substrate chains: storage proofs and queues.

A storage proof shows only the keys that it lists. The notes of a true document name its limits: an absent key may be
misspelled, or of the wrong parachain, and lists may be incomplete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from causeway_proofs.documents.document import (
    ProofDocument,
    ProofPath,
    format_bytes,
    trusted_root,
    unique_claims,
    value_claim,
)
from causeway_proofs.documents.trust import IcmpHead, RootTrust, Trust
from causeway_proofs.documents.validation import EITHER, PARTS, PLAIN
from causeway_proofs.documents.values import Bytes, Digest, DocumentSection, Listed, Number, Text
from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.limits import MAX_PROOF_BYTES
from causeway_proofs.steps import Step
from causeway_proofs.substrate.byte_columns import decode_compact
from causeway_proofs.substrate.egress import egress_root, verify_queue
from causeway_proofs.substrate.errors import FailedToDecode, UnusedNodesInTheProof
from causeway_proofs.substrate.node import StateVersion
from causeway_proofs.substrate.parachains import (
    CHANNELS,
    CONTENTS,
    DIGESTS,
    FIRST_HEAD,
    HRMP,
    HRMP_WATERMARKS,
    INGRESS_INDEX,
    PALLET,
    PREFIX_BYTES,
    U32_BYTES,
    UNROUTED,
    WATERMARKS,
    QueuedMessage,
    chain_heads,
    describe_storage_key,
    verify_message_queue_chain,
)
from causeway_proofs.substrate.proof import ProofReader, describe_repetition, read_storage_proof, verify_storage_proof
from causeway_proofs.substrate.scale import ScaleTypes
from causeway_proofs.substrate.storage_keys import HASHERS, storage_key

MAX_LISTED = 4
"""Most names or numbers listed in a note."""

Entries = Mapping[bytes, bytes | None]
"""Claimed value of each key; None for an absent key."""

_Found = dict[tuple[str, str], dict[tuple[int, ...], bytes | None]]


def describe_entries(entries: Entries, names: Mapping[bytes, str], block: int | None) -> tuple[str, ...]:
    """Return the limits of true entries, one line each.

    Args:
        entries: claimed value of each key.
        names: display names of keys.
        block: number of the relay block after which the state is, if the trust states it.
    """
    found: _Found = {}
    for key, value in entries.items():
        known = describe_storage_key(key)
        if known is not None:
            found.setdefault(known[:2], {})[known[2]] = value
    return (*_unknown(entries, names), *_queues(found, block), *_channels(found))


def _unknown(entries: Entries, names: Mapping[bytes, str]) -> list[str]:
    """Return notes on absent keys of items not known to exist."""
    there = {key[:PREFIX_BYTES] for key, value in entries.items() if value is not None}
    absent = [key for key, value in entries.items() if value is None and key[:PREFIX_BYTES] not in there]
    items = {
        names.get(key, f"keys under 0x{key[:PREFIX_BYTES].hex()}"): None
        for key in absent
        if not describe_storage_key(key)
    }
    if not items:
        return []
    return [f"nothing here shows that there is such an item as {_listed([*items])}: of a wrong name it is true as well"]


def _queues(found: _Found, block: int | None) -> list[str]:
    """Return for each parachain with listed queues if they are all its pending queues."""
    posted = found.get((PALLET, UNROUTED), {})
    marks = found.get((PALLET, WATERMARKS), {})
    notes = []
    for para in sorted({to for _, to in posted}):
        mark = marks.get((para,))
        numbers = {number for number, to in posted if to == para}
        if mark is None or len(mark) < U32_BYTES:
            notes.append(
                f"not all that waits for parachain {para}: without its watermark nothing says where that begins"
            )
            continue
        first = int.from_bytes(mark[:U32_BYTES], "little") + 1
        last = max(numbers) if block is None else block
        missing = _gaps(numbers, first, last)
        if missing:
            notes.append(f"not all that waits for parachain {para}: nothing is said of relay block {missing}")
        elif block is None:
            notes.append(
                f"all that waits for parachain {para} up to relay block {last}: whether that is the state's own block "
                "a header (icmp_head) says, a root does not"
            )
        else:
            notes.append(f"all that waits for parachain {para} after relay block {block}, from block {first} on")
    return notes


def _channels(found: _Found) -> list[str]:
    """Return for each listed channel list of a parachain if its channels are listed, too."""
    notes = []
    for (para,), value in sorted(found.get((HRMP, INGRESS_INDEX), {}).items()):
        try:
            senders = _numbers(value)
        except FailedToDecode:
            notes.append(f"{INGRESS_INDEX}({para}) is no list of parachains")
            continue
        lacking = [
            f"{item}({', '.join(map(str, key))})"
            for item, keys in (
                (HRMP_WATERMARKS, [(para,)]),
                (DIGESTS, [(para,)]),
                (CHANNELS, [(sender, para) for sender in senders]),
                (CONTENTS, [(sender, para) for sender in senders]),
            )
            for key in keys
            if key not in found.get((HRMP, item), {})
        ]
        note = f"not all that waits for parachain {para}: nothing is said of {_listed(lacking)}"
        notes.append(note if lacking else f"all {len(senders)} channels to parachain {para}, with all that is in them")
    return notes


def _numbers(value: bytes | None) -> list[int]:
    """Return the 32-bit numbers of a SCALE list; none for None. Raises ``FailedToDecode``."""
    if value is None:
        return []
    count, start = decode_compact(value, 0, "a list of parachains")
    if len(value) - start != count * U32_BYTES:
        raise FailedToDecode("a list of parachains has another length than it says")
    return [int.from_bytes(value[at : at + U32_BYTES], "little") for at in range(start, len(value), U32_BYTES)]


def _gaps(numbers: set[int], first: int, last: int) -> str:
    """Return the numbers in ``first`` to ``last`` missing from ``numbers``, truncated."""
    there = sorted(number for number in numbers if first <= number <= last)
    gaps = []
    for number in (*there, last + 1):
        if number > first:
            gaps.append(str(first) if number == first + 1 else f"{first} to {number - 1}")
        first = number + 1
    return _listed(gaps)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more


U32_MAX = 2**32 - 1

MAX_LISTED_CLAIMS = 4

NODES = ScaleTypes({})
"""Codec of byte string lists, the programs' form of a proof."""

HasherName = Literal["Identity", "Blake2_128", "Blake2_128Concat", "Blake2_256", "Twox64Concat", "Twox128", "Twox256"]


def _no_truth(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be 0 or 1")
    return value


Layout = Annotated[Literal[0, 1], BeforeValidator(_no_truth)]
"""Version of the state's layout; JSON true is not 1."""

Nodes = Annotated[Annotated[Bytes, PLAIN] | Annotated[Listed[Bytes], PARTS], EITHER]
"""Nodes of a storage proof: a list, or its SCALE encoding."""


class MapKey(DocumentSection):
    """A key of a storage map: its SCALE encoding, and the hasher's name in the metadata."""

    hasher: HasherName
    key: Bytes


class StorageItem(DocumentSection):
    """A storage item by pallet and name; for a map, with one key a hasher."""

    pallet: Text
    item: Text
    keys: Listed[MapKey] = Field(default_factory=list)

    @property
    def key(self) -> bytes:
        """Return the storage key."""
        return storage_key(self.pallet, self.item, *[(HASHERS[part.hasher], part.key) for part in self.keys])


class StorageEntry(DocumentSection):
    """The value under a key or a named item; null for an absent key."""

    key: Bytes | None = None
    storage: StorageItem | None = None
    value: Bytes | None

    @property
    def text(self) -> str:
        """Return the claim in one line."""
        item = self.storage
        known = describe_storage_key(self.key or b"" if item is None else item.key)
        if known is not None:
            location = f"{known[0]}.{known[1]}({', '.join(map(str, known[2]))})"
        elif item is None:
            return value_claim(self.key or b"", self.value)
        else:
            keys = ", ".join(format_bytes(part.key) for part in item.keys)
            location = f"{item.pallet}.{item.item}" + (f"({keys})" if keys else "")
        return (
            f"no value is stored in {location}"
            if self.value is None
            else f"{format_bytes(self.value)} is stored in {location}"
        )


class SubstrateStorage(ProofDocument):
    """Storage entries under a state root.

    Attributes:
        entries: the claimed entries.
        state_version: 0 rejects values stored by hash; by default each node states how its value is stored.
        proof: trie nodes, as returned by ``state_getReadProof``; in a binary file, the SCALE encoding of the list.
    """

    kind: Literal["substrate_storage"]
    entries: Annotated[Listed[StorageEntry], Field(min_length=1)]
    state_version: Layout | None = None
    proof: Nodes
    accepts: ClassVar[tuple[type[Trust], ...]] = (RootTrust, IcmpHead)
    too_odd: ClassVar[type[ProofError]] = UnusedNodesInTheProof

    def claim(self) -> str:
        """Return the claims in one line."""
        if len(self.entries) <= MAX_LISTED_CLAIMS:
            return "; ".join(entry.text for entry in self.entries)
        there = sum(entry.value is not None for entry in self.entries)
        return f"{there} values are stored, {len(self.entries) - there} keys are absent"

    def lines(self) -> Sequence[str]:
        """Return one line an entry, if one line does not hold them all."""
        return [entry.text for entry in self.entries] if len(self.entries) > MAX_LISTED_CLAIMS else ()

    def notes(self, trust: Trust) -> Sequence[str]:
        """Return the limits of true entries (``describe_entries``)."""
        items = {entry.storage.key: entry.storage for entry in self.entries if entry.storage is not None}
        names = {key: f"{item.pallet}.{item.item}" for key, item in items.items()}
        return describe_entries(self._claimed(), names, trust.number if isinstance(trust, IcmpHead) else None)

    def remarks(self, trust: Trust) -> Sequence[str]:
        """Return remarks on duplicated nodes."""
        return describe_repetitions(self.proof)

    def verify(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the path of every key to the root.

        Args:
            trust: the trusted state root.

        Returns:
            One path.

        Raises:
            ProofError: as ``verify_storage_proof``.
        """
        root, nodes, claimed = trusted_root(trust), read_nodes(self.proof), self._claimed()
        verify_storage_proof(root, nodes, claimed, self._version())
        reads = read_storage_proof(root, nodes, claimed, self._version())
        return tuple(ProofPath(text, read.steps) for text, read in zip(self._texts(), reads, strict=True))

    def sketch(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the nodes on the path down from the root, as far as the proof has them."""
        reader = ProofReader(trusted_root(trust), read_nodes(self.proof), self._version())
        reads = [reader.read(key) for key in self._claimed()]
        return tuple(
            ProofPath(f"{text} (in the proof: {read.status.value})", read.steps)
            for text, read in zip(self._texts(), reads, strict=True)
        )

    def _version(self) -> StateVersion | None:
        return None if self.state_version is None else StateVersion(self.state_version)

    def _texts(self) -> list[str]:
        return list(dict(zip(self._keys(), (entry.text for entry in self.entries), strict=True)).values())

    def _claimed(self) -> dict[bytes, bytes | None]:
        return unique_claims(zip(self._keys(), (entry.value for entry in self.entries), strict=True), "entries")

    def _keys(self) -> list[bytes]:
        keys = []
        for position, entry in enumerate(self.entries):
            if (entry.key is None) == (entry.storage is None):
                raise InvalidInput(f"entries[{position}]: give either key or storage")
            keys.append(entry.storage.key if entry.storage is not None else entry.key or b"")
        return keys


def read_nodes(proof: bytes | list[bytes]) -> list[bytes]:
    """Return the nodes of a storage proof in either form.

    Raises:
        FailedToDecode: ``proof`` is not a SCALE list of byte strings.
    """
    if isinstance(proof, list):
        return proof
    nodes: list[bytes] = NODES.decode("Vec<Vec<u8>>", proof, "a storage proof", MAX_PROOF_BYTES)
    return nodes


def describe_repetitions(*proofs: bytes | list[bytes]) -> Sequence[str]:
    """Return a line for each storage proof with duplicated nodes.

    Raises:
        FailedToDecode: a proof is not a SCALE list of byte strings.
    """
    found = [describe_repetition(read_nodes(proof)) for proof in proofs]
    return [line for line in found if line is not None]


class SubstrateOrderedRoot(ProofDocument):
    """A whole list under its root, R of the ICMP reference.

    Lists are extrinsics of a block, or messages of an egress queue.

    Attributes:
        values: the list.
        state_version: layout of the trie.
    """

    kind: Literal["substrate_ordered_root"]
    values: Listed[Bytes]
    state_version: Layout = 0

    def claim(self) -> str:
        """Return the claim in one line."""
        return f"the list has exactly these {len(self.values)} values, in this order"

    def verify(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the step from the list to its root.

        Args:
            trust: the trusted root.

        Returns:
            One path.

        Raises:
            ProofError: as ``verify_queue``.
        """
        steps = verify_queue(trusted_root(trust), self.values, StateVersion(self.state_version))
        return (ProofPath(self.claim(), steps),)

    def sketch(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the root of the list."""
        root = egress_root(self.values, StateVersion(self.state_version))
        return (ProofPath(self.claim(), (Step("root", f"{len(self.values)} values in order", root),)),)


class HrmpMessage(DocumentSection):
    """A message of a channel: the number of the relay block that carried it, and its bytes."""

    sent_at: Number
    data: Bytes


class HrmpQueue(ProofDocument):
    """All messages of a channel since the head ``previous``, up to the trusted head.

    The trust is of kind root.

    Without ``previous``, all messages ever sent. A parachain's downward queue is such a channel, too.

    Attributes:
        previous: the earlier head.
        messages: the messages in order.
    """

    kind: Literal["hrmp_queue"]
    previous: Digest = FIRST_HEAD
    messages: Listed[HrmpMessage]

    def claim(self) -> str:
        """Return the claim in one line."""
        since = "ever" if self.previous == FIRST_HEAD else f"since the head {format_bytes(self.previous)}"
        return f"exactly these {len(self.messages)} messages were sent {since}"

    def verify(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the links to the trusted head.

        Args:
            trust: the trusted head.

        Returns:
            One path.

        Raises:
            ProofError: as ``verify_message_queue_chain``.
        """
        links = verify_message_queue_chain(self.previous, self._queue(), trusted_root(trust))
        return (ProofPath(self.claim(), links),)

    def sketch(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the links to the computed head."""
        queue = self._queue()
        found = zip(queue, chain_heads(queue, self.previous), strict=True)
        links = [Step("link", f"sent at block {message.sent_at}", head) for message, head in found]
        return (ProofPath(self.claim(), tuple(links)),)

    def _queue(self) -> list[QueuedMessage]:
        for position, message in enumerate(self.messages):
            if message.sent_at > U32_MAX:
                raise InvalidInput(f"messages[{position}]: sent_at: {message.sent_at}: must be at most {U32_MAX}")
        return [QueuedMessage(message.sent_at, message.data) for message in self.messages]
