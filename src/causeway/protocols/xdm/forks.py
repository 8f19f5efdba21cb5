"""Reorganisations: the best fork of the consensus chain changes, and the network with it (XDM reference G4, X-4, X-5).

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

import numpy as np
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.faults import Fault
from causeway.model.frame import Frame, concat, empty_frame, from_table
from causeway.model.ledger import REVERTED_SCHEMA
from causeway.model.order import groups_of, stable_order
from causeway.model.traffic import INGRESS_SCHEMA
from causeway.protocols.contract import HEIGHTS_SCHEMA, PAST_SCHEMA, Chains, Reads, View
from causeway.protocols.draws import Draw, drawn
from causeway.protocols.xdm.carrying import LATE, CarrierInterference, Load, in_order, kept_late
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.fault_kinds import CHANCE, DEPTH, MOST, REORG
from causeway.protocols.xdm.options import XdmOptions
from causeway.protocols.xdm.state import State
from causeway.protocols.xdm.tables import (
    BASES_SCHEMA,
    ENVELOPES_SCHEMA,
    NODES_SCHEMA,
    POOL_SCHEMA,
    RELAYING_SCHEMA,
    STATE_TABLES,
)

_REACH = 4


@dataclass(frozen=True)
class Fork:
    """The block of the consensus chain that the network goes back to, and the height that made it."""

    number: int
    height: int


def check_depths(faults: Sequence[Fault], options: XdmOptions) -> None:
    """Check that no reorganisation would reach final blocks. Raises ``InvalidInput``."""
    for fault in faults:
        depth = int(fault.args.get(DEPTH, fault.args.get(MOST, 1))) if fault.kind == REORG else 0
        if depth >= options.archiving_depth:
            key = MOST if CHANCE in fault.args else DEPTH
            text = f"allowed: less than options.archiving_depth, {options.archiving_depth}: what is final stays"
            raise InvalidInput(f'faults: kind = "{REORG}": {key} = {depth}; {text}')


def reach(options: XdmOptions) -> int:
    """Return over how many heights the network goes back, at most: where forks follow each other so fast that they all
    begin at one block, these may be more than the blocks that one fork abandons."""
    return _REACH * options.archiving_depth


def fork_at(view: View, interference: CarrierInterference, context: Context, furthest: int) -> Fork | None:
    """Return the block that the network goes back to in this tick, None for none; the same on all chains.

    A consensus chain that is halted stays where it is. ``furthest``: over more heights the network does not go back.
    """
    # How many blocks the consensus chain abandons in a tick, by what the scenario plans and by draws.
    depth = 0
    for place, fault in enumerate(interference.acting(context.tick, REORG)):
        if CHANCE not in fault.args:
            depth = max(depth, int(fault.args[DEPTH]))
            continue
        draws = np.random.Generator(drawn(Draw.FORK, context.seed, place, context.tick))
        if draws.random() < float(fault.args[CHANCE]):
            depth = max(depth, 1 + int(draws.integers(int(fault.args[MOST]))))
    blocks = view.tables["blocks"]
    goes_on = len(interference.running(np.array([CONSENSUS_POSITION], dtype=np.uint32), context.tick))
    if depth == 0 or len(blocks) < 2 or not goes_on:
        return None
    best = int(blocks["number"][-1])
    row = max(int(np.searchsorted(blocks["number"], np.uint64(max(best - depth, 0)), side="right")) - 1, 0)
    height = int(blocks["height"][row])
    return Fork(int(blocks["number"][row]), height) if context.height - height <= furthest else None


def reads_of(fork: Fork, chains: Chains, context: Context) -> Reads:
    """Return what chains need to go back: their state, and what users sent since."""
    count = len(chains)
    past = {"chain": chains, "height": np.full(count, fork.height, dtype=np.uint64)}
    since = {"chain": chains, "first": np.full(count, fork.height + 1, dtype=np.uint64)}
    last = np.full(count, context.height - 1, dtype=np.uint64)
    return Reads(
        past=Frame(past, count).select(PAST_SCHEMA.names),
        ingress=Frame({**since, "last": last}, count).select(HEIGHTS_SCHEMA.names),
    )


def gone_back(
    state: State,
    then: State,
    again: pa.Table,
    load: Load,
    fork: Fork,
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
        pool=joined.with_columns(position=groups_of(joined["chain"]).ranks().astype(np.uint64)),
        recalled=Frame(
            {"chain": columns[:, 0].astype(np.uint32), "tick": columns[:, 1].astype(np.uint64)}, len(columns)
        ),
        relaying=empty_frame(RELAYING_SCHEMA),
        envelopes=empty_frame(ENVELOPES_SCHEMA),
        nodes=empty_frame(NODES_SCHEMA),
        bases=empty_frame(BASES_SCHEMA),
        **_still_carried(state, load, context),
    )


def taken_from_pool(state: State, ingress: pa.Table, context: Context) -> tuple[State, pa.Table]:
    """Return the state without what the blocks of its chains take from their pools, and that with what users send in
    this tick behind it (``INGRESS_SCHEMA``)."""
    pool = state["pool"]
    if len(pool) == 0:
        return state, ingress
    columns = {name: pool[name] for name in ("receiver", "sender", "method", "payload")}
    waited = Frame({"chain": context.network.numbers[pool["chain"]], **columns}, len(pool)).to_table(INGRESS_SCHEMA)
    return state.with_tables(pool=empty_frame(POOL_SCHEMA)), pa.concat_tables([waited, ingress])


def recalls(view: View) -> Mapping[int, list[int]]:
    """Return in which earlier ticks calls were planned that each chain makes in its next block, ascending."""
    found: dict[int, list[int]] = {}
    rows = view.tables["recalled"]
    for chain, tick in zip(rows["chain"].tolist(), rows["tick"].tolist(), strict=True):
        found.setdefault(chain, []).append(tick)
    return found


def _still_carried(state: State, load: Load, context: Context) -> dict[str, Frame]:
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
        joined = in_order(concat([resting, now[name].select(table.schema.names), *later]), table.order)
        found.append(joined.take(groups_of(*(joined[key] for key in table.order)).starts))
    # Of what is dropped nothing stays, whoever else has something that is late.
    return kept_late(*found)


def reverted_rows(fork: Fork, chains: Chains, context: Context) -> Frame:
    """Return the heights that chains abandon (``REVERTED_SCHEMA``)."""
    count = len(chains)
    first, last = np.full(count, fork.height + 1, dtype=np.uint64), np.full(count, context.height - 1, dtype=np.uint64)
    return Frame({"chain": chains, "first": first, "last": last}, count).select(REVERTED_SCHEMA.names)
