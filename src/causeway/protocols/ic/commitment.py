"""The digests of a subnet's tables, its sections, and its state root where subnets certify nothing.

There the root is SHA-256 over the digests of the sections, each a digest of the section's columns in their canonical
order; that of certified data, the last, where there is any. Messages in streams enter by the Merkle root of the run
they were appended in, so a message is hashed once in its life on a chain. The root that subnets certify stands in
``certified_state``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.frame import Frame
from causeway.model.order import groups_of
from causeway.model.queues import Queues
from causeway.proofs.hashing import DIGEST_BYTES, Digests, HashFunction, binary_rows, digest_in_pieces, sha256
from causeway.proofs.merkle import LEAF_PREFIX, merkle_roots
from causeway.protocols.contract import Chains
from causeway.protocols.execution import PROGRAM_TABLE
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.messages import MESSAGE_OVERHEAD
from causeway.protocols.ic.state import NOT_COMMITTED, RUNS_SCHEMA, STATE_TABLES, State
from causeway.protocols.messages import LANE, MESSAGE_COLUMNS, payload_lengths
from causeway.protocols.sections import EMPTY_DIGEST, Hashed, Section, hashed_columns, hashed_rows

ROOT_DOMAIN = b"causeway-ic-state-1"

CERTIFIED_DATA_SECTION = "certified_data"
"""The section of what canisters let their subnets certify. The state tree has it as leaves of its own."""

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
    return digest_in_pieces(HashFunction.SHA256, len(hashed), lambda start, stop: _preimages(hashed.slice(start, stop)))


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
        bytes=np.add.reduceat(payload_lengths(outbound) + np.uint64(MESSAGE_OVERHEAD), groups.starts),
        root=_NO_ROOT.repeat(len(groups), axis=0)
        if context.options.certified
        else merkle_roots(message_leaves(outbound), groups),
    ).select(RUNS_SCHEMA.names)


_NO_ROOT = np.zeros((1, DIGEST_BYTES), dtype=np.uint8)
"""The root of a segment where the trees of streams commit to their messages."""


def state_roots(state: State, context: Context) -> Digests:
    """Return the root of each chain of ``context.chains``, shape (chains, 32), where they certify nothing.

    What the state has kept of its last roots (``State.hashed``) saves hashing what is the same, and is moved on.
    """
    known = state.hashed.last
    before = known if known is not None and known.is_of(context.chains, context.registry) else None
    sections = sections_of(state, context)
    changed = np.full(len(context.chains), before is None)
    for name, section in sections.items():
        if before is None or section is not before.sections[name]:
            changed[section.changed] = True
    kept = None if before is None else before.roots
    chains = len(context.chains)
    roots = np.empty((chains, DIGEST_BYTES), dtype=np.uint8) if kept is None else kept.copy()
    digests = [section.digests for name, section in sections.items() if name != CERTIFIED_DATA_SECTION]
    data = sections[CERTIFIED_DATA_SECTION].digests
    rows = changed.nonzero()[0]

    def preimage(chain: int) -> bytes:
        certified = b"" if data[chain] == EMPTY_DIGEST else data[chain]
        return b"".join([ROOT_DOMAIN, *(of[chain] for of in digests), certified])

    made = [sha256(preimage(chain)) for chain in rows.tolist()]
    roots[rows] = np.frombuffer(b"".join(made), dtype=np.uint8).reshape(len(made), DIGEST_BYTES)
    roots.setflags(write=False)
    assert state.hashed.last is not None
    state.hashed.last = replace(state.hashed.last, roots=roots)
    return roots


def sections_of(state: State, context: Context) -> dict[str, Section]:
    """Return the digests of each of the state's tables, one a chain of ``context.chains``.

    What the state has kept of those of before (``State.hashed``) saves hashing what is the same, and is moved on.
    """
    chains, known = context.chains, state.hashed.last
    before = known if known is not None and known.is_of(chains, context.registry) else None
    tables: dict[str, Frame] = {}
    sections: dict[str, Section] = {}
    for name, frame, owner, hashing in _sections(state, context):
        old = None if before is None else before.sections[name]
        tables[name] = frame
        if (
            before is not None
            and old is not None
            and (frame is before.tables[name] or len(frame) == len(before.tables[name]) == 0)
        ):
            sections[name] = old
            continue
        sections[name] = hashing(frame, owner(), chains, old)
    state.hashed.last = Hashed(chains, context.registry, tables, sections, None if before is None else before.roots)
    return sections


Owners = npt.NDArray[np.uint32]

_Hashing = Callable[[Frame, Owners, Chains, Section | None], Section]


_Part = tuple[str, Frame, Callable[[], Owners], _Hashing]


def _sections(state: State, context: Context) -> Iterator[_Part]:
    """Yield what enters a root, in order: a name, the rows, whose they are, and how they are hashed."""

    def hosts(frame: Frame, canister: str) -> Callable[[], Owners]:
        return lambda: context.host_of(frame[canister]).view(np.uint32)

    def queues(
        name: str, found: Queues, counters: _Hashing = hashed_rows
    ) -> Iterator[tuple[str, Frame, Any, _Hashing]]:
        owner = found.keys[0]
        yield f"{name}_counters", found.counters, hosts(found.counters, owner), counters
        yield f"{name}_queues", found.elements, hosts(found.elements, owner), hashed_rows

    yield from queues("ingress", state.ingress_queues, _named_twice)
    yield from queues("input", state.input_queues)
    yield from queues("output", state.output_queues)
    calls = state.open_calls.rows
    yield "open_calls", calls, hosts(calls, "originator"), hashed_columns
    yield "in_hand", state.in_hand, hosts(state.in_hand, "respondent"), hashed_rows
    yield "turns", state.turns, hosts(state.turns, "receiver"), hashed_rows
    yield "next_sources", state.next_sources, hosts(state.next_sources, "receiver"), hashed_rows
    frames = state.frames()
    for name, owner in _OF_CHAINS.items():
        yield name, frames[name], partial(frames[name].__getitem__, owner), hashed_rows
    yield "accounts", state.accounts, hosts(state.accounts, "program"), hashed_rows
    for name in sorted(state.programs):
        yield PROGRAM_TABLE + name, state.programs[name], hosts(state.programs[name], "program"), hashed_rows
    data = state.certified_data
    yield CERTIFIED_DATA_SECTION, data, hosts(data, "program"), hashed_rows


_OF_CHAINS = {
    name: table.owner
    for name, table in STATE_TABLES.items()
    if table.owner in table.chains and name not in NOT_COMMITTED
}
"""The tables of which chains own the rows, and the column that says which, in the order of their sections."""


def _named_twice(frame: Frame, owner: Owners, chains: Chains, before: Section | None) -> Section:
    """Hash the counters of ingress queues: their key enters twice, as if it were the sender too."""
    receiver = frame["receiver"]
    named = Frame({"receiver": receiver, "sender": receiver, "next_index": frame["next_index"]})
    return hashed_rows(named, owner, chains, before)
