"""Numbers of a protocol's state that never fall, by where they stand: for whoever checks that they do not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StateWatermark:
    """A column of a state table that has a number a lane and never falls in it.

    ``name``: what the number is called; ``table``, ``value``: where it stands. ``chain``: the column with the chain
    whose number it is; ``source``, ``destination``, ``substream``: those that name the lane; ``substream`` None: it is
    a number of all lanes between the two.
    """

    name: str
    table: str
    value: str
    chain: str = "source"
    source: str = "source"
    destination: str = "destination"
    substream: str | None = "substream"


__all__ = ["StateWatermark"]
