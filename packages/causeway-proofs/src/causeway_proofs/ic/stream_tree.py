"""Streams in the hash tree: message queues under one root, with witnesses of any run.

``streams / <subnet id> / header`` and ``streams / <subnet id> / messages / <index>`` (IC reference 2.9). All digests of
messages and forks are stored, so a witness is a read, and a change rehashes only the necessary nodes:

- *Appending* hashes the new messages and the forks at the right edge: the number of new messages and about log2 of the
  length.
- *Trimming* t messages at the front rehashes no message, since a message's digest depends only on its index. The forks
  shift: those over 2**k messages stay if 2**k divides t, all above are rehashed. Trimming by multiples of a large power
  of two is nearly free; an odd t rehashes about as many forks as messages remain.

``MessagesTree`` and ``StreamTree`` hold one stream, ``StreamForest`` the messages of many streams in columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway_proofs.errors import IndexOverflow, InvalidInput
from causeway_proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_pairs
from causeway_proofs.ic import witness as witnesses
from causeway_proofs.ic.digest_columns import indexed_digests, labeled_digests, leaf_digests
from causeway_proofs.ic.hash_tree import (
    EMPTY_DIGEST,
    FORK_DOMAIN,
    Fork,
    HashTree,
    Labeled,
    Leaf,
    Pruned,
    digest,
    fork_digest,
    labeled_digest,
    leaf_digest,
)
from causeway_proofs.ic.slice_payload import HEADER, MESSAGES, index_label
from causeway_proofs.merkle_forest import MerkleForest
from causeway_proofs.order import U64, Codes, Rows, find_positions

Messages: TypeAlias = "pa.BinaryArray | Sequence[bytes]"
"""Consecutive encoded messages."""

Shown = TypeVar("Shown")
"""Node type: of a hash tree or of a witness."""

_END_OF_INDEXES = 1 << 64


class MessagesTree:
    """The ``messages`` of one stream: encoded messages under consecutive indices.

    Args:
        begin: index of the first message.
        messages: the messages from there on.

    Raises:
        IndexOverflow: an index would exceed 2**64 - 1.
    """

    def __init__(self, begin: int, messages: Messages = ()) -> None:
        if not 0 <= begin < _END_OF_INDEXES:
            raise IndexOverflow(f"stream index {begin} is not an unsigned 64-bit number")
        self._forest = StreamForest()
        self._update(begin, begin, np.empty((0, DIGEST_BYTES), dtype=np.uint8))
        self.append(messages)

    @property
    def begin(self) -> int:
        """Index of the first message."""
        return int(self._forest.begins[0])

    @property
    def end(self) -> int:
        """Index after the last message."""
        return int(self._forest.ends[0])

    @property
    def root(self) -> bytes:
        """Digest of the subtree, 32 bytes; that of an empty map without messages."""
        root: bytes = self._forest.roots(_ONLY)[0].tobytes()
        return root

    def append(self, messages: Messages) -> None:
        """Append messages.

        Args:
            messages: encoded messages.

        Raises:
            IndexOverflow: an index would exceed 2**64 - 1; nothing is appended.
        """
        column = _column(messages)
        if self.end + len(column) >= _END_OF_INDEXES:
            raise IndexOverflow(f"{len(column)} messages from index {self.end} on pass the last index, 2**64 - 1")
        self._update(self.begin, self.end + len(column), self._digests_of(self.end, column))

    def trim(self, begin: int) -> None:
        """Drop the messages below index ``begin``.

        Args:
            begin: new index of the first message.

        Raises:
            InvalidInput: ``begin`` is before the first message or after the end.
        """
        if not self.begin <= begin <= self.end:
            raise InvalidInput(f"cannot trim to {begin}: the stream holds [{self.begin}, {self.end})")
        self._update(begin, self.end, np.empty((0, DIGEST_BYTES), dtype=np.uint8))

    def _update(self, begin: int, end: int, digests: Digests) -> None:
        self._forest.update(_ONLY, np.array([begin], np.uint64), np.array([end], np.uint64), digests)

    def witness(self, begin: int, end: int, messages: Messages) -> HashTree:
        """Build the subtree with the messages [begin, end), all others pruned.

        An empty run prunes all.

        Args:
            begin: index of the first message.
            end: index after the last one.
            messages: the messages of the run, since the tree holds only digests.

        Returns:
            The pruned subtree.

        Raises:
            InvalidInput: the run is not inside the tree, or ``messages`` are not the committed ones.
        """
        if not self.begin <= begin <= end <= self.end:
            raise InvalidInput(f"there is no run [{begin}, {end}) in a stream of [{self.begin}, {self.end})")
        column = _column(messages)
        first, last = begin - self.begin, end - self.begin
        committed = self._forest.levels(_ONLY)[0][first:last]
        if len(column) != len(committed) or not np.array_equal(self._digests_of(begin, column), committed):
            raise InvalidInput(f"the messages given for [{begin}, {end}) are not those of the stream")
        if begin == end:
            return Pruned(self.root)
        nodes: list[HashTree] = [
            Labeled(index_label(begin + at), Leaf(value.as_py())) for at, value in enumerate(column)
        ]
        return self._joined(first, last, nodes, Fork, Pruned)

    def known(self, begin: int, end: int) -> witnesses.Witness:
        """Build the witness of the messages [begin, end), all others pruned.

        An empty run prunes all.

        Args:
            begin: index of the first message.
            end: index after the last one.

        Returns:
            The witness.

        Raises:
            InvalidInput: the run is not inside the tree.
        """
        if not self.begin <= begin <= end <= self.end:
            raise InvalidInput(f"there is no run [{begin}, {end}) in a stream of [{self.begin}, {self.end})")
        if begin == end:
            return witnesses.WitnessPruned(self.root)
        nodes: list[witnesses.Witness] = [
            witnesses.WitnessNode(index_label(index), witnesses.KNOWN) for index in range(begin, end)
        ]
        return self._joined(begin - self.begin, end - self.begin, nodes, witnesses.WitnessFork, witnesses.WitnessPruned)

    def _joined(
        self,
        first: int,
        last: int,
        nodes: list[Shown],
        fork: Callable[[Shown, Shown], Shown],
        pruned: Callable[[bytes], Shown],
    ) -> Shown:
        """Build the whole tree with ``nodes`` as the nodes [first, last) of the lowest level."""
        for rows in self._forest.levels(_ONLY)[:-1]:
            if first % 2:
                first -= 1
                nodes.insert(0, pruned(rows[first].tobytes()))
            if last % 2 and last < len(rows):
                nodes.append(pruned(rows[last].tobytes()))
                last += 1
            paired = [fork(nodes[at], nodes[at + 1]) for at in range(0, len(nodes) - 1, 2)]
            # An odd last node moves up.
            nodes = paired + nodes[2 * len(paired) :]
            first, last = first // 2, (last + 1) // 2
        return nodes[0]

    def _digests_of(self, begin: int, column: pa.BinaryArray) -> Digests:
        return indexed_digests(np.arange(len(column), dtype=np.uint64) + np.uint64(begin), leaf_digests(column))


class StreamTree:
    """One stream in the hash tree: its encoded header, and its messages unless empty.

    Args:
        header: the encoded header; replace it by assignment.
        begin: index of the first message.
        messages: the messages from there on.

    Raises:
        IndexOverflow: an index would exceed 2**64 - 1.
    """

    def __init__(self, header: bytes, begin: int, messages: Messages = ()) -> None:
        self.header = header
        self.messages = MessagesTree(begin, messages)

    @property
    def root(self) -> bytes:
        """Digest of the stream's subtree, 32 bytes."""
        header = labeled_digest(HEADER, leaf_digest(self.header))
        if self.messages.begin == self.messages.end:
            return header
        return fork_digest(header, labeled_digest(MESSAGES, self.messages.root))

    def witness(self, begin: int, end: int, messages: Messages) -> HashTree:
        """Build the stream's subtree with its header and the messages [begin, end).

        Args:
            begin: index of the first message.
            end: index after the last one.
            messages: the messages of the run.

        Returns:
            The pruned subtree.

        Raises:
            InvalidInput: the run is not inside the stream, or ``messages`` are not the committed ones.
        """
        header = Labeled(HEADER, Leaf(self.header))
        run = self.messages.witness(begin, end, messages)
        if self.messages.begin == self.messages.end:
            return header
        # An empty run is pruned together with its label.
        labeled_run = Labeled(MESSAGES, run)
        return Fork(header, Pruned(digest(labeled_run)) if begin == end else labeled_run)


def roots_of_streams(headers: pa.BinaryArray, message_roots: Digests, filled: npt.NDArray[np.bool_]) -> Digests:
    """Return the roots of many streams from the roots of their messages.

    Args:
        headers: the encoded header of each stream.
        message_roots: root of each subtree ``messages``, shape (n, 32).
        filled: mask of streams with messages; other streams have no such subtree, and their row is ignored.

    Returns:
        Roots, shape (n, 32).
    """
    return fork_headers(headers, labeled_digests(MESSAGES, message_roots[filled]), filled)


def fork_headers(headers: pa.BinaryArray, messages: Digests, filled: npt.NDArray[np.bool_]) -> Digests:
    """Return the roots of streams from the labeled digests of their messages.

    ``messages``: one row for each ``filled`` stream; else as ``roots_of_streams``.
    """
    roots = labeled_digests(HEADER, leaf_digests(headers))
    roots[filled] = digest_pairs(HashFunction.SHA256, FORK_DOMAIN, roots[filled], messages)
    return roots


def _column(messages: Messages) -> pa.BinaryArray:
    if isinstance(messages, pa.Array):
        return messages if messages.type == pa.binary() else messages.cast(pa.binary())
    return pa.array(messages, pa.binary())


Keys = Codes
"""Names of streams: 64-bit numbers, or byte strings of one length, alike in all calls."""

_NONE: U64 = np.empty(0, dtype=np.uint64)
_ONLY: U64 = np.zeros(1, dtype=np.uint64)
"""The key of a stream alone."""


class StreamForest:
    """The message trees of many streams, each named by a key (``Keys``).

    Attributes:
        keys: the keys, ascending.
        begins: index of the first message of each stream.
        ends: index after the last message of each stream.
        version: number of changes. The holder of an earlier version must neither read nor change the trees.
    """

    def __init__(self) -> None:
        self.keys: Keys = _NONE
        self.begins: U64 = _NONE
        self.ends: U64 = _NONE
        self._forest = MerkleForest(np.empty(0, dtype=np.int64), FORK_DOMAIN, EMPTY_DIGEST)

    @property
    def version(self) -> int:
        """Return the number of changes."""
        return self._forest.version

    def update(self, keys: Keys, begins: U64, ends: U64, digests: Digests) -> None:
        """Replace the set of streams by ``keys`` with bounds ``begins`` and ``ends``.

        An existing stream is trimmed to its new begin and appended to from its old end; a new one starts at its begin.
        Streams absent from ``keys`` are removed.

        Args:
            keys: all present streams, ascending.
            begins: index of the first message of each.
            ends: index after the last message of each.
            digests: labeled digests of the appended messages by stream and index, shape (m, 32).

        Raises:
            InvalidInput: keys do not ascend, a stream moves back or is trimmed beyond its old end, or the number of
                digests differs from the appended messages. Nothing is changed.
        """
        if bool((keys[1:] <= keys[:-1]).any()):
            raise InvalidInput("the keys of streams do not ascend")
        same = np.array_equal(keys, self.keys)
        origin: Rows = np.arange(len(keys)) if same else find_positions(self.keys, keys)
        old = np.maximum(origin, 0)
        new = origin < 0
        was_begin, was_end = (
            np.where(new, begins, column[old]) if len(column) else begins for column in (self.begins, self.ends)
        )
        wrong = np.flatnonzero((begins < was_begin) | (begins > was_end) | (ends < was_end))
        if len(wrong):
            row = wrong[0]
            raise InvalidInput(
                f"stream {keys[row]} goes from [{was_begin[row]}, {was_end[row]}) to [{begins[row]}, {ends[row]})"
            )
        added, trimmed = (ends - was_end).astype(np.int64), (begins - was_begin).astype(np.int64)
        if int(added.sum()) != len(digests):
            raise InvalidInput(f"{len(digests)} digests are given for {added.sum()} messages appended")
        touched = np.flatnonzero((added > 0) | (trimmed > 0))
        if same and len(touched) == 0:
            return
        forest = self._forest
        if not same:
            forest.rearrange(origin)
        forest.resize((ends - begins).astype(np.int64), trimmed)
        first = (was_end - begins).astype(np.int64)[touched]
        forest.write_ends(touched, first, digests)
        forest.rehash_ends(touched, first, trimmed[touched])
        self.keys, self.begins, self.ends = keys.copy(), begins.copy(), ends.copy()

    def roots(self, keys: Keys) -> Digests:
        """Return the root of each stream's messages; that of an empty map without messages.

        Args:
            keys: n streams.

        Returns:
            Roots, shape (n, 32).
        """
        return self._forest.roots(self._rows(keys))

    def counts(self, keys: Keys) -> Rows:
        """Return the number of messages of each stream.

        Args:
            keys: n streams.

        Returns:
            Counts, shape (n,).
        """
        return self._forest.sizes[self._rows(keys)]

    def levels(self, keys: Keys) -> list[Digests]:
        """Return the digests of the first stream of ``keys``, level by level, messages first, root last."""
        return self._forest.nodes_of(int(self._rows(keys)[0]))

    def left_siblings(self, keys: Keys, positions: U64) -> tuple[Digests, Rows]:
        """Return the ``sides`` of the run from each of ``positions`` to the stream's end.

        Args:
            keys: n streams.
            positions: first index of each run, shape (n,).

        Returns:
            Concatenated digests, and each run's number of them.
        """
        return self.sides(keys, positions, self.ends[self._rows(keys)])

    def sides(self, keys: Keys, first: U64, stop: U64) -> tuple[Digests, Rows]:
        """Return the digests that complete the run [first, stop) of each stream to its root.

        Their order is that of ``merkle_forest.side_positions``. An empty run needs one digest, the labeled messages,
        ``labeled("messages", root)``; a stream without messages needs none.

        Args:
            keys: n streams.
            first: first index of each run, shape (n,).
            stop: index after each run, shape (n,).

        Returns:
            Concatenated digests, and each run's number of them.

        Raises:
            InvalidInput: a stream is unknown, or a run is not inside of it.
        """
        rows = self._rows(keys)
        begins, ends = self.begins[rows], self.ends[rows]
        wrong = np.flatnonzero((first < begins) | (stop < first) | (stop > ends))
        if len(wrong):
            row = wrong[0]
            raise InvalidInput(
                f"there is no run [{first[row]}, {stop[row]}) in stream {keys[row]}, [{begins[row]}, {ends[row]})"
            )
        some = np.flatnonzero(stop > first)
        found, found_counts = self._forest.sides(
            rows[some], (first - begins).astype(np.int64)[some], (stop - first).astype(np.int64)[some]
        )
        none = np.flatnonzero((stop == first) & (ends > begins))
        if len(none) == 0 and len(some) == len(rows):
            return found, found_counts
        counts = np.zeros(len(rows), dtype=np.int64)
        counts[some], counts[none] = found_counts, 1
        digests = np.empty((int(counts.sum()), DIGEST_BYTES), dtype=np.uint8)
        whole = np.zeros(len(rows), dtype=np.bool_)
        whole[none] = True
        of_whole = whole.repeat(counts)
        digests[~of_whole] = found
        digests[of_whole] = labeled_digests(MESSAGES, self._forest.roots(rows[none]))
        return digests, counts

    def _rows(self, keys: Keys) -> Rows:
        rows = find_positions(self.keys, keys)
        if bool((rows < 0).any()):
            raise InvalidInput(f"there is no stream {keys[rows < 0][0]}")
        return rows
