"""Nonces of channels that never fall (XDM reference 2.2)."""

from causeway.protocols.watermarks import StateWatermark

WATERMARKS = (
    StateWatermark("next_inbox", "channels", "next_inbox", "chain", "foreign", "chain", "channel"),
    StateWatermark("next_outbox", "channels", "next_outbox", "chain", "chain", "foreign", "channel"),
    StateWatermark("next_response", "channels", "next_response", "chain", "chain", "foreign", "channel"),
)
