"""Indices of egress queues that never fall, and how far they are consumed (ICMP reference 2.1, 3.1)."""

from causeway.protocols.watermarks import StateWatermark

WATERMARKS = (
    StateWatermark("begin", "queues", "begin"),
    StateWatermark("next_index", "queues", "next_index"),
    StateWatermark("consumed", "cursors", "index", "destination"),
)
