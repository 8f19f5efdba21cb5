"""What goes from chain to chain, put together from lanes in columns: there may be hundreds of thousands of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.explorer.addresses import address, lane_address
from causeway.model.order import stable_order
from causeway.report.matrix import MOST_CHAINS, OTHERS, UNSEEN, End, Figures

ENDS = ("source", "destination")

Weight = tuple[int, int, int]
"""Violations, pending messages, messages."""

_SUMS = ("violated", "pending", "messages")


@dataclass(frozen=True)
class Pair:
    """What goes from a chain to another one, None: not seen. ``latency``: of the slowest lane; ``href``: where its lane
    is, or its lanes are listed."""

    source: str | None
    destination: str | None
    lanes: int
    messages: int
    pending: int
    violated: int
    latency: float | None
    href: str | None


class Pairs:
    """The lanes of a ledger by the chains between which they are. ``lanes``: a row a lane, with ``violated``."""

    def __init__(self, lanes: pa.Table) -> None:
        self._lanes = lanes

    @cached_property
    def table(self) -> pa.Table:
        """Return a row a pair: first those in which something is violated, then by pending, then by messages."""
        wanted = [*((name, "sum") for name in _SUMS), ("delivery_p99", "max"), ("lane", "min"), ("protocol", "min")]
        found = self._lanes.group_by([*ENDS], use_threads=False).aggregate([*wanted, ([], "count_all")])
        order = [(f"{name}_sum", "descending") for name in _SUMS] + [(name, "ascending") for name in ENDS]
        return found.sort_by(order)

    @cached_property
    def weights(self) -> Mapping[str, Weight]:
        """Return how much goes from and to each chain, by name; first those in trouble, then those with most."""
        parts = []
        for name in ENDS:
            own = self.table.select([name, *(f"{each}_sum" for each in _SUMS)])
            if name == "destination":  # what a chain sends to itself counts once
                same = pc.fill_null(pc.equal(self.table["source"], self.table["destination"]), False)
                own = own.filter(pc.invert(same))
            parts.append(own.rename_columns(["chain", *_SUMS]))
        whole = pa.concat_tables(parts)
        whole = whole.filter(pc.is_valid(whole["chain"]))
        found = whole.group_by("chain", use_threads=False).aggregate([(each, "sum") for each in _SUMS])
        order = [*((f"{each}_sum", "descending") for each in _SUMS), ("chain", "ascending")]
        found = found.sort_by(order)
        columns = [found[name].to_pylist() for name in ("chain", *(f"{each}_sum" for each in _SUMS))]
        return {
            chain: (violated, pending, messages) for chain, violated, pending, messages in zip(*columns, strict=True)
        }

    def between(self, chains: Collection[str], most: int) -> tuple[list[Pair], int]:
        """Return the first pairs of which both chains are among some, and how many there are of all pairs of which both
        were seen."""
        seen = pc.and_(pc.is_valid(self.table["source"]), pc.is_valid(self.table["destination"]))
        both = self.table.filter(seen)
        names = pa.array([*chains], pa.string())
        inside = pc.and_(*(pc.is_in(both[name].cast(pa.string()), names) for name in ENDS))
        return [_pair(row) for row in both.filter(inside).slice(0, most).to_pylist()], both.num_rows

    def one_sided(self, most: int) -> list[Pair]:
        """Return the first pairs of which one chain was not seen."""
        own = pc.xor(pc.is_null(self.table["source"]), pc.is_null(self.table["destination"]))
        return [_pair(row) for row in self.table.filter(own).slice(0, most).to_pylist()]

    def cells(self, most: int = MOST_CHAINS) -> Mapping[tuple[End, End], Figures]:
        """Return the cells of the matrix: the first ``most`` chains have a row and column, the others one together."""
        kept = [*self.weights] if len(self.weights) <= most else [*self.weights][: most - 1]
        ends: list[End] = [*((0, chain) for chain in kept), UNSEEN, OTHERS]
        codes = []
        for name in ENDS:
            column = self.table[name].cast(pa.string())
            code = np.asarray(pc.fill_null(pc.index_in(column, pa.array(kept, pa.string())), len(kept) + 1), np.int64)
            codes.append(np.where(np.asarray(column.is_null()), len(kept), code))
        if not len(codes[0]):
            return {}
        order = stable_order(codes[0].astype(np.uint64), codes[1].astype(np.uint64))
        coded = self.table.append_column("from", pa.array(codes[0])).append_column("to", pa.array(codes[1]))
        sums = [*((f"{name}_sum", "sum") for name in _SUMS), ("delivery_p99_max", "max"), ("count_all", "sum")]
        alone = [(name, "min") for name in (*ENDS, "lane_min", "protocol_min")]
        folded = coded.take(pa.array(order)).group_by(["from", "to"], use_threads=False)
        cells = {}
        for row in folded.aggregate([*sums, *alone, ([], "count_all")]).to_pylist():
            pair = (ends[row["from"]], ends[row["to"]])
            others = OTHERS in pair
            href = None if others else _href(row["count_all_sum"], *(row[f"{name}_min"] for name in _NAMES))
            messages, pending, violated = (row[f"{name}_sum_sum"] or 0 for name in ("messages", "pending", "violated"))
            latency = row["delivery_p99_max_max"]
            cells[pair] = Figures(row["count_all_sum"], messages, pending, violated, 0, latency, href)
        return cells


_NAMES = ("protocol_min", "source", "destination", "lane_min")


def _pair(row: Mapping[str, Any]) -> Pair:
    figures = (row["count_all"], row["messages_sum"] or 0, row["pending_sum"] or 0, row["violated_sum"] or 0)
    href = _href(row["count_all"], *(row[name] for name in _NAMES))
    return Pair(row["source"], row["destination"], *figures, row["delivery_p99_max"], href)


def _href(
    lanes: int, protocol: str | None, source: str | None, destination: str | None, lane: str | None
) -> str | None:
    if lanes == 1:
        return lane_address((protocol, source, destination, lane))
    return address("/lanes", {"source": source, "destination": destination})


__all__ = ["Pair", "Pairs", "Weight"]
