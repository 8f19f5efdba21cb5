"""Edge cases of hash trees: lookups, refused trees, streams without or with the last message.

The example tree is the interface specification's.
"""

from __future__ import annotations

import pytest
from causeway_proofs.errors import IndexOverflow, InvalidInput, MalformedProof, OverLimit
from causeway_proofs.ic.cbor_reader import cbor_bytes
from causeway_proofs.ic.certificate import decode_certificate
from causeway_proofs.ic.errors import (
    InconsistentHashTrees,
    MalformedHashTree,
    NotWellFormed,
    PathNotProven,
    TooDeepRecursion,
    path_text,
)
from causeway_proofs.ic.hash_tree import (
    EMPTY,
    Fork,
    HashTree,
    Labeled,
    Leaf,
    Pruned,
    build_tree,
    decode_tree,
    digest,
    encode_tree,
    leaves,
    require_well_formed,
)
from causeway_proofs.ic.lookup import (
    LookupStatus,
    lookup_path,
    lookup_subtree,
    path_steps,
    prune,
    require_absent,
    require_value,
)
from causeway_proofs.ic.stream_tree import MessagesTree, StreamTree, index_label
from causeway_proofs.limits import MAX_DEPTH, MAX_PROOF_BYTES, MAX_PROOF_NODES

from tests.oracles.ic.merged_trees import merge
from tests.oracles.ic.streams import streams_tree, streams_witness
from tests.support.ic.ic_certification import BEGIN, MESSAGES, OTHER_ID, SUBNET_ID

HIDDEN = Pruned(bytes(32))


def labeled(label: bytes) -> Labeled:
    return Labeled(label, Leaf(b"value of " + label))


def deep(nodes: int) -> HashTree:
    tree: HashTree = Leaf(b"")
    for _ in range(nodes - 1):
        tree = Labeled(b"a", tree)
    return tree


def test_example_of_the_specification() -> None:
    tree = Fork(
        Fork(
            Labeled(b"a", Fork(Fork(Labeled(b"x", Leaf(b"hello")), EMPTY), Labeled(b"y", Leaf(b"world")))),
            Labeled(b"b", Leaf(b"good")),
        ),
        Fork(Labeled(b"c", EMPTY), Labeled(b"d", Leaf(b"morning"))),
    )
    root = "eb5c5b2195e62d996b84c9bcc8259d19a83786a2f59e0878cec84c811f669aa0"
    assert digest(tree).hex() == root
    assert digest(EMPTY).hex() == "4e3ed35c4e2d1ee89996483fb6260a64cffb6c47dbab216e7930e82f8190d120"
    assert decode_tree(encode_tree(tree)) == tree
    assert [path for path, _ in leaves(tree)] == [(b"a", b"x"), (b"a", b"y"), (b"b",), (b"d",)]
    assert path_steps(tree, [b"a", b"y"])[-1].result.hex() == root
    absent = prune(tree, [[b"ax"]])
    assert digest(absent).hex() == root
    require_absent(absent, [b"ax"])


@pytest.mark.parametrize(
    ("nodes", "asked", "status"),
    [
        ([labeled(b"b"), labeled(b"d")], b"c", LookupStatus.ABSENT),
        ([labeled(b"b"), labeled(b"d")], b"a", LookupStatus.ABSENT),
        ([labeled(b"b"), labeled(b"d")], b"e", LookupStatus.ABSENT),
        ([labeled(b"b"), labeled(b"d")], b"bb", LookupStatus.ABSENT),
        ([labeled(b"b"), labeled(b"d")], b"", LookupStatus.ABSENT),
        ([labeled(b"b"), HIDDEN, labeled(b"d")], b"c", LookupStatus.UNKNOWN),
        ([labeled(b"b"), HIDDEN, labeled(b"d")], b"a", LookupStatus.ABSENT),
        ([HIDDEN, labeled(b"b"), labeled(b"d")], b"a", LookupStatus.UNKNOWN),
        ([labeled(b"b"), labeled(b"d"), HIDDEN], b"e", LookupStatus.UNKNOWN),
        ([labeled(b"b"), EMPTY, labeled(b"d")], b"c", LookupStatus.ABSENT),
        ([labeled(b"b"), EMPTY, EMPTY], b"c", LookupStatus.ABSENT),
        ([HIDDEN, EMPTY], b"c", LookupStatus.UNKNOWN),
        ([HIDDEN], b"c", LookupStatus.UNKNOWN),
        ([EMPTY], b"c", LookupStatus.ABSENT),
        ([Leaf(b"value")], b"c", LookupStatus.ABSENT),
        ([labeled(b"b"), HIDDEN, labeled(b"d")], b"d", LookupStatus.FOUND),
        ([labeled(b"a"), labeled(b"ax")], b"ax", LookupStatus.FOUND),
        ([Labeled(b"b", EMPTY)], b"b", LookupStatus.ABSENT),
        ([Labeled(b"b", HIDDEN)], b"b", LookupStatus.UNKNOWN),
        ([Labeled(b"b", labeled(b"c"))], b"b", LookupStatus.ERROR),
        ([Labeled(b"b", Fork(labeled(b"c"), labeled(b"d")))], b"b", LookupStatus.ERROR),
    ],
)
def test_lookup(nodes: list[HashTree], asked: bytes, status: LookupStatus) -> None:
    tree = nodes[0]
    for node in nodes[1:]:
        tree = Fork(tree, node)
    assert lookup_path(tree, [asked]).status is status
    if status is LookupStatus.ABSENT:
        require_absent(tree, [asked])
        assert lookup_path(prune(tree, [[asked]]), [asked]).status is LookupStatus.ABSENT
    else:
        with pytest.raises(PathNotProven):
            require_absent(tree, [asked])
    if status is not LookupStatus.FOUND:
        with pytest.raises(PathNotProven):
            require_value(tree, [asked])


def test_subtree_is_found() -> None:
    tree = build_tree({b"a": {b"b": b"c"}})
    assert lookup_subtree(tree, [b"a"]).subtree == Labeled(b"b", Leaf(b"c"))
    assert lookup_subtree(tree, [b"z"]).status is LookupStatus.ABSENT
    with pytest.raises(PathNotProven):
        prune(Labeled(b"a", HIDDEN), [[b"a"]])
    with pytest.raises(PathNotProven):
        path_steps(Fork(HIDDEN, labeled(b"b")), [b"a"])


def test_empty_node_is_visible_if_its_fork_is() -> None:
    tree = Fork(labeled(b"a"), EMPTY)
    assert prune(tree, [[b"a"]]) == tree
    assert prune(Fork(tree, labeled(b"b")), [[b"b"]]) == Fork(Pruned(digest(tree)), labeled(b"b"))


@pytest.mark.parametrize(
    "tree",
    [
        Fork(labeled(b"b"), labeled(b"a")),
        Fork(labeled(b"a"), labeled(b"a")),
        Fork(Fork(labeled(b"a"), HIDDEN), Fork(labeled(b"c"), labeled(b"b"))),
        Fork(labeled(b"a"), Leaf(b"")),
        Labeled(b"a", Fork(Leaf(b""), EMPTY)),
    ],
)
def test_trees_of_no_map_are_refused(tree: HashTree) -> None:
    with pytest.raises(NotWellFormed):
        require_well_formed(tree)
    with pytest.raises(NotWellFormed):
        decode_tree(encode_tree(tree))


def test_messages_about_long_labels_stay_short() -> None:
    long = b"\xff" * 100_000
    with pytest.raises(NotWellFormed) as refused:
        require_well_formed(Fork(Labeled(long, EMPTY), Labeled(long, EMPTY)))
    assert str(refused.value).count("... (100000 bytes)") == 2 and len(str(refused.value)) < 400
    with pytest.raises(PathNotProven) as absent:
        require_value(Labeled(b"a", EMPTY), [b"x" * 100_000, b"b"])
    assert len(str(absent.value)) < 300
    assert path_text([b"a", b"", b"\x00", b"y" * 65]) == "/a/0x/0x00/0x" + "79" * 64 + "... (65 bytes)"


def balanced(leaves: int) -> bytes:
    """Return forks over empty nodes in CBOR, one fork fewer than leaves."""
    level = [b"\x81\x00"] * leaves
    while len(level) > 1:
        paired = [b"\x83\x01" + level[at] + level[at + 1] for at in range(0, len(level) - 1, 2)]
        level = paired + level[2 * len(paired) :]
    return level[0]


def test_depth_nodes_and_length_are_bounded() -> None:
    assert decode_tree(encode_tree(deep(MAX_DEPTH))) == deep(MAX_DEPTH)
    for tree in (deep(MAX_DEPTH + 1), deep(100_000)):
        with pytest.raises(TooDeepRecursion):
            decode_tree(encode_tree(tree))
    with pytest.raises(TooDeepRecursion):
        decode_tree(b"\x83\x01" * 1_000_000)
    with pytest.raises(TooDeepRecursion, match=r"more than 2 nodes deep, at /a/b$") as refused:
        decode_tree(encode_tree(Labeled(b"a", Labeled(b"b", EMPTY))), max_depth=2)
    assert refused.value.offending_path == (b"a", b"b")
    assert isinstance(decode_tree(balanced(MAX_PROOF_NODES // 2)), Fork)
    with pytest.raises(OverLimit, match="more than 131072 nodes"):
        decode_tree(balanced(MAX_PROOF_NODES // 2 + 1))
    with pytest.raises(OverLimit):
        decode_tree(b"\x82\x03" + cbor_bytes(bytes(MAX_PROOF_BYTES)))
    with pytest.raises(OverLimit):
        decode_certificate(bytes(MAX_PROOF_BYTES + 1))


@pytest.mark.parametrize(
    "encoded",
    [
        "",
        "80",
        "8100ff",
        "8101",
        "820300",
        "8203",
        "820341",
        "82044100",
        "830180",
        "83024100",
        "8105",
        "820500",
        "a0",
        "9f00ff",
        "981800",
        "9800",
        "811800",
        "82035801aa",
        "82035f41aaff",
        "82036161",
        "8300",
        "c08100",
        "8103",
        "82035bffffffffffffffff",
        "820020",
    ],
)
def test_malformed_hash_trees_are_refused(encoded: str) -> None:
    with pytest.raises(MalformedHashTree):
        decode_tree(bytes.fromhex(encoded))


def test_merging_prunings_of_different_trees_is_refused() -> None:
    one, other = build_tree({b"a": b"1", b"b": b"2"}), build_tree({b"a": b"1", b"b": b"3"})
    with pytest.raises(InconsistentHashTrees):
        merge(one, other)
    with pytest.raises(InconsistentHashTrees):
        merge(one, HIDDEN)


def test_streams_in_the_tree() -> None:
    stream = StreamTree(b"header", BEGIN, MESSAGES)
    content = {index_label(BEGIN + at): message for at, message in enumerate(MESSAGES)}
    assert stream.root == digest(build_tree({b"header": b"header", b"messages": content}))
    shown = stream.witness(BEGIN, BEGIN + 2, MESSAGES[:2])
    assert digest(shown) == stream.root
    assert [path[-1] for path, _ in leaves(shown)] == [b"header", index_label(BEGIN), index_label(BEGIN + 1)]
    header_only = stream.witness(BEGIN + 2, BEGIN + 2, [])
    assert digest(header_only) == stream.root and len(list(leaves(header_only))) == 1
    stream.messages.trim(stream.messages.end)
    assert stream.root == digest(build_tree({b"header": b"header"}))
    assert stream.witness(BEGIN + 5, BEGIN + 5, []) == Labeled(b"header", Leaf(b"header"))
    roots = {SUBNET_ID: stream.root, OTHER_ID: bytes(32)}
    whole = streams_tree(roots)
    witness = streams_witness(roots, SUBNET_ID, stream.witness(BEGIN + 5, BEGIN + 5, []))
    assert digest(witness) == digest(whole) and require_value(witness, [SUBNET_ID, b"header"]) == b"header"
    for wrong in (OTHER_ID, b"nobody"):
        with pytest.raises(InvalidInput):
            streams_witness(roots, wrong, shown)


def test_stream_bounds() -> None:
    with pytest.raises(IndexOverflow):
        MessagesTree(1 << 64)
    with pytest.raises(IndexOverflow):
        MessagesTree((1 << 64) - 3, [b""] * 3)
    last = MessagesTree((1 << 64) - 3, [b"a", b"b"])
    assert last.end == (1 << 64) - 1
    assert last.root == digest(build_tree({index_label((1 << 64) - 3): b"a", index_label((1 << 64) - 2): b"b"}))
    tree = MessagesTree(5, MESSAGES)
    for begin in (4, 11):
        with pytest.raises(InvalidInput):
            tree.trim(begin)
    for begin, end in ((4, 6), (6, 11), (7, 6)):
        with pytest.raises(InvalidInput):
            tree.witness(begin, end, [])


def test_pruned_nodes_hold_digests() -> None:
    with pytest.raises(MalformedProof):
        Pruned(b"short")


def test_trees_deeper_than_the_recursion_limit_are_hashed_and_pruned() -> None:
    depth = 3_000
    tree: HashTree = Leaf(b"x")
    for _ in range(depth):
        tree = Labeled(b"a", tree)
    read = decode_tree(encode_tree(tree), max_depth=depth + 1)
    assert digest(prune(read, [[b"a"] * depth])) == digest(read)
