"""The page of a lane: its figures, its queue, its messages, its findings, and how it went over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from causeway.audit.lives import Life
from causeway.explorer.addresses import Asked, address, chain_address, height_address, lane_address, message_address
from causeway.explorer.forms import form, number_box
from causeway.explorer.found import listed
from causeway.explorer.frame import Page, Part
from causeway.explorer.networks import NotFound, age
from causeway.explorer.overview import lane_link, link, over_time, parties
from causeway.explorer.reading import key_of, of_lane, took_of, unnumbered, watermarks, window
from causeway.explorer.view import View
from causeway.ledger.schema import LANE
from causeway.report.svg import element
from causeway.report.tables import Cell, Column, Fact, badge, facts, table
from causeway.report.text import count, in_unit, many, name, safe_name, time_text

WINDOW = 96
"""Indices of a lane's queue that are shown at a time."""

LISTED = 30
"""Messages of these that are listed."""

UNNUMBERED = 200
"""Messages of a lane without numbers that are listed."""

MOST_INDEX = (1 << 64) - 1


def lane(view: View, asked: Asked) -> Page:
    """Return the page of a lane: its figures, its queue, its messages, its findings. Raises ``NotFound``."""
    own = asked.lane()
    figures = view.lane(own)
    if figures is None:
        raise NotFound("no such lane")
    unit = figures["unit"] or "seconds"
    protocol, source, destination, called = own
    ends = [link(source, chain_address(source)), Markup(" → "), link(destination, chain_address(destination))]
    crumbs = element("a", {"href": "/lanes"}, "Lanes") + Markup(" · ") + name(protocol)
    title = f"Lane {safe_name(called) if called is not None else 'without a name'}"
    sections = [Part("lane", title, _lane_facts(figures, unit), Markup("").join(ends), crumbs)]
    findings = of_lane(view.audit.violations, own)
    wrong = _wrong_indices(findings)
    total = sum(of_lane(view.audit.counts, own)["count"].to_pylist())
    found = listed(findings, named=False, total=total)
    if found is not None and figures["violated"]:
        sections.append(found)
    if figures["last_index"] is None:
        sections.append(_unnumbered(view, own))
    else:
        sections += _queue(view, asked, own, figures, wrong)
    marks = watermarks(view.ledger, own)
    if marks:
        sections.append(
            Part(
                "watermarks", "Watermarks", _watermarks(marks), "Numbers that never fall, as each chain last had them."
            )
        )
    if found is not None and not figures["violated"]:
        sections.append(found)
    promises = [row for row in view.ledger.table("promises").to_pylist() if _covers(row, own)]
    if promises:
        words = sorted({_promise(row) for row in promises})
        sections.append(
            Part(
                "promises", "Promises", element("ul", {"class": "remarks"}, [element("li", {}, word) for word in words])
            )
        )
    return Page(f"Lane {safe_name(called or '')}", sections, "Lanes")


def _lane_facts(figures: Mapping[str, Any], unit: str) -> Markup:
    shown = [Fact("Messages", count(figures["messages"]), many(figures["requests"], "request"))]
    if figures["pending"] or figures["in_flight"]:
        waits = age(figures)
        shown.append(
            Fact(
                "Pending",
                count(figures["pending"]),
                f"oldest for {waits}" if waits else None,
                "unknown" if figures["pending"] else None,
            )
        )
        shown.append(Fact("Under way", count(figures["in_flight"]), "sent, not received"))
    done = [
        (key, figures[key])
        for key in ("answered", "rejected", "refunded", "delivered", "timed_out", "dropped")
        if figures[key]
    ]
    shown += [Fact(key.replace("_", " ").capitalize(), count(number)) for key, number in done]
    if figures["violated"]:
        shown.append(Fact("Violations", count(figures["violated"]), None, "violated", "#findings"))
    for measure, title in (("delivery", "Delivery"), ("round_trip", "Round trip")):
        if figures[f"{measure}_p50"] is not None:
            high = in_unit(figures[f"{measure}_p99"], unit)
            shown.append(Fact(f"{title}, median", in_unit(figures[f"{measure}_p50"], unit), f"99 %: {high}"))
    if figures["fees"]:
        shown.append(Fact("Fees", count(int(figures["fees"])), safe_name(figures["fee_asset"] or "")))
    return facts(shown)


def lane_over_time(view: View, asked: Asked) -> Page:
    """Return the charts of a lane, for which its part of the ledger is read. Raises ``NotFound``."""
    from causeway.figures.where import Where
    from causeway.pipeline.ledger_figures import figures_of

    own = asked.lane()
    if view.lane(own) is None:
        raise NotFound("no such lane")
    where = Where.of(**{key: [value] for key, value in zip(LANE, own, strict=True)})
    charts = over_time(figures_of(view.ledger, where=where, executor="in_process"))
    above = element("a", {"href": "/lanes"}, "Lanes") + Markup(" · ") + lane_link(own)
    if charts is None:
        return Page(
            "Over time",
            [Part("time", "Over time", element("p", {"class": "empty"}, "Nothing of it has a time."), above=above)],
            "Lanes",
        )
    return Page("Over time", [Part("time", charts.title, charts.body, charts.lead, above)], "Lanes")


def _wrong_indices(findings: pa.Table) -> set[int]:
    violated = findings.filter(pc.equal(findings["verdict"], "violated"))
    return {index for index in violated["index"].to_pylist() if index is not None}


_DONE = ("acknowledged", "answered")
_OVER = ("timed out", "rejected", "dropped")


def tone(life: Life, wrong: set[int]) -> str:
    """Return how a message is shown in its queue."""
    from causeway.audit.lives import AGAIN, OTHER_CONTENT

    noted = {note for step in life.steps for note in step.notes}
    if life.index in wrong or noted & {AGAIN, OTHER_CONTENT}:
        return "broken"
    if life.is_open:
        return "waiting"
    outcome = life.outcome.partition(";")[0]
    if outcome in _OVER:
        return "over"
    return "done" if outcome in _DONE else "arrived"


def _queue(
    view: View, asked: Asked, own: Sequence[str | None], figures: Mapping[str, Any], wrong: set[int]
) -> list[Part]:
    least, most = int(figures["first_index"]), int(figures["last_index"])
    first = asked.number("from")
    following = first is None
    if first is None:
        first = max(least, most - WINDOW + 1)
    last = min(first + WINDOW - 1, MOST_INDEX)
    lives = window(view.ledger, own, first, last)
    by_index = {life.index: life for life in lives}
    squares = []
    for index in range(first, min(last, max(most, first)) + 1):
        life = by_index.get(index)
        if life is None:
            squares.append(element("span", {"class": "absent", "title": f"{index:,}: not seen"}, ""))
            continue
        said = f"{index:,}: {life.outcome}"
        href = message_address(key_of(life))
        tag = "span" if href is None else "a"
        squares.append(element(tag, {"class": tone(life, wrong), "href": href, "title": said, "aria-label": said}, ""))
    ends = element(
        "p",
        {"class": "queue-ends"},
        [element("span", {}, f"{first:,}"), element("span", {}, f"{min(last, max(most, first)):,}")],
    )
    keys = [
        ("done", "answered or acknowledged"),
        ("arrived", "received"),
        ("waiting", "under way"),
        ("over", "timed out, rejected or dropped"),
        ("broken", "in a finding"),
    ]
    legend = element(
        "ul",
        {"class": "keys"},
        [
            element("li", {"class": f"square {key}"}, Markup("<i></i>") + Markup("{}").format(word))
            for key, word in keys
        ],
    )
    lead = f"Indices {least:,} to {most:,}" + (
        f"; shown are the newest {len(squares)}" if following and most - least >= WINDOW else ""
    )
    oldest = figures["oldest_pending_index"]
    body = element("div", {"class": "queue"}, squares) + ends + legend + _moves(own, first, least, most, oldest)
    return [
        Part("queue", "Queue", body, f"{lead}."),
        Part("messages", "Messages", _messages(lives, wrong)),
    ]


def _moves(own: Sequence[str | None], first: int, least: int, most: int, oldest: int | None) -> Markup:
    def to(word: str, begin: int | None) -> Markup:
        if begin is None or begin == first:
            return element("span", {"class": "off"}, word)
        return element("a", {"href": lane_address(own, **{"from": begin})}, word)

    newest = element("a", {"href": lane_address(own)}, "Newest")
    charts = element("a", {"href": address("/lane/time", dict(zip(LANE, own, strict=True)))}, "Over time")
    before = max(least, first - WINDOW) if first > least else None
    parts = [
        to("First", least),
        to("Before", before),
        to("Next", first + WINDOW if first + WINDOW <= most else None),
        newest,
    ]
    if oldest is not None:
        parts.append(to("Oldest pending", int(oldest)))
    parts.append(charts)
    parts.append(form("/lane", [number_box("from", "Index")], dict(zip(LANE, own, strict=True))))
    return element("div", {"class": "turn"}, parts)


def _messages(lives: Sequence[Life], wrong: set[int]) -> Markup:
    """Return the messages of a window as a table: those in findings or under way first, then the newest."""
    order = {"broken": 0, "waiting": 1}
    chosen = sorted(lives, key=lambda life: (order.get(tone(life, wrong), 2), -(life.index or 0)))[:LISTED]
    columns = [
        Column("index", "number"),
        Column("kind"),
        Column("outcome"),
        Column("from → to"),
        Column("sent"),
        Column("received"),
        Column("took", "number"),
    ]
    cells: list[list[Cell]] = []
    for life in chosen:
        took = None if life.is_open else took_of(life)
        outcome: Cell = badge("violated", life.outcome) if life.index in wrong else life.outcome
        cells.append(
            [
                link(f"{life.index:,}", message_address(key_of(life))),
                life.kind,
                outcome,
                parties({"sender": life.sender, "receiver": life.receiver}),
                _step(life, ("sent", "committed")),
                _step(life, ("received",)),
                took,
            ]
        )
    return table(
        columns, cells, caption="Messages", more=len(lives) - len(chosen), stacked=True, empty="No messages here."
    )


def _step(life: Life, events: Sequence[str]) -> Cell:
    for step in life.steps:
        if step.event in events:
            if step.height is not None:
                said = f"block {step.height:,}"
                href = height_address(step.height, step.chain)
                return said if href is None else element("a", {"href": href}, said)
            return None if step.time is None else time_text(step.time)
    return None


def _unnumbered(view: View, own: Sequence[str | None]) -> Part:
    keys = unnumbered(view.ledger, own, UNNUMBERED)
    columns = [Column("message", "name")]
    cells: list[list[Cell]] = [[link(key.message_id, message_address(key))] for key in keys]
    return Part(
        "messages",
        "Messages",
        table(columns, cells, caption="Messages", empty="No messages."),
        "This lane does not number its messages; these are the first of it.",
    )


def _watermarks(rows: Sequence[Mapping[str, Any]]) -> Markup:
    columns = [Column("chain", "name"), Column("number"), Column("value", "number"), Column("since block", "number")]
    cells: list[list[Cell]] = [
        [
            link(row["chain"], chain_address(row["chain"])),
            (row["name"] or "").replace("_", " "),
            row["value"],
            link(f"{row['height']:,}", height_address(row["height"])) if row["height"] is not None else None,
        ]
        for row in rows
    ]
    return table(columns, cells, caption="Watermarks")


def _covers(row: Mapping[str, Any], own: Sequence[str | None]) -> bool:
    return all(row[name] is None or row[name] == value for name, value in zip(LANE, own, strict=True))


def _promise(row: Mapping[str, Any]) -> str:
    words = row["promise"].replace("_", " ")
    if row["number"] is None:
        return str(words)
    if row["promise"] in ("answered", "final_after"):
        return f"{words}: {in_unit(row['number'] / 1e6, 'seconds')}"
    return f"{words}: {count(row['number'])}"


__all__ = ["lane", "lane_over_time"]
