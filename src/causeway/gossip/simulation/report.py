"""Report of a simulation: delivery, hops, bytes, attackers' effects, settled tickets.

A queue is *listed* once the first block above its posting block exists; before that no node expects
it (ICMP reference 3.2, exclusive). Delivery times count from there. A queue is *in time* if all nodes
that need it have it before the next block. A node absent at that moment does not count for the queue.

Settlement: accounts are opened before the first block, and a claim enters the next relay block of
the longest chain. The relay chain verifies the signature of every claim. Payers sign here the tickets
that no payee checked (``tickets.checked``): a signature is a function of key and ticket.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import group_rows

from causeway.gossip.listings import Mask
from causeway.gossip.simulation.kernel import ITSELF, GossipKernel
from causeway.gossip.simulation.plot import curve
from causeway.gossip.simulation.state import COUNTERS, PURSE_COUNTERS
from causeway.gossip.simulation.world import HONEST, SELFISH, WITHHOLD, SimulationWorld
from causeway.gossip.tickets.ticket import Settlement, Ticket, TicketVerdict, commit, derive_secrets
from causeway.protocols.relay_chain.options import BODY_TABLE_SCHEMA

KINDS = {HONEST: "honest", SELFISH: "selfish", WITHHOLD: "withholding"}


def settle_claims(world: SimulationWorld, claims: pa.Table) -> tuple[Settlement, Counter[str]]:
    """Settle the claims of a simulation in order.

    Args:
        world: The simulation.
        claims: Rows of the log table ``claims``, with ``tick``.

    Returns:
        The final state of the settlement, and the number of claims by verdict.
    """
    options, relay = world.options.tickets, world.relay
    settlement = Settlement(relay.hashes[0].tobytes(), options)
    for key in world.public_keys:
        settlement.open_account(key.tobytes(), options.deposit, options.bond)
    rows = claims.sort_by(
        [("tick", "ascending"), ("chain", "ascending"), ("peer", "ascending"), ("serial", "ascending")]
    )
    payee, payer = (rows[name].to_numpy().astype(np.int64) for name in ("chain", "peer"))
    serial = rows["serial"].to_numpy().astype(np.uint64)
    secrets = derive_secrets(world.secret_keys[payee], world.public_keys[payer], serial)
    commitments = commit(secrets)
    block_counts = relay.times.searchsorted(rows["tick"].to_numpy() * world.options.slice, side="right")
    numbers = relay.heights[block_counts - 1].tolist()
    verdicts: Counter[str] = Counter()
    for row, (number, root, block, nonce) in enumerate(
        zip(numbers, *(rows[name].to_pylist() for name in ("root", "block", "nonce")), strict=True)
    ):
        settlement.advance(number + 1)
        claimant = world.public_keys[payee[row]].tobytes()
        ticket = Ticket(
            network=settlement.network,
            payer=world.public_keys[payer[row]].tobytes(),
            payee=claimant,
            root=relay.roots[root].tobytes(),
            commitment=commitments[row].tobytes(),
            nonce=nonce,
            serial=int(serial[row]),
            price=options.price,
            odds=options.odds,
            block=block,
        )
        signature = ticket.sign(world.signing_keys[payer[row]])
        verdicts[settlement.claim(claimant, ticket, signature, secrets[row].tobytes()).name] += 1
    return settlement, verdicts


def summarize_tickets(world: SimulationWorld, purses: pa.Table, claims: pa.Table, got: pa.Table) -> dict[str, Any]:
    """Summarize the costs and payments of tickets.

    Args:
        world: The simulation.
        purses: Rows of the log table ``purse_samples``, with ``tick``: cumulative counters, of which the
            last sample counts.
        claims: Rows of the log table ``claims``, with ``tick``.
        got: Rows of the log table ``got``.

    Returns:
        Counts of all nodes; bytes, signatures and payment a delivered body; bodies and income by behaviour.
    """
    settlement, verdicts = settle_claims(world, claims)
    last = purses.filter(pa.compute.equal(purses["tick"], pa.compute.max(purses["tick"])))
    total = {name: int(np.sum(last[name].to_numpy())) for name in PURSE_COUNTERS}
    bodies = max(total["deliveries"], 1)
    options = world.options.tickets
    paid = options.prize * verdicts[TicketVerdict.OK.name]
    return {
        **total,
        "claims": sum(verdicts.values()),
        "claims_paid": verdicts[TicketVerdict.OK.name],
        "exhausted": sum(not settlement.accepts(key.tobytes()) for key in world.public_keys),
        "bytes_a_body": round(total["bytes"] / bodies, 1),
        "signatures_made_a_body": round(total["tickets"] / bodies, 4),
        "signatures_checked_a_body": round((total["tickets"] + sum(verdicts.values())) / bodies, 4),
        "paid_a_body": round(paid / bodies, 3),
        "fees_a_body": round(options.fee * verdicts[TicketVerdict.OK.name] / bodies, 3),
        "price": options.price,
        "by_behaviour": _by_behaviour(world, settlement, got),
    }


def _by_behaviour(world: SimulationWorld, settlement: Settlement, got: pa.Table) -> dict[str, dict[str, float]]:
    """Return the mean number of bodies from peers, income and expense of a node, by behaviour."""
    found: dict[str, dict[str, float]] = {}
    node, peer = (got[name].to_numpy().astype(np.int64) for name in ("chain", "peer"))
    received = np.bincount(node[peer < world.options.nodes.count], minlength=world.options.nodes.count)
    earned: defaultdict[bytes, int] = settlement.earned
    for behaviour, name in KINDS.items():
        nodes = np.flatnonzero(world.behaviour == behaviour)
        if len(nodes):
            keys = [world.public_keys[one].tobytes() for one in nodes.tolist()]
            remaining = sum(settlement.accounts[key].deposit for key in keys if key in settlement.accounts)
            found[name] = {
                "nodes": len(nodes),
                "bodies_a_node": round(float(received[nodes].mean()), 1),
                "earned_a_node": round(sum(earned[key] for key in keys) / len(nodes), 1),
                "paid_a_node": round(world.options.tickets.deposit - remaining / len(nodes), 1),
            }
    return found


NEVER = np.iinfo(np.int64).max

QUANTILES = (0.5, 0.9, 0.99, 1.0)

_ATTACKS = {1: "silent", 2: "lying", 3: "spamming"}

COVERAGE_SCHEMA = pa.schema(
    [("time", pa.int64()), ("needed", pa.float64()), ("all", pa.float64())],
)
"""Share of delivered bodies by the time since their queue was listed (ms).

``needed`` counts pairs of a queue and a node that needs it, ``all`` pairs of a queue and any honest
node; null if there are no pairs.
"""

WORK_SCHEMA = pa.schema(
    [
        ("time", pa.int64()),
        ("pool_bytes_mean", pa.float64()),
        ("pool_bytes_most", pa.uint64()),
        ("pool_queues_mean", pa.float64()),
    ]
    + [(name, pa.uint64()) for name in COUNTERS]
)
"""Pools of honest nodes by time of the run (ms), and their summed counters up to then."""


@dataclass(frozen=True)
class SimulationResults:
    """Results of a simulation.

    Attributes:
        summary: Figures, as a JSON object.
        lines: Label and text of each line of the readable summary.
        tables: Tables by name.
        plot: Coverage plot as SVG.
    """

    summary: Mapping[str, Any]
    lines: list[tuple[str, str]]
    tables: Mapping[str, pa.Table]
    plot: str

    @property
    def holds(self) -> bool:
        """True if every pool kept its bound and all needed bodies, at least one, arrived."""
        return bool(self.summary["holds"])


def build_results(kernel: GossipKernel, logs: Mapping[str, pa.Table]) -> SimulationResults:
    """Build the results of a simulation.

    Args:
        kernel: The simulated kernel.
        logs: Rows of ``got``, ``samples`` and ``disconnected``, with ``tick``; with tickets also
            ``purse_samples`` and ``claims``.
    """
    world = kernel.world
    # First arrival of each root at each node (ms), shape (roots, nodes), and hop counts at honest nodes.
    arrival = np.full((len(world.relay.roots), world.options.nodes.count), NEVER, dtype=np.int64)
    root, node, tick = (logs["got"][name].to_numpy() for name in ("root", "chain", "tick"))
    np.minimum.at(arrival, (root.astype(np.int64), node.astype(np.int64)), tick * world.options.slice)
    sent = (logs["got"]["peer"].to_numpy() != ITSELF) & (world.behaviour[node.astype(np.int64)] == HONEST)
    hops = logs["got"]["hops"].to_numpy()[sent].astype(np.int64)
    # The first entry of each root that a block lists.
    _, first = np.unique(world.relay.root, return_index=True)
    roots = first[world.relay.first_listed_time[first] >= 0]
    # Needs and delays since listing, shape (queues, nodes).
    relay = world.relay
    listed = relay.first_listed_time[roots]
    arrived = arrival[relay.root[roots]]
    delay = np.where(arrived == NEVER, NEVER, arrived - listed[:, None])
    nodes = np.arange(world.options.nodes.count)
    needed = world.needs[None, :] == relay.destinations[roots][:, None]
    needed &= (world.behaviour == HONEST)[None, :]
    for time in np.unique(listed).tolist():
        present = world.there(nodes, int(time) + world.options.relay.interval)
        needed[listed == time] &= present[None, :]
    honest_delays = delay[:, world.behaviour == HONEST].reshape(-1)
    needed_delays = delay[needed]
    times = np.arange(0, 2 * world.options.relay.interval + 1, world.options.slice)
    shares = [
        [float((found <= time).mean()) if found.size else None for time in times.tolist()]
        for found in (needed_delays, honest_delays)
    ]
    coverage = pa.table([times, *shares], schema=COVERAGE_SCHEMA)
    work = _work(world, logs["samples"])
    summary = {
        **_figures(world),
        **_delivered(world, needed, delay),
        "hops_mean": round(float(hops.mean()), 2) if len(hops) else 0.0,
        "hops_most": int(hops.max(initial=0)),
        **_costs(world, work),
        "attackers": _attackers(world, logs["disconnected"]),
    }
    if world.options.tickets.mode == "on":
        summary["tickets"] = summarize_tickets(world, logs["purse_samples"], logs["claims"], logs["got"])
    bounded = summary["pool_bytes_most"] <= world.options.gossip.max_pool_bytes
    # Without any need the result is undecided.
    summary["holds"] = summary["never"] == 0 and bounded if summary["needed"] or not bounded else None
    tables = {"coverage": coverage, "bodies": _bodies(world, arrival), "work": work}
    title = f"{world.options.nodes.count:,} nodes, {len(roots):,} queues"
    return SimulationResults(summary, _lines(summary), tables, curve(coverage, world.options.relay.interval, title))


def _delivered(world: SimulationWorld, needed: Mask, late: npt.NDArray[np.int64]) -> dict[str, Any]:
    interval = world.options.relay.interval
    some: Mask = np.logical_or.reduce(needed, axis=1)
    in_time = (late <= interval) | ~needed
    pairs = late[needed]
    came = np.sort(pairs[pairs != NEVER])
    quantiles = {
        f"p{round(100 * share)}_ms": int(came[min(len(came) - 1, int(np.ceil(share * len(came))) - 1)])
        if len(came)
        else None
        for share in QUANTILES
    }
    return {
        "in_time": round(float(np.logical_and.reduce(in_time[some], axis=1).mean()), 4) if some.any() else None,
        "in_time_of_needed": round(float((pairs <= interval).mean()), 4) if len(pairs) else None,
        "needed": len(pairs),
        "never": int(np.count_nonzero(pairs == NEVER)),
        **quantiles,
    }


def _figures(world: SimulationWorld) -> dict[str, Any]:
    graph, relay = world.graph, world.options.relay
    honest = int(np.count_nonzero(world.behaviour == HONEST))
    return {
        "nodes": world.options.nodes.count,
        "honest": honest,
        "links": len(graph.node) // 2,
        "latency_mean_ms": round(float(graph.latency.mean()), 1),
        "blocks": len(np.unique(world.relay.heights[world.relay.issued])),
        "interval_ms": relay.interval,
        "queues": len(world.relay.roots),
    }


def _work(world: SimulationWorld, samples: pa.Table) -> pa.Table:
    """Sum the work of honest nodes, a row a sample."""
    honest = world.behaviour[samples["chain"].to_numpy().astype(np.int64)] == HONEST
    samples = samples.filter(pa.array(honest))
    tick = samples["tick"].to_numpy()
    ticks, row = np.unique(tick, return_inverse=True)
    count = np.maximum(np.bincount(row, minlength=len(ticks)), 1)

    def total(name: str) -> npt.NDArray[np.float64]:
        weights = samples[name].to_numpy().astype(np.float64)
        return np.bincount(row, weights=weights, minlength=len(ticks)).astype(np.float64)

    most = {name: np.zeros(len(ticks), dtype=np.uint64) for name in ("pool_bytes", "most_pool_bytes")}
    for name, found in most.items():
        np.maximum.at(found, row, samples[name].to_numpy().astype(np.uint64))
    columns = {
        "time": ticks * world.options.slice,
        "pool_bytes_mean": total("pool_bytes") / count,
        "pool_bytes_most": most["pool_bytes"],
        "pool_queues_mean": total("pool_queues") / count,
        **{name: total(name).astype(np.uint64) for name in COUNTERS},
        "most_pool_bytes": most["most_pool_bytes"],
    }
    return pa.table([pa.array(columns[name]) for name in WORK_SCHEMA.names], schema=WORK_SCHEMA)


def _costs(world: SimulationWorld, work: pa.Table) -> dict[str, Any]:
    last = {name: int(work[name][-1].as_py()) if len(work) else 0 for name in COUNTERS}
    honest = max(int(np.count_nonzero(world.behaviour == HONEST)), 1)
    copies = last["got_queues"] / max(last["new"], 1)
    return {
        "sent_bytes_a_node": last["sent_bytes"] // honest,
        "sent_queues_a_node": round(last["sent_queues"] / honest, 1),
        "declarations_a_node": round(last["sent_heads"] / honest, 1),
        "sketches_a_node": round(last["sent_sketches"] / honest, 1),
        "copies_a_body": round(copies, 3),
        "requests": last["requests"],
        "answered": last["answered"],
        "wasted_queues": last["wasted"],
        "wasted_bytes": last["wasted_bytes"],
        "pool_bytes_most": last["most_pool_bytes"],
        "pool_bytes_bound": world.options.gossip.max_pool_bytes,
    }


def _attackers(world: SimulationWorld, disconnected: pa.Table) -> dict[str, Any]:
    """Count the links of each kind of attacker to honest nodes, and the ended ones."""
    graph, behaviour = world.graph, world.behaviour
    honest = behaviour[graph.node] == HONEST
    node, peer = (disconnected[name].to_numpy().astype(np.int64) for name in ("chain", "peer"))
    found: dict[str, Any] = {}
    for number, name in _ATTACKS.items():
        links = int(np.count_nonzero(honest & (behaviour[graph.peer] == number)))
        if links:
            ended = np.unique(
                np.stack([node, peer])[:, (behaviour[node] == HONEST) & (behaviour[peer] == number)], axis=1
            )
            found[name] = {"links": links, "ended": int(ended.shape[1])}
    both = (behaviour[node] == HONEST) & (behaviour[peer] == HONEST)
    found["honest_links_ended"] = int(np.count_nonzero(both))
    return found


def _bodies(world: SimulationWorld, arrival: npt.NDArray[np.int64]) -> pa.Table:
    """Return the delay until all collators of a queue's recipient have its body.

    This is the input of the runtime option ``bodies = "simulated"``. If two forks post a queue between
    the same parachains at the same number, the later one counts. A body that arrived before its queue is
    posted again has no delay.
    """
    relay = world.relay
    entries = np.flatnonzero(relay.first_listed_time >= 0)
    collators = (world.keeps[None, :] == relay.destinations[entries][:, None]) & (world.behaviour == HONEST)[None, :]
    arrived = np.where(collators, arrival[relay.root[entries]], -1).max(axis=1)
    posted = relay.times[relay.issued[entries]]
    delay = np.where((arrived == NEVER) | (arrived < 0), NEVER, np.maximum(arrived - posted, 0))
    ends = relay.heights[relay.issued[entries]], relay.sources[entries], relay.destinations[entries]
    order = np.lexsort((-delay, *reversed(ends)))
    order = order[group_rows(*(end[order] for end in ends)).starts]
    number, source, destination = (end[order] for end in ends)
    return pa.table(
        [
            pa.array(number),
            pa.array(source.astype(np.uint32)),
            pa.array(destination.astype(np.uint32)),
            pa.array(delay[order].astype(np.uint64), mask=delay[order] == NEVER),
        ],
        schema=BODY_TABLE_SCHEMA,
    )


def _lines(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Format the summary as labelled lines."""
    interval = summary["interval_ms"]
    times = ", ".join(
        f"{name.split('_')[0]} {summary[name]:,} ms"
        for name in summary
        if name.endswith("_ms") and name[0] == "p" and summary[name] is not None
    )
    if summary["needed"]:
        in_time = [
            ("in time", f"{summary['in_time']:.2%} of queues reached all who need them within one block"),
            (
                "",
                f"{summary['in_time_of_needed']:.2%} of {summary['needed']:,} needed bodies; "
                f"never: {summary['never']:,}",
            ),
        ]
    else:
        text = "nothing was to be shown: no node that was there one block after a queue was listed needed it"
        in_time = [("in time", text)]
    requests = []
    if summary["requests"]:
        requests = [("asked", f"who keeps a queue {summary['requests']:,} times; {summary['answered']:,} good answers")]
    lines = [
        ("nodes", f"{summary['nodes']:,}, of these {summary['honest']:,} follow the rules"),
        ("links", f"{summary['links']:,}, {summary['latency_mean_ms']:,} ms on average"),
        ("queues", f"{summary['queues']:,} in {summary['blocks']:,} blocks, one each {interval:,} ms"),
        *in_time,
        ("after", times or "nothing arrived"),
        ("links passed", f"{summary['hops_mean']} on average, at most {summary['hops_most']}"),
        (
            "copies",
            f"{summary['copies_a_body']} of each body that was new; {summary['sent_bytes_a_node']:,} bytes sent a node",
        ),
        *requests,
        ("wasted", f"{summary['wasted_queues']:,} queues, {summary['wasted_bytes']:,} bytes"),
        ("largest pool", f"{summary['pool_bytes_most']:,} bytes; allowed: {summary['pool_bytes_bound']:,}"),
    ]
    if "tickets" in summary:
        tickets = summary["tickets"]
        text = (
            f"{tickets['tickets']:,} for {tickets['deliveries']:,} bodies; {tickets['won']:,} won,"
            f" {tickets['claims_paid']:,} paid"
        )
        costs = f"{tickets['bytes_a_body']} bytes, {tickets['paid_a_body']} units (price {tickets['price']})"
        lines += [("tickets", text), ("", f"a body costs {costs}, {tickets['signatures_checked_a_body']} checks")]
    for name, found in summary["attackers"].items():
        if isinstance(found, dict):
            lines.append((name, f"{found['ended']:,} of {found['links']:,} links to honest nodes ended"))
    return lines
