"""The states that subnets certify: their canonical trees and their roots (IC reference 2.8, 2.9).

The root of a subnet's state is that of its canonical state tree: streams, metadata, time, certified data, and below
``causeway`` the digests of all other tables, one a section. The trees of the messages in streams are kept: a round
hashes what it appends, and what collecting moves.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame
from causeway.model.joins import lookup, stretches
from causeway.model.order import U64, groups_of, positions_in, stable_order
from causeway.proofs.hashing import DIGEST_BYTES, Digests
from causeway.proofs.ic.digest_columns import fork_roots, identified_digests, stream_digests
from causeway.proofs.ic.digests import EMPTY_DIGEST
from causeway.proofs.ic.header_columns import encode_stream_headers
from causeway.proofs.ic.state_columns import CanonicalStates, CertifiedData, SectionColumns, StreamColumns, state_roots
from causeway.proofs.ic.stream_forest import Keys, StreamForest
from causeway.proofs.ic.versions import LOOPBACK_NOT_CERTIFIED
from causeway.protocols.contract import Chains
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
    assert state.trees is not None and (state.trees.forest.version == state.trees.version)
    forest = state.trees.forest
    _move(forest, state, appended, context)
    return replace(state, trees=StreamTrees(forest, forest.version))


def _move(forest: StreamForest, state: State, appended: Frame, context: Context) -> None:
    lanes = state.streams.counters
    digests = stream_digests(message_columns(appended), appended["index"], context.options.version)
    # The digests of messages in the order of streams and indexes.
    if len(appended) == 0:
        by_stream = digests
    else:
        starts, _, _ = stretches(appended["index"], *(appended[name] for name in LANE))
        stops = np.append(starts[1:], len(appended))
        order = stable_order(*(appended[name][starts] for name in LANE_COLUMNS))
        by_stream = np.concatenate(
            [digests[start:stop] for start, stop in zip(starts[order], stops[order], strict=True)]
        )
    forest.update(stream_keys(lanes, context), lanes["begin"], lanes["next_index"], by_stream)


# ---- the canonical state trees


def canonical_states(state: State, heads: Frame, context: Context) -> tuple[CanonicalStates, Frame]:
    """Return the canonical states of the subnets of ``heads`` (``HEADS_SCHEMA``), and the streams in them (rows of the
    table ``lanes``, in the order in which they stand there)."""
    assert state.trees is not None
    options = context.options
    lanes = state.streams.counters
    if options.version >= LOOPBACK_NOT_CERTIFIED:
        lanes = lanes.take(np.flatnonzero(lanes["source"] != lanes["destination"]))
    keys = stream_keys(lanes, context)
    subnets = positions_in(heads["chain"].astype(np.uint64), lanes["source"].astype(np.uint64))
    # The encoded header of each stream: its bounds, and its signals about what comes the other way.
    rejects = state.rejects
    rejecting = lookup(lanes, opposite(rejects), LANE)
    given = rejects.filter(rejecting >= 0)
    rejecting = rejecting[rejecting >= 0]
    order = stable_order(rejecting.astype(np.uint64), given["index"])
    headers = encode_stream_headers(
        lanes["begin"],
        lanes["next_index"],
        lanes["expected"],
        rejecting[order],
        given["index"][order],
        given["reason"][order],
        context.options.version,
    )
    streams = StreamColumns(
        subnets=subnets,
        destinations=stream_labels(
            context.registry.subnets[lanes["destination"]], lanes["substream"], flat=options.flat
        ),
        headers=headers,
        message_roots=state.trees.forest.roots(keys),
        counts=lanes["next_index"] - lanes["begin"],
    )
    has_previous = heads["number"] > np.uint64(0)
    found = np.zeros((len(has_previous), DIGEST_BYTES), dtype=np.uint8)
    for row in np.flatnonzero(has_previous).tolist():
        found[row] = np.frombuffer(heads["previous"][row].as_py(), dtype=np.uint8)
    # The certified data of canisters on some subnets (`chains`, ascending), as their state trees have it.
    hosts = context.host_of(state.certified_data["program"])
    rows = positions_in(heads["chain"].astype(np.uint64), hosts.view(np.uint32).astype(np.uint64))
    there = np.flatnonzero(rows >= 0)
    # Ids of canisters are ordered as their numbers are.
    there = there[stable_order(rows[there].astype(np.uint64))]
    values = state.certified_data["data"].take(pa.array(there))
    # The digests of the tables by subnet; of those whose height requires the full state hash only.
    assert state.trees is not None
    chains = heads["chain"]
    # What stops a subnet is a round that it has not made: no state of its own says so, nor is one made to say it.
    going = replace(state, stopped=state.stopped.slice(0, 0)) if len(state.stopped) else state
    tables = {
        name: np.frombuffer(b"".join(section.digests), dtype=np.uint8).reshape(len(chains), DIGEST_BYTES)
        for name, section in sections_of(going, replace(context, chains=chains)).items()
        if name != CERTIFIED_DATA_SECTION  # it has leaves of its own
    }
    counters = state.streams.counters
    own = counters.take(np.flatnonzero(counters["source"] == counters["destination"]))
    # The root of the messages of each subnet's stream to itself (`own`: rows of the table `lanes`).
    roots = np.tile(_EMPTY, (len(heads), 1))
    if context.options.flat:
        roots[positions_in(heads["chain"].astype(np.uint64), own["source"].astype(np.uint64))] = (
            state.trees.forest.roots(stream_keys(own, context))
        )
    else:
        own = own.filter(own["next_index"] > own["begin"])
        looped = groups_of(own["source"])
        nodes = identified_digests(canister_ids(own["substream"]), state.trees.forest.roots(stream_keys(own, context)))
        roots[positions_in(heads["chain"].astype(np.uint64), own["source"][looped.starts].astype(np.uint64))] = (
            fork_roots(nodes, looped)
        )
    tables[LOOPBACK] = roots
    labels = tuple(sorted(tables))
    full = heads["number"] % np.uint64(context.options.full_hash_every) == 0
    states = CanonicalStates(
        heights=heads["number"],
        previous=found,
        has_previous=has_previous,
        times=heads["time"],
        sections=SectionColumns(labels, np.stack([tables[label] for label in labels], axis=1), full),
        certified_data=CertifiedData(rows[there], canister_ids(state.certified_data["program"][there]), values),
        streams=streams,
        version=options.version,
    )
    return states, lanes


def roots_of(state: State, chains: Chains, context: Context) -> Digests:
    """Return the root of each subnet's state, shape (chains, 32), from its tables and the trees of its streams."""
    states, _ = canonical_states(state, state.heads, context)
    assert np.array_equal(state.heads["chain"], chains)
    return state_roots(states).roots
