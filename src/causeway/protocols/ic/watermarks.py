"""Indices of streams that never fall (IC reference 2.6, 3.7)."""

from causeway.protocols.watermarks import StateWatermark

_BACK = {"source": "destination", "destination": "source"}
"""What a subnet says of the stream that comes to it stands beside its own."""

WATERMARKS = (
    StateWatermark("begin", "lanes", "begin"),
    StateWatermark("next_index", "lanes", "next_index"),
    StateWatermark("signals_begin", "lanes", "signals_begin", **_BACK),
    StateWatermark("expected", "lanes", "expected", **_BACK),
)
