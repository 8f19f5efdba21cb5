"""XNetEndpoint: what a subnet serves of its streams, ``get_stream`` (IC reference 3.10).

A slice is one row a substream of the stream from ``source`` to ``destination``: the header (``begin``, ``end``,
``signals_end``), the messages ``message_begin`` to ``message_end`` - 1, and the source's height and state root.
"""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame
from causeway.model.joins import lookup
from causeway.model.order import Groups, groups_of, stable_order
from causeway.protocols.contract import Chains, View
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.expected_indexes import Expected
from causeway.protocols.ic.message_limits import message_limits
from causeway.protocols.ic.options import IcOptions
from causeway.protocols.messages import LANE

SLICE_COLUMNS = [*LANE, "begin", "end", "signals_end", "message_begin", "message_end"]


def get_streams(expected_of: Expected, view: View, context: Context) -> Frame:
    """Return what ``get_stream`` of all endpoints serves to ``context.chains``.

    One row a substream: from the expected index on, within the limits.
    """
    return cut(certified_streams(view, context.chains, context.height - 1), expected_of, context)


def certified_streams(view: View, chains: Chains, height: int) -> Frame:
    """Return the headers of all streams to ``chains`` as others show them at ``height``, which certifies them."""
    lanes = view.tables["lanes"]
    lanes = lanes.filter(np.isin(lanes["destination"], chains) & (lanes["source"] != lanes["destination"]))
    at = Frame({"chain": lanes["source"]}).with_columns(height=np.uint64(height))
    certified = lookup(view.headers, at, ("chain", "height"))
    lanes, certified = lanes.filter(certified >= 0), certified[certified >= 0]
    return lanes.select(LANE).with_columns(
        begin=lanes["begin"],
        end=lanes["next_index"],
        signals_end=lanes["expected"],
        source_height=at["height"][: len(lanes)],
        root=view.headers["root"][certified],
    )


def cut(streams: Frame, expected_of: Expected, context: Context) -> Frame:
    """Return the slices of ``streams`` (``certified_streams``) from the expected index on, within the limits."""
    begin, end = streams["begin"], streams["end"]
    expected, _ = expected_of.of(streams)
    stop = np.maximum(end, expected)
    if context.options.limits == "deployed":
        # Differences, not sums: an index may be so near 2**64 that a sum would wrap.
        limit = context.options.limit
        stop = np.minimum(stop, begin + np.minimum(end - begin, np.uint64(limit.max_signals)))
        stop = np.maximum(stop, expected)
        stop = expected + np.minimum(stop - expected, message_limits(streams, expected_of, context))
    return streams.with_columns(message_begin=expected, message_end=stop)


def slice_groups(slices: Frame, options: IcOptions) -> Groups:
    """Return the rows that make up each slice.

    A certified slice shows one substream, under a witness of its own. Where nothing is certified, a slice has all
    substreams of its stream.
    """
    ends = slices["destination"], slices["source"]
    return groups_of(*ends, slices["substream"]) if options.certified else groups_of(*ends)


def with_news(expected_of: Expected, slices: Frame, context: Context) -> Frame:
    """Return the slices with messages or signals that their destination has not seen.

    They are in order of (destination, source, substream). Asked were the subnets of the registry version before (3.8
    (3)): so slices may be under way when a subnet goes.
    """
    asked = context.before.has(slices["source"])
    slices = slices if asked.all() else slices.filter(asked)
    if len(slices) == 0:
        return slices
    slices = by_stream(slices)
    _, signal = expected_of.of(slices)
    news = (slices["message_end"] > slices["message_begin"]) | (slices["signals_end"] != signal)
    groups = slice_groups(slices, context.options)
    return slices.filter(groups.spread(np.maximum.reduceat(news, groups.starts)))


def by_stream(slices: Frame) -> Frame:
    """Return slices in the order in which a payload has them: by (destination, source, substream)."""
    return slices.take(stable_order(slices["destination"], slices["source"], slices["substream"]))
