"""Hash trees in CBOR, as certificates carry them (IC reference 7, hash_tree.json).

``[0]`` is Empty, ``[1, left, right]`` Fork, ``[2, label, subtree]`` Labeled, ``[3, value]`` Leaf and
``[4, digest]`` Pruned.
"""

from __future__ import annotations

from causeway.proofs.errors import OverLimit
from causeway.proofs.ic.cbor_reader import ARRAY, CborReader, cbor_bytes
from causeway.proofs.ic.errors import MalformedHashTree, TooDeepRecursion
from causeway.proofs.ic.hash_tree import (
    DIGEST_BYTES,
    EMPTY,
    Fork,
    HashTree,
    Labeled,
    Leaf,
    Pruned,
    require_well_formed,
)
from causeway.proofs.limits import MAX_DEPTH, MAX_PROOF_BYTES, MAX_PROOF_NODES, require_length

EMPTY_KIND, FORK_KIND, LABELED_KIND, LEAF_KIND, PRUNED_KIND = range(5)
_ITEMS = {EMPTY_KIND: 1, FORK_KIND: 3, LABELED_KIND: 3, LEAF_KIND: 2, PRUNED_KIND: 2}

_FORK_HEAD, _LABELED_HEAD, _LEAF_HEAD, _PRUNED_HEAD = b"\x83\x01", b"\x83\x02", b"\x82\x03", b"\x82\x04"
_EMPTY_NODE = b"\x81\x00"


def encode_tree(tree: HashTree) -> bytes:
    """Return ``tree`` in CBOR, without a self-describing tag."""
    parts: list[bytes] = []
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, Fork):
            parts.append(_FORK_HEAD)
            stack += (node.right, node.left)
        elif isinstance(node, Labeled):
            parts += (_LABELED_HEAD, cbor_bytes(node.label))
            stack.append(node.subtree)
        elif isinstance(node, Leaf):
            parts += (_LEAF_HEAD, cbor_bytes(node.value))
        elif isinstance(node, Pruned):
            parts += (_PRUNED_HEAD, cbor_bytes(node.digest))
        else:
            parts.append(_EMPTY_NODE)
    return b"".join(parts)


def decode_tree(data: bytes, max_bytes: int = MAX_PROOF_BYTES, max_depth: int = MAX_DEPTH) -> HashTree:
    """Return the hash tree that ``data`` is, with or without the self-describing tag; it is well formed.

    Raises:
        OverLimit: ``data`` is longer than ``max_bytes``, or the tree has more than ``MAX_PROOF_NODES`` nodes.
        TooDeepRecursion: more than ``max_depth`` nodes lie on a way from the root to a node.
        MalformedHashTree: it is no tree, not in shortest CBOR, or goes on after its end.
        NotWellFormed: it is a tree that no map has.
    """
    require_length(data, "the hash tree", max_bytes)
    reader = CborReader(bytes(data), "the hash tree", MalformedHashTree)
    reader.skip_self_description()
    tree = read_tree(reader, max_depth)
    reader.end()
    return tree


def read_tree(reader: CborReader, max_depth: int = MAX_DEPTH) -> HashTree:
    """Read a hash tree where ``reader`` stands; it is well formed (errors as of ``decode_tree``)."""
    # What is open above the node being read: a label waiting for its subtree, or a fork with the left part, if read.
    above: list[bytes | list[HashTree]] = []
    nodes = 0
    while True:
        nodes += 1
        if nodes > MAX_PROOF_NODES:
            raise OverLimit(f"the hash tree has more than {MAX_PROOF_NODES} nodes")
        if len(above) >= max_depth:
            path = [label for label in above if isinstance(label, bytes)]
            raise TooDeepRecursion(f"the hash tree is nested more than {max_depth} nodes deep", path)
        node = _read_node(reader, above)
        if node is None:
            continue
        while above:
            parent = above[-1]
            if isinstance(parent, bytes):
                node = Labeled(parent, node)
            elif not parent:
                parent.append(node)
                break
            else:
                node = Fork(parent[0], node)
            above.pop()
        else:
            require_well_formed(node, max_depth)
            return node


def _read_node(reader: CborReader, above: list[bytes | list[HashTree]]) -> HashTree | None:
    """Read a node without children and return it, or the beginning of one with children and put it on ``above``."""
    items = reader.head(ARRAY)
    kind = reader.unsigned() if items else -1
    if _ITEMS.get(kind) != items:
        raise reader.wrong(f"has a node of kind {kind} with {items} items")
    if kind == FORK_KIND:
        above.append([])
        return None
    if kind == LABELED_KIND:
        above.append(reader.byte_string())
        return None
    if kind == EMPTY_KIND:
        return EMPTY
    value = reader.byte_string()
    if kind == LEAF_KIND:
        return Leaf(value)
    if len(value) != DIGEST_BYTES:
        raise reader.wrong(f"has a pruned node of {len(value)} bytes, a digest has {DIGEST_BYTES}")
    return Pruned(value)
