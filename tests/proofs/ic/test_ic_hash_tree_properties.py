"""Hash trees of any content: built, pruned, merged, read; changing streams against rebuilt ones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.ic.hash_tree import (
    EMPTY,
    HashTree,
    Pruned,
    build_tree,
    decode_tree,
    digest,
    encode_tree,
    leaves,
    require_well_formed,
)
from causeway_proofs.ic.lookup import LookupStatus, lookup_path, lookup_subtree, path_steps, prune
from causeway_proofs.ic.stream_tree import MessagesTree, StreamTree, index_label
from causeway_proofs.order import Groups
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.ic.merged_trees import merge
from tests.oracles.ic.streams import stream_roots
from tests.tiers import sized

labels = st.binary(max_size=3)
contents = st.recursive(
    st.dictionaries(labels, st.binary(max_size=4), max_size=6),
    lambda inner: st.dictionaries(labels, st.binary(max_size=4) | inner, max_size=6),
    max_leaves=12,
)
paths = st.lists(st.lists(labels, min_size=1, max_size=3), max_size=5)
messages = st.lists(st.binary(max_size=6), max_size=40)

example_settings = settings(deadline=None, derandomize=True, max_examples=sized(36, 400))


def look(content: object, path: list[bytes]) -> tuple[LookupStatus, bytes]:
    """The expected result of a lookup in the whole content."""
    for label in path:
        if not isinstance(content, dict) or label not in content:
            return LookupStatus.ABSENT, b""
        content = content[label]
    if isinstance(content, bytes):
        return LookupStatus.FOUND, content
    return (LookupStatus.ERROR, b"") if content else (LookupStatus.ABSENT, b"")


@example_settings
@given(contents, paths)
def test_pruned_tree_gives_equal_lookups_for_its_paths(content: dict[bytes, object], asked: list[list[bytes]]) -> None:
    tree = build_tree(content)  # type: ignore[arg-type]
    require_well_formed(tree)
    assert decode_tree(encode_tree(tree)) == tree
    pruned = prune(tree, asked)
    assert digest(pruned) == digest(tree)
    assert decode_tree(encode_tree(pruned)) == pruned
    for path in asked:
        result = lookup_path(pruned, path)
        assert (result.status, result.value) == look(content, path)
        steps = path_steps(pruned, path)
        assert steps[-1].result == digest(tree)
    # Everything else it shows is true.
    for shown, value in leaves(pruned):
        assert look(content, list(shown)) == (LookupStatus.FOUND, value)
    for path in [[label] for label in content]:
        assert lookup_path(pruned, path).status in (LookupStatus.UNKNOWN, look(content, path)[0])


@example_settings
@given(contents, paths, paths)
def test_merged_tree_has_the_paths_of_both(
    content: dict[bytes, object], one: list[list[bytes]], two: list[list[bytes]]
) -> None:
    tree = build_tree(content)  # type: ignore[arg-type]
    first, second = prune(tree, one), prune(tree, two)
    merged = merge(first, second)
    assert digest(merged) == digest(tree)
    assert merge(second, first) == merged
    assert merge(merged, tree) == tree
    for path in one + two:
        result = lookup_path(merged, path)
        assert (result.status, result.value) == look(content, path)


@example_settings
@given(contents, st.data())
def test_altered_encoding_is_malformed_or_has_another_root(content: dict[bytes, object], data: st.DataObject) -> None:
    tree = build_tree(content)  # type: ignore[arg-type]
    encoded = encode_tree(tree)
    bit = data.draw(st.integers(0, len(encoded) * 8 - 1))
    altered = bytearray(encoded)
    altered[bit // 8] ^= 1 << bit % 8
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    for wrong in (bytes(altered), cut, encoded + b"\0"):
        try:
            other = decode_tree(wrong)
        except ProofError:
            continue
        assert digest(other) != digest(tree)


@example_settings
@given(
    st.integers(0, 600),
    messages,
    st.lists(st.tuples(st.booleans(), messages, st.integers(0, 40)), max_size=5),
    st.data(),
)
def test_growing_and_shrinking_stream_equals_a_rebuilt_one(
    begin: int, held: list[bytes], moves: list[tuple[bool, list[bytes], int]], data: st.DataObject
) -> None:
    tree = MessagesTree(begin, held)
    for grows, more, fewer in moves:
        if grows:
            tree.append(more)
            held = held + more
        else:
            fewer = min(fewer, len(held))
            tree.trim(begin + fewer)
            begin, held = begin + fewer, held[fewer:]
        whole = build_tree({index_label(begin + at): message for at, message in enumerate(held)})
        assert (tree.begin, tree.end, tree.root) == (begin, begin + len(held), digest(whole))
        first = data.draw(st.integers(0, len(held)))
        last = data.draw(st.integers(first, len(held)))
        witness = tree.witness(begin + first, begin + last, held[first:last])
        labels = [[index_label(begin + at)] for at in range(first, last)]
        assert witness == (prune(whole, labels) if first < last else Pruned(tree.root))


@example_settings
@given(st.lists(messages, min_size=1, max_size=6))
def test_many_streams_at_once_have_the_roots_of_each(streams: list[list[bytes]]) -> None:
    headers = [b"header %d" % at for at in range(len(streams))]
    each = [
        StreamTree(header, 7 * at, held).root for at, (header, held) in enumerate(zip(headers, streams, strict=True))
    ]
    counts = np.array([len(held) for held in streams], dtype=np.int64)
    groups = Groups(np.cumsum(counts) - counts, counts, int(counts.sum()))
    indexes = np.array(
        [7 * at + place for at, held in enumerate(streams) for place in range(len(held))], dtype=np.uint64
    )
    column = pa.array([message for held in streams for message in held], pa.binary())
    assert [row.tobytes() for row in stream_roots(pa.array(headers, pa.binary()), indexes, column, groups)] == each


@example_settings
@given(messages.filter(bool), st.data())
def test_witness_for_other_messages_is_refused(held: list[bytes], data: st.DataObject) -> None:
    tree = MessagesTree(3, held)
    at = data.draw(st.integers(0, len(held) - 1))
    for given_instead in ([held[at] + b"x"], [], [held[at]] * 2):
        with pytest.raises(InvalidInput):
            tree.witness(3 + at, 4 + at, given_instead)


def test_empty_map_is_one_empty_node() -> None:
    tree: HashTree = build_tree({})
    assert tree == EMPTY
    assert lookup_subtree(tree, []).subtree == EMPTY
    assert MessagesTree(9).root == digest(EMPTY)
