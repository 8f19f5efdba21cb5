"""State roots of subnets: table digests, and the canonical state trees that subnets certify.

Without certification, the root is SHA-256 over the digests of the sections, each a digest of the section's columns in
canonical order; the section of certified data comes last and only if it has rows. Messages in streams enter by the
Merkle root of their segment, so each message is hashed once per chain.

With certification, the root is that of the canonical state tree: streams, metadata, time, certified data, and below
``causeway`` the digests of all other tables (IC reference 2.8, 2.9). The trees of messages in streams are cached: a
round hashes the appended messages and the nodes that collection moves.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.hashing import DIGEST_BYTES, Digests, HashFunction, binary_rows, digest_chunks, sha256
from causeway_proofs.ic.digest_columns import fork_roots, identified_digests, stream_digests
from causeway_proofs.ic.hash_tree import EMPTY_DIGEST
from causeway_proofs.ic.primitives import LOOPBACK_NOT_CERTIFIED
from causeway_proofs.ic.state_columns import CanonicalStates, CertifiedData, SectionColumns, StreamColumns, state_roots
from causeway_proofs.ic.stream_columns import encode_stream_headers
from causeway_proofs.ic.stream_tree import Keys, StreamForest
from causeway_proofs.merkle import LEAF_PREFIX, merkle_roots
from causeway_proofs.order import U64, Rows, find_positions, group_rows, stable_order

from causeway.core.frame import Frame
from causeway.core.joins import lookup_rows, merge_ranges
from causeway.protocols.contract import Chains
from causeway.protocols.ic.ids import canister_ids, stream_labels
from causeway.protocols.ic.messages import MESSAGE_OVERHEAD
from causeway.protocols.ic.registry import Context
from causeway.protocols.ic.state import NOT_COMMITTED, RUNS_SCHEMA, STATE_TABLES, State, StreamTrees, reverse_lanes
from causeway.protocols.shared.digests import (
    EMPTY_TABLE_DIGEST,
    StateDigests,
    TableDigests,
    digest_columns_by_chain,
    digest_rows_by_chain,
)
from causeway.protocols.shared.execution import PROGRAM_TABLE
from causeway.protocols.shared.messages import LANE, LANE_COLUMNS, MESSAGE_COLUMNS, message_columns, payload_lengths

ROOT_DOMAIN = b"causeway-ic-state-1"

CERTIFIED_DATA_SECTION = "certified_data"
"""The section of certified data; the state tree has it as leaves of its own."""

HEADER_TYPE = np.dtype(
    [
        *((name, "u1") for name in ("prefix", "kind", "code")),
        *((name, ">u4") for name in ("method_length", "deadline")),
        *((name, ">u8") for name in ("sender", "receiver", "callback", "amount_high", "amount_low")),
    ]
)
"""The fixed part of a message's leaf; method and payload follow it."""


def message_leaves(messages: Frame) -> Digests:
    """Return the leaf hash of each message: SHA-256(00 || fixed fields || method || payload)."""
    hashed = Frame({name: messages[name] for name in MESSAGE_COLUMNS}, len(messages))
    return digest_chunks(HashFunction.SHA256, len(hashed), lambda start, stop: _preimages(hashed.slice(start, stop)))


def _preimages(messages: Frame) -> pa.BinaryArray:
    length = len(messages)
    fixed = np.zeros(length, dtype=HEADER_TYPE)
    fixed["prefix"] = LEAF_PREFIX[0]
    for name in ("kind", "code", "deadline", "sender", "receiver", "callback", "amount_high", "amount_low"):
        fixed[name] = messages[name]
    method = messages["method"]
    names = method.dictionary.cast(pa.binary())
    lengths = np.array([len(name.as_py()) for name in names], dtype=np.uint32)
    codes = method.indices.to_numpy(zero_copy_only=False)
    fixed["method_length"] = lengths[codes] if len(lengths) else 0
    parts = [binary_rows(fixed.view(np.uint8).reshape(length, HEADER_TYPE.itemsize))]
    if lengths.any():
        parts.append(names.take(method.indices))
    return pc.binary_join_element_wise(*parts, messages["payload"], b"")


def outbound_segments(outbound: Frame, context: Context) -> Frame:
    """Return a segment (``RUNS_SCHEMA``) per substream that ``outbound`` extends.

    The messages ascend by lane.
    """
    groups = group_rows(outbound["destination"], outbound["source"], outbound["substream"])
    heads = outbound.select(LANE).take(groups.starts)
    return heads.with_columns(
        height=np.uint64(context.height),
        tick=np.uint64(context.tick),
        first=outbound["index"][groups.starts],
        count=groups.counts.astype(np.uint64),
        bytes=np.add.reduceat(payload_lengths(outbound) + np.uint64(MESSAGE_OVERHEAD), groups.starts),
        root=_NO_ROOT.repeat(len(groups), axis=0)
        if context.options.certified
        else merkle_roots(message_leaves(outbound), groups),
    ).select(RUNS_SCHEMA.names)


_NO_ROOT = np.zeros((1, DIGEST_BYTES), dtype=np.uint8)
"""The root of a segment where the trees of streams commit to the messages."""


def uncertified_roots(state: State, context: Context) -> Digests:
    """Return the uncertified root of each chain of ``context.chains``, shape (chains, 32).

    The cache ``State.hashed`` avoids hashing unchanged tables, and is updated.
    """
    known = state.hashed.last
    before = known if known is not None and known.is_of(context.chains, context.registry) else None
    sections = table_digests(state, context)
    changed = np.full(len(context.chains), before is None)
    for name, section in sections.items():
        if before is None or section is not before.sections[name]:
            changed[section.changed] = True
    old_roots = None if before is None else before.roots
    chains = len(context.chains)
    roots = np.empty((chains, DIGEST_BYTES), dtype=np.uint8) if old_roots is None else old_roots.copy()
    digests = [section.digests for name, section in sections.items() if name != CERTIFIED_DATA_SECTION]
    data = sections[CERTIFIED_DATA_SECTION].digests
    rows = changed.nonzero()[0]

    def preimage(chain: int) -> bytes:
        certified = b"" if data[chain] == EMPTY_TABLE_DIGEST else data[chain]
        return b"".join([ROOT_DOMAIN, *(of[chain] for of in digests), certified])

    hashed = [sha256(preimage(chain)) for chain in rows.tolist()]
    roots[rows] = np.frombuffer(b"".join(hashed), dtype=np.uint8).reshape(len(hashed), DIGEST_BYTES)
    roots.setflags(write=False)
    assert state.hashed.last is not None
    state.hashed.last = replace(state.hashed.last, roots=roots)
    return roots


def table_digests(state: State, context: Context) -> dict[str, TableDigests]:
    """Return the digests of each of the state's tables, one a chain of ``context.chains``.

    The cache ``State.hashed`` avoids hashing unchanged tables, and is updated.
    """
    chains, known = context.chains, state.hashed.last
    before = known if known is not None and known.is_of(chains, context.registry) else None
    tables: dict[str, Frame] = {}
    sections: dict[str, TableDigests] = {}
    frames = state.frames()
    programs = [PROGRAM_TABLE + name for name in sorted(state.programs)]
    for name in (*_SECTIONS, *programs, CERTIFIED_DATA_SECTION):
        frame, old = frames[name], None if before is None else before.sections[name]
        tables[name] = frame
        if (
            before is not None
            and old is not None
            and (frame is before.tables[name] or len(frame) == len(before.tables[name]) == 0)
        ):
            sections[name] = old
            continue
        table = STATE_TABLES.get(name)
        owner = "program" if table is None else table.owner
        hosted = table is None or owner in table.programs
        hosts = context.registry.host_of(frame[owner]).view(np.uint32) if hosted else frame[owner]
        hashing = digest_columns_by_chain if name == "open_calls" else digest_rows_by_chain
        if name == "ingress_counters":
            # The key is also the sender.
            receiver = frame["receiver"]
            frame = Frame({"receiver": receiver, "sender": receiver, "next_index": frame["next_index"]})
        sections[name] = hashing(frame, hosts, chains, old)
    state.hashed.last = StateDigests(
        chains, context.registry, tables, sections, None if before is None else before.roots
    )
    return sections


_SECTIONS = (
    *(f"{queue}_{part}" for queue in ("ingress", "input", "output") for part in ("counters", "queues")),
    *("open_calls", "in_hand", "turns", "next_sources"),
    *(name for name, table in STATE_TABLES.items() if table.owner in table.chains and name not in NOT_COMMITTED),
    "accounts",
)
"""The tables with a section in every root, in order; those of programs and certified data follow."""


LOOPBACK = "loopback"
"""The section with the root of a subnet's loopback messages, uncertified from V20 on."""

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


def build_trees(state: State, messages: Frame, context: Context) -> State:
    """Build the trees of the streams' messages.

    Args:
        state: The state.
        messages: All messages in its streams (``OUTBOUND_SCHEMA``).
        context: The metadata of the round.
    """
    forest = StreamForest()
    return update_trees(replace(state, trees=StreamTrees(forest, forest.version)), messages, context)


def update_trees(state: State, appended: Frame, context: Context) -> State:
    """Add the ``appended`` messages to the trees of streams and remove collected ones."""
    assert state.trees is not None and state.has_current_trees
    forest, lanes = state.trees.forest, state.streams.counters
    digests = stream_digests(message_columns(appended), appended["index"], context.options.version)
    if len(appended):
        # The digests of messages in the order of streams and indexes.
        starts, _, _ = merge_ranges(appended["index"], *(appended[name] for name in LANE))
        stops = np.append(starts[1:], len(appended))
        order = stable_order(*(appended[name][starts] for name in LANE_COLUMNS))
        ranges = zip(starts[order], stops[order], strict=True)
        digests = np.concatenate([digests[start:stop] for start, stop in ranges])
    forest.update(stream_keys(lanes, context), lanes["begin"], lanes["next_index"], digests)
    return replace(state, trees=StreamTrees(forest, forest.version))


# ---- the canonical state trees


def canonical_states(state: State, heads: Frame, context: Context) -> tuple[CanonicalStates, Frame]:
    """Build the canonical states of subnets.

    Args:
        state: The state, with current trees.
        heads: The heads of the subnets (``HEADS_SCHEMA``).
        context: The metadata of the round.

    Returns:
        The states, and their streams: rows of the table ``lanes`` in the order of the states.
    """
    assert state.trees is not None
    options = context.options
    lanes = state.streams.counters
    if options.version >= LOOPBACK_NOT_CERTIFIED:
        lanes = lanes.take(np.flatnonzero(lanes["source"] != lanes["destination"]))
    keys = stream_keys(lanes, context)
    subnets = find_positions(heads["chain"].astype(np.uint64), lanes["source"].astype(np.uint64))
    streams = StreamColumns(
        subnets=subnets,
        destinations=stream_labels(
            context.registry.subnets[lanes["destination"]], lanes["substream"], flat=options.flat
        ),
        headers=_stream_headers(lanes, state.rejects, context),
        message_roots=state.trees.forest.roots(keys),
        counts=lanes["next_index"] - lanes["begin"],
    )
    has_previous = heads["number"] > np.uint64(0)
    previous = np.zeros((len(has_previous), DIGEST_BYTES), dtype=np.uint8)
    for row in np.flatnonzero(has_previous).tolist():
        previous[row] = np.frombuffer(heads["previous"][row].as_py(), dtype=np.uint8)
    # The certified data of the subnets' canisters, in the order of their state trees.
    hosts = context.registry.host_of(state.certified_data["program"])
    rows = find_positions(heads["chain"].astype(np.uint64), hosts.view(np.uint32).astype(np.uint64))
    local = np.flatnonzero(rows >= 0)
    # Ids of canisters are ordered as their numbers are.
    local = local[stable_order(rows[local].astype(np.uint64))]
    values = state.certified_data["data"].take(pa.array(local))
    # The digests of the tables by subnet, for heights with a full state hash.
    chains = heads["chain"]
    # The round that stops a subnet is never completed, so its own state does not contain the stop.
    unstopped = replace(state, stopped=state.stopped.slice(0, 0)) if len(state.stopped) else state
    tables = {
        name: np.frombuffer(b"".join(section.digests), dtype=np.uint8).reshape(len(chains), DIGEST_BYTES)
        for name, section in table_digests(unstopped, replace(context, chains=chains)).items()
        if name != CERTIFIED_DATA_SECTION  # it has leaves of its own
    }
    tables[LOOPBACK] = np.tile(_EMPTY, (len(heads), 1))
    own = state.streams.counters
    own = own.take(np.flatnonzero((own["source"] == own["destination"]) & (own["next_index"] > own["begin"])))
    if len(own):
        rows_of_own, roots_of_own = _loopback_roots(own, state.trees.forest, heads, context)
        tables[LOOPBACK][rows_of_own] = roots_of_own
    labels = tuple(sorted(tables))
    full = heads["number"] % np.uint64(context.options.full_hash_every) == 0
    states = CanonicalStates(
        heights=heads["number"],
        previous=previous,
        has_previous=has_previous,
        times=heads["time"],
        sections=SectionColumns(labels, np.stack([tables[label] for label in labels], axis=1), full),
        certified_data=CertifiedData(rows[local], canister_ids(state.certified_data["program"][local]), values),
        streams=streams,
        version=options.version,
    )
    return states, lanes


def _stream_headers(lanes: Frame, rejects: Frame, context: Context) -> pa.BinaryArray:
    """Encode the header of each stream: its bounds and its signals about reverse messages."""
    row = lookup_rows(lanes, reverse_lanes(rejects), LANE)
    rejects, row = rejects.filter(row >= 0), row[row >= 0]
    order = stable_order(row.astype(np.uint64), rejects["index"])
    bounds = lanes["begin"], lanes["next_index"], lanes["expected"]
    signals = row[order], rejects["index"][order], rejects["reason"][order]
    return encode_stream_headers(*bounds, *signals, context.options.version)


def _loopback_roots(lanes: Frame, forest: StreamForest, heads: Frame, context: Context) -> tuple[Rows, Digests]:
    """Return the subnets (rows of ``heads``) with messages in loopback streams (``lanes``), and the root of these."""
    sources, found = lanes["source"], forest.roots(stream_keys(lanes, context))
    if not context.options.flat:
        groups = group_rows(sources)
        nodes = identified_digests(canister_ids(lanes["substream"]), found)
        sources, found = sources[groups.starts], fork_roots(nodes, groups)
    return find_positions(heads["chain"].astype(np.uint64), sources.astype(np.uint64)), found


def certified_roots(state: State, chains: Chains, context: Context) -> Digests:
    """Return the root of each subnet's state tree, shape (chains, 32)."""
    states, _ = canonical_states(state, state.heads, context)
    assert np.array_equal(state.heads["chain"], chains)
    return state_roots(states).roots
