"""Storage proofs read in columns and one by one: what both say, and proofs of every kind of damage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np
from causeway_proofs.errors import ProofError
from causeway_proofs.substrate.byte_columns import encode_compact
from causeway_proofs.substrate.node import StateVersion, encode_node
from causeway_proofs.substrate.proof import ProofReader, ReadStatus, require_entry, require_value
from causeway_proofs.substrate.proof_columns import (
    KeyStatus,
    StorageProofs,
    StorageVerdicts,
    read_storage_proofs,
    read_values,
    verify_storage_proofs,
)
from causeway_proofs.substrate.storage_keys import blake2_256
from causeway_proofs.substrate.trie import Trie, prove

OF_STATUS = {
    ReadStatus.VALUE: KeyStatus.VALUE,
    ReadStatus.ABSENT: KeyStatus.ABSENT,
    ReadStatus.INCOMPLETE: KeyStatus.INCOMPLETE,
}


@dataclass(frozen=True)
class Case:
    """A proof and what is asked of it."""

    root: bytes
    nodes: tuple[bytes, ...]
    claims: tuple[tuple[bytes, bytes | None], ...]
    version: StateVersion | None = None

    def reader(self, strict: bool) -> ProofReader:
        return ProofReader(self.root, self.nodes, self.version, strict=strict)


def reads_alone(case: Case, strict: bool) -> tuple[list[tuple[KeyStatus, bytes | None]], ProofReader | None]:
    """Return what becomes of each key, and the reader; None where the whole proof is refused."""
    try:
        reader = case.reader(strict)
    except ProofError:
        return [(KeyStatus.UNREAD, None)] * len(case.claims), None
    found: list[tuple[KeyStatus, bytes | None]] = []
    for key, _ in case.claims:
        try:
            read = reader.read(key)
        except ProofError as error:
            over = type(error).__name__ == "OverLimit"
            found.append((KeyStatus.OVER_LIMIT if over else KeyStatus.INVALID, None))
        else:
            found.append((OF_STATUS[read.status], read.value))
    return found, reader


def verdict_alone(case: Case, claimed: bool, strict: bool) -> tuple[type[ProofError], str] | None:
    """Return the error that a proof is refused with, None where it holds."""
    try:
        reader = case.reader(strict)
        for key, value in case.claims:
            if claimed:
                require_entry(reader, key, value)
            else:
                require_value(reader, key)
        reader.require_all_used()
    except ProofError as error:
        return type(error), str(error)
    return None


def require_same(cases: Sequence[Case]) -> None:
    """Read all cases in columns, in one call each way, and each alone; all verdicts must be the same."""
    for strict in (False, True):
        _require_same(cases, strict)


def _require_same(cases: Sequence[Case], strict: bool) -> None:
    numbers = [number for number, case in enumerate(cases) for _ in case.claims]
    # Neither in the order of the proofs, nor are a proof's keys side by side.
    order = sorted(range(len(numbers)), key=lambda row: (row % 3, row))
    back = {row: place for place, row in enumerate(order)}
    claims = [claim for case in cases for claim in case.claims]
    versions = np.array([-1 if case.version is None else case.version for case in cases], dtype=np.int8)
    proofs = StorageProofs.of([case.root for case in cases], [case.nodes for case in cases], versions)
    keys, proof_of_key = [claims[row][0] for row in order], np.array([numbers[row] for row in order], dtype=np.int64)
    reads = read_storage_proofs(proofs, keys, proof_of_key, strict=strict)
    values = reads.values().to_pylist()
    row = 0
    for number, case in enumerate(cases):
        alone, reader = reads_alone(case, strict)
        for status, value in alone:
            place = back[row]
            assert (reads.status[place], reads.value(place), values[place]) == (status, value, value), (case, row)
            row += 1
        unused = 0 if reader is None else len(reader._unused)
        assert reads.unused[number] == unused, case
        if reader is not None:
            assert reads.repeated[number] == len(case.nodes) - len(set(case.nodes)), case

    def compare(found: StorageVerdicts, claimed: bool) -> None:
        for number, case in enumerate(in_order(cases, order, numbers)):
            expected = verdict_alone(case, claimed, strict)
            error = found.error(number)
            assert (None if error is None else (type(error), str(error))) == expected, case
            assert found.codes[number] == (0 if expected is None else CODES[expected[0].__name__]), case

    values_in_order = [claims[row][1] for row in order]
    compare(verify_storage_proofs(proofs, keys, values_in_order, proof_of_key, strict=strict), True)
    compare(read_values(proofs, keys, proof_of_key, strict=strict), False)


CODES = {
    "MalformedProof": 1,
    "OverLimit": 2,
    "UnusedNodesInTheProof": 3,
    "InvalidProof": 4,
    "MissingValue": 5,
    "NotProven": 6,
}


def in_order(cases: Sequence[Case], order: Sequence[int], numbers: Sequence[int]) -> list[Case]:
    """Return the cases with the claims of each in the order in which columns have them."""
    flat = [claim for case in cases for claim in case.claims]
    mixed: list[list[tuple[bytes, bytes | None]]] = [[] for _ in cases]
    for row in order:
        mixed[numbers[row]].append(flat[row])
    return [replace(case, claims=tuple(claims)) for case, claims in zip(cases, mixed, strict=True)]


def honest(chance: Random, tries: Sequence[tuple[Trie, dict[bytes, bytes]]]) -> Case:
    """Return a proof that holds, of a few keys of one of the tries, some of them absent."""
    trie, state = chance.choice(tries)
    keys = chance.sample(sorted(state), min(len(state), chance.choice((0, 1, 1, 1, 3))))
    keys += [chance.choice([b"absent", *sorted(state)])[: chance.randrange(4)] + chance.randbytes(chance.randrange(2))]
    keys = list(dict.fromkeys(keys[: chance.choice((1, len(keys)))]))
    version = chance.choice((None, trie.version))
    return Case(trie.root, tuple(prove(trie, keys)), tuple((key, state.get(key)) for key in keys), version)


def states(chance: Random, count: int) -> list[tuple[Trie, dict[bytes, bytes]]]:
    """Return tries of all shapes: branches within branches, long and short values, both layouts, and an empty one."""
    made: list[tuple[Trie, dict[bytes, bytes]]] = [(Trie.build([], [], StateVersion.V1), {})]
    for number in range(count):
        begins = [chance.randbytes(length) for length in (0, 0, 1, 2, 33)]
        keys = {chance.choice(begins) + chance.randbytes(chance.randrange(4)) for _ in range(1 + 20 * number)}
        state = {key: chance.randbytes(chance.choice((0, 1, 5, 30, 31, 32, 33, 70, 300))) for key in sorted(keys)}
        version = StateVersion(number % 2)
        made.append((Trie.build(state.keys(), state.values(), version), state))
    return made


def changed_node(chance: Random, node: bytes) -> bytes:
    """Return a node with one thing changed."""
    data = bytearray(node)
    place = chance.randrange(len(data) + 1)
    kind = chance.randrange(7)
    if kind == 0 and place < len(data):
        data[place] ^= 1 << chance.randrange(8)
    elif kind == 1 and place < len(data):
        data[place] = chance.choice((0, 1, 2, 3, 4, 0x0F, 0x10, 0x1F, 0x20, 0x3F, 0x40, 0x7F, 0x80, 0x84, 0xC0, 0xFF))
    elif kind == 2:
        del data[place:]
    elif kind == 3:
        del data[place : place + 1]
    elif kind == 4:
        data[place:place] = chance.randbytes(chance.randrange(1, 3))
    elif kind == 5 and data:
        data[0] = chance.randrange(256)
    else:
        data += b"\x00"
    return bytes(data)


def _flip(chance: Random, case: Case, others: Sequence[Case]) -> Case:
    """One node is another one, and nothing else knows."""
    if not case.nodes:
        return case
    place = chance.randrange(len(case.nodes))
    return _with_node(case, place, changed_node(chance, case.nodes[place]))


def _follow(chance: Random, case: Case, others: Sequence[Case]) -> Case:
    """One node is another one, and the nodes above it and the root are made to fit."""
    if not case.nodes:
        return case
    place = chance.randrange(len(case.nodes))
    old, new = case.nodes[place], changed_node(chance, case.nodes[place])
    nodes, root = [*case.nodes], case.root
    while True:
        nodes[nodes.index(old)] = new
        before, after = blake2_256(old), blake2_256(new)
        above = [node for node in nodes if before in node]
        if root == before:
            root = after
        if not above:
            return replace(case, root=root, nodes=tuple(nodes))
        old, new = above[0], above[0].replace(before, after)


def _missing(chance: Random, case: Case, others: Sequence[Case]) -> Case:
    place = chance.randrange(len(case.nodes) + 1)
    return replace(case, nodes=case.nodes[:place] + case.nodes[place + 1 :])


def _doubled(chance: Random, case: Case, others: Sequence[Case]) -> Case:
    place = chance.randrange(len(case.nodes) + 1)
    return replace(case, nodes=(*case.nodes, *case.nodes[place : place + chance.choice((1, 2))]))


def _extra(chance: Random, case: Case, others: Sequence[Case]) -> Case:
    more = chance.choice([*chance.choice(others).nodes, b"", b"\x00", chance.randbytes(40)])
    place = chance.randrange(len(case.nodes) + 1)
    return replace(case, nodes=(*case.nodes[:place], more, *case.nodes[place:]))


def _other_root(chance: Random, case: Case, others: Sequence[Case]) -> Case:
    roots = [other.root for other in others[:5]] + [case.root[:-1], case.root + b"\x00", b"", blake2_256(b"\x00")]
    roots += [blake2_256(node) for node in case.nodes]
    return replace(case, root=chance.choice(roots))


def _other_keys(chance: Random, case: Case, others: Sequence[Case]) -> Case:
    claims = [*case.claims, *chance.choice(others).claims]
    if claims:
        key, value = claims[chance.randrange(len(claims))]
        changed = bytearray(key + b"\x00" * chance.randrange(2))
        if changed:
            changed[-1] ^= 1 << chance.randrange(8)
        claims += [(bytes(changed), value), (key[:-1], None), (key, None), (key + b"x", b"")]
    if chance.randrange(40) == 0:
        claims.append((bytes(32_768), None))
    chance.shuffle(claims)
    return replace(case, claims=tuple(claims[: 1 + chance.randrange(3)]))


def _other_values(chance: Random, case: Case, others: Sequence[Case]) -> Case:
    claims = [
        (key, chance.choice((None, b"", b"\x00", value and value[:-1], value, (value or b"") + b"\x00")))
        for key, value in case.claims
    ]
    return replace(case, claims=tuple(claims))


def _other_layout(chance: Random, case: Case, others: Sequence[Case]) -> Case:
    return replace(case, version=chance.choice((None, StateVersion.V0, StateVersion.V1)))


def _odd_shapes(chance: Random, case: Case, others: Sequence[Case]) -> Case:
    """A trie that nobody builds: nodes hung below others by their hash or inside, whatever they are."""
    below = chance.choice([*case.nodes, b"", b"\x00", b"\x41\x01\x00", b"\x40\x04a", chance.randbytes(5), b"\x20" * 33])
    nodes, path = {below}, bytes([chance.randrange(16)])
    for _ in range(chance.randrange(1, 4)):
        reference = below if len(below) < 32 and chance.randrange(3) else blake2_256(below)
        children: list[bytes | None] = [None] * 16
        own = chance.randrange(16)
        children[own] = reference
        children[chance.randrange(16)] = reference
        partial = bytes(chance.randrange(16) for _ in range(chance.choice((0, 1, 2, 63, 64, 300))))
        value = chance.choice((None, b"", b"v", b"v" * 33))
        below = encode_node(partial, value, children, chance.choice(tuple(StateVersion)))
        path = partial + bytes([own]) + path
        if value == b"v" * 33 and blake2_256(value) in below:
            kept = chance.choice((value, b"v" * 32, b"\x00", b""))
            below = below.replace(blake2_256(value), blake2_256(kept))
            nodes.add(kept)
        nodes.add(below)
    nibbles = path[: len(path) - len(path) % 2]
    key = bytes(high << 4 | low for high, low in zip(nibbles[::2], nibbles[1::2], strict=True))
    return Case(blake2_256(below), tuple(sorted(nodes)), ((key, b"v"), (key[:-1], None)), case.version)


def _long_counts(chance: Random, case: Case, others: Sequence[Case]) -> Case:
    """A single node whose header or lengths are written in all ways."""
    count = chance.choice((0, 1, 14, 15, 30, 31, 62, 63, 64, 317, 318, 319, 65_534, 65_535, 65_536))
    first, most = chance.choice(((0x1F, 15), (0x3F, 31), (0x7F, 63), (0xBF, 63), (0xFF, 63)))
    header = bytes([first]) + b"\xff" * (count // 255) + bytes([count % 255])[: chance.randrange(8)]
    lengths = [
        encode_compact(0),
        encode_compact(64),
        b"\x01\x00",
        b"\x01\x01",
        b"\x02\x00\x00\x00",
        b"\x02\x00\x01\x00",
    ]
    lengths += [b"\x03\x00\x00\x00\x40", b"\x03" + bytes(4), b"\x33" + b"\xff" * 16, b"\xfd\xff", b"\x03"]
    node = header + bytes(chance.choice((0, (most + count + 1) // 2, (most + count + 1) // 2)))
    node += chance.choice((b"", b"\x01\x00", b"\x03\x00")) + chance.choice(lengths) + bytes(chance.choice((0, 16, 64)))
    return Case(blake2_256(node), (node,), ((bytes((most + count) // 2), None), (b"", b"")), case.version)


def _with_node(case: Case, place: int, node: bytes) -> Case:
    return replace(case, nodes=(*case.nodes[:place], node, *case.nodes[place + 1 :]))


CHANGES: list[Callable[[Random, Case, Sequence[Case]], Case]] = [
    _flip, _follow, _follow, _missing, _doubled, _extra, _other_root, _other_keys, _other_values, _other_layout,
    _odd_shapes, _long_counts,
]  # fmt: skip


def damaged(chance: Random, count: int) -> list[Case]:
    """Return ``count`` proofs; most have one change, some two, a few none."""
    made = states(chance, 5)
    good = [honest(chance, made) for _ in range(60)]
    cases = []
    for number in range(count):
        case = chance.choice(good)
        for _ in range(0 if number % 20 == 0 else chance.choice((1, 1, 1, 2))):
            case = chance.choice(CHANGES)(chance, case, good)
        cases.append(case)
    return cases


def edges() -> list[Case]:
    """Return proofs on both sides of every bound of a node's encoding, each otherwise as a trie has it."""
    digest, other = blake2_256(b"x" * 40), blake2_256(b"y" * 40)
    leaf = b"\x42\xab\x04v"
    inline, reference = bytes([len(leaf) << 2]) + leaf, b"\x80" + digest
    nodes = [
        # The unused half of an odd partial key; its last nibbles.
        *(b"\x43" + bytes([first, 0xBC, 0x04, 0x76]) for first in (0x0A, 0x1A, 0xFA)),
        # Lengths of values in one, two, four and more bytes, in their shortest form and not.
        *(b"\x42\xab" + encode_compact(length) + bytes(length) for length in (0, 1, 63, 64, 16_383, 16_384)),
        *(b"\x42\xab" + (length << 2 | 1).to_bytes(2, "little") + bytes(length) for length in (0, 31, 32, 63, 64, 65)),
        *(b"\x42\xab" + (length << 2 | 2).to_bytes(4, "little") + bytes(length) for length in (63, 64, 16_383, 16_384)),
        *(b"\x42\xab\x03" + length.to_bytes(4, "little") + bytes(80) for length in (1, 80, 1 << 30)),
        # References to children of every length, inline and not; branches with too few children.
        *(
            b"\xc2\xab\x01\x00\x04v" + encode_compact(length) + (leaf + bytes(40))[:length]
            for length in (0, 1, 3, 4, 5, 31, 32, 33, 34, 64)
        ),
        b"\x80\x01\x00" + inline, b"\x80\x03\x00" + inline * 2, b"\xc0\x00\x00\x04v", b"\xc0\x01\x00\x04v" + inline,
        b"\x10\x00\x00" + digest, b"\x10\x01\x00" + digest + inline, b"\x80\x00\x00", b"\x80\x03\x00" + reference * 2,
        # Counts of nibbles: where the header's own room ends, where the next byte does, and at the bound.
        *(
            bytes([first]) + more + bytes((most + sum(more) + 1) // 2) + b"\x04v"
            for first, most in ((0x7F, 63), (0x3F, 31))
            for more in (b"", b"\x00", b"\x01", b"\xfe", b"\xff", b"\xff\x00", b"\xff\xff\x07")
        ),
        b"", b"\x00", b"\x00\x00", b"\x01",
    ]  # fmt: skip
    keys = (b"", b"\xab", b"\x00", b"\x0a\xbc", b"\xab\x0a", b"\xab\x0a\xb0", b"\x0a\xb0")
    claims = tuple((key, None) for key in keys)
    cases = [Case(blake2_256(node), (node,), claims) for node in nodes]
    # All headers, before what each of them calls for.
    for first in range(256):
        count = first & (0x0F if first < 0x20 else 0x1F if first < 0x40 else 0x3F)
        for tail in (b"\x04v", digest, b"\x03\x00" + inline * 2, b"\x03\x00" + digest + inline * 2):
            node = bytes([first]) + bytes((count + 1) // 2) + tail
            cases.append(Case(blake2_256(node), (node,), ((bytes(count // 2), None), (b"", b"v"))))
    # The most nibbles that a header may count, which no key has.
    for rest in (190, 191, 192, 193):
        node = b"\x7f" + b"\xff" * 256 + bytes([rest]) + bytes((63 + 65_280 + rest + 1) // 2) + b"\x04v"
        cases.append(Case(blake2_256(node), (node,), ((bytes((63 + 65_280 + rest) // 2), None), (b"", None))))
    # Short nodes below others by their hash, the empty node as a child, values of both sides of 33 bytes by their hash.
    below = [leaf, *(b"\x42\xab" + encode_compact(length) + bytes(length) for length in (27, 28, 29, 30)), b"\x00", b""]
    for node in below:
        above = b"\x80\x03\x00\x80" + blake2_256(node) + inline
        for given in ((above, node), (above,), (above, node, b"\x00")):
            cases.append(Case(blake2_256(above), given, ((b"\x0a\xb0", None), (b"\x0a", None), (b"\x1a\xb0", b"v"))))
    for length in (0, 1, 32, 33, 34):
        stored = b"\x22\xab" + blake2_256(b"v" * length)
        for given in ((stored, b"v" * length), (stored,), (stored, b"v" * length, other)):
            for version in (None, StateVersion.V0, StateVersion.V1):
                cases.append(Case(blake2_256(stored), given, ((b"\xab", b"v" * length),), version))
    # A partial key that goes on one nibble behind the key, where the next key of the column has that nibble.
    longer = b"\x83\x0a\xb0\xff\xff" + reference * 16
    cases.append(Case(blake2_256(longer), (longer,), ((b"\xab", None), (b"\x00", None), (b"\xab\x00", None))))
    return cases
