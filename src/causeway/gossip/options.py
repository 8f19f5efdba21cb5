"""The options of gossip: names, values and defaults of the reference, 4.1, and the limits that bound a node."""

from __future__ import annotations

from typing import Literal

from causeway_proofs.limits import MAX_PROOF_BYTES
from causeway_proofs.sketches import MAX_DECODED
from pydantic import Field

from causeway.config.section import ScenarioSection

MOST_ANCESTORS = 16
"""Ancestors of a leaf of which the topics are kept, at most."""

MOST_STRINGS = 1 << 16
"""Messages of one queue that the decoder of gossip reads."""


class GossipOptions(ScenarioSection):
    """Options of gossip. Times are in milliseconds; reputation is in the units of X-1.

    ``ancestors``: a of 5.1, 1. Three are places where the reference's own rule does not bring every queue to everybody
    (L1): ``propagate_on_leaf``, whether a new leaf sends what it allows, as a declaration does (3.5: off);
    ``allowed_by``, what of a queue a common block must list (3.8, D-5: topic); ``seen_until``, how long what was seen
    of a queue is remembered (G8: disconnect, with which memory grows as long as a connection lives).

    ``fallback_after``: how long a queue is missing before it is asked for (3.9, 3).
    ``impolite_limit``: a peer is disconnected at so many impolite messages, and where its reputation has fallen to
    ``least_reputation``, and for ``ban_time`` not connected again (0: at once); ``most_reputation``, the most that good
    queues earn: what a peer may waste does not grow with the age of its connection. Limits are per node: ``max_peers``;
    ``max_banned``, who is remembered; ``max_subscriptions``, own ones and of each peer; ``max_leaf_queues``, entries
    that one leaf lists; ``max_pool_bytes``. Of one queue: ``max_queue_messages``, ``max_queue_bytes``. Of what one peer
    sends in one step: ``max_step_packets``, ``max_step_bytes`` (``waiting.admitted``). Decoding a sketch takes a time
    that grows with the square of its capacity (0.1 s for 64): ``max_sketch_capacity``, and of a node
    ``max_step_sketches``; beyond both, queues are pushed.
    """

    topic_mode: Literal["block", "root"] = "block"
    heads_diff: Literal["all", "new_only"] = "all"
    ancestors: int = Field(default=0, ge=0, le=MOST_ANCESTORS)
    topology: Literal["flat", "from_to"] = "flat"
    reconciliation: Literal["off", "minisketch"] = "off"
    mistrust_unimplied: Literal["off", "on"] = "off"
    fallback_request: Literal["off", "on"] = "off"
    fallback_after: int = Field(default=4_000, ge=0, le=2**40)
    propagate_on_leaf: Literal["off", "on"] = "on"
    allowed_by: Literal["topic", "root"] = "root"
    seen_until: Literal["disconnect", "purge"] = "purge"
    purge_interval: int = Field(default=2_000, ge=1, le=2**40)
    impolite_limit: int = Field(default=16, ge=1, le=2**31)
    least_reputation: int = Field(default=-10_000, ge=-(2**40), le=-1)
    most_reputation: int = Field(default=50_000, ge=0, le=2**40)
    ban_time: int = Field(default=30_000, ge=0, le=2**40)
    max_banned: int = Field(default=1_000, ge=1, le=2**20)
    max_peers: int = Field(default=50, ge=1, le=10_000)
    max_leaf_queues: int = Field(default=20_000, ge=1, le=2**20)
    max_pool_bytes: int = Field(default=1 << 30, ge=1, le=2**50)
    max_queue_messages: int = Field(default=MOST_STRINGS, ge=1, le=MOST_STRINGS)
    max_queue_bytes: int = Field(default=MAX_PROOF_BYTES, ge=1, le=MAX_PROOF_BYTES)
    max_step_packets: int = Field(default=4_096, ge=1, le=2**20)
    max_step_bytes: int = Field(default=16 << 20, ge=1, le=2**32)
    max_subscriptions: int = Field(default=16, ge=1, le=1_024)
    max_step_sketches: int = Field(default=4, ge=1, le=1_000)
    max_sketch_capacity: int = Field(default=64, ge=4, le=MAX_DECODED)
