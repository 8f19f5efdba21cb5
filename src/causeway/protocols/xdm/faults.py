"""What a bad operator of a domain does after a block: another storage, the receipt of it, and envelopes under it (1.4).

The domain itself is executed by honest operators, and its own state is never wrong. What is forged is real all the
same: the root is that of a trie with the domain's entries and a false one, and the envelopes are proved under it.

Reorganisations: the best fork of the consensus chain changes, and the network with it (XDM reference G4, X-4, X-5).

All domains follow the one consensus chain. Where it goes back to an earlier block, every chain goes back to what it was
after that block: its tables of that height take the place of the present ones, the blocks since are abandoned, and the
next ones are made on top of it. In the tick of the change no chain makes a block. What is final, K blocks deep, is
never abandoned.

What is no state of a chain does not go back: users still have what they sent, and it is in the pool again; carriers
still have what they were bringing; operators, whose progress counts on one fork only, look anew at what the other side
has (``relaying`` is empty), and prove that again.
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
    NEVER_FOUND,
    NODES_SCHEMA,
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
    """Return the state of chains, whose block is made, with what bad operators claim of it and bring
    (``CLAIMS_SCHEMA``, ``FORGED_SCHEMA``)."""
    faults = interference.frauds(context.chains, context.tick, context.height)
    if not faults and not len(state["claims"]):
        return state if not len(state["forged"]) else state.with_tables(forged=empty_frame(FORGED_SCHEMA))
    claims = {claim["chain"]: claim for claim in named_rows(state["claims"]) if _stands(claim, view)}
    for chain, fault in faults:
        if chain not in claims:
            claims[chain] = _begun(chain, fault, interference, state, tries, view, context)
    made, envelopes = [], []
    for chain in sorted(claims):
        claim = {**claims[chain], "number": context.number}
        trie = _with_entry(tries, tries.present[chain], claim)
        made.append({**claim, "root": tries.tries.roots(trie)[0].tobytes()})
        if claim["what"] == FraudKind.MESSAGE and len(view.tables["anchor"]):
            if tries.number[chain] >= claim["origin"]:
                # A false receipt was confirmed: what it says is proved as honest operators would.
                tries.tries.close(trie)
                trie = _with_entry(tries, tries.provable[chain], claim)
            envelopes.append((chain, claim["foreign"], _envelope(tries, trie, claim, view)))
        tries.tries.close(trie)
    columns = [list(column) for column in zip(*envelopes, strict=True)] or [[], [], []]
    ends = {name: np.array(columns[at], dtype=np.uint32) for at, name in enumerate(("source", "destination"))}
    forged = Frame({**ends, "envelope": pa.array(columns[2], pa.binary())}, len(envelopes))
    return state.with_tables(claims=table_from_rows(made, CLAIMS_SCHEMA), forged=forged)


def _stands(claim: Claim, view: View) -> bool:
    """Return whether a fraud goes on: its first receipt is not taken in, or is and no proof of the fraud has come."""
    known, frauds = view.tables["receipted"], view.tables["frauds"]
    taken = known["number"][known["domain"] == claim["chain"]]
    if not len(taken) or int(taken[0]) < claim["origin"]:
        return True
    return bool(((frauds["domain"] == claim["chain"]) & (frauds["number"] == claim["origin"])).any())


def _begun(
    chain: int,
    fault: FaultRule,
    interference: CarrierInterference,
    state: State,
    tries: ChainTries,
    view: View,
    context: Context,
) -> Claim:
    """Return what is claimed of the block that is made now."""
    foreign = CONSENSUS_POSITION if fault.destination is None else interference.positions[fault.destination]
    lie = FraudKind[str(fault.args[WHAT]).upper()]
    # The lane and nonce that a forged message has: the one that the other side takes next, in the last channel of
    # the two chains, or in the first that there may be.
    ends = {"source": np.array([chain], dtype=np.uint32), "destination": np.array([foreign], dtype=np.uint32)}
    channels = state["channels"]
    numbers = channels["channel"][(channels["chain"] == chain) & (channels["foreign"] == foreign)]
    channel = np.array([int(numbers.max()) if len(numbers) else 0], dtype=np.uint64)
    theirs = view.tables["channels"]
    row = int(channel_rows(theirs, ends["destination"], ends["source"], channel)[0])
    index = int(theirs["next_inbox"][row]) if row >= 0 else 0
    lane = Frame({**ends, "substream": substream(channel, REQUEST), "index": np.array([index], dtype=np.uint64)}, 1)
    claim: Claim = {
        "chain": chain,
        "destination": CONSENSUS_POSITION,
        "origin": context.number,
        "number": context.number,
        "what": int(lie),
        "found_after": int(fault.args.get(FOUND_AFTER, NEVER_FOUND)),
        "foreign": foreign,
        "substream": int(lane["substream"][0]),
        "index": int(lane["index"][0]),
        "amount": int(fault.args[AMOUNT]),
        "key": b"",
        "value": b"",
    }
    if lie == FraudKind.MESSAGE:
        entry = {"key": message_keys(lane)[0].as_py(), "value": _message(lane, claim, state["channels"], context)}
    elif lie in (FraudKind.ROOT, FraudKind.BUNDLE):
        key = storage_prefix(OWN_PALLET, "money")
        now = tries.tries.get(np.array([tries.present[chain]]), [key])[0].as_py()
        entry = {"key": key, "value": now[:-1] + bytes([now[-1] ^ 1])}
    else:
        entry = {}
    return claim | entry


def _message(lane: Frame, claim: Claim, channels: Frame, context: Context) -> bytes:
    """Return a transfer that nobody has sent, to the first program of the chain that it goes to."""
    programs = context.network.programs
    there = programs[context.network.host_of(programs) == claim["foreign"]]
    receiver = int(there[0]) if len(there) else 0
    asked = blank_messages(
        1,
        kind=np.array([Kind.REQUEST], dtype=np.uint8),
        sender=np.array([receiver], dtype=np.uint64),
        receiver=np.array([receiver], dtype=np.uint64),
        amount_low=np.array([claim["amount"]], dtype=np.uint64),
    ).with_columns(**{name: lane[name] for name in LANE})
    zero, endpoint = np.zeros(1, dtype=np.uint64), np.full(1, TRANSPORTER_ENDPOINT, dtype=np.uint64)
    request = lane.with_columns(
        asked=np.array([RequestKind.ENDPOINT], dtype=np.uint8),
        max_outgoing=np.zeros(1, dtype=np.uint32),
        src_endpoint=endpoint,
        dst_endpoint=endpoint,
        payload=encode_transfers(asked).cast(pa.binary()),
        src_fee=zero,
        dst_fee=zero,
        next_response=zero,
    )
    message: bytes = encode_requests(request, channels)[0].as_py()
    return message


def _with_entry(tries: ChainTries, trie: int, claim: Mapping[str, Any]) -> np.ndarray:
    """Return the number of a new trie with the entries of another and that of a claim."""
    copy = tries.tries.copy(np.array([trie], dtype=np.int64))
    if claim["key"]:
        tries.tries.update(copy, [claim["key"]], [claim["value"]])
    return copy


def _envelope(tries: ChainTries, trie: np.ndarray, claim: Claim, view: View) -> bytes:
    """Return the envelope of a forged message, proved under a forged trie."""
    ends = {
        "source": np.array([claim["chain"]], dtype=np.uint32),
        "destination": np.array([claim["foreign"]], dtype=np.uint32),
    }
    base = np.zeros(1, dtype=np.uint64)
    proof = prove_storage(tries.tries, trie, [claim["key"]])
    nodes = proof.nodes_of(0)
    numbers = np.arange(len(nodes), dtype=np.uint32)
    envelope = Frame(
        {
            **ends,
            "substream": np.array([claim["substream"]], dtype=np.uint64),
            "index": np.array([claim["index"]], dtype=np.uint64),
            "tag": request_tags(np.array([RequestKind.ENDPOINT]), np.array([TRANSPORTER_ENDPOINT], dtype=np.uint64)),
            "members": pa.array([numbers.astype("<u4").tobytes()], pa.binary()),
            "base": base,
        },
        1,
    )
    rows = envelope.select(BASE).take(np.zeros(len(nodes), dtype=np.int64))
    of_nodes = rows.with_columns(number=numbers, node=pa.array(nodes, pa.binary()))
    bases = bases_between(Frame(ends, 1), view).with_columns(base=base)
    encoded: bytes = encode_envelopes(DeliveredEnvelopes(envelope, of_nodes, bases))[0].as_py()
    return encoded


_REACH = 4


@dataclass(frozen=True)
class ForkPoint:
    """The block of the consensus chain that the network goes back to, and the height that made it."""

    number: int
    height: int


def check_depths(faults: Sequence[FaultRule], options: XdmOptions) -> None:
    """Check that no reorganisation would reach final blocks. Raises ``InvalidInput``."""
    for fault in faults:
        depth = int(fault.args.get(DEPTH, fault.args.get(MOST, 1))) if fault.kind == REORG else 0
        if depth >= options.archiving_depth:
            key = MOST if CHANCE in fault.args else DEPTH
            text = f"allowed: less than options.archiving_depth, {options.archiving_depth}: what is final stays"
            raise InvalidInput(f'faults: kind = "{REORG}": {key} = {depth}; {text}')


def max_rollback(options: XdmOptions) -> int:
    """Return over how many heights the network goes back, at most: where forks follow each other so fast that they all
    begin at one block, these may be more than the blocks that one fork abandons."""
    return _REACH * options.archiving_depth


def fork_at(view: View, interference: CarrierInterference, context: Context, furthest: int) -> ForkPoint | None:
    """Return the block that the network goes back to in this tick, None for none; the same on all chains.

    A consensus chain that is halted stays where it is. ``furthest``: over more heights the network does not go back.
    """
    # How many blocks the consensus chain abandons in a tick, by what the scenario plans and by draws.
    depth = 0
    for place, fault in enumerate(interference.acting(context.tick, REORG)):
        if CHANCE not in fault.args:
            depth = max(depth, int(fault.args[DEPTH]))
            continue
        draws = np.random.Generator(draw_words(DrawPurpose.FORK, context.seed, place, context.tick))
        if draws.random() < float(fault.args[CHANCE]):
            depth = max(depth, 1 + int(draws.integers(int(fault.args[MOST]))))
    blocks = view.tables["blocks"]
    goes_on = len(interference.running(np.array([CONSENSUS_POSITION], dtype=np.uint32), context.tick))
    if depth == 0 or len(blocks) < 2 or not goes_on:
        return None
    best = int(blocks["number"][-1])
    row = max(int(np.searchsorted(blocks["number"], np.uint64(max(best - depth, 0)), side="right")) - 1, 0)
    height = int(blocks["height"][row])
    return ForkPoint(int(blocks["number"][row]), height) if context.height - height <= furthest else None


def plan_fork_reads(fork: ForkPoint, chains: Chains, context: Context) -> Reads:
    """Return what chains need to go back: their state, and what users sent since."""
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
    then: State,
    again: pa.Table,
    load: CarrierLoad,
    fork: ForkPoint,
    interference: CarrierInterference,
    chains: Chains,
    context: Context,
) -> State:
    """Return the state of ``chains`` on the other fork: what it was ``then``, without what does not go back.

    ``again``: what users sent since, what came in this tick included (``INGRESS_SCHEMA``). ``load``: what is brought in
    this tick to those chains that are not halted (``context.chains``); it comes to the next block.
    """
    # What waits for the next block: first what did then, behind it what users sent since.
    rows = from_table(again.drop_columns(["chain"]))
    chain = context.network.positions_of(again["chain"].to_numpy())
    rows = rows.with_columns(chain=chain, position=np.zeros(len(rows), dtype=np.uint64))
    rows = rows.with_columns(method=rows["method"].dictionary_encode()).select(POOL_SCHEMA.names)
    joined = concat([then["pool"], rows])
    joined = joined.take(stable_order(joined["chain"]))
    # In which ticks the scenario plans calls that are to be made again by each chain: as far as it made a block
    # then, and in the tick of the fork itself.
    ticks = context.planned.ticks_between(fork.number, context.tick)  # block n was made in tick n - 1
    planned = set(zip(then["recalled"]["chain"].tolist(), then["recalled"]["tick"].tolist(), strict=True))
    for tick in ticks:
        planned |= {(chain, tick) for chain in interference.running(chains, tick).tolist()}
    columns = np.array(sorted(planned), dtype=np.int64).reshape(-1, 2)
    return then.with_tables(
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
    """Return the state without what the blocks of its chains take from their pools, and that with what users send in
    this tick behind it (``INGRESS_SCHEMA``)."""
    pool = state["pool"]
    if len(pool) == 0:
        return state, ingress
    columns = {name: pool[name] for name in ("receiver", "sender", "method", "payload")}
    waited = Frame({"chain": context.network.numbers[pool["chain"]], **columns}, len(pool)).to_table(INGRESS_SCHEMA)
    return state.with_tables(pool=empty_frame(POOL_SCHEMA)), pa.concat_tables([waited, ingress])


def replanned_ticks(view: View) -> Mapping[int, list[int]]:
    """Return in which earlier ticks calls were planned that each chain makes in its next block, ascending."""
    found: dict[int, list[int]] = {}
    rows = view.tables["recalled"]
    for chain, tick in zip(rows["chain"].tolist(), rows["tick"].tolist(), strict=True):
        found.setdefault(chain, []).append(tick)
    return found


def _still_carried(state: State, load: CarrierLoad, context: Context) -> dict[str, Frame]:
    """Return what carriers keep: what they would have brought now comes in the next block."""
    brought, rows = load.brought, load.brought.envelopes
    now = {
        "late": rows.with_columns(due=np.full(len(rows), context.number + 1, dtype=np.uint64)),
        "late_nodes": brought.nodes,
        "late_bases": brought.bases,
    }
    found = []
    for name in LATE:
        table = STATE_TABLES[name]
        resting = state[name].filter(~np.isin(state[name]["destination"], context.chains))
        later = [load.late[name]] if name in load.late else []
        joined = sort_rows(concat([resting, now[name].select(table.schema.names), *later]), table.order)
        found.append(joined.take(group_rows(*(joined[key] for key in table.order)).starts))
    # Of what is dropped nothing stays, whoever else has something that is late.
    return late_tables(*found)


def reverted_rows(fork: ForkPoint, chains: Chains, context: Context) -> Frame:
    """Return the heights that chains abandon (``REVERTED_SCHEMA``)."""
    count = len(chains)
    first, last = np.full(count, fork.height + 1, dtype=np.uint64), np.full(count, context.height - 1, dtype=np.uint64)
    return Frame({"chain": chains, "first": first, "last": last}, count).select(REVERTED_SCHEMA.names)
