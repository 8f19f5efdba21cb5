"""Causal links between blocks: counts by run, and misplaced links of the whole ledger.

A message links blocks of two chains: its sending is the cause of its receipt (IBC reference C1), its receipt the
cause of its acknowledgement (IBC reference C2). Two rules hold over all links of a ledger:

- Blocks can be replayed in causal order (``causal_loops.replay_blocks``). A link that must be left out closes a cycle:
  by a vector clock with an entry for each chain, a block comes after itself.
- From one chain to another, over all lanes of a protocol, receipts keep the order of the sending blocks (C4), and
  acknowledgements that of the receiving blocks (C5).
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
"""Guarantee by kind of link; the check ``order`` covers the lane's own order."""

CYCLE, UNDECIDED, OVERTAKES = 1, 2, 3
"""Findings about a link: it closes a cycle; the work limit left it undecided; its effect precedes that of an earlier
cause."""

MAX_LINKS = 1 << 23
"""Maximum number of compared links of a ledger; a link takes about 100 bytes."""

LINKS_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in LANE),
        *(("kind", pa.int8()), ("cause", pa.string()), ("effect", pa.string())),
        *(("links", pa.int64()), ("events", pa.int64()), ("ascend", pa.bool_())),
        *(("causes", pa.list_(pa.uint64())), ("effects", pa.list_(pa.uint64())), ("messages", pa.list_(pa.int32()))),
    ]
)
"""Links of a lane, one row for each kind and pair of chains (``cause``, ``effect``): block heights at their ends
(``causes``, ``effects``), and the number of ``messages`` of each. ``links``, ``events``: number of links and of
their messages; ``ascend``: every effect is higher than its cause. Rows of omitted links (``summarize_links``)
have nulls after ``events``, and in ``kind``, ``cause`` and ``effect``."""


class MisplacedLinks(NamedTuple):
    """Misplaced links of a lane.

    Attributes:
        chains: Names of chains.
        keys: Keys of the links (``_keys``; chains are numbered as in ``chains``), ascending, as bytes.
        why: ``CYCLE`` or ``OVERTAKES`` of each, as bytes.
    """

    chains: tuple[str, ...]
    keys: bytes
    why: bytes

    def of(self, kind: Ints, cause: Ints, effect: Ints, causes: Words, effects: Words, names: Sequence[str]) -> Bytes:
        """Return the reason of misplaced links, 0 for others.

        Args:
            kind: Kind of each link.
            cause: Chain of each cause, as a position in ``names``.
            effect: Chain of each effect, as a position in ``names``.
            causes: Height of each cause.
            effects: Height of each effect.
            names: Names of chains.
        """
        known = NameCodes(self.chains)
        # A chain without misplaced links gets a code above those of all others.
        codes = np.array([known.code(name) for name in names], np.int64)
        own = _keys(kind, codes[cause], codes[effect], causes, effects)
        keys, why = np.frombuffer(self.keys, own.dtype), np.frombuffer(self.why, np.uint8)
        at = np.minimum(np.searchsorted(keys, own), len(keys) - 1)
        return np.where(keys[at] == own, why[at], np.uint8(0))


def _keys(kind: Ints, cause: Ints, effect: Ints, causes: Words, effects: Words) -> npt.NDArray[np.bytes_]:
    """Return a byte key for each link of a lane, in the order of kind, chains and heights."""
    words = np.empty((len(kind), 3), ">u8")
    words[:, 0] = (kind << 62) | (cause << 31) | effect
    words[:, 1], words[:, 2] = causes, effects
    return words.view("S24").reshape(-1)


class LinkComparison(NamedTuple):
    """Comparison of all links of a ledger.

    Attributes:
        misplaced: Misplaced links by lane.
        rows: Rows of the table with misplaced links.
        undecided: Number of events with uncompared links, by lane.
    """

    misplaced: dict[Lane, MisplacedLinks]
    rows: list[int]
    undecided: dict[Lane, int]


def count_links(links: pa.Table) -> int:
    """Return the number of links in a table (``LINKS_SCHEMA``).

    Args:
        links: Links (``LINKS_SCHEMA``).

    Returns:
        Sum of the column ``links``; 0 without rows.
    """
    return pc.sum(links["links"], min_count=0).as_py() if links.num_rows else 0


def are_too_many_links(links: int) -> bool:
    """Return True if the number of links exceeds the maximum.

    Args:
        links: Number of links of a ledger.

    Returns:
        True above ``MAX_LINKS``.
    """
    return links > MAX_LINKS


def summarize_links(links: pa.Table) -> pa.Table:
    """Reduce a table of links (``LINKS_SCHEMA``) to their number by lane.

    Args:
        links: Links (``LINKS_SCHEMA``).

    Returns:
        One row a lane (``LINKS_SCHEMA``), null except in ``LANE``, ``links`` and ``events``.
    """
    summed = links.group_by(list(LANE)).aggregate([("links", "sum"), ("events", "sum")])
    content = {name: summed[name if name in LANE else f"{name}_sum"] for name in (*LANE, "links", "events")}
    nothing = {field.name: pa.nulls(summed.num_rows, field.type) for field in LINKS_SCHEMA}
    return pa.table({**nothing, **content}).cast(LINKS_SCHEMA)


def compare_links(links: pa.Table, promises: LanePromises) -> LinkComparison:
    """Find the misplaced links of a ledger.

    Args:
        links: Links of all runs (``LINKS_SCHEMA``), in any order.
        promises: Guarantees of lanes.

    Returns:
        The comparison.
    """
    if not links.num_rows:
        return LinkComparison({}, [], {})
    names, lane = number_lanes(links)
    lanes: list[Lane] = [(a, b, c, d) for a, b, c, d in names]
    omitted = np.asarray(links["ascend"].is_null()) | are_too_many_links(count_links(links))
    undecided = np.zeros(len(lanes), np.int64)
    np.add.at(undecided, lane[omitted], links["events"].to_numpy()[omitted])
    compared = np.flatnonzero(~omitted)
    groups = _Groups.of(links.take(pa.array(compared)), lane[compared], lanes, promises)
    own = groups.links()
    found = np.zeros(len(own.row), np.uint8) if groups.ascend else _replay_marks(own, groups)
    found[_find_overtaking(own, groups, found)] = OVERTAKES
    unknown = np.flatnonzero(found == UNDECIDED)
    np.add.at(undecided, groups.lane[own.row[unknown]], own.messages[unknown])
    wrong = np.flatnonzero((found == CYCLE) | (found == OVERTAKES))
    return LinkComparison(
        _by_lane(own.of(wrong), groups, found[wrong], lanes),
        compared[distinct(own.row[wrong])].tolist(),
        {lanes[at]: int(undecided[at]) for at in np.flatnonzero(undecided).tolist()},
    )


class _Links(NamedTuple):
    """Links, one entry each. ``row``: row of the table of groups."""

    row: Codes
    causes: Words
    effects: Words
    messages: Codes

    def of(self, chosen: Array) -> _Links:
        """Return chosen links."""
        return _Links(self.row[chosen], self.causes[chosen], self.effects[chosen], self.messages[chosen])


class _Groups(NamedTuple):
    """Links of all runs by lane, kind and pair of chains.

    Attributes:
        table: The links, one row a group.
        lane: Lane of each row.
        kind: Kind of each row.
        cause: Chain of the causes.
        effect: Chain of the effects.
        chains: Names of the chains, ascending.
        ordered: Mask of lanes whose own order another check covers.
        way: Number of the protocol, kind and pair of chains.
        compared: Mask of ways on which overtaking is possible.
    """

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
        """Build the groups from a table and the lane number of each row."""
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
        """True if every effect is higher than its cause, so that there are no cycles."""
        return bool(pc.all(self.table["ascend"], min_count=0).as_py())

    def links(self) -> _Links:
        """Return the links that need a comparison."""
        rows = np.flatnonzero(self.compared[self.way]) if self.ascend else np.arange(len(self.way))
        table = self.table.take(pa.array(rows))
        causes, effects, messages = (pc.list_flatten(table[name]).to_numpy() for name in LINKS_SCHEMA.names[-3:])
        return _Links(np.repeat(rows.astype(np.int32), table["links"].to_numpy()), causes, effects, messages)


def _replay_marks(own: _Links, groups: _Groups) -> Bytes:
    """Return a mark for each link: ``CYCLE``, ``UNDECIDED``, or 0."""
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


def _find_overtaking(own: _Links, groups: _Groups, found: Bytes) -> Ints:
    """Return acyclic links with an effect before that of an earlier cause on the same chains."""
    from causeway.audit.causal_loops import mark_overtaking

    way = groups.way[own.row]
    compared = np.flatnonzero(groups.compared[way] & (found != CYCLE))
    if not len(compared):
        return compared
    ordered_links = compared[stable_order(way[compared].astype(np.uint64), own.causes[compared])]
    starts = np.append(group_rows(way[ordered_links]).starts, len(ordered_links))
    row, marks = own.row[ordered_links], np.zeros(len(ordered_links), np.uint8)
    columns = groups.lane[row], groups.ordered[row].view(np.uint8)
    mark_overtaking(starts, own.causes[ordered_links], own.effects[ordered_links], *columns, marks)
    return ordered_links[marks > 0]


def _by_lane(own: _Links, groups: _Groups, why: Bytes, lanes: list[Lane]) -> dict[Lane, MisplacedLinks]:
    """Return the misplaced links by lane."""
    lane, kind, cause, effect = (each[own.row] for each in (groups.lane, groups.kind, groups.cause, groups.effect))
    order = stable_order(*(each.astype(np.uint64) for each in (lane, kind, cause, effect)), own.causes, own.effects)
    same = group_rows(*(each[order] for each in (lane, kind, cause, effect, own.causes, own.effects)))
    order = order[same.starts]
    found = {}
    for chosen in np.split(order, group_rows(lane[order]).starts[1:]) if len(order) else ():
        chains = distinct(np.concatenate((cause[chosen], effect[chosen])))
        one, other = (np.searchsorted(chains, each[chosen]) for each in (cause, effect))
        keys = _keys(kind[chosen], one, other, own.causes[chosen], own.effects[chosen])
        names = tuple(groups.chains[chain] for chain in chains.tolist())
        found[lanes[lane[chosen[0]]]] = MisplacedLinks(names, keys.tobytes(), why[chosen].tobytes())
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
