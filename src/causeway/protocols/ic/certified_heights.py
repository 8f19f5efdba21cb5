"""The heights of certifying subnets: commitment, certification, served data.

Each subnet counts its own heights (``heads``).

Reference:
    IC reference 2.8, 3.1 (5).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.hashing import DIGEST_BYTES
from causeway_proofs.ic.digest_columns import labeled_digests
from causeway_proofs.ic.errors import InvalidShare
from causeway_proofs.ic.slice_payload import MESSAGES
from causeway_proofs.ic.state_columns import CanonicalStates, StateRoots, state_roots
from causeway_proofs.order import U64, find_positions, group_rows, stable_order

from causeway.core.frame import Frame, concat, repeat_bytes, repeat_value
from causeway.core.joins import encode_keys, lookup_rows
from causeway.core.vocabulary import Event, Kind
from causeway.protocols.contract import HEADERS_SCHEMA, Chains
from causeway.protocols.ic.commitment import canonical_states, stream_keys
from causeway.protocols.ic.registry import Context
from causeway.protocols.ic.state import HEADS_SCHEMA, OFFERS_SCHEMA, UNCERTIFIED_SCHEMA, State
from causeway.protocols.ic.streams.certified_slices import has_certification as is_certified
from causeway.protocols.ic.subnet_keys import CertificationTask, Certifier
from causeway.protocols.shared.events import EventLog, event_rows
from causeway.protocols.shared.messages import LANE, blank_messages


def first_heads(chains: Chains) -> Frame:
    """Return the heads of subnets at genesis, height 0, without roots yet."""
    numbers = np.zeros(len(chains), dtype=np.uint64)
    previous = repeat_bytes(b"", len(chains))
    length = len(chains)
    return Frame(
        {
            "chain": chains,
            "number": numbers,
            "time": repeat_value(np.uint64(0), length),
            "previous": previous,
            "root": np.zeros((length, DIGEST_BYTES), dtype=np.uint8),
            "certified": repeat_value(np.uint64(0), length),
            "certification": repeat_bytes(b"", length),
        },
        length,
    ).select(HEADS_SCHEMA.names)


def next_heads(heads: Frame, running: Chains, context: Context) -> Frame:
    """Advance the heads of the subnets in ``running`` by one height; their roots are set later."""
    moved = np.isin(heads["chain"], running)
    time = np.uint64(context.tick * context.tick_ns)
    roots = [root.tobytes() for root in heads["root"]]
    previous = [
        root if moves else before.as_py()
        for root, moves, before in zip(roots, moved.tolist(), heads["previous"], strict=True)
    ]
    return heads.with_columns(
        number=heads["number"] + moved.astype(np.uint64),
        time=np.where(moved, np.maximum(heads["time"], time), heads["time"]),
        previous=pa.array(previous, pa.binary()),
    )


def commit_and_certify(
    state: State, running: Chains, oldest: int, context: Context, certifier: Certifier
) -> tuple[State, EventLog]:
    """Set the roots of heads, certify the due heights, and update the data that endpoints serve.

    Args:
        state: The state after the round.
        running: The subnets at a new height.
        oldest: The age in heights of the oldest slices that faulty carriers offer.
        context: The metadata of the round.
        certifier: The certifier.

    Returns:
        The state, and the events of nodes with false shares.
    """
    states, lanes = canonical_states(state, state.heads, context)
    roots = state_roots(states)
    # The registry may change the canisters, and so the root, of a subnet that runs no round.
    heads = state.heads
    known = heads["root"].any(axis=1)
    other = known & (roots.roots != heads["root"]).any(axis=1) & ~np.isin(heads["chain"], running)
    moved: Chains = heads["chain"][other]
    if len(moved):
        state = replace(state, heads=next_heads(state.heads, moved, context), agreed=_later(state.agreed, moved))
        states, lanes = canonical_states(state, state.heads, context)
        roots, running = state_roots(states), np.union1d(running, moved).astype(np.uint32)
    state = replace(state, heads=state.heads.with_columns(root=roots.roots))
    log = EventLog()
    state = _certify_due(state, running, roots, context, certifier, log)
    return _update_offers(state, running, oldest, states, lanes, roots, context), log


def _later(agreed: Frame, chains: Chains) -> Frame:
    """Move the agreed slices of ``chains`` one height later, after a height without a block."""
    if len(agreed) == 0:
        return agreed
    return agreed.with_columns(executed=agreed["executed"] + np.isin(agreed["destination"], chains))


def apply_splits(state: State, chains: Chains) -> State:
    """Apply the splitting batches of ``chains``: execute agreed slices a height later."""
    return replace(state, agreed=_later(state.agreed, chains)) if chains.size else state


def _certify_due(
    state: State, running: Chains, found: StateRoots, context: Context, certifier: Certifier, log: EventLog
) -> State:
    """Certify the due heights of ``running`` subnets, ``certification_delay`` heights old."""
    heads, delay = state.heads, context.options.certification_delay
    rows = np.flatnonzero(np.isin(heads["chain"], running))
    new = Frame(
        {
            "chain": heads["chain"][rows],
            "number": heads["number"][rows],
            "root": heads["root"][rows],
            "height_witness": pa.array([witness or b"" for witness in found.height_witnesses(rows)], pa.binary()),
        },
        len(rows),
    ).select(UNCERTIFIED_SCHEMA.names)
    uncertified = concat([state.uncertified, new])
    uncertified = uncertified.take(stable_order(uncertified["chain"], uncertified["number"]))
    at = find_positions(heads["chain"].astype(np.uint64), uncertified["chain"].astype(np.uint64))
    due = uncertified["number"] + np.uint64(delay) <= heads["number"][at]
    certified, certifications = heads["certified"].copy(), heads["certification"].to_pylist()
    rows = np.flatnonzero(due)
    tasks = [
        CertificationTask(
            int(uncertified["chain"][row]),
            int(uncertified["number"][row]),
            uncertified["root"][row].tobytes(),
            uncertified["height_witness"][row].as_py() or None,
        )
        for row in rows.tolist()
    ]
    for row, signed in zip(rows.tolist(), certifier.certify_all(tasks), strict=True):
        # Log each node with a false share; `index` is the node's number.
        chain = int(uncertified["chain"][row])
        if signed.false_shares:
            refused_shares = blank_messages(
                len(signed.false_shares), kind=int(Kind.CONTROL), index=np.array(signed.false_shares, dtype=np.uint64)
            )
            about_shares = {
                "chain": repeat_value(np.uint32(chain), len(signed.false_shares)),
                "index": refused_shares["index"],
            }
            log.add(event_rows(refused_shares, Event.REJECTED, reason=InvalidShare.__name__, **about_shares))
        if signed.certification is not None:
            certifications[at[row]] = signed.certification
            certified[at[row]] = uncertified["number"][row]
    heads = heads.with_columns(certified=certified, certification=pa.array(certifications, pa.binary()))
    return replace(state, heads=heads, uncertified=uncertified.filter(~due))


def _update_offers(
    state: State,
    running: Chains,
    oldest: int,
    states: CanonicalStates,
    lanes: Frame,
    found: StateRoots,
    context: Context,
) -> State:
    """Update the data that endpoints serve.

    They serve the last certified height of each stream, uncertified and older ones.

    ``oldest`` is the number of older heights.
    """
    assert state.trees is not None
    heads = state.heads
    # Up to V19 the loopback stream is in the state, but is never served.
    rows = np.flatnonzero(np.isin(lanes["source"], running) & (lanes["source"] != lanes["destination"]))
    part = lanes.take(rows)
    head = find_positions(heads["chain"].astype(np.uint64), part["source"].astype(np.uint64))
    keys = stream_keys(part, context)
    # Anchor each stream at its newest segment if that is complete, else at its begin.
    runs = state.runs
    begin: U64 = part["begin"]
    if len(runs) == 0:
        anchor: U64 = begin
    else:
        groups = group_rows(*(runs[name] for name in LANE))
        last = runs.take(groups.starts + groups.counts - 1)
        row = lookup_rows(last, part, LANE)
        anchor = np.where(row >= 0, np.maximum(last["first"][row], begin), begin)
    siblings, counts = state.trees.forest.left_siblings(keys, anchor)
    # The digests of each row, joined.
    offsets = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(DIGEST_BYTES * counts, out=offsets[1:])
    data = np.ascontiguousarray(siblings).reshape(-1)
    new = part.select(LANE).with_columns(
        number=heads["number"][head],
        begin=part["begin"],
        anchor=anchor,
        header=states.streams.headers.take(pa.array(rows)),
        siblings=pa.BinaryArray.from_buffers(
            pa.binary(), len(counts), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        ),
        messages=labeled_digests(MESSAGES, np.ascontiguousarray(states.streams.message_roots[rows])),
        path=found.paths.take(pa.array(rows)),
        certification=repeat_bytes(b"", len(rows)),
    )
    offers = concat([state.offers, new.select(OFFERS_SCHEMA.names)])
    head = find_positions(heads["chain"].astype(np.uint64), offers["source"].astype(np.uint64))
    number, certified = offers["number"], heads["certified"][head]
    now = is_certified(heads)[head] & (number == certified)
    if now.any():
        certifications = heads["certification"].take(pa.array(head))
        offers = offers.with_columns(certification=pc.if_else(pa.array(now), certifications, offers["certification"]))
    # A height skipped when it was due never gets a certification.
    is_pending = number + np.uint64(context.options.certification_delay) > heads["number"][head]
    offers = offers.filter(is_pending | (is_certified(offers) & (number + np.uint64(oldest) >= certified)))
    offers = offers.take(stable_order(*(offers[name] for name in (*LANE, "number"))))
    return replace(state, offers=offers)


def trim_runs(before: State, after: State) -> Frame:
    """Return the collected segments (``RUNS_SCHEMA``) that ``after.offers`` still refer to."""
    candidates = before.runs if len(before.trimmed_runs) == 0 else concat([before.trimmed_runs, before.runs])
    candidates = candidates.take(stable_order(*(candidates[name] for name in (*LANE, "first"))))
    offers = after.offers
    if len(candidates) == 0 or len(offers) == 0:
        return candidates.slice(0, 0)
    groups = group_rows(*(offers[name] for name in LANE))
    least = np.minimum.reduceat(offers["begin"], groups.starts)
    row = lookup_rows(offers.select(LANE).take(groups.starts), candidates, LANE)
    needed = (row >= 0) & (candidates["first"] + candidates["count"] > least[row])
    present, candidate_keys = encode_keys((*LANE, "first"), after.runs, candidates)
    return candidates.filter(needed & ~np.isin(candidate_keys, present))


def headers(state: State, chains: Chains) -> Frame:
    """Return the headers of ``chains`` (``HEADERS_SCHEMA``), with their own heights."""
    heads = state.heads
    assert np.array_equal(heads["chain"], chains)
    nothing = repeat_bytes(b"", len(chains))
    return Frame(
        {
            "chain": chains,
            "number": heads["number"],
            "hash": nothing,
            "parent": nothing,
            "root": heads["root"],
            "certification": heads["certification"],
        }
    ).select(HEADERS_SCHEMA.names)
