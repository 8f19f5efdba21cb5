"""The options of 4.1 with the reference's defaults, and the parameters that the text leaves free (1.4, 2.5, 3.8)."""

from dataclasses import dataclass
from typing import Literal

Switch = Literal["off", "on"]
MAX_CHAIN_HEADS = 5


@dataclass(frozen=True)
class Options:
    """Times are milliseconds.

    Decisions. `impolite_limit` is how many impolite acts end a connection: the third. `mistrust` is what a topic that
    no declared head implies costs beyond the rest; the text gives no value: that of an unexpected queue (X-1).
    `propagate_on_leaf`, `allowed_by` and `seen_until` are none of 4.1: places where the text does not
    keep L1, as gossip and node say; with the other value of all three, random networks with late nodes keep it.
    `fallback_after` is two purge intervals, so that gossip has had its chance.

    Limits. The text asks for bounds (1.4 (1), G7) and names one, MAX_CHAIN_HEADS; here nothing else is bounded unless
    an option says so. `least_reputation` ends a connection as impolite acts do, no reputation is above
    `most_reputation`, and who was disconnected for what it sent is not connected again for `ban_time`; a node remembers
    `max_banned` of them.
    """

    topic_mode: Literal["block", "root"] = "block"
    ingress_upper: Literal["exclusive", "inclusive"] = "exclusive"
    watermark_mode: Literal["per_candidate", "now_minus_1"] = "per_candidate"
    watermark_rule: Literal["any_ancestor", "has_messages"] = "any_ancestor"
    allow_empty_prefix: Switch = "on"
    heads_diff: Literal["all", "new_only"] = "all"
    ancestors: int = 0
    topology: Literal["flat", "from_to"] = "flat"
    reconciliation: Literal["off", "minisketch"] = "off"
    mistrust_unimplied: Switch = "off"
    fallback_request: Switch = "off"
    propagate_on_leaf: Switch = "off"
    allowed_by: Literal["topic", "root"] = "topic"
    seen_until: Literal["disconnect", "purge"] = "disconnect"
    impolite_limit: int = 3
    purge_interval: int = 2_000
    fallback_after: int = 4_000
    mistrust: int = -100
    least_reputation: int = -(2**40)
    most_reputation: int = 2**40
    ban_time: int = 0
    max_banned: int = 1_000
    max_peers: int = 10_000
    max_leaf_queues: int = 2**20
    max_pool_bytes: int = 2**50
    max_queue_messages: int = 2**16
    max_queue_bytes: int = 2**23
    max_subscriptions: int = 16
    max_sketch_capacity: int = 64
    max_step_sketches: int = 1_000
