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
from causeway_proofs.ic.digest_columns import INDEX_BYTES, indexed_digests, labeled_digests, leaf_digests
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
from causeway_proofs.ic.slice_payload import MESSAGES
from causeway_proofs.merkle import level_above
from causeway_proofs.merkle_forest import MerkleForest
from causeway_proofs.order import U64, Codes, Rows, find_positions

HEADER = b"header"
MESSAGES_LABEL = b"messages"

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
        self._begin = begin
        # Level 0 holds the digests of the labeled messages, each level above the forks of the one below.
        self._levels = [_GrowingRows()]
        self.append(messages)

    @property
    def begin(self) -> int:
        """Index of the first message."""
        return self._begin

    @property
    def end(self) -> int:
        """Index after the last message."""
        return self._begin + len(self._levels[0])

    @property
    def root(self) -> bytes:
        """Digest of the subtree, 32 bytes; that of an empty map without messages."""
        return self._levels[-1].rows()[0].tobytes() if len(self._levels[0]) else EMPTY_DIGEST

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
        before = len(self._levels[0])
        self._levels[0].put(before, self._digests_of(self.end, column))
        self._fork_again(0, before)

    def trim(self, begin: int) -> None:
        """Drop the messages below index ``begin``.

        Args:
            begin: new index of the first message.

        Raises:
            InvalidInput: ``begin`` is before the first message or after the end.
        """
        if not self._begin <= begin <= self.end:
            raise InvalidInput(f"cannot trim to {begin}: the stream holds [{self._begin}, {self.end})")
        dropped = begin - self._begin
        if not dropped:
            return
        self._begin = begin
        aligned = (dropped & -dropped).bit_length() - 1
        last_stable = min(aligned, len(self._levels) - 1)
        for level in range(last_stable + 1):
            self._levels[level].drop(dropped >> level)
        self._fork_again(last_stable, 0)

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
        if not self._begin <= begin <= end <= self.end:
            raise InvalidInput(f"there is no run [{begin}, {end}) in a stream of [{self._begin}, {self.end})")
        column = _column(messages)
        first, last = begin - self._begin, end - self._begin
        committed = self._levels[0].rows()[first:last]
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
        if not self._begin <= begin <= end <= self.end:
            raise InvalidInput(f"there is no run [{begin}, {end}) in a stream of [{self._begin}, {self.end})")
        if begin == end:
            return witnesses.WitnessPruned(self.root)
        nodes: list[witnesses.Witness] = [
            witnesses.WitnessNode(index_label(index), witnesses.KNOWN) for index in range(begin, end)
        ]
        return self._joined(
            begin - self._begin, end - self._begin, nodes, witnesses.WitnessFork, witnesses.WitnessPruned
        )

    def _joined(
        self,
        first: int,
        last: int,
        nodes: list[Shown],
        fork: Callable[[Shown, Shown], Shown],
        pruned: Callable[[bytes], Shown],
    ) -> Shown:
        """Build the whole tree with ``nodes`` as the nodes [first, last) of the lowest level."""
        for level in self._levels[:-1]:
            rows = level.rows()
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
        return indexed_digests(_indexes(begin, len(column)), leaf_digests(column))

    def _fork_again(self, level: int, valid: int) -> None:
        """Rehash the levels above ``level``, whose first ``valid`` nodes are unchanged."""
        while len(self._levels[level]) > 1:
            if level + 1 == len(self._levels):
                self._levels.append(_GrowingRows())
            # Rounding down excludes a node that moved up unpaired.
            valid //= 2
            self._levels[level + 1].put(valid, level_above(self._levels[level].rows()[2 * valid :], FORK_DOMAIN))
            level += 1
        del self._levels[level + 1 :]


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
        return fork_digest(header, labeled_digest(MESSAGES_LABEL, self.messages.root))

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
        labeled_run = Labeled(MESSAGES_LABEL, run)
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
    return fork_headers(headers, labeled_digests(MESSAGES_LABEL, message_roots[filled]), filled)


def fork_headers(headers: pa.BinaryArray, messages: Digests, filled: npt.NDArray[np.bool_]) -> Digests:
    """Return the roots of streams from the labeled digests of their messages.

    ``messages``: one row for each ``filled`` stream; else as ``roots_of_streams``.
    """
    roots = labeled_digests(HEADER, leaf_digests(headers))
    roots[filled] = digest_pairs(HashFunction.SHA256, FORK_DOMAIN, roots[filled], messages)
    return roots


def index_label(index: int) -> bytes:
    """Return the label of a stream index: 8 bytes, big-endian."""
    return index.to_bytes(INDEX_BYTES, "big")


class _GrowingRows:
    """Digests appended at the end and dropped at the front, in one contiguous buffer."""

    def __init__(self) -> None:
        self._buffer: Digests = np.empty((0, DIGEST_BYTES), dtype=np.uint8)
        self._start = 0
        self._stop = 0

    def __len__(self) -> int:
        return self._stop - self._start

    def rows(self) -> Digests:
        return self._buffer[self._start : self._stop]

    def drop(self, count: int) -> None:
        self._start += count

    def put(self, keep: int, added: Digests) -> None:
        """Replace all rows after the first ``keep`` by ``added``."""
        length = keep + len(added)
        if self._start + length > len(self._buffer):
            room = np.empty((length if not keep else 2 * length, DIGEST_BYTES), dtype=np.uint8)
            room[:keep] = self._buffer[self._start : self._start + keep]
            self._buffer, self._start = room, 0
        self._buffer[self._start + keep : self._start + length] = added
        self._stop = self._start + length


def _column(messages: Messages) -> pa.BinaryArray:
    if isinstance(messages, pa.Array):
        return messages if messages.type == pa.binary() else messages.cast(pa.binary())
    return pa.array(messages, pa.binary())


def _indexes(begin: int, count: int) -> U64:
    return np.arange(count, dtype=np.uint64) + np.uint64(begin)


Keys = Codes
"""Names of streams: 64-bit numbers, or byte strings of one length, alike in all calls."""

_NONE: U64 = np.empty(0, dtype=np.uint64)


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
