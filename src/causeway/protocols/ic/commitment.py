"""The state root of a subnet, and the Merkle roots of what it appends to its streams.

Until certification (a later part) a header carries this root: SHA-256 over the digests of the state's sections, each a
digest of the section's columns in their canonical order. Messages in streams enter by the Merkle root of the run they
were appended in, so a message is hashed once in its life on a chain and each can be proved against the root.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.frame import Frame
from causeway.model.order import groups_of
from causeway.proofs.hashing import DIGEST_BYTES, Digests, binary_rows, sha256_in_pieces
from causeway.proofs.merkle import LEAF_PREFIX, merkle_roots
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.messages import message_sizes
from causeway.protocols.ic.state import NOT_COMMITTED, RUNS_SCHEMA, STATE_TABLES, State
from causeway.protocols.messages import LANE, MESSAGE_COLUMNS
from causeway.protocols.sections import column_digests, section_digests

ROOT_DOMAIN = b"causeway-ic-state-1"

HEADER_TYPE = np.dtype(
    [
        ("prefix", "u1"),
        ("kind", "u1"),
        ("code", "u1"),
        ("method_length", ">u4"),
        ("deadline", ">u4"),
        ("sender", ">u8"),
        ("receiver", ">u8"),
        ("callback", ">u8"),
        ("amount_high", ">u8"),
        ("amount_low", ">u8"),
    ]
)
"""The fixed part of a message's leaf; method and payload follow it."""


def message_leaves(messages: Frame) -> Digests:
    """Return the leaf hash of each message: SHA-256(00 || fixed fields || method || payload)."""
    hashed = Frame({name: messages[name] for name in MESSAGE_COLUMNS}, len(messages))
    return sha256_in_pieces(len(hashed), lambda start, stop: _preimages(hashed.slice(start, stop)))


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


def segments_of(outbound: Frame, context: Context) -> Frame:
    """Return one segment (``RUNS_SCHEMA``) for each substream that ``outbound`` (by lane, ascending) appends to."""
    groups = groups_of(outbound["destination"], outbound["source"], outbound["substream"])
    heads = outbound.select(LANE).take(groups.starts)
    return heads.with_columns(
        height=np.uint64(context.height),
        tick=np.uint64(context.tick),
        first=outbound["index"][groups.starts],
        count=groups.counts.astype(np.uint64),
        bytes=np.add.reduceat(message_sizes(outbound), groups.starts),
        root=merkle_roots(message_leaves(outbound), groups),
    ).select(RUNS_SCHEMA.names)


def state_roots(state: State, context: Context) -> Digests:
    """Return the root of each chain of ``context.chains``, shape (chains, 32)."""
    preimages = [bytearray(ROOT_DOMAIN) for _ in context.chains]
    for section in _sections(state, context):
        for preimage, digest in zip(preimages, section, strict=True):
            preimage += digest
    joined = b"".join([hashlib.sha256(preimage).digest() for preimage in preimages])
    return np.frombuffer(joined, dtype=np.uint8).reshape(len(preimages), DIGEST_BYTES)


def _sections(state: State, context: Context) -> Iterable[list[bytes]]:
    ingress = state.ingress_queues.counters
    # The key of an ingress queue enters twice, as if it were its sender too.
    named = Frame({"receiver": ingress["receiver"], "sender": ingress["receiver"], "next_index": ingress["next_index"]})
    yield _digests(named, "receiver", context)
    yield _digests(state.ingress_queues.elements, "receiver", context)
    for queues in (state.input_queues, state.output_queues):
        yield _digests(queues.counters, queues.keys[0], context)
        yield _digests(queues.elements, queues.keys[0], context)
    calls = state.open_calls.rows
    yield column_digests(calls, context.host_of(calls["originator"]).view(np.uint32), context.chains)
    yield _digests(state.in_hand, "respondent", context)
    yield _digests(state.turns, "receiver", context)
    yield _digests(state.next_sources, "receiver", context)
    for name, table in STATE_TABLES.items():
        if table.owner in table.chains and name not in NOT_COMMITTED:
            frame = state.frames()[name]
            yield section_digests(frame, frame[table.owner], context.chains)
    yield _digests(state.accounts, "program", context)
    for name in sorted(state.programs):
        yield _digests(state.programs[name], "program", context)


def _digests(frame: Frame, canister: str, context: Context) -> list[bytes]:
    """Return one digest a chain over its rows of a section, which belong to the hosts of the ``canister`` column."""
    return section_digests(frame, context.host_of(frame[canister]).view(np.uint32), context.chains)
