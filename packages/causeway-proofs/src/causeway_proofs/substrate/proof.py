"""Read storage proofs: trie nodes on the paths of keys, under a trusted root.

A proof is a set of encoded nodes. Nodes below 32 bytes are inlined in their parents; a value that layout V1 stores by
hash is a node of its own. The reader walks from the root with the given nodes only. Each key is present with a value,
absent, or undecided because a node is missing.

Deployed verifiers put the nodes into a set, so a duplicated node changes nothing. The functions accept duplicates;
``strict`` rejects them, as XDM reference 2.4 does.

Reference:
    XDM reference 2.4, ICMP reference 2.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from causeway_proofs.errors import MalformedProof, NotProven, OverLimit
from causeway_proofs.hashing import DIGEST_BYTES
from causeway_proofs.limits import MAX_PROOF_BYTES, MAX_PROOF_NODES
from causeway_proofs.steps import Step
from causeway_proofs.substrate.errors import InvalidProof, MissingValue, UnusedNodesInTheProof
from causeway_proofs.substrate.node import (
    EMPTY_NODE,
    EMPTY_ROOT,
    HASHED_VALUE_BYTES,
    MAX_KEY_BYTES,
    StateVersion,
    TrieNode,
    decode_node,
    to_nibbles,
)
from causeway_proofs.substrate.storage_keys import blake2_256


class ReadStatus(Enum):
    """Result of reading a key from a proof."""

    VALUE = "value"
    ABSENT = "absent"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True)
class KeyRead:
    """One key, read from a proof.

    Attributes:
        key: the key.
        status: present, absent, or undecided because a node is missing.
        value: the value, or None.
        steps: the visited nodes, lowest first, root last.
    """

    key: bytes
    status: ReadStatus
    value: bytes | None
    steps: tuple[Step, ...]


class ProofReader:
    """Reads keys under one root from the nodes of a proof, and tracks the nodes used.

    ``version`` V0 rejects values stored by hash. By default each node states how its value is stored, as in a state
    written under both layouts. ``strict`` rejects duplicated nodes.

    Raises:
        MalformedProof: the root is not 32 bytes long.
        OverLimit: more than 8 MiB, or 131,072 nodes.
        UnusedNodesInTheProof: a node is duplicated and ``strict`` is set.
    """

    def __init__(
        self, root: bytes, nodes: Sequence[bytes], version: StateVersion | None = None, *, strict: bool = False
    ) -> None:
        if len(root) != DIGEST_BYTES:
            raise MalformedProof(f"a trie root has {DIGEST_BYTES} bytes, not {len(root)}")
        if len(nodes) > MAX_PROOF_NODES:
            raise OverLimit(f"a storage proof has {len(nodes)} nodes, at most {MAX_PROOF_NODES} are read")
        size = sum(map(len, nodes))
        if size > MAX_PROOF_BYTES:
            raise OverLimit(f"a storage proof has {size} bytes, at most {MAX_PROOF_BYTES} are read")
        self._root = root
        self._version = version
        if strict and (repetition := describe_repetition(nodes)) is not None:
            raise UnusedNodesInTheProof(repetition)
        self._nodes = {blake2_256(node): node for node in nodes}
        self._decoded: dict[bytes, TrieNode | None] = {}
        self._unused = set(self._nodes)

    def read(self, key: bytes) -> KeyRead:
        """Read ``key``.

        Raises:
            InvalidProof: a node on the path is malformed.
            OverLimit: the key exceeds 32,767 bytes.
        """
        if len(key) > MAX_KEY_BYTES:
            raise OverLimit(f"a storage key has {len(key)} bytes, at most {MAX_KEY_BYTES} are read")
        nibbles, done = to_nibbles(key), 0
        steps: list[Step] = []
        reference = self._root
        while True:
            if not self._known(reference):
                return self._result(key, ReadStatus.INCOMPLETE, None, steps)
            node = self._node(reference)
            if node is None:
                steps.append(Step("empty", "the trie has no entries", reference))
                return self._result(key, ReadStatus.ABSENT, None, steps)
            steps.append(_step(node, nibbles, done, reference))
            if nibbles[done : done + len(node.partial)] != node.partial:
                return self._result(key, ReadStatus.ABSENT, None, steps)
            done += len(node.partial)
            if done == len(nibbles):
                return self._value(key, node, steps)
            child = None if node.is_leaf else node.children[nibbles[done]]
            if child is None:
                return self._result(key, ReadStatus.ABSENT, None, steps)
            reference = child
            done += 1

    def require_all_used(self) -> None:
        """Reject the proof if no read has visited one of its nodes.

        Raises:
            UnusedNodesInTheProof: a node is unused.
        """
        if self._unused:
            raise UnusedNodesInTheProof(
                f"{len(self._unused)} of the {len(self._nodes)} nodes of the proof are not visited, "
                f"one of them hashes to {min(self._unused).hex()}"
            )

    def _known(self, reference: bytes) -> bool:
        return len(reference) < DIGEST_BYTES or reference in self._nodes or reference == EMPTY_ROOT

    def _node(self, reference: bytes) -> TrieNode | None:
        if reference in self._decoded:
            return self._decoded[reference]
        self._unused.discard(reference)
        inline = len(reference) < DIGEST_BYTES
        encoding = reference if inline else self._nodes.get(reference, EMPTY_NODE)
        node = decode_node(encoding)
        if node is None and reference != self._root:
            raise InvalidProof("the empty node hangs below another node")
        if not inline and len(encoding) < DIGEST_BYTES and reference != self._root:
            raise InvalidProof(f"a node of {len(encoding)} bytes hangs below another one by its hash, not inside it")
        if node is not None and node.value_digest is not None and self._version == StateVersion.V0:
            raise InvalidProof("a node stores its value by its hash, which layout V0 does not")
        self._decoded[reference] = node
        return node

    def _value(self, key: bytes, node: TrieNode, steps: list[Step]) -> KeyRead:
        digest = node.value_digest
        if digest is None:
            return self._result(key, ReadStatus.ABSENT if node.value is None else ReadStatus.VALUE, node.value, steps)
        value = self._nodes.get(digest)
        if value is None:
            return self._result(key, ReadStatus.INCOMPLETE, None, steps)
        if len(value) < HASHED_VALUE_BYTES:
            raise InvalidProof(f"a value of {len(value)} bytes is stored by its hash, those below 33 bytes never are")
        self._unused.discard(digest)
        steps.append(Step("value", f"{len(value)} bytes, stored by their hash", digest))
        return self._result(key, ReadStatus.VALUE, value, steps)

    @staticmethod
    def _result(key: bytes, status: ReadStatus, value: bytes | None, steps: list[Step]) -> KeyRead:
        return KeyRead(key, status, value, tuple(reversed(steps)))


def describe_repetition(nodes: Sequence[bytes]) -> str | None:
    """Describe the duplicated nodes of a storage proof.

    Args:
        nodes: the nodes.

    Returns:
        One line, or None if all nodes are distinct.
    """
    repeated = len(nodes) - len(set(nodes))
    return f"{repeated} of the {len(nodes)} nodes of the proof repeat another one" if repeated else None


def read_storage_proof(
    root: bytes,
    nodes: Sequence[bytes],
    keys: Iterable[bytes],
    version: StateVersion | None = None,
    *,
    strict: bool = False,
) -> list[KeyRead]:
    """Read keys from a proof; nodes unused by any key are allowed.

    Args:
        root: the state root, 32 bytes.
        nodes: the encoded nodes, in any order.
        keys: the keys to read.
        version: ``StateVersion.V0`` rejects values stored by hash; None accepts both layouts.
        strict: reject duplicated nodes.

    Returns:
        One result a key.

    Raises:
        ProofError: as for ``ProofReader`` and ``ProofReader.read``.
    """
    reader = ProofReader(root, nodes, version, strict=strict)
    return [reader.read(key) for key in keys]


def verify_storage_proof(
    root: bytes,
    nodes: Sequence[bytes],
    entries: Mapping[bytes, bytes | None],
    version: StateVersion | None = None,
    *,
    strict: bool = False,
) -> tuple[Step, ...]:
    """Verify that a proof shows exactly ``entries`` under ``root``.

    Args:
        root: the trusted state root, 32 bytes.
        nodes: the encoded nodes, in any order.
        entries: the claimed value of each key, None for an absent key.
        version: ``StateVersion.V0`` rejects values stored by hash; None accepts both layouts.
        strict: reject duplicated nodes.

    Returns:
        The path of the proof.

    Raises:
        InvalidProof: a node is missing or malformed.
        MissingValue: a key with a claimed value is absent.
        NotProven: another value is stored, or one under a key claimed to be absent.
        UnusedNodesInTheProof: a node is unused, or duplicated with ``strict``.
        OverLimit: the proof or a key is too long.
    """
    reader = ProofReader(root, nodes, version, strict=strict)
    steps: list[Step] = []
    for key, expected in entries.items():
        steps.extend(require_entry(reader, key, expected))
    reader.require_all_used()
    return tuple(steps)


def read_value(
    root: bytes, nodes: Sequence[bytes], key: bytes, version: StateVersion | None = None, *, strict: bool = False
) -> tuple[bytes, tuple[Step, ...]]:
    """Return the value under ``key`` and the path to it, from a proof of this key alone.

    Args:
        root: the trusted state root, 32 bytes.
        nodes: the encoded nodes, in any order.
        key: the storage key.
        version: ``StateVersion.V0`` rejects values stored by hash; None accepts both layouts.
        strict: reject duplicated nodes.

    Returns:
        The value and the path.

    Raises:
        InvalidProof: a node is missing or malformed.
        MissingValue: the key is absent.
        UnusedNodesInTheProof: a node is unused, or duplicated with ``strict``.
        OverLimit: the proof or the key is too long.
    """
    reader = ProofReader(root, nodes, version, strict=strict)
    value, steps = require_value(reader, key)
    reader.require_all_used()
    return value, steps


def read_entry(root: bytes, nodes: Sequence[bytes], key: bytes, *, strict: bool = False) -> bytes | None:
    """Return the value under ``key``, or None if absent, from a proof of this key alone.

    Raises:
        InvalidProof: a node is missing or malformed.
        UnusedNodesInTheProof: a node is unused, or duplicated with ``strict``.
        OverLimit: the proof or the key is too long.
    """
    reader = ProofReader(root, nodes, strict=strict)
    value = _decided(reader, key).value
    reader.require_all_used()
    return value


def require_entry(reader: ProofReader, key: bytes, expected: bytes | None) -> tuple[Step, ...]:
    """Return the path to a key with the ``expected`` value, or to its absence.

    Raises:
        InvalidProof, MissingValue, NotProven, OverLimit: as for ``verify_storage_proof``.
    """
    read = _decided(reader, key)
    if expected is not None and read.value is None:
        raise MissingValue(f"no value is stored under the key {key.hex()}, which should have a value")
    if read.value is not None and read.value != expected:
        expectation = "nothing should be" if expected is None else "another one should be"
        raise NotProven(f"under the key {key.hex()} a value of {len(read.value)} bytes is stored, {expectation}")
    return read.steps


def require_value(reader: ProofReader, key: bytes) -> tuple[bytes, tuple[Step, ...]]:
    """Return the value under ``key`` and the path to it.

    Raises:
        InvalidProof, MissingValue, OverLimit: as for ``read_value``.
    """
    read = _decided(reader, key)
    if read.value is None:
        raise MissingValue(f"no value is stored under the key {key.hex()}")
    return read.value, read.steps


def _decided(reader: ProofReader, key: bytes) -> KeyRead:
    read = reader.read(key)
    if read.status is ReadStatus.INCOMPLETE:
        raise InvalidProof(f"the proof has not enough nodes to read the key {key.hex()}")
    return read


def _step(node: TrieNode, nibbles: bytes, done: int, reference: bytes) -> Step:
    operation = "leaf" if node.is_leaf else "branch"
    matched = nibbles[done : done + len(node.partial)] == node.partial
    detail = f"nibbles {done} to {done + len(node.partial)} of the key {'match' if matched else 'differ'}"
    if not node.is_leaf and matched and done + len(node.partial) < len(nibbles):
        detail += f", child {nibbles[done + len(node.partial)]:x}"
    return Step(operation, detail, reference)
