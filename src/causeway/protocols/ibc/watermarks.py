"""Sequences of queues, and heights of clients, that never fall (IBC reference 2.2, 2.5)."""

from causeway.protocols.watermarks import StateWatermark

WATERMARKS = (
    StateWatermark("begin", "queues", "begin"),
    StateWatermark("next_index", "queues", "next_index"),
    StateWatermark("latest", "connections", "latest", "chain", "counterparty", "chain", None),
)
