"""The heights of subnets that certify their states: what a round commits to, what is signed of it and when, what
endpoints serve of it (IC reference 2.8, 3.1 (5)). Each subnet counts its own heights (``heads``).
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
    """Return the heads of subnets at their genesis, height 0 of each; their roots are not known yet."""
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
    """Return the heads after a batch of the subnets that are ``running``; their roots are not known yet."""
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
    """Return the state with the roots of its heads, certified as far as that is due, and what endpoints serve of it;
    and the events of nodes that gave false shares.

    ``running``: the subnets that are at a new height; ``oldest``: by how many heights what carriers offer is older than
    what is certified last (a fault).
    """
    states, lanes = canonical_states(state, state.heads, context)
    found = state_roots(states)
    # The subnets that run no round and have another root than before: the registry has taken canisters from them,
    # or brought some.
    heads = state.heads
    known = heads["root"].any(axis=1)
    other = known & (found.roots != heads["root"]).any(axis=1) & ~np.isin(heads["chain"], running)
    moved: Chains = heads["chain"][other]
    if len(moved):
        state = replace(state, heads=next_heads(state.heads, moved, context), agreed=_later(state.agreed, moved))
        states, lanes = canonical_states(state, state.heads, context)
        found, running = state_roots(states), np.union1d(running, moved).astype(np.uint32)
    state = replace(state, heads=state.heads.with_columns(root=found.roots))
    log = EventLog()
    state = _certified(state, running, found, context, certifier, log)
    return _offering(state, running, oldest, states, lanes, found, context), log


def _later(agreed: Frame, chains: Chains) -> Frame:
    """Return the agreed slices, those of ``chains`` a height later: a height came before which no block made."""
    if len(agreed) == 0:
        return agreed
    return agreed.with_columns(executed=agreed["executed"] + np.isin(agreed["destination"], chains))


def apply_splits(state: State, chains: Chains) -> State:
    """Return the state after the splitting batches of ``chains``: their agreed slices are executed a height later."""
    return replace(state, agreed=_later(state.agreed, chains)) if chains.size else state


def _certified(
    state: State, running: Chains, found: StateRoots, context: Context, certifier: Certifier, log: EventLog
) -> State:
    """Certify the heights that are due: those that ``running`` subnets made ``certification_delay`` heights ago."""
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
    waiting = concat([state.uncertified, new])
    waiting = waiting.take(stable_order(waiting["chain"], waiting["number"]))
    at = find_positions(heads["chain"].astype(np.uint64), waiting["chain"].astype(np.uint64))
    due = waiting["number"] + np.uint64(delay) <= heads["number"][at]
    certified, certifications = heads["certified"].copy(), heads["certification"].to_pylist()
    rows = np.flatnonzero(due)
    wanted = [
        CertificationTask(
            int(waiting["chain"][row]),
            int(waiting["number"][row]),
            waiting["root"][row].tobytes(),
            waiting["height_witness"][row].as_py() or None,
        )
        for row in rows.tolist()
    ]
    for row, signed in zip(rows.tolist(), certifier.certify_all(wanted), strict=True):
        # Write an event for each node of a subnet whose share was found to be false; `index` is the node's number.
        chain = int(waiting["chain"][row])
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
            certified[at[row]] = waiting["number"][row]
    heads = heads.with_columns(certified=certified, certification=pa.array(certifications, pa.binary()))
    return replace(state, heads=heads, uncertified=waiting.filter(~due))


def _offering(
    state: State,
    running: Chains,
    oldest: int,
    states: CanonicalStates,
    lanes: Frame,
    found: StateRoots,
    context: Context,
) -> State:
    """Return the state with what endpoints serve: of each stream the height certified last, those that wait for their
    certification, and ``oldest`` older ones."""
    assert state.trees is not None
    heads = state.heads
    # Up to V19 the loopback stream is in the state, but nobody takes slices of it.
    mine = np.flatnonzero(np.isin(lanes["source"], running) & (lanes["source"] != lanes["destination"]))
    part = lanes.take(mine)
    head = find_positions(heads["chain"].astype(np.uint64), part["source"].astype(np.uint64))
    keys = stream_keys(part, context)
    # The first message of the newest segment of each stream, where it is still in it whole; else where the stream
    # begins.
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
        header=states.streams.headers.take(pa.array(mine)),
        siblings=pa.BinaryArray.from_buffers(
            pa.binary(), len(counts), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        ),
        messages=labeled_digests(MESSAGES_LABEL, np.ascontiguousarray(states.streams.message_roots[mine])),
        path=found.paths.take(pa.array(mine)),
        certification=repeat_bytes(b"", len(mine)),
    )
    offers = concat([state.offers, new.select(OFFERS_SCHEMA.names)])
    head = find_positions(heads["chain"].astype(np.uint64), offers["source"].astype(np.uint64))
    number, certified = offers["number"], heads["certified"][head]
    now = is_certified(heads)[head] & (number == certified)
    if now.any():
        given = heads["certification"].take(pa.array(head))
        offers = offers.with_columns(certification=pc.if_else(pa.array(now), given, offers["certification"]))
    # One that was passed over when it was due never gets a certification.
    waits = number + np.uint64(context.options.certification_delay) > heads["number"][head]
    offers = offers.filter(waits | (is_certified(offers) & (number + np.uint64(oldest) >= certified)))
    offers = offers.take(stable_order(*(offers[name] for name in (*LANE, "number"))))
    return replace(state, offers=offers)


def trim_runs(before: State, after: State) -> Frame:
    """Return the segments that are collected and that ``after.offers`` still reach into (``RUNS_SCHEMA``); ``before``:
    the state that the round began with."""
    candidates = before.runs if len(before.trimmed_runs) == 0 else concat([before.trimmed_runs, before.runs])
    candidates = candidates.take(stable_order(*(candidates[name] for name in (*LANE, "first"))))
    offers = after.offers
    if len(candidates) == 0 or len(offers) == 0:
        return candidates.slice(0, 0)
    groups = group_rows(*(offers[name] for name in LANE))
    least = np.minimum.reduceat(offers["begin"], groups.starts)
    row = lookup_rows(offers.select(LANE).take(groups.starts), candidates, LANE)
    needed = (row >= 0) & (candidates["first"] + candidates["count"] > least[row])
    held, asked = encode_keys((*LANE, "first"), after.runs, candidates)
    return candidates.filter(needed & ~np.isin(asked, held))


def headers(state: State, chains: Chains) -> Frame:
    """Return the headers of ``chains`` (``HEADERS_SCHEMA``): their own heights, their roots, and the certifications
    that they made last."""
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
