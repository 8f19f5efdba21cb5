"""Documents of Substrate chains: storage proofs, and the queues whose roots and heads a chain keeps.

What a list of storage entries answers, and what it leaves open: a proof is true of the keys that it lists, and says
nothing of others.

Absence is also true of a key that nobody ever uses: of a misspelled item, or of the wrong parachain.
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

SHOWN = 4
"""Names or numbers that a note lists."""

Entries = Mapping[bytes, bytes | None]
"""What is claimed to be stored under each key; None: nothing."""

_Found = dict[tuple[str, str], dict[tuple[int, ...], bytes | None]]


def describe_entries(entries: Entries, names: Mapping[bytes, str], block: int | None) -> tuple[str, ...]:
    """Return what a reader has to know of what true entries do not say, a line each.

    ``names``: how the entries name their keys, those that have names. ``block``: the relay block after which the state
    is, where what is trusted says so.
    """
    found: _Found = {}
    for key, value in entries.items():
        known = describe_storage_key(key)
        if known is not None:
            found.setdefault(known[:2], {})[known[2]] = value
    return (*_unknown(entries, names), *_queues(found, block), *_channels(found))


def _unknown(entries: Entries, names: Mapping[bytes, str]) -> list[str]:
    """Return a note on absent keys of items of which nothing shows that there are such."""
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
    """Return for every parachain of which posted queues are listed whether they are all that wait for it."""
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
    """Return for every parachain whose list of channels is there whether all of them are, with what is in them."""
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
        what = f"not all that waits for parachain {para}: nothing is said of {_listed(lacking)}"
        notes.append(what if lacking else f"all {len(senders)} channels to parachain {para}, with all that is in them")
    return notes


def _numbers(value: bytes | None) -> list[int]:
    """Return the numbers of 32 bits that a list in SCALE has; of nothing, none. Raises ``FailedToDecode``."""
    if value is None:
        return []
    count, start = decode_compact(value, 0, "a list of parachains")
    if len(value) - start != count * U32_BYTES:
        raise FailedToDecode("a list of parachains has another length than it says")
    return [int.from_bytes(value[at : at + U32_BYTES], "little") for at in range(start, len(value), U32_BYTES)]


def _gaps(numbers: set[int], first: int, last: int) -> str:
    """Return the numbers from ``first`` to ``last`` that are not among some, the first of them; empty: none."""
    there = sorted(number for number in numbers if first <= number <= last)
    gaps = []
    for number in (*there, last + 1):
        if number > first:
            gaps.append(str(first) if number == first + 1 else f"{first} to {number - 1}")
        first = number + 1
    return _listed(gaps)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


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


class MapKey(DocumentSection):
    """A key of a storage map: the SCALE encoding of it, and the map's hasher by its name in the metadata."""

    hasher: HasherName
    key: Bytes


class StorageItem(DocumentSection):
    """An item of a runtime's storage by its names; of a map, with a key for each of its hashers."""

    pallet: Text
    item: Text
    keys: Listed[MapKey] = Field(default_factory=list)

    @property
    def key(self) -> bytes:
        """Return the storage key."""
        return storage_key(self.pallet, self.item, *[(HASHERS[part.hasher], part.key) for part in self.keys])


class StorageEntry(DocumentSection):
    """What is stored under a key, or under a named item; ``value`` null says that nothing is."""

    key: Bytes | None = None
    storage: StorageItem | None = None
    value: Bytes | None

    @property
    def text(self) -> str:
        """Return what is claimed, in one line."""
        item = self.storage
        known = describe_storage_key(self.key or b"" if item is None else item.key)
        if known is not None:
            where = f"{known[0]}.{known[1]}({', '.join(map(str, known[2]))})"
        elif item is None:
            return value_claim(self.key or b"", self.value)
        else:
            keys = ", ".join(format_bytes(part.key) for part in item.keys)
            where = f"{item.pallet}.{item.item}" + (f"({keys})" if keys else "")
        return (
            f"nothing is stored in {where}"
            if self.value is None
            else f"{format_bytes(self.value)} is stored in {where}"
        )


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
        return describe_entries(self._claimed(), names, trust.number if isinstance(trust, IcmpHead) else None)

    def remarks(self, trust: Trust) -> Sequence[str]:
        """Return that nodes are repeated, where they are."""
        return describe_repetitions(self.proof)

    def verify(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the way of every key to the root; errors as of ``verify_storage_proof``."""
        root, nodes, claimed = trusted_root(trust), read_nodes(self.proof), self._claimed()
        verify_storage_proof(root, nodes, claimed, self._version())
        reads = read_storage_proof(root, nodes, claimed, self._version())
        return tuple(ProofPath(text, read.steps) for text, read in zip(self._texts(), reads, strict=True))

    def sketch(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the nodes that the way down from the root meets, as far as the proof has them."""
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
    """Return the nodes of a storage proof, however it is written.

    Raises:
        FailedToDecode: it is no list of byte strings in SCALE.
    """
    if isinstance(proof, list):
        return proof
    nodes: list[bytes] = NODES.decode("Vec<Vec<u8>>", proof, "a storage proof", MAX_PROOF_BYTES)
    return nodes


def describe_repetitions(*proofs: bytes | list[bytes]) -> Sequence[str]:
    """Return a line for each storage proof that repeats a node.

    Raises:
        FailedToDecode: one of them is no list of byte strings in SCALE.
    """
    found = [describe_repetition(read_nodes(proof)) for proof in proofs]
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

    def verify(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the step from the list to its root; errors as of ``verify_queue``."""
        steps = verify_queue(trusted_root(trust), self.values, StateVersion(self.state_version))
        return (ProofPath(self.claim(), steps),)

    def sketch(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the root of the list."""
        root = egress_root(self.values, StateVersion(self.state_version))
        return (ProofPath(self.claim(), (Step("root", f"{len(self.values)} values in order", root),)),)


class HrmpMessage(DocumentSection):
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
        since = "ever" if self.previous == FIRST_HEAD else f"since the head {format_bytes(self.previous)}"
        return f"exactly these {len(self.messages)} messages were sent {since}"

    def verify(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the links to the trusted head; errors as of ``verify_message_queue_chain``."""
        links = verify_message_queue_chain(self.previous, self._queue(), trusted_root(trust))
        return (ProofPath(self.claim(), links),)

    def sketch(self, trust: Trust) -> tuple[ProofPath, ...]:
        """Return the links to wherever they lead."""
        queue = self._queue()
        found = zip(queue, chain_heads(queue, self.previous), strict=True)
        links = [Step("link", f"sent at block {message.sent_at}", head) for message, head in found]
        return (ProofPath(self.claim(), tuple(links)),)

    def _queue(self) -> list[QueuedMessage]:
        for position, message in enumerate(self.messages):
            if message.sent_at > U32_MAX:
                raise InvalidInput(f"messages[{position}]: sent_at: {message.sent_at}: must be at most {U32_MAX}")
        return [QueuedMessage(message.sent_at, message.data) for message in self.messages]
