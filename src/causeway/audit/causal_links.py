"""Causal links between blocks: how runs count them, and which of all together are misplaced.

A message links blocks of two chains: its sending is the cause of its receipt (IBC reference C1), its receipt the
cause of its acknowledgement (IBC reference C2). Two rules hold over all links of a ledger:

- Blocks can be replayed in causal order (``causal_loops.replay``). A link that has to be left out closes a cycle: by a
  vector clock with an entry for each chain, a block comes after itself.
- From one chain to another, over all lanes of a protocol, receipts keep the order of the blocks that sent the messages
  (C4), and acknowledgements that of the blocks that received them (C5).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.order import distinct, group_rows, stable_order

from causeway.audit.arrays import Array, Bytes, Codes, Ints, Words
from causeway.audit.columns import Bools
from causeway.ledger.encodings import NameCodes, rank_names
from causeway.ledger.row_order import number_lanes
from causeway.ledger.schema import LANE
from causeway.ledger.windows import Lane, LanePromises

RECEIPTS, ACKNOWLEDGEMENTS = 0, 1
"""Kinds of links by their effect."""

ORDERED = ("ordered_receives", "ordered_acknowledgements")
"""By kind of link: the promise of lanes whose own order the check ``order`` compares."""

CYCLE, UNDECIDED, OVERTAKES = 1, 2, 3
"""Findings about a link: it closes a cycle; the work limit was reached before this was known; its effect precedes
the effect of an earlier cause."""

MAX_LINKS = 1 << 23
"""The links of a ledger are compared if there are no more: that takes about 100 bytes a link."""

LINKS_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in LANE),
        *(("kind", pa.int8()), ("cause", pa.string()), ("effect", pa.string())),
        *(("links", pa.int64()), ("events", pa.int64()), ("ascend", pa.bool_())),
        *(("causes", pa.list_(pa.uint64())), ("effects", pa.list_(pa.uint64())), ("messages", pa.list_(pa.int32()))),
    ]
)
"""Links of a lane, one row for each kind and pair of chains (``cause``, ``effect``): the heights of the blocks at their
ends (``causes``, ``effects``), and how many ``messages`` have them. ``links``, ``events``: the number of links and of
all their messages; ``ascend``: whether all effects have a greater height than their causes. In a row of links that are
left out (``without_blocks``) what follows ``events`` is null, and so are ``kind``, ``cause`` and ``effect``."""


class MisplacedLinks(NamedTuple):
    """Misplaced links of a lane.

    Attributes:
        chains: names of chains.
        keys: keys of the links (``_keys``; chains are numbered as in ``chains``), ascending, as bytes.
        why: ``CYCLE`` or ``OVERTAKES`` of each, as bytes.
    """

    chains: tuple[str, ...]
    keys: bytes
    why: bytes

    def of(self, kind: Ints, cause: Ints, effect: Ints, causes: Words, effects: Words, names: Sequence[str]) -> Bytes:
        """Return why links are misplaced, 0 for others.

        Args:
            kind: of each link.
            cause, effect: chains of each link, as positions in ``names``.
            causes, effects: heights of each link.
            names: names of chains.
        """
        known = NameCodes(self.chains)
        # A chain that no misplaced link has gets a number above those of all that have.
        codes = np.array([known.code(name) for name in names], np.int64)
        own = _keys(kind, codes[cause], codes[effect], causes, effects)
        keys, why = np.frombuffer(self.keys, own.dtype), np.frombuffer(self.why, np.uint8)
        at = np.minimum(np.searchsorted(keys, own), len(keys) - 1)
        return np.where(keys[at] == own, why[at], np.uint8(0))


def _keys(kind: Ints, cause: Ints, effect: Ints, causes: Words, effects: Words) -> npt.NDArray[np.bytes_]:
    """Return a text of bytes for each link of a lane, in the order of kind, chains and heights."""
    words = np.empty((len(kind), 3), ">u8")
    words[:, 0] = (kind << 62) | (cause << 31) | effect
    words[:, 1], words[:, 2] = causes, effects
    return words.view("S24").reshape(-1)


class LinkComparison(NamedTuple):
    """The result of the comparison of all links of a ledger.

    Attributes:
        misplaced: misplaced links of each lane.
        rows: rows of the table that have any.
        undecided: number of events of each lane whose links are not compared.
    """

    misplaced: dict[Lane, MisplacedLinks]
    rows: list[int]
    undecided: dict[Lane, int]


def count_links(links: pa.Table) -> int:
    """Return the number of links in a table (``LINKS_SCHEMA``)."""
    return pc.sum(links["links"], min_count=0).as_py() if links.num_rows else 0


def are_too_many_links(links: int) -> bool:
    """Return whether the number of links exceeds the maximum."""
    return links > MAX_LINKS


def summarize_links(links: pa.Table) -> pa.Table:
    """Return a table of links (``LINKS_SCHEMA``) with their number by lane alone."""
    summed = links.group_by(list(LANE)).aggregate([("links", "sum"), ("events", "sum")])
    content = {name: summed[name if name in LANE else f"{name}_sum"] for name in (*LANE, "links", "events")}
    nothing = {field.name: pa.nulls(summed.num_rows, field.type) for field in LINKS_SCHEMA}
    return pa.table({**nothing, **content}).cast(LINKS_SCHEMA)


def compare_links(links: pa.Table, promises: LanePromises) -> LinkComparison:
    """Find the misplaced links of a ledger.

    Args:
        links: those of all runs (``LINKS_SCHEMA``), in any order.
        promises: of lanes.
    """
    if not links.num_rows:
        return LinkComparison({}, [], {})
    names, lane = number_lanes(links)
    lanes: list[Lane] = [(a, b, c, d) for a, b, c, d in names]
    left_out = np.asarray(links["ascend"].is_null()) | are_too_many_links(count_links(links))
    undecided = np.zeros(len(lanes), np.int64)
    np.add.at(undecided, lane[left_out], links["events"].to_numpy()[left_out])
    kept = np.flatnonzero(~left_out)
    groups = _Groups.of(links.take(pa.array(kept)), lane[kept], lanes, promises)
    own = groups.links()
    found = np.zeros(len(own.row), np.uint8) if groups.ascend else _replayed(own, groups)
    found[_overtaking(own, groups, found)] = OVERTAKES
    unknown = np.flatnonzero(found == UNDECIDED)
    np.add.at(undecided, groups.lane[own.row[unknown]], own.messages[unknown])
    wrong = np.flatnonzero((found == CYCLE) | (found == OVERTAKES))
    return LinkComparison(
        _by_lane(own.of(wrong), groups, found[wrong], lanes),
        kept[distinct(own.row[wrong])].tolist(),
        {lanes[at]: int(undecided[at]) for at in np.flatnonzero(undecided).tolist()},
    )


class _Links(NamedTuple):
    """Links, one entry each. ``row``: of the table of groups."""

    row: Codes
    causes: Words
    effects: Words
    messages: Codes

    def of(self, which: Array) -> _Links:
        """Return some of them."""
        return _Links(self.row[which], self.causes[which], self.effects[which], self.messages[which])


class _Groups(NamedTuple):
    """Links of all runs by lane, kind and pair of chains: ``lane``, ``kind``, ``cause`` and ``effect`` of each row of a
    table. ``chains``: names of the chains, ascending; ``ordered``: lanes whose own order another check compares;
    ``way``: number of the protocol, kind and pair of chains; ``compared``: ways on which something may overtake."""

    table: pa.Table
    lane: Ints
    kind: Ints
    cause: Ints
    effect: Ints
    chains: list[str]
    ordered: Bools
    way: Ints
    compared: Bools

    @classmethod
    def of(cls, links: pa.Table, lane: Ints, lanes: list[Lane], promises: LanePromises) -> _Groups:
        """Return the rows of a table, given the number of the lane of each."""
        ends = pa.chunked_array([*links["cause"].chunks, *links["effect"].chunks], pa.string())
        cause, effect = np.split(rank_names(ends).astype(np.int64) - 1, 2)
        chains = ends.unique().sort().to_pylist()
        kind = links["kind"].to_numpy().astype(np.int64)
        promised = [promises.of(each) for each in lanes]
        ordered = np.array([[promise in each for each in promised] for promise in ORDERED], bool)[kind, lane]
        protocols = NameCodes()
        protocol = np.array([protocols.code(each[0]) for each in lanes], np.int64)[lane] + 1
        order = stable_order(*(each.astype(np.uint64) for each in (protocol, kind, cause, effect, lane)))
        ways = group_rows(*(each[order] for each in (protocol, kind, cause, effect)))
        way = np.empty(len(order), np.int64)
        way[order] = ways.spread(np.arange(len(ways)))
        several = lane[order[ways.starts]] != lane[order[ways.starts + ways.counts - 1]]
        several |= np.logical_or.reduceat(~ordered[order], ways.starts) if len(order) else several
        return cls(links, lane, kind, cause, effect, chains, ordered, way, several)

    @property
    def ascend(self) -> bool:
        """Whether every effect is higher than its cause, so that no path over any chains is a cycle."""
        return bool(pc.all(self.table["ascend"], min_count=0).as_py())

    def links(self) -> _Links:
        """Return those links that have to be compared."""
        rows = np.flatnonzero(self.compared[self.way]) if self.ascend else np.arange(len(self.way))
        table = self.table.take(pa.array(rows))
        causes, effects, messages = (pc.list_flatten(table[name]).to_numpy() for name in LINKS_SCHEMA.names[-3:])
        return _Links(np.repeat(rows.astype(np.int32), table["links"].to_numpy()), causes, effects, messages)


def _replayed(own: _Links, groups: _Groups) -> Bytes:
    """Return a mark for each link: ``CYCLE``, ``UNDECIDED``, or 0 for links without a finding."""
    from causeway.audit.causal_loops import replay_blocks

    chain = groups.effect.astype(np.uint32)[own.row]
    order = stable_order(chain, own.effects)
    starts = np.searchsorted(chain[order], np.arange(len(groups.chains) + 1, dtype=np.uint32))
    source = groups.cause.astype(np.int32)[own.row[order]]
    marks = np.zeros(len(order), np.uint8)
    replay_blocks(starts, source, own.causes[order], own.effects[order], own.messages[order], marks)
    found = np.empty(len(order), np.uint8)
    found[order] = marks
    return found


def _overtaking(own: _Links, groups: _Groups, found: Bytes) -> Ints:
    """Return the links whose effect comes before that of an earlier cause on the same two chains, of those that close
    no cycle."""
    from causeway.audit.causal_loops import mark_overtaking

    way = groups.way[own.row]
    compared = np.flatnonzero(groups.compared[way] & (found != CYCLE))
    if not len(compared):
        return compared
    along = compared[stable_order(way[compared].astype(np.uint64), own.causes[compared])]
    starts = np.append(group_rows(way[along]).starts, len(along))
    row, marks = own.row[along], np.zeros(len(along), np.uint8)
    columns = groups.lane[row], groups.ordered[row].view(np.uint8)
    mark_overtaking(starts, own.causes[along], own.effects[along], *columns, marks)
    return along[marks > 0]


def _by_lane(own: _Links, groups: _Groups, why: Bytes, lanes: list[Lane]) -> dict[Lane, MisplacedLinks]:
    """Return misplaced links of each lane that has any."""
    lane, kind, cause, effect = (each[own.row] for each in (groups.lane, groups.kind, groups.cause, groups.effect))
    order = stable_order(*(each.astype(np.uint64) for each in (lane, kind, cause, effect)), own.causes, own.effects)
    same = group_rows(*(each[order] for each in (lane, kind, cause, effect, own.causes, own.effects)))
    order = order[same.starts]
    found = {}
    for which in np.split(order, group_rows(lane[order]).starts[1:]) if len(order) else ():
        chains = distinct(np.concatenate((cause[which], effect[which])))
        one, other = (np.searchsorted(chains, each[which]) for each in (cause, effect))
        keys = _keys(kind[which], one, other, own.causes[which], own.effects[which])
        names = tuple(groups.chains[chain] for chain in chains.tolist())
        found[lanes[lane[which[0]]]] = MisplacedLinks(names, keys.tobytes(), why[which].tobytes())
    return found


__all__ = [
    "ACKNOWLEDGEMENTS",
    "CYCLE",
    "LINKS_SCHEMA",
    "OVERTAKES",
    "RECEIPTS",
    "LinkComparison",
    "MisplacedLinks",
    "are_too_many_links",
    "compare_links",
    "count_links",
    "summarize_links",
]
