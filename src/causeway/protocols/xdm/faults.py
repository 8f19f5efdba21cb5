"""Faults of a network of domains: bad operators and reorganisations.

A bad operator submits false receipts of a domain's blocks, and envelopes proved under forged storage. Honest operators
execute the domain, so its own state is never wrong. The forgery is complete: its root is that of a trie with the
domain's entries and a false one, and the proofs are valid under it (1.4).

A reorganisation changes the best fork of the consensus chain (XDM reference G4, X-4, X-5). All domains follow the
consensus chain, so every chain returns to its state at that height, and later blocks are abandoned. No chain makes a
block in the tick of the change. Final blocks, K blocks deep, are never abandoned.

Data outside of the chains' state does not roll back: messages from users return to the pool, and carriers keep their
deliveries. The progress of operators holds on one fork only, so ``relaying`` is cleared and they prove again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import group_rows, stable_order
from causeway_proofs.substrate import prove_storage, storage_prefix

from causeway.config.faults import FaultRule
from causeway.config.traffic import INGRESS_SCHEMA
from causeway.core.frame import Frame, concat, empty_frame, from_table
from causeway.core.vocabulary import REVERTED_SCHEMA, Kind
from causeway.protocols.contract import HEIGHTS_SCHEMA, PAST_SCHEMA, Chains, Reads, View
from causeway.protocols.shared.digests import OWN_PALLET
from causeway.protocols.shared.messages import LANE, blank_messages
from causeway.protocols.shared.random_numbers import DrawPurpose, draw_words
from causeway.protocols.shared.state_tables import blank_rows
from causeway.protocols.xdm.chains import CONSENSUS_POSITION, TRANSPORTER_ENDPOINT
from causeway.protocols.xdm.consensus.bundles import FraudKind
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.fault_kinds import AMOUNT, CHANCE, DEPTH, FOUND_AFTER, MOST, REORG, WHAT
from causeway.protocols.xdm.options import XdmOptions
from causeway.protocols.xdm.relay.carriers import LATE, CarrierInterference, CarrierLoad, late_tables, sort_rows
from causeway.protocols.xdm.relay.envelopes import encode_envelopes
from causeway.protocols.xdm.relay.proofs import bases_between
from causeway.protocols.xdm.state import (
    REQUEST,
    RequestKind,
    State,
    channel_rows,
    named_rows,
    substream,
    table_from_rows,
)
from causeway.protocols.xdm.storage import ChainTries
from causeway.protocols.xdm.tables import (
    BASE,
    BASES_SCHEMA,
    CLAIMS_SCHEMA,
    ENVELOPES_SCHEMA,
    FORGED_SCHEMA,
    INDEXED,
    LATE_SCHEMA,
    NEVER_FOUND,
    NODES_SCHEMA,
    OUTBOX_SCHEMA,
    POOL_SCHEMA,
    RELAYING_SCHEMA,
    STATE_TABLES,
)
from causeway.protocols.xdm.validate import DeliveredEnvelopes
from causeway.protocols.xdm.value.transporter import encode_transfers
from causeway.protocols.xdm.wire import encode_requests, message_keys, request_tags

Claim = dict[str, Any]
"""A row of ``CLAIMS_SCHEMA``."""


def forge(state: State, tries: ChainTries, view: View, interference: CarrierInterference, context: Context) -> State:
    """Add the false receipts and forged envelopes of bad operators.

    They are in the tables ``claims`` and ``forged``.

    Args:
        state: State after the block.
        tries: Storage of the chains.
        view: Tables that chains published at the previous height.
        interference: Faults of the scenario.
        context: Context of the block.
    """
    faults = interference.frauds(context.chains, context.tick, context.height)
    if not faults and not len(state["claims"]):
        return state if not len(state["forged"]) else state.with_tables(forged=empty_frame(FORGED_SCHEMA))
    claims = {claim["chain"]: claim for claim in named_rows(state["claims"]) if _continues(claim, view)}
    for chain, fault in faults:
        if chain not in claims:
            claims[chain] = _new_claim(chain, fault, interference, state, tries, view, context)
    rows, envelopes = [], []
    for chain in sorted(claims):
        claim = {**claims[chain], "number": context.number}
        trie = _with_entry(tries, tries.present[chain], claim)
        rows.append({**claim, "root": tries.tries.roots(trie)[0].tobytes()})
        if claim["what"] == FraudKind.MESSAGE and len(view.tables["anchor"]):
            if tries.number[chain] >= claim["origin"]:
                # A false receipt was confirmed, so the proof is under confirmed storage.
                tries.tries.close(trie)
                trie = _with_entry(tries, tries.provable[chain], claim)
            envelopes.append((chain, claim["foreign"], _envelope(tries, trie, claim, view)))
        tries.tries.close(trie)
    columns = [list(column) for column in zip(*envelopes, strict=True)] or [[], [], []]
    ends = {name: np.array(columns[at], dtype=np.uint32) for at, name in enumerate(("source", "destination"))}
    forged = Frame({**ends, "envelope": pa.array(columns[2], pa.binary())}, len(envelopes))
    return state.with_tables(claims=table_from_rows(rows, CLAIMS_SCHEMA), forged=forged)


def _continues(claim: Claim, view: View) -> bool:
    """Return True while a fraud continues: no accepted receipt, or no fraud proof yet."""
    known, frauds = view.tables["receipted"], view.tables["frauds"]
    accepted = known["number"][known["domain"] == claim["chain"]]
    if not len(accepted) or int(accepted[0]) < claim["origin"]:
        return True
    return bool(((frauds["domain"] == claim["chain"]) & (frauds["number"] == claim["origin"])).any())


def _new_claim(
    chain: int,
    fault: FaultRule,
    interference: CarrierInterference,
    state: State,
    tries: ChainTries,
    view: View,
    context: Context,
) -> Claim:
    """Create the claim of a fraud that begins with this block."""
    foreign = CONSENSUS_POSITION if fault.destination is None else interference.positions[fault.destination]
    kind = FraudKind[str(fault.args[WHAT]).upper()]
    # A forged message has the nonce that the peer expects next, in the latest channel, or in the first possible one.
    ends = {"source": np.array([chain], dtype=np.uint32), "destination": np.array([foreign], dtype=np.uint32)}
    channels = state["channels"]
    numbers = channels["channel"][(channels["chain"] == chain) & (channels["foreign"] == foreign)]
    channel = np.array([int(numbers.max()) if len(numbers) else 0], dtype=np.uint64)
    peer_channels = view.tables["channels"]
    row = int(channel_rows(peer_channels, ends["destination"], ends["source"], channel)[0])
    index = int(peer_channels["next_inbox"][row]) if row >= 0 else 0
    lane = Frame({**ends, "substream": substream(channel, REQUEST), "index": np.array([index], dtype=np.uint64)}, 1)
    claim: Claim = {
        "chain": chain,
        "destination": CONSENSUS_POSITION,
        "origin": context.number,
        "number": context.number,
        "what": int(kind),
        "found_after": int(fault.args.get(FOUND_AFTER, NEVER_FOUND)),
        "foreign": foreign,
        "substream": int(lane["substream"][0]),
        "index": int(lane["index"][0]),
        "amount": int(fault.args[AMOUNT]),
        "key": b"",
        "value": b"",
    }
    if kind == FraudKind.MESSAGE:
        entry = {"key": message_keys(lane)[0].as_py(), "value": _message(lane, claim, state["channels"], context)}
    elif kind in (FraudKind.ROOT, FraudKind.BUNDLE):
        key = storage_prefix(OWN_PALLET, "money")
        now = tries.tries.get(np.array([tries.present[chain]]), [key])[0].as_py()
        entry = {"key": key, "value": now[:-1] + bytes([now[-1] ^ 1])}
    else:
        entry = {}
    return claim | entry


def _message(lane: Frame, claim: Claim, channels: Frame, context: Context) -> bytes:
    """Encode a transfer without a sender, to the first program of the destination."""
    programs = context.network.programs
    local_programs = programs[context.network.host_of(programs) == claim["foreign"]]
    receiver = int(local_programs[0]) if len(local_programs) else 0
    amount = np.array([claim["amount"]], dtype=np.uint64)
    call = blank_messages(1, kind=int(Kind.REQUEST), sender=receiver, receiver=receiver, amount_low=amount)
    payload = encode_transfers(call.with_columns(**{name: lane[name] for name in LANE})).cast(pa.binary())
    ends = dict.fromkeys(("src_endpoint", "dst_endpoint"), TRANSPORTER_ENDPOINT)
    lanes = {name: lane[name] for name in INDEXED}
    request = blank_rows(OUTBOX_SCHEMA, 1, **lanes, asked=RequestKind.ENDPOINT, payload=payload, **ends)
    message: bytes = encode_requests(request, channels)[0].as_py()
    return message


def _with_entry(tries: ChainTries, trie: int, claim: Mapping[str, Any]) -> np.ndarray:
    """Copy a trie and add the entry of a claim."""
    copy = tries.tries.copy(np.array([trie], dtype=np.int64))
    if claim["key"]:
        tries.tries.update(copy, [claim["key"]], [claim["value"]])
    return copy


def _envelope(tries: ChainTries, trie: np.ndarray, claim: Claim, view: View) -> bytes:
    """Encode the envelope of a forged message, proved under a forged trie."""
    ends = {
        "source": np.array([claim["chain"]], dtype=np.uint32),
        "destination": np.array([claim["foreign"]], dtype=np.uint32),
    }
    proof = prove_storage(tries.tries, trie, [claim["key"]])
    nodes = proof.nodes_of(0)
    numbers = np.arange(len(nodes), dtype=np.uint32)
    tag = request_tags(np.array([RequestKind.ENDPOINT]), np.array([TRANSPORTER_ENDPOINT], dtype=np.uint64))
    members = pa.array([numbers.astype("<u4").tobytes()], pa.binary())
    lane = {"substream": claim["substream"], "index": claim["index"]}
    envelope = blank_rows(LATE_SCHEMA, 1, **ends, **lane, tag=tag, members=members)
    rows = envelope.select(BASE).take(np.zeros(len(nodes), dtype=np.int64))
    of_nodes = rows.with_columns(number=numbers, node=pa.array(nodes, pa.binary()))
    bases = bases_between(Frame(ends, 1), view).with_columns(base=np.zeros(1, dtype=np.uint64))
    encoded: bytes = encode_envelopes(DeliveredEnvelopes(envelope, of_nodes, bases))[0].as_py()
    return encoded


_REACH = 4


@dataclass(frozen=True)
class ForkPoint:
    """A block of the consensus chain to return to, and its height."""

    number: int
    height: int


def check_depths(faults: Sequence[FaultRule], options: XdmOptions) -> None:
    """Check that no reorganisation reaches final blocks.

    Args:
        faults: Faults of the scenario.
        options: Options of the protocol.

    Raises:
        InvalidInput: A reorganisation is too deep.
    """
    for fault in faults:
        depth = int(fault.args.get(DEPTH, fault.args.get(MOST, 1))) if fault.kind == REORG else 0
        if depth >= options.archiving_depth:
            key = MOST if CHANCE in fault.args else DEPTH
            text = f"allowed: less than options.archiving_depth, {options.archiving_depth}: final blocks are permanent"
            raise InvalidInput(f'faults: kind = "{REORG}": {key} = {depth}; {text}')


def max_rollback(options: XdmOptions) -> int:
    """Return the maximum rollback in heights.

    Consecutive forks from one block can exceed the depth of a single fork.
    """
    return _REACH * options.archiving_depth


def fork_at(view: View, interference: CarrierInterference, context: Context, furthest: int) -> ForkPoint | None:
    """Return the block to return to in this tick, or None; equal on all chains.

    Args:
        view: Tables that chains published at the previous height.
        interference: Faults of the scenario; a halted consensus chain does not fork.
        context: Context of the block.
        furthest: Maximum rollback in heights.
    """
    depth = 0
    for position, fault in enumerate(interference.acting(context.tick, REORG)):
        if CHANCE not in fault.args:
            depth = max(depth, int(fault.args[DEPTH]))
            continue
        draws = np.random.Generator(draw_words(DrawPurpose.FORK, context.seed, position, context.tick))
        if draws.random() < float(fault.args[CHANCE]):
            depth = max(depth, 1 + int(draws.integers(int(fault.args[MOST]))))
    blocks = view.tables["blocks"]
    is_running = len(interference.running(np.array([CONSENSUS_POSITION], dtype=np.uint32), context.tick))
    if depth == 0 or len(blocks) < 2 or not is_running:
        return None
    best = int(blocks["number"][-1])
    row = max(int(np.searchsorted(blocks["number"], np.uint64(max(best - depth, 0)), side="right")) - 1, 0)
    height = int(blocks["height"][row])
    return ForkPoint(int(blocks["number"][row]), height) if context.height - height <= furthest else None


def plan_fork_reads(fork: ForkPoint, chains: Chains, context: Context) -> Reads:
    """Return the reads of a rollback: past states and later messages from users."""
    count = len(chains)
    past = {"chain": chains, "height": np.full(count, fork.height, dtype=np.uint64)}
    since = {"chain": chains, "first": np.full(count, fork.height + 1, dtype=np.uint64)}
    last = np.full(count, context.height - 1, dtype=np.uint64)
    return Reads(
        past=Frame(past, count).select(PAST_SCHEMA.names),
        ingress=Frame({**since, "last": last}, count).select(HEIGHTS_SCHEMA.names),
    )


def rolled_back_state(
    state: State,
    past: State,
    pending: pa.Table,
    load: CarrierLoad,
    fork: ForkPoint,
    interference: CarrierInterference,
    chains: Chains,
    context: Context,
) -> State:
    """Return the state of ``chains`` on the other fork.

    Args:
        state: State before the rollback.
        past: State at the height of the fork.
        pending: Messages from users since that height (``INGRESS_SCHEMA``).
        load: Deliveries of this tick to running chains; they move to the next block.
        fork: Block to return to.
        interference: Faults of the scenario.
        chains: Positions of all chains, ascending.
        context: Context of the running chains.
    """
    # Pool: messages pending at that height, then messages from users since.
    rows = from_table(pending.drop_columns(["chain"]))
    chain = context.network.positions_of(pending["chain"].to_numpy())
    rows = rows.with_columns(chain=chain, position=np.zeros(len(rows), dtype=np.uint64))
    rows = rows.with_columns(method=rows["method"].dictionary_encode()).select(POOL_SCHEMA.names)
    joined = concat([past["pool"], rows])
    joined = joined.take(stable_order(joined["chain"]))
    # Planned calls of the abandoned blocks, and of this tick, move to the next block.
    ticks = context.planned.ticks_between(fork.number, context.tick)  # block n was made in tick n - 1
    planned = set(zip(past["recalled"]["chain"].tolist(), past["recalled"]["tick"].tolist(), strict=True))
    for tick in ticks:
        planned |= {(chain, tick) for chain in interference.running(chains, tick).tolist()}
    columns = np.array(sorted(planned), dtype=np.int64).reshape(-1, 2)
    return past.with_tables(
        pool=joined.with_columns(position=group_rows(joined["chain"]).ranks().astype(np.uint64)),
        recalled=Frame(
            {"chain": columns[:, 0].astype(np.uint32), "tick": columns[:, 1].astype(np.uint64)}, len(columns)
        ),
        relaying=empty_frame(RELAYING_SCHEMA),
        envelopes=empty_frame(ENVELOPES_SCHEMA),
        nodes=empty_frame(NODES_SCHEMA),
        bases=empty_frame(BASES_SCHEMA),
        **_still_carried(state, load, context),
    )


def drop_pooled(state: State, ingress: pa.Table, context: Context) -> tuple[State, pa.Table]:
    """Move pooled messages before this tick's messages from users (``INGRESS_SCHEMA``)."""
    pool = state["pool"]
    columns = {name: pool[name] for name in ("receiver", "sender", "method", "payload")}
    pooled = Frame({"chain": context.network.numbers[pool["chain"]], **columns}, len(pool)).to_table(INGRESS_SCHEMA)
    return state.with_tables(pool=empty_frame(POOL_SCHEMA)), pa.concat_tables([pooled, ingress])


def replanned_ticks(view: View) -> Mapping[int, list[int]]:
    """Return, by chain, the earlier ticks with planned calls to repeat, ascending."""
    found: dict[int, list[int]] = {}
    rows = view.tables["recalled"]
    for chain, tick in zip(rows["chain"].tolist(), rows["tick"].tolist(), strict=True):
        found.setdefault(chain, []).append(tick)
    return found


def _still_carried(state: State, load: CarrierLoad, context: Context) -> dict[str, Frame]:
    """Return the tables of late deliveries, with those of this tick due in the next block."""
    delivered, rows = load.delivered, load.delivered.envelopes
    now = {
        "late": rows.with_columns(due=np.full(len(rows), context.number + 1, dtype=np.uint64)),
        "late_nodes": delivered.nodes,
        "late_bases": delivered.bases,
    }
    tables = []
    for name in LATE:
        table = STATE_TABLES[name]
        resting = state[name].filter(~np.isin(state[name]["destination"], context.chains))
        later = [load.late[name]] if name in load.late else []
        joined = sort_rows(concat([resting, now[name].select(table.schema.names), *later]), table.order)
        tables.append(joined.take(group_rows(*(joined[key] for key in table.order)).starts))
    return late_tables(*tables)


def reverted_rows(fork: ForkPoint, chains: Chains, context: Context) -> Frame:
    """Return the abandoned heights of chains (``REVERTED_SCHEMA``)."""
    count = len(chains)
    first, last = np.full(count, fork.height + 1, dtype=np.uint64), np.full(count, context.height - 1, dtype=np.uint64)
    return Frame({"chain": chains, "first": first, "last": last}, count).select(REVERTED_SCHEMA.names)
