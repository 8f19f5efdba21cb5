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
from causeway_proofs.ic.state_columns import CanonicalStates, StateRoots, state_roots
from causeway_proofs.ic.stream_tree import MESSAGES_LABEL
from causeway_proofs.order import U64, find_positions, group_rows, stable_order

from causeway.core.frame import Frame, concat, repeat_bytes
from causeway.core.joins import encode_keys, lookup_rows
from causeway.core.vocabulary import Event, Kind
from causeway.protocols.contract import HEADERS_SCHEMA, Chains
from causeway.protocols.ic.commitment import canonical_states, stream_keys, update_trees
from causeway.protocols.ic.registry import Context
from causeway.protocols.ic.state import HEADS_SCHEMA, OFFERS_SCHEMA, State
from causeway.protocols.ic.streams.certified_slices import has_certification as is_certified
from causeway.protocols.ic.subnet_keys import CertificationTask, Certifier
from causeway.protocols.shared.events import EventLog, event_rows
from causeway.protocols.shared.messages import LANE, blank_messages


def first_heads(chains: Chains) -> Frame:
    """Return the heads of subnets at genesis, height 0, without roots yet."""
    heads = Frame({"chain": chains, "number": np.zeros(len(chains), dtype=np.uint64)}, len(chains))
    root, nothing = np.zeros((len(chains), DIGEST_BYTES), dtype=np.uint8), repeat_bytes(b"", len(chains))
    heads = heads.with_columns(time=np.uint64(0), certified=np.uint64(0), root=root)
    return heads.with_columns(previous=nothing, certification=nothing).select(HEADS_SCHEMA.names)


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
    state: State,
    before: State | None,
    running: Chains,
    appended: Frame,
    oldest: int,
    context: Context,
    certifier: Certifier,
) -> tuple[State, Frame, EventLog]:
    """Commit to the state and certify it (3.1 (5)).

    Set the roots of heads, certify the due heights, and update the data that endpoints serve.

    Args:
        state: The state after the round.
        before: The state before the round; None at genesis.
        running: The subnets at a new height.
        appended: The messages appended to streams (``OUTBOUND_SCHEMA``).
        oldest: The age in heights of the oldest slices that faulty carriers offer.
        context: The metadata of the round, with all chains of the call.
        certifier: The certifier.

    Returns:
        The state, the headers of all chains with their own heights (``HEADERS_SCHEMA``), and the events of nodes with
        false shares.
    """
    state = update_trees(state, appended, context)
    if before is not None:
        state = replace(state, heads=next_heads(state.heads, running, context))
        splits = np.intersect1d(running, context.splitting)
        if splits.size:
            # A splitting batch executes no slices: the agreed ones wait for a height more.
            state = replace(state, agreed=_later(state.agreed, splits))
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
    state = _update_offers(state, running, oldest, states, lanes, roots, context)
    if before is not None:
        state = replace(state, trimmed_runs=trim_runs(before, state))
    nothing = repeat_bytes(b"", len(state.heads))
    return state, state.heads.with_columns(hash=nothing, parent=nothing).select(HEADERS_SCHEMA.names), log


def _later(agreed: Frame, chains: Chains) -> Frame:
    """Move the agreed slices of ``chains`` one height later, after a height without a block."""
    if len(agreed) == 0:
        return agreed
    return agreed.with_columns(executed=agreed["executed"] + np.isin(agreed["destination"], chains))


def _certify_due(
    state: State, running: Chains, found: StateRoots, context: Context, certifier: Certifier, log: EventLog
) -> State:
    """Certify the due heights of ``running`` subnets, ``certification_delay`` heights old."""
    heads, delay = state.heads, context.options.certification_delay
    rows = np.flatnonzero(np.isin(heads["chain"], running))
    witnesses = pa.array([witness or b"" for witness in found.height_witnesses(rows)], pa.binary())
    new = heads.select(["chain", "number", "root"]).take(rows).with_columns(height_witness=witnesses)
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
        shares = np.array(signed.false_shares, dtype=np.uint64)
        control, chain = blank_messages(len(shares), kind=int(Kind.CONTROL)), uncertified["chain"][row]
        log.add(event_rows(control, Event.REJECTED, chain=chain, index=shares, reason=InvalidShare.__name__))
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
        messages=labeled_digests(MESSAGES_LABEL, np.ascontiguousarray(states.streams.message_roots[rows])),
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
