"""The pages of the network: its graph, its chains, and the list of lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import CausewayError
from markupsafe import Markup

from causeway.audit.findings import VIOLATED
from causeway.core.arrow_types import to_python_rows
from causeway.core.text import count_noun, shorten_name
from causeway.explorer.addresses import PageRequest, chain_address, height_address, lane_address, page_address
from causeway.explorer.findings import chain_violations
from causeway.explorer.frame import ExplorerPage, PagePart, empty_part, page_links
from causeway.explorer.network_graph import MAX_CHAINS, MAX_EDGES, UNSEEN_PAIR, GraphEdge, GraphNode, draw_graph
from causeway.explorer.overview import lane_link, lanes_matrix, name_link
from causeway.explorer.view import LedgerView, PairWeight
from causeway.ledger.schema import LANE
from causeway.report.elements import (
    KeyFigure,
    TableCell,
    element,
    format_count,
    format_in_unit,
    list_words,
    render_key_figures,
    render_table,
    safe_name,
    table_columns,
    verdict_badge,
)

PAGE = 50
"""Lanes on a page."""

SORTS = ("trouble", "pending", "messages", "slowest", "name")


class PageNotFound(CausewayError):
    """The lane, chain, message or height does not exist."""


def network_page(view: LedgerView) -> ExplorerPage:
    """Return the network as a graph and as a matrix.

    Args:
        view: the snapshot's data.

    Returns:
        The page.
    """
    roles = {}
    if view.opened is not None:
        roles = {view.opened.names[place]: item.get("role") for place, item in enumerate(view.opened.about["chains"])}
    pairs, weights = view.pairs, view.pairs.weights
    chosen = {*[*dict.fromkeys((*weights, *view.chains))][:MAX_CHAINS]}
    nodes = [GraphNode(chain, chain_address(chain), roles.get(chain)) for chain in view.chains if chain in chosen]
    found, all_of = pairs.between(chosen, MAX_EDGES)
    edges = [
        GraphEdge(
            str(pair.source), str(pair.destination), pair.lanes, pair.messages, pair.pending, pair.violated, pair.href
        )
        for pair in found
    ]
    to_ends, ends, of_ends = _ends(view)
    if not nodes:
        return ExplorerPage("Network", [empty_part("network", "Network", "No chains were seen yet.")], "Network")
    graph = draw_graph(nodes + ends, edges + to_ends, {**weights, **of_ends})
    keys = [("", "messages"), ("busy-1", "a few pending"), ("busy-3", "many pending"), ("bad", "violations")]
    legend = element(
        "ul",
        [element("li", Markup("<i></i>") + Markup("{}").format(word), class_=kind or None) for kind, word in keys],
        class_="keys",
    )
    counts = f"{count_noun(len(view.chains), 'chain')}, {count_noun(view.lanes.num_rows, 'lane')}"
    lead = f"{counts}. Chains and edges lead to their pages."
    left = {"chain": len(view.chains) - len(nodes), "edge": all_of - len(edges)}
    cut = [count_noun(missing, what) for what, missing in left.items() if missing]
    if cut:
        lead += f" Not drawn: {list_words(cut)} with the least traffic."
    canvas = element("div", graph, class_="canvas", tabindex=0, role="region", aria_label="The network")
    sections = [PagePart("network", "Network", canvas + legend, lead)]
    if view.lanes.num_rows:
        sections.append(PagePart("matrix", "As a matrix", lanes_matrix(view)))
    rows = to_python_rows(view.figures.chains)
    if rows:
        sections.append(PagePart("chains", "Chains", _chains(view, rows)))
    return ExplorerPage("Network", sections, "Network")


def _ends(view: LedgerView) -> tuple[list[GraphEdge], list[GraphNode], dict[str, PairWeight]]:
    """Return edges and nodes of unknown ends: one a lane, or one for a chain with many."""
    edges: list[GraphEdge] = []
    nodes: list[GraphNode] = []
    for pair in view.pairs.one_sided(MAX_SIDES):
        known = pair.destination if pair.source is None else pair.source
        which = "source" if pair.source is None else "destination"
        assert known is not None
        lanes = view.pair_figures(pair.source, pair.destination) if pair.lanes <= MAX_ENDS else []
        if not lanes or any(row["lane"] is None for row in lanes):
            nodes.append(GraphNode(f"{UNSEEN_PAIR}{which}{known}", pair.href, label="not seen", seen=False))
            edges.append(_edge(which, known, nodes[-1], pair.lanes, pair.messages, pair.pending, pair.violated))
            continue
        for row in lanes:
            href = lane_address([row[each] for each in LANE])
            nodes.append(GraphNode(f"{UNSEEN_PAIR}{which}{known}\0{row['lane']}", href, label=row["lane"], seen=False))
            edges.append(_edge(which, known, nodes[-1], 1, row["messages"], row["pending"], row["violated"]))
    ends = [edge.source if edge.source.startswith(UNSEEN_PAIR) else edge.destination for edge in edges]
    weights = {end: (edge.violated, edge.pending, edge.messages) for end, edge in zip(ends, edges, strict=True)}
    return edges, nodes, weights


MAX_SIDES = 40
"""Maximum chains drawn with lanes to and from unknown chains."""

MAX_ENDS = 80
"""Maximum lanes of a chain to unknown chains that are drawn separately."""


def _edge(which: str, known: str, end: GraphNode, lanes: int, messages: int, pending: int, violated: int) -> GraphEdge:
    source, destination = (end.name, known) if which == "source" else (known, end.name)
    return GraphEdge(source, destination, lanes, messages, pending, violated, end.href)


def _chains(view: LedgerView, rows: Sequence[Mapping[str, Any]]) -> Markup:
    of = {row["chain"]: row for row in rows}
    titles = ("sent", "received", "pending out", "pending in", "lanes out", "lanes in", "last height")
    columns = table_columns("chain:name", *(f"{title}:number" for title in titles))
    cells: list[list[TableCell]] = []
    for chain in view.chains[: 4 * PAGE]:
        row = of.get(chain, {})
        figures = [
            row.get(key)
            for key in ("sent", "received", "pending_out", "pending_in", "lanes_out", "lanes_in", "last_height")
        ]
        cells.append([name_link(chain, chain_address(chain)), *figures])
    more = max(0, len(view.chains) - len(cells))
    return render_table(columns, cells, caption="Chains", more=more)


def lanes_page(view: LedgerView, query: PageRequest) -> ExplorerPage:
    """Return the list of all lanes, or of those between two chains.

    Args:
        view: the snapshot's data.
        query: the query parameters.

    Returns:
        The page.
    """
    found = view.lanes
    narrowed = []
    for which in ("source", "destination"):
        value = query.text(which)
        if value is not None:
            found = found.filter(pc.fill_null(pc.equal(found[which], value), False))
            narrowed.append((which, value))
    sort = query.word("sort", SORTS)
    page = query.number("page", 1_000_000) or 0
    order = _order(found, sort)
    total = len(order)
    last = max(0, (total - 1) // PAGE)
    page = min(page, last)
    rows = to_python_rows(found.take(pa.array(order[page * PAGE : (page + 1) * PAGE], pa.int64())))
    body = _sorts(query, sort) + _lane_table(view, rows) + page_links("/lanes", query.values(), page, last)
    lead = f"{count_noun(total, 'lane')}" + "".join(f", {which} {safe_name(value)}" for which, value in narrowed)
    return ExplorerPage("Lanes", [PagePart("lanes", "Lanes", body, lead)], "Lanes")


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


def _sorts(query: PageRequest, sort: str) -> Markup:
    words = {
        "trouble": "Violations first",
        "pending": "Most pending",
        "messages": "Most messages",
        "slowest": "Slowest",
        "name": "By name",
    }
    given = {key: value for key, value in query.values().items() if key in ("source", "destination")}
    tabs = []
    for each, word in words.items():
        href = page_address("/lanes", {**given, "sort": each})
        tabs.append(element("a", word, href=href, aria_current="true" if each == sort else None))
    return element("div", tabs, class_="tabs")


def _lane_table(view: LedgerView, rows: Sequence[Mapping[str, Any]]) -> Markup:
    columns = table_columns(
        "lane",
        "messages:number",
        "pending:number",
        "violations:number",
        "delivery median:number",
        "delivery 99 %:number",
        "oldest pending",
    )
    cells: list[list[TableCell]] = []
    for row in rows:
        lane = [row[each] for each in LANE]
        unit = row["unit"] or "seconds"
        cells.append(
            [
                lane_link(lane),
                row["messages"],
                row["pending"] or None,
                verdict_badge(VIOLATED, format_count(row["violated"])) if row["violated"] else None,
                None if row["delivery_p50"] is None else format_in_unit(row["delivery_p50"], unit),
                None if row["delivery_p99"] is None else format_in_unit(row["delivery_p99"], unit),
                pending_age(row),
            ]
        )
    return render_table(columns, cells, caption="Lanes", stacked=True, empty="No lanes.")


def pending_age(row: Mapping[str, Any]) -> str | None:
    """Return the age of the oldest pending message of a lane.

    Args:
        row: the figures of the lane.

    Returns:
        The age in words, or None.
    """
    if row.get("oldest_pending_ticks") is not None and row["unit"] != "seconds":
        return format_in_unit(row["oldest_pending_ticks"], "ticks")
    if row.get("oldest_pending_seconds") is not None:
        return format_in_unit(row["oldest_pending_seconds"], "seconds")
    return None


def chain_page(view: LedgerView, query: PageRequest) -> ExplorerPage:
    """Return the page of a chain: its lanes and their figures.

    Args:
        view: the snapshot's data.
        query: the query parameters.

    Returns:
        The page.

    Raises:
        PageNotFound: there is no such chain.
    """
    own = query.required("name")
    if own not in view.chains:
        raise PageNotFound(f"name: {shorten_name(own)[:80]}: no such chain")
    rows = to_python_rows(view.figures.chains)
    figures = next((row for row in rows if row["chain"] == own), {})
    shown = [
        KeyFigure("Sent", format_count(figures.get("sent", 0)), count_noun(figures.get("lanes_out", 0), "lane")),
        KeyFigure("Received", format_count(figures.get("received", 0)), count_noun(figures.get("lanes_in", 0), "lane")),
        KeyFigure("Pending from it", format_count(figures.get("pending_out", 0))),
        KeyFigure("Pending to it", format_count(figures.get("pending_in", 0))),
    ]
    last = figures.get("last_height")
    if last is not None:
        shown.append(KeyFigure("Last height", format_count(last), href=height_address(last, own)))
    top = element("a", "Network", href="/network")
    more = Markup("")
    if view.opened is not None and own in view.opened.names:
        more = element("div", element("a", "Its state", href=page_address("/state", {"chain": own})), class_="turn")
    sections = [PagePart("chain", safe_name(own), render_key_figures(shown) + more, None, top)]
    if (wrong := chain_violations(view, own)) is not None:
        sections.append(wrong)
    for which, title in (("source", "From it"), ("destination", "To it")):
        found = view.lanes.filter(pc.fill_null(pc.equal(view.lanes[which], own), False))
        order = _order(found, "trouble")
        rows = to_python_rows(found.take(pa.array(order[:PAGE], pa.int64())))
        all_of = page_address("/lanes", {which: own})
        more = Markup("")
        if len(order) > PAGE and all_of is not None:
            more = element("p", element("a", f"All {len(order):,}", href=all_of), class_="turn")
        sections.append(PagePart(which, title, _lane_table(view, rows) + more))
    return ExplorerPage(safe_name(own), sections, "Network")


__all__ = ["PageNotFound", "chain_page", "lanes_page", "network_page", "pending_age"]
