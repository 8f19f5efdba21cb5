"""Pages about the network: its graph, its chains, and the list of lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from causeway.audit.findings import VIOLATED
from causeway.explorer.addresses import Asked, address, chain_address, height_address, lane_address
from causeway.explorer.found import of_chain
from causeway.explorer.frame import Page, Part
from causeway.explorer.graph import MOST_CHAINS, MOST_EDGES, UNSEEN, Edge, Node, graph
from causeway.explorer.overview import lane_link, lanes_matrix, link
from causeway.explorer.pairs import Weight
from causeway.explorer.view import View
from causeway.ledger.schema import LANE
from causeway.ledger.typed import plain_rows
from causeway.model.errors import CausewayError
from causeway.model.text import name_of
from causeway.report.svg import element
from causeway.report.tables import Cell, Column, Fact, badge, facts, table
from causeway.report.text import count, in_unit, listed, many, safe_name

PAGE = 50
"""Lanes of a page."""

SORTS = ("trouble", "pending", "messages", "slowest", "name")


class NotFound(CausewayError):
    """There is no such lane, chain, message, or height."""


def network(view: View) -> Page:
    """Return the network as a graph and as a matrix."""
    roles = {}
    if view.opened is not None:
        roles = {view.opened.names[place]: item.get("role") for place, item in enumerate(view.opened.about["chains"])}
    pairs, weights = view.pairs, view.pairs.weights
    chosen = {*[*dict.fromkeys((*weights, *view.chains))][:MOST_CHAINS]}
    nodes = [Node(chain, chain_address(chain), roles.get(chain)) for chain in view.chains if chain in chosen]
    found, all_of = pairs.between(chosen, MOST_EDGES)
    edges = [
        Edge(str(pair.source), str(pair.destination), pair.lanes, pair.messages, pair.pending, pair.violated, pair.href)
        for pair in found
    ]
    to_ends, ends, of_ends = _ends(view)
    if not nodes:
        return Page(
            "Network",
            [Part("network", "Network", element("p", {"class": "empty"}, "No chains were seen yet."))],
            "Network",
        )
    drawn = graph(nodes + ends, edges + to_ends, {**weights, **of_ends})
    keys = [("", "messages"), ("busy-1", "a few pending"), ("busy-3", "many pending"), ("bad", "violations")]
    legend = element(
        "ul",
        {"class": "keys"},
        [element("li", {"class": kind or None}, Markup("<i></i>") + Markup("{}").format(word)) for kind, word in keys],
    )
    lead = (
        f"{many(len(view.chains), 'chain')}, {many(view.lanes.num_rows, 'lane')}. Chains and edges lead to their pages."
    )
    left = {"chain": len(view.chains) - len(nodes), "edge": all_of - len(edges)}
    cut = [many(missing, what) for what, missing in left.items() if missing]
    if cut:
        lead += f" Not drawn: {listed(cut)} with the least traffic."
    canvas = element("div", {"class": "canvas", "tabindex": 0, "role": "region", "aria-label": "The network"}, drawn)
    sections = [Part("network", "Network", canvas + legend, lead)]
    if view.lanes.num_rows:
        sections.append(Part("matrix", "As a matrix", lanes_matrix(view)))
    rows = plain_rows(view.figures.chains)
    if rows:
        sections.append(Part("chains", "Chains", _chains(view, rows)))
    return Page("Network", sections, "Network")


def _ends(view: View) -> tuple[list[Edge], list[Node], dict[str, Weight]]:
    """Return the edges to and from chains that were not recorded, and nodes for these: one for each lane, or one for
    all of a chain that has many."""
    edges: list[Edge] = []
    nodes: list[Node] = []
    for pair in view.pairs.one_sided(MOST_SIDES):
        known = pair.destination if pair.source is None else pair.source
        which = "source" if pair.source is None else "destination"
        assert known is not None
        lanes = view.of_pair(pair.source, pair.destination) if pair.lanes <= MOST_ENDS else []
        if not lanes or any(row["lane"] is None for row in lanes):
            nodes.append(Node(f"{UNSEEN}{which}{known}", pair.href, label="not seen", seen=False))
            edges.append(_edge(which, known, nodes[-1], pair.lanes, pair.messages, pair.pending, pair.violated))
            continue
        for row in lanes:
            href = lane_address([row[each] for each in LANE])
            nodes.append(Node(f"{UNSEEN}{which}{known}\0{row['lane']}", href, label=row["lane"], seen=False))
            edges.append(_edge(which, known, nodes[-1], 1, row["messages"], row["pending"], row["violated"]))
    ends = [edge.source if edge.source.startswith(UNSEEN) else edge.destination for edge in edges]
    weights = {end: (edge.violated, edge.pending, edge.messages) for end, edge in zip(ends, edges, strict=True)}
    return edges, nodes, weights


MOST_SIDES = 40
"""Chains whose lanes to and from chains that were not seen are drawn."""

MOST_ENDS = 80
"""Lanes of a chain to chains that were not seen that are drawn each by itself."""


def _edge(which: str, known: str, end: Node, lanes: int, messages: int, pending: int, violated: int) -> Edge:
    source, destination = (end.name, known) if which == "source" else (known, end.name)
    return Edge(source, destination, lanes, messages, pending, violated, end.href)


def _chains(view: View, rows: Sequence[Mapping[str, Any]]) -> Markup:
    of = {row["chain"]: row for row in rows}
    columns = [Column("chain", "name")] + [
        Column(title, "number")
        for title in ("sent", "received", "pending out", "pending in", "lanes out", "lanes in", "last height")
    ]
    cells: list[list[Cell]] = []
    for chain in view.chains[: 4 * PAGE]:
        row = of.get(chain, {})
        figures = [
            row.get(key)
            for key in ("sent", "received", "pending_out", "pending_in", "lanes_out", "lanes_in", "last_height")
        ]
        cells.append([link(chain, chain_address(chain)), *figures])
    more = max(0, len(view.chains) - len(cells))
    return table(columns, cells, caption="Chains", more=more)


def lanes(view: View, asked: Asked) -> Page:
    """Return the list of lanes: of all, or of those between two chains."""
    found = view.lanes
    narrowed = []
    for which in ("source", "destination"):
        value = asked.text(which)
        if value is not None:
            found = found.filter(pc.fill_null(pc.equal(found[which], value), False))
            narrowed.append((which, value))
    sort = asked.word("sort", SORTS)
    page = asked.number("page", 1_000_000) or 0
    order = _order(found, sort)
    total = len(order)
    page = min(page, max(0, (total - 1) // PAGE))
    rows = plain_rows(found.take(pa.array(order[page * PAGE : (page + 1) * PAGE], pa.int64())))
    body = _sorts(asked, sort) + _lane_table(view, rows) + _turns(asked, page, total)
    lead = f"{many(total, 'lane')}" + "".join(f", {which} {safe_name(value)}" for which, value in narrowed)
    return Page("Lanes", [Part("lanes", "Lanes", body, lead)], "Lanes")


def _order(found: pa.Table, sort: str) -> list[int]:
    keys = {
        "trouble": [("violated", "descending"), ("pending", "descending"), ("messages", "descending")],
        "pending": [("pending", "descending"), ("messages", "descending")],
        "messages": [("messages", "descending")],
        "slowest": [("delivery_p99", "descending")],
        "name": [],
    }[sort]
    names = [(each, "ascending") for each in ("source", "destination", "lane", "protocol")]
    order: list[int] = pc.sort_indices(found, sort_keys=[*keys, *names]).to_pylist()
    return order


def _sorts(asked: Asked, sort: str) -> Markup:
    words = {
        "trouble": "Violations first",
        "pending": "Most pending",
        "messages": "Most messages",
        "slowest": "Slowest",
        "name": "By name",
    }
    given = {key: value for key, value in asked.values().items() if key in ("source", "destination")}
    tabs = []
    for each, word in words.items():
        href = address("/lanes", {**given, "sort": each})
        tabs.append(element("a", {"href": href, "aria-current": "true" if each == sort else None}, word))
    return element("div", {"class": "tabs"}, tabs)


def _lane_table(view: View, rows: Sequence[Mapping[str, Any]]) -> Markup:
    columns = [
        Column("lane"),
        *(
            Column(title, "number")
            for title in ("messages", "pending", "violations", "delivery median", "delivery 99 %")
        ),
        Column("oldest pending"),
    ]
    cells: list[list[Cell]] = []
    for row in rows:
        lane = [row[each] for each in LANE]
        unit = row["unit"] or "seconds"
        cells.append(
            [
                lane_link(lane),
                row["messages"],
                row["pending"] or None,
                badge(VIOLATED, count(row["violated"])) if row["violated"] else None,
                None if row["delivery_p50"] is None else in_unit(row["delivery_p50"], unit),
                None if row["delivery_p99"] is None else in_unit(row["delivery_p99"], unit),
                age(row),
            ]
        )
    return table(columns, cells, caption="Lanes", stacked=True, empty="No lanes.")


def age(row: Mapping[str, Any]) -> str | None:
    """Return the age of the oldest pending message of a lane."""
    if row.get("oldest_pending_ticks") is not None and row["unit"] != "seconds":
        return in_unit(row["oldest_pending_ticks"], "ticks")
    if row.get("oldest_pending_seconds") is not None:
        return in_unit(row["oldest_pending_seconds"], "seconds")
    return None


def _turns(asked: Asked, page: int, total: int) -> Markup:
    last = (total - 1) // PAGE
    if last <= 0:
        return Markup("")
    given = asked.values()

    def to(word: str, number: int) -> Markup:
        if not 0 <= number <= last:
            return element("span", {"class": "off"}, word)
        return element("a", {"href": address("/lanes", {**given, "page": number})}, word)

    at = element("span", {}, f"page {page + 1:,} of {last + 1:,}")
    return element("div", {"class": "turn"}, [to("Before", page - 1), at, to("Next", page + 1)])


def chain(view: View, asked: Asked) -> Page:
    """Return the page of a chain: its lanes and their figures. Raises ``NotFound``."""
    own = asked.required("name")
    if own not in view.chains:
        raise NotFound(f"name: {name_of(own)[:80]}: no such chain")
    rows = plain_rows(view.figures.chains)
    figures = next((row for row in rows if row["chain"] == own), {})
    shown = [
        Fact("Sent", count(figures.get("sent", 0)), many(figures.get("lanes_out", 0), "lane")),
        Fact("Received", count(figures.get("received", 0)), many(figures.get("lanes_in", 0), "lane")),
        Fact("Pending from it", count(figures.get("pending_out", 0))),
        Fact("Pending to it", count(figures.get("pending_in", 0))),
    ]
    last = figures.get("last_height")
    if last is not None:
        shown.append(Fact("Last height", count(last), href=height_address(last, own)))
    top = element("a", {"href": "/network"}, "Network")
    more = Markup("")
    if view.opened is not None and own in view.opened.names:
        more = element("div", {"class": "turn"}, element("a", {"href": address("/state", {"chain": own})}, "Its state"))
    sections = [Part("chain", safe_name(own), facts(shown) + more, None, top)]
    if (wrong := of_chain(view, own)) is not None:
        sections.append(wrong)
    for which, title in (("source", "From it"), ("destination", "To it")):
        found = view.lanes.filter(pc.fill_null(pc.equal(view.lanes[which], own), False))
        order = _order(found, "trouble")
        rows = plain_rows(found.take(pa.array(order[:PAGE], pa.int64())))
        all_of = address("/lanes", {which: own})
        more = Markup("")
        if len(order) > PAGE and all_of is not None:
            more = element("p", {"class": "turn"}, element("a", {"href": all_of}, f"All {len(order):,}"))
        sections.append(Part(which, title, _lane_table(view, rows) + more))
    return Page(safe_name(own), sections, "Network")


__all__ = ["NotFound", "age", "chain", "lanes", "network"]
