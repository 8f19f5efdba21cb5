"""The states that subnets certify: their canonical trees and their roots (IC reference 2.8, 2.9).

The root of a subnet's state is that of its canonical state tree: streams, metadata, time, certified data, and below
``causeway`` the digests of all other tables, one a section. The trees of the messages in streams are kept: a round
hashes what it appends, and what collecting moves.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame
from causeway.model.joins import lookup, stretches
from causeway.model.order import U64, Rows, groups_of, positions_in, stable_order
from causeway.proofs.hashing import DIGEST_BYTES, Digests
from causeway.proofs.ic.digest_columns import fork_roots, identified_digests, stream_digests
from causeway.proofs.ic.digests import EMPTY_DIGEST
from causeway.proofs.ic.header_columns import encode_stream_headers
from causeway.proofs.ic.state_columns import CanonicalStates, SectionColumns, StreamColumns, state_roots
from causeway.proofs.ic.stream_forest import Keys, StreamForest
from causeway.proofs.ic.versions import LOOPBACK_NOT_CERTIFIED
from causeway.protocols.contract import Chains
from causeway.protocols.ic.certified_data import certified_leaves
from causeway.protocols.ic.commitment import CERTIFIED_DATA_SECTION, sections_of
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.ids import canister_ids, stream_labels
from causeway.protocols.ic.state import State, StreamTrees, opposite
from causeway.protocols.messages import LANE, LANE_COLUMNS, message_columns

LOOPBACK = "loopback"
"""The section with the root of the messages of a subnet's stream to itself, which is not certified (V20 on)."""

_EMPTY = np.frombuffer(EMPTY_DIGEST, dtype=np.uint8)


# ---- the trees of the messages in streams


def stream_keys(lanes: Frame, context: Context) -> Keys:
    """Return the key of each stream in the trees; keys ascend as lanes do."""
    ends: U64 = (lanes["source"].astype(np.uint64) << np.uint64(32)) | lanes["destination"].astype(np.uint64)
    if context.options.flat:
        return ends
    words = np.stack([ends, lanes["substream"]], axis=1).astype(">u8")
    keys: Keys = words.view(np.dtype((np.bytes_, words.itemsize * words.shape[1]))).reshape(-1)
    return keys


def with_trees(state: State, messages: Frame, context: Context) -> State:
    """Return the state with the trees of its streams' messages, all of which are given (``OUTBOUND_SCHEMA``)."""
    forest = StreamForest()
    _move(forest, state, messages, context)
    return replace(state, trees=StreamTrees(forest, forest.version))


def moved_trees(state: State, appended: Frame, context: Context) -> State:
    """Return the state with its trees moved on: ``appended`` are the messages that came into its streams; what was
    collected goes."""
    assert state.trees is not None and state.trees.is_current
    forest = state.trees.forest
    _move(forest, state, appended, context)
    return replace(state, trees=StreamTrees(forest, forest.version))


def _move(forest: StreamForest, state: State, appended: Frame, context: Context) -> None:
    lanes = state.streams.counters
    digests = stream_digests(message_columns(appended), appended["index"], context.options.version)
    forest.update(stream_keys(lanes, context), lanes["begin"], lanes["next_index"], _by_stream(digests, appended))


def _by_stream(digests: Digests, messages: Frame) -> Digests:
    """Return the digests of messages in the order of streams and indexes. Messages stand in long runs of neighbours in
    a stream, in whatever order: those are moved, not each message."""
    if len(messages) == 0:
        return digests
    starts, _, _ = stretches(messages["index"], *(messages[name] for name in LANE))
    stops = np.append(starts[1:], len(messages))
    order = stable_order(*(messages[name][starts] for name in LANE_COLUMNS))
    return np.concatenate([digests[start:stop] for start, stop in zip(starts[order], stops[order], strict=True)])


# ---- the canonical state trees


def head_rows(heads: Frame, chains: Chains) -> Rows:
    """Return the row of each of ``chains`` in the table ``heads``."""
    return positions_in(heads["chain"].astype(np.uint64), chains.astype(np.uint64))


def canonical_states(state: State, heads: Frame, context: Context) -> tuple[CanonicalStates, Frame]:
    """Return the canonical states of the subnets of ``heads`` (``HEADS_SCHEMA``), and the streams in them (rows of the
    table ``lanes``, in the order in which they stand there)."""
    assert state.trees is not None
    options = context.options
    lanes = state.streams.counters
    if options.version >= LOOPBACK_NOT_CERTIFIED:
        lanes = lanes.take(np.flatnonzero(lanes["source"] != lanes["destination"]))
    keys = stream_keys(lanes, context)
    subnets = head_rows(heads, lanes["source"])
    streams = StreamColumns(
        subnets=subnets,
        destinations=stream_labels(
            context.registry.subnets[lanes["destination"]], lanes["substream"], flat=options.flat
        ),
        headers=_headers(lanes, state, context),
        message_roots=state.trees.forest.roots(keys),
        counts=lanes["next_index"] - lanes["begin"],
    )
    has_previous = heads["number"] > np.uint64(0)
    states = CanonicalStates(
        heights=heads["number"],
        previous=_digests(heads["previous"], has_previous),
        has_previous=has_previous,
        times=heads["time"],
        sections=_sections(state, heads, context),
        certified_data=certified_leaves(state.certified_data, heads["chain"], context),
        streams=streams,
        version=options.version,
    )
    return states, lanes


def _digests(values: pa.BinaryArray, there: npt.NDArray[np.bool_]) -> Digests:
    found = np.zeros((len(there), DIGEST_BYTES), dtype=np.uint8)
    for row in np.flatnonzero(there).tolist():
        found[row] = np.frombuffer(values[row].as_py(), dtype=np.uint8)
    return found


def _headers(lanes: Frame, state: State, context: Context) -> pa.BinaryArray:
    """Return the encoded header of each stream: its bounds, and its signals about what comes the other way."""
    rejects = state.rejects
    row = lookup(lanes, opposite(rejects), LANE)
    given = rejects.filter(row >= 0)
    row = row[row >= 0]
    order = stable_order(row.astype(np.uint64), given["index"])
    return encode_stream_headers(
        lanes["begin"],
        lanes["next_index"],
        lanes["expected"],
        row[order],
        given["index"][order],
        given["reason"][order],
        context.options.version,
    )


def _sections(state: State, heads: Frame, context: Context) -> SectionColumns:
    """Return the digests of the tables by subnet; of those whose height requires the full state hash only."""
    assert state.trees is not None
    chains = heads["chain"]
    # What stops a subnet is a round that it has not made: no state of its own says so, nor is one made to say it.
    going = replace(state, stopped=state.stopped.slice(0, 0)) if len(state.stopped) else state
    found = {
        name: np.frombuffer(b"".join(section.digests), dtype=np.uint8).reshape(len(chains), DIGEST_BYTES)
        for name, section in sections_of(going, replace(context, chains=chains)).items()
        if name != CERTIFIED_DATA_SECTION  # it has leaves of its own
    }
    lanes = state.streams.counters
    own = lanes.take(np.flatnonzero(lanes["source"] == lanes["destination"]))
    found[LOOPBACK] = _loopback_roots(own, state.trees.forest, heads, context)
    labels = tuple(sorted(found))
    full = heads["number"] % np.uint64(context.options.full_hash_every) == 0
    return SectionColumns(labels, np.stack([found[label] for label in labels], axis=1), full)


def _loopback_roots(own: Frame, forest: StreamForest, heads: Frame, context: Context) -> Digests:
    """Return the root of the messages of each subnet's stream to itself (``own``: rows of the table ``lanes``).

    With substreams it is that of a tree with the id of the canister of each substream that has messages.
    """
    roots = np.tile(_EMPTY, (len(heads), 1))
    if context.options.flat:
        roots[head_rows(heads, own["source"])] = forest.roots(stream_keys(own, context))
        return roots
    own = own.filter(own["next_index"] > own["begin"])
    subnets = groups_of(own["source"])
    nodes = identified_digests(canister_ids(own["substream"]), forest.roots(stream_keys(own, context)))
    roots[head_rows(heads, own["source"][subnets.starts])] = fork_roots(nodes, subnets)
    return roots


def roots_of(state: State, chains: Chains, context: Context) -> Digests:
    """Return the root of each subnet's state, shape (chains, 32), from its tables and the trees of its streams."""
    states, _ = canonical_states(state, state.heads, context)
    assert np.array_equal(state.heads["chain"], chains)
    return state_roots(states).roots
