"""Settlement of a simulation's tickets: every claim on the relay chain, and what a body cost.

Accounts are opened before the first block. A claim is in the next relay block of the longest chain. The relay chain
verifies the signature of every claim; payers sign here what no payee checked (``tickets.checked``): a signature is a
function of key and ticket.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.protocols.icmp.simulation.tables import PURSE_COUNTERS
from causeway.protocols.icmp.simulation.world import HONEST, SELFISH, WITHHOLD, World
from causeway.protocols.icmp.tickets.errors import TicketVerdict
from causeway.protocols.icmp.tickets.settlement import Settlement
from causeway.protocols.icmp.tickets.ticket import Ticket, commit, derive_secrets

KINDS = {HONEST: "honest", SELFISH: "selfish", WITHHOLD: "withholding"}


def settle(world: World, claims: pa.Table) -> tuple[Settlement, Counter[str]]:
    """Settle the claims of a simulation in order.

    Args:
        world: The scenario.
        claims: Rows of the log table ``claims``, with ``tick``.

    Returns:
        The state of the relay chain afterwards, and how many claims had each verdict.
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
    made = relay.times.searchsorted(rows["tick"].to_numpy() * world.options.slice, side="right")
    numbers = relay.heights[made - 1].tolist()
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


def summarize_tickets(world: World, purses: pa.Table, claims: pa.Table, got: pa.Table) -> dict[str, Any]:
    """Return what tickets cost and paid.

    Args:
        world: The scenario.
        purses: Rows of the log table ``purse_samples``, with ``tick``: counters at several times, of which the last
            counts.
        claims: Rows of the log table ``claims``, with ``tick``.
        got: Rows of the log table ``got``: who got which body.

    Returns:
        Counts of all nodes; bytes, signatures and units of payment a delivered body; bodies and income by behaviour.
    """
    settlement, verdicts = settle(world, claims)
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


def _by_behaviour(world: World, settlement: Settlement, got: pa.Table) -> dict[str, dict[str, float]]:
    """Return bodies that nodes got of peers, and units that they earned and paid, on average."""
    found: dict[str, dict[str, float]] = {}
    node, peer = (got[name].to_numpy().astype(np.int64) for name in ("chain", "peer"))
    came = np.bincount(node[peer < world.options.nodes.count], minlength=world.options.nodes.count)
    earned: defaultdict[bytes, int] = settlement.earned
    for behaviour, name in KINDS.items():
        nodes = np.flatnonzero(world.behaviour == behaviour)
        if len(nodes):
            keys = [world.public_keys[one].tobytes() for one in nodes.tolist()]
            left = sum(settlement.accounts[key].deposit for key in keys if key in settlement.accounts)
            found[name] = {
                "nodes": len(nodes),
                "bodies_a_node": round(float(came[nodes].mean()), 1),
                "earned_a_node": round(sum(earned[key] for key in keys) / len(nodes), 1),
                "paid_a_node": round(world.options.tickets.deposit - left / len(nodes), 1),
            }
    return found
