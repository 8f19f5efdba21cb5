"""One step of nodes: all input since the last one, in a fixed order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from causeway_proofs.errors import InvalidInput

from causeway.core.frame import Frame
from causeway.gossip.fallback import on_answers
from causeway.gossip.heads import announce_subscriptions, on_heads, on_subscriptions, subscribe
from causeway.gossip.leaves import on_leaves, on_own_queues
from causeway.gossip.options import GossipOptions
from causeway.gossip.peers import ban_peers, connect, disconnect, lift_bans
from causeway.gossip.pool import purge
from causeway.gossip.queues import on_queues
from causeway.gossip.reconcile import on_body_requests, on_larger_sketch_requests, on_sketches
from causeway.gossip.state import GossipState
from causeway.gossip.step_io import StepOutput, merge_outputs
from causeway.protocols.relay_chain.errors import PeerVerdict


@dataclass(frozen=True)
class StepInputs:
    """Input of a step, one field for each handler; None for no input."""

    disconnect: Frame | None = None
    connect: Frame | None = None
    leaves: tuple[Frame, Frame, Frame] | None = None
    """Leaves, blocks, unrouted (``on_leaves``)."""
    kept: Frame | None = None
    heads: Frame | None = None
    queues: Frame | None = None
    sketches: Frame | None = None
    more: Frame | None = None
    asks: Frame | None = None
    answers: Frame | None = None
    subscribe: Frame | None = None
    """Subscriptions of nodes; ``subscriptions`` holds those of peers."""
    subscriptions: Frame | None = None


_RECONCILING = (on_sketches, on_larger_sketch_requests, on_body_requests)


def step(state: GossipState, inputs: StepInputs, time: int, options: GossipOptions) -> tuple[GossipState, StepOutput]:
    """Run a step of nodes.

    The order is: disconnections, connections, new leaves, own queues, subscriptions, declarations, queues,
    sketches and requests, answers of keepers, purge. A declaration thus applies to the queues that came
    with it, and each input sees the effects of the earlier ones. Peers disconnected for misbehaviour are
    banned.

    Args:
        state: State of the nodes.
        inputs: Input since the last step.
        time: Time in ms.
        options: Options of gossip.

    Returns:
        The new state and the output in order of creation.

    Raises:
        InvalidInput: There are sketches with ``reconciliation`` off, or subscriptions with a flat topology.
    """
    outputs = []
    if inputs.disconnect is not None:
        state = disconnect(state, inputs.disconnect)
    if inputs.connect is not None:
        state, free = lift_bans(state, inputs.connect, time)
        state, out = connect(state, inputs.connect.filter(free), options)
        # Banned peers are refused.
        pairs = inputs.connect.filter(~free)
        refused = pairs.with_columns(code=np.uint8(PeerVerdict.Banned))
        outputs += [out, StepOutput(disconnected=refused.select(("node", "peer", "code")))]
        if options.topology == "from_to":
            peers = state.peer_rows(inputs.connect)
            outputs.append(announce_subscriptions(state, np.unique(peers[peers >= 0])))
    if inputs.leaves is not None:
        state, out = on_leaves(state, *inputs.leaves, options)
        outputs.append(out)
    for rows, event in (
        (inputs.kept, on_own_queues),
        (inputs.subscribe, subscribe),
        (inputs.subscriptions, on_subscriptions),
        (inputs.heads, on_heads),
        (inputs.queues, on_queues),
        (inputs.sketches, on_sketches),
        (inputs.more, on_larger_sketch_requests),
        (inputs.asks, on_body_requests),
        (inputs.answers, on_answers),
    ):
        if rows is not None and len(rows):
            if event in _RECONCILING and options.reconciliation == "off":
                raise InvalidInput("sketches: given with reconciliation = off; allowed: minisketch")
            if event in (subscribe, on_subscriptions) and options.topology == "flat":
                raise InvalidInput("subscriptions: given with topology = flat; allowed: from_to")
            state, out = event(state, rows, options)
            outputs.append(out)
    state, out = purge(state, time, options)
    out = merge_outputs([*outputs, out])
    return ban_peers(state, out, time, options), out
