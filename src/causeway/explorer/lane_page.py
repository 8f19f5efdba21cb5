"""The page of a lane: figures, queue, messages, findings and charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from causeway.analysis.tracing import FAULT_REMARKS, MessageHistory, MessageTrace, history_to_dict
from causeway.audit.findings import UNKNOWN, VIOLATED
from causeway.core.text import count_noun
from causeway.explorer.addresses import (
    PageRequest,
    chain_address,
    height_address,
    lane_address,
    message_address,
    page_address,
)
from causeway.explorer.findings import findings_part
from causeway.explorer.frame import (
    ExplorerPage,
    PagePart,
    empty_part,
    number_box,
    render_form,
    render_piece,
    turn_link,
)
from causeway.explorer.network_page import PageNotFound, pending_age
from causeway.explorer.overview import lane_link, message_parties, name_link, overview_charts
from causeway.explorer.view import (
    LedgerView,
    history_key,
    lane_watermarks,
    outcome_delay,
    select_lane,
    unnumbered_histories,
    window_histories,
)
from causeway.ledger.outcomes import Outcome
from causeway.ledger.schema import LANE
from causeway.report.elements import (
    KeyFigure,
    TableCell,
    element,
    format_count,
    format_in_unit,
    format_name,
    format_time,
    render_key_figures,
    render_table,
    safe_name,
    table_columns,
)
from causeway.report.outcomes import (
    BAD,
    FINDING_STYLE,
    OUTCOME_STYLES,
    OutcomeStyle,
    outcome_word,
    row_outcome,
    row_outcome_mark,
)

WINDOW_SIZE = 96
"""Indices of a lane's queue on a page."""

MAX_MESSAGES = 30
"""Maximum listed messages of these."""

MAX_UNNUMBERED = 200
"""Maximum listed messages of a lane without indices."""

MAX_INDEX = (1 << 64) - 1


def lane_page(view: LedgerView, query: PageRequest) -> ExplorerPage:
    """Return the page of a lane.

    Args:
        view: the snapshot's data.
        query: the query parameters.

    Returns:
        The page.

    Raises:
        PageNotFound: there is no such lane.
    """
    own = query.lane()
    figures = view.lane(own)
    if figures is None:
        raise PageNotFound("no such lane")
    unit = figures["unit"] or "seconds"
    protocol, source, destination, called = own
    ends = [name_link(source, chain_address(source)), Markup(" → "), name_link(destination, chain_address(destination))]
    crumbs = element("a", "Lanes", href="/lanes") + Markup(" · ") + format_name(protocol)
    title = f"Lane {safe_name(called) if called is not None else 'without a name'}"
    sections = [PagePart("lane", title, _lane_facts(figures, unit), Markup("").join(ends), crumbs)]
    findings = select_lane(view.audit.violations, own)
    wrong = _wrong_indices(findings)
    total = sum(select_lane(view.audit.counts, own)["count"].to_pylist())
    found = findings_part(findings, named=False, total=total)
    if found is not None and figures["violated"]:
        sections.append(found)
    if figures["last_index"] is None:
        sections.append(_unnumbered(view, own))
    else:
        sections += _queue(view, query, own, figures, wrong)
    marks = lane_watermarks(view.ledger, own)
    if marks:
        sections.append(PagePart("watermarks", "Watermarks", _watermarks(marks), "The last value of each, by chain."))
    if found is not None and not figures["violated"]:
        sections.append(found)
    promises = [row for row in view.ledger.table("promises").to_pylist() if _covers(row, own)]
    if promises:
        words = sorted({_promise(row) for row in promises})
        sections.append(
            PagePart("promises", "Promises", element("ul", [element("li", word) for word in words], class_="remarks"))
        )
    return ExplorerPage(f"Lane {safe_name(called or '')}", sections, "Lanes")


def _lane_facts(figures: Mapping[str, Any], unit: str) -> Markup:
    facts = [KeyFigure("Messages", format_count(figures["messages"]), count_noun(figures["requests"], "request"))]
    if figures["pending"] or figures["in_flight"]:
        waits = pending_age(figures)
        facts.append(
            KeyFigure(
                "Pending",
                format_count(figures["pending"]),
                f"oldest: {waits}" if waits else None,
                UNKNOWN if figures["pending"] else None,
            )
        )
        facts.append(KeyFigure("In flight", format_count(figures["in_flight"]), "sent, not received"))
    for each in OUTCOME_STYLES:
        if figures.get(each) and each != Outcome.PENDING:
            verdict = VIOLATED if each in BAD else None
            facts.append(KeyFigure(outcome_word(each).capitalize(), format_count(figures[each]), None, verdict))
    if figures["violated"]:
        facts.append(KeyFigure("Violations", format_count(figures["violated"]), None, VIOLATED, "#findings"))
    for measure, title in (("delivery", "Delivery"), ("round_trip", "Round trip")):
        if figures[f"{measure}_p50"] is not None:
            high = format_in_unit(figures[f"{measure}_p99"], unit)
            facts.append(
                KeyFigure(f"{title}, median", format_in_unit(figures[f"{measure}_p50"], unit), f"99 %: {high}")
            )
    if figures["fees"]:
        facts.append(KeyFigure("Fees", format_count(int(figures["fees"])), safe_name(figures["fee_asset"] or "")))
    return render_key_figures(facts)


def lane_charts(view: LedgerView, query: PageRequest) -> ExplorerPage:
    """Return the charts of a lane; reads its buckets of the ledger.

    Args:
        view: the snapshot's data.
        query: the query parameters.

    Returns:
        The page.

    Raises:
        PageNotFound: there is no such lane.
    """
    from causeway.analysis.figures.filters import MessageFilter
    from causeway.analysis.stored_figures import compute_figures

    own = query.lane()
    if view.lane(own) is None:
        raise PageNotFound("no such lane")
    where = MessageFilter.of(**{key: [value] for key, value in zip(LANE, own, strict=True)})
    charts = overview_charts(compute_figures(view.ledger, where=where, executor="in_process"))
    above = element("a", "Lanes", href="/lanes") + Markup(" · ") + lane_link(own)
    if charts is None:
        return ExplorerPage("Over time", [empty_part("time", "Over time", "No message has a time.", above)], "Lanes")
    return ExplorerPage("Over time", [PagePart("time", charts.title, charts.body, charts.lead, above)], "Lanes")


def _wrong_indices(findings: pa.Table) -> set[int]:
    violated = findings.filter(pc.equal(findings["verdict"], VIOLATED))
    return {index for index in violated["index"].to_pylist() if index is not None}


@dataclass(frozen=True)
class _QueueMessage:
    """A message of a queue. ``wrong``: a violation concerns it."""

    life: MessageHistory
    content: Mapping[str, Any]
    outcome: str
    wrong: bool

    @classmethod
    def of(cls, life: MessageHistory, wrong: set[int]) -> _QueueMessage:
        """Create the view of a message. ``wrong``: indices with violations."""
        content = history_to_dict(life, MessageTrace((life,), {}, 0))
        noted = {note for step in life.steps for note in step.notes}
        return cls(life, content, row_outcome(content), life.index in wrong or bool(noted & FAULT_REMARKS))

    @property
    def look(self) -> OutcomeStyle:
        """Return the form and colour."""
        return FINDING_STYLE if self.wrong else OUTCOME_STYLES[self.outcome]


def _queue(
    view: LedgerView, query: PageRequest, own: Sequence[str | None], figures: Mapping[str, Any], wrong: set[int]
) -> list[PagePart]:
    least, most = int(figures["first_index"]), int(figures["last_index"])
    first = query.number("from")
    following = first is None
    if first is None:
        first = max(least, most - WINDOW_SIZE + 1)
    last = min(first + WINDOW_SIZE - 1, MAX_INDEX)
    lives = [_QueueMessage.of(life, wrong) for life in window_histories(view.ledger, own, first, last)]
    by_index = {each.life.index: each for each in lives}
    squares: list[tuple[OutcomeStyle | None, str, str | None]] = []
    keys: dict[OutcomeStyle, list[str]] = {}
    for index in range(first, min(last, max(most, first)) + 1):
        message = by_index.get(index)
        if message is None:
            squares.append((None, f"{index}: not seen", None))
            continue
        words = keys.setdefault(message.look, [])
        word = "in a violation" if message.wrong else outcome_word(message.outcome)
        words += [word] if word not in words else []
        label = f"{index}: {outcome_word(message.outcome)}"
        squares.append((message.look, label, message_address(history_key(message.life))))
    looks = [look for look in dict.fromkeys((*OUTCOME_STYLES.values(), FINDING_STYLE)) if look in keys]
    ends = first, min(last, max(most, first))
    lead = f"Indices {least} to {most}" + (
        f"; shown are the newest {len(squares)}" if following and most - least >= WINDOW_SIZE else ""
    )
    legend = [(look, ", ".join(keys[look])) for look in looks]
    body = render_piece("elements/queue.html", squares=squares, ends=ends, legend=legend)
    body += _navigation(own, first, least, most, figures["oldest_pending_index"])
    return [PagePart("queue", "Queue", body, f"{lead}."), PagePart("messages", "Messages", _messages(lives))]


def _navigation(own: Sequence[str | None], first: int, least: int, most: int, oldest: int | None) -> Markup:
    def link(word: str, begin: int | None) -> Markup:
        return turn_link(word, None if begin in (None, first) else lane_address(own, **{"from": begin}))

    values = dict(zip(LANE, own, strict=True))
    parts = [
        link("First", least),
        link("Before", max(least, first - WINDOW_SIZE) if first > least else None),
        link("Next", first + WINDOW_SIZE if first + WINDOW_SIZE <= most else None),
        turn_link("Newest", lane_address(own)),
        *([] if oldest is None else [link("Oldest pending", oldest)]),
        turn_link("Over time", page_address("/lane/time", values)),
        render_form("/lane", [number_box("from", "Index")], values),
    ]
    return element("div", parts, class_="turn")


def _messages(lives: Sequence[_QueueMessage]) -> Markup:
    """Render the messages of a window: violations first, then pending ones, then the newest."""
    order = {"broken": 0, "waiting": 1}
    chosen = sorted(lives, key=lambda each: (order.get(each.look.form, 2), -(each.life.index or 0)))[:MAX_MESSAGES]
    columns = table_columns("index:number", "kind", "outcome", "from → to", "sent", "received", "took:number")
    cells: list[list[TableCell]] = []
    for each in chosen:
        life = each.life
        took = None if life.is_open else outcome_delay(life)
        cells.append(
            [
                name_link(str(life.index), message_address(history_key(life))),
                life.kind,
                row_outcome_mark(each.content, VIOLATED if each.wrong else None),
                message_parties({"sender": life.sender, "receiver": life.receiver}),
                _step(life, ("sent", "committed")),
                _step(life, ("received",)),
                took,
            ]
        )
    return render_table(
        columns, cells, caption="Messages", more=len(lives) - len(chosen), stacked=True, empty="No messages here."
    )


def _step(life: MessageHistory, events: Sequence[str]) -> TableCell:
    for step in life.steps:
        if step.event in events:
            if step.height is not None:
                label = f"block {step.height:,}"
                href = height_address(step.height, step.chain)
                return label if href is None else element("a", label, href=href)
            return None if step.time is None else format_time(step.time)
    return None


def _unnumbered(view: LedgerView, own: Sequence[str | None]) -> PagePart:
    keys = unnumbered_histories(view.ledger, own, MAX_UNNUMBERED)
    columns = table_columns("message:name")
    cells: list[list[TableCell]] = [[name_link(key.message_id, message_address(key))] for key in keys]
    return PagePart(
        "messages",
        "Messages",
        render_table(columns, cells, caption="Messages", empty="No messages."),
        "This lane does not number its messages. These are its first ones.",
    )


def _watermarks(rows: Sequence[Mapping[str, Any]]) -> Markup:
    columns = table_columns("chain:name", "number", "value:number", "since block:number")
    cells: list[list[TableCell]] = [
        [
            name_link(row["chain"], chain_address(row["chain"])),
            (row["name"] or "").replace("_", " "),
            row["value"],
            name_link(f"{row['height']:,}", height_address(row["height"])) if row["height"] is not None else None,
        ]
        for row in rows
    ]
    return render_table(columns, cells, caption="Watermarks")


def _covers(row: Mapping[str, Any], own: Sequence[str | None]) -> bool:
    return all(row[name] is None or row[name] == value for name, value in zip(LANE, own, strict=True))


def _promise(row: Mapping[str, Any]) -> str:
    words = row["promise"].replace("_", " ")
    if row["number"] is None:
        return str(words)
    if row["promise"] in ("answered", "final_after"):
        return f"{words}: {format_in_unit(row['number'] / 1e6, 'seconds')}"
    return f"{words}: {format_count(row['number'])}"


__all__ = ["lane_charts", "lane_page"]
