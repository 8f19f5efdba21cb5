"""The page of a lane: its figures, its queue, its messages, its findings, and its charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from causeway.audit.findings import UNKNOWN, VIOLATED
from causeway.audit.lives import WRONG, Life
from causeway.explorer.addresses import Asked, address, chain_address, height_address, lane_address, message_address
from causeway.explorer.forms import form, number_box
from causeway.explorer.found import listed
from causeway.explorer.frame import Page, Part
from causeway.explorer.networks import NotFound, age
from causeway.explorer.overview import lane_link, link, over_time, parties
from causeway.explorer.reading import key_of, of_lane, took_of, unnumbered, watermarks, window
from causeway.explorer.view import View
from causeway.ledger.outcomes import Outcome
from causeway.ledger.schema import LANE
from causeway.network.tracing import Traced, life_as_dict
from causeway.report.outcomes import BAD, IN_A_FINDING, LOOKS, Look, mark_of, outcome_of, word_of
from causeway.report.svg import element, tone_class
from causeway.report.tables import Cell, Column, Fact, facts, table
from causeway.report.text import count, in_unit, many, name, plain, safe_name, time_text

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
        sections.append(Part("watermarks", "Watermarks", _watermarks(marks), "The last value of each, by chain."))
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
                f"oldest: {waits}" if waits else None,
                UNKNOWN if figures["pending"] else None,
            )
        )
        shown.append(Fact("In flight", count(figures["in_flight"]), "sent, not received"))
    for each in LOOKS:
        if figures.get(each) and each != Outcome.PENDING:
            verdict = VIOLATED if each in BAD else None
            shown.append(Fact(word_of(each).capitalize(), count(figures[each]), None, verdict))
    if figures["violated"]:
        shown.append(Fact("Violations", count(figures["violated"]), None, VIOLATED, "#findings"))
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
            [Part("time", "Over time", element("p", {"class": "empty"}, "No message has a time."), above=above)],
            "Lanes",
        )
    return Page("Over time", [Part("time", charts.title, charts.body, charts.lead, above)], "Lanes")


def _wrong_indices(findings: pa.Table) -> set[int]:
    violated = findings.filter(pc.equal(findings["verdict"], VIOLATED))
    return {index for index in violated["index"].to_pylist() if index is not None}


@dataclass(frozen=True)
class _Shown:
    """A message as its queue shows it. ``wrong``: whether a violation is about it."""

    life: Life
    content: Mapping[str, Any]
    outcome: str
    wrong: bool

    @classmethod
    def of(cls, life: Life, wrong: set[int]) -> _Shown:
        """Return how a message is shown. ``wrong``: the numbers of messages that violations are about."""
        content = life_as_dict(life, Traced((life,), {}, 0))
        noted = {note for step in life.steps for note in step.notes}
        return cls(life, content, outcome_of(content), life.index in wrong or bool(noted & WRONG))

    @property
    def look(self) -> Look:
        """Return the form and colour."""
        return IN_A_FINDING if self.wrong else LOOKS[self.outcome]


def _queue(
    view: View, asked: Asked, own: Sequence[str | None], figures: Mapping[str, Any], wrong: set[int]
) -> list[Part]:
    least, most = int(figures["first_index"]), int(figures["last_index"])
    first = asked.number("from")
    following = first is None
    if first is None:
        first = max(least, most - WINDOW + 1)
    last = min(first + WINDOW - 1, MOST_INDEX)
    lives = [_Shown.of(life, wrong) for life in window(view.ledger, own, first, last)]
    by_index = {each.life.index: each for each in lives}
    squares = []
    keys: dict[Look, list[str]] = {}
    for index in range(first, min(last, max(most, first)) + 1):
        shown = by_index.get(index)
        if shown is None:
            squares.append(element("span", {"class": "mark absent", "title": f"{index}: not seen"}, ""))
            continue
        words = keys.setdefault(shown.look, [])
        word = "in a violation" if shown.wrong else word_of(shown.outcome)
        words += [word] if word not in words else []
        said = f"{index}: {word_of(shown.outcome)}"
        href = message_address(key_of(shown.life))
        tag = "span" if href is None else "a"
        squares.append(element(tag, {"class": _class(shown.look), "href": href, "title": said, "aria-label": said}, ""))
    ends = element(
        "p",
        {"class": "queue-ends"},
        [element("span", {}, str(first)), element("span", {}, str(min(last, max(most, first))))],
    )
    items = [
        element("li", {}, element("i", {"class": _class(look)}) + plain(", ".join(keys[look])))
        for look in dict.fromkeys((*LOOKS.values(), IN_A_FINDING))
        if look in keys
    ]
    legend = element("ul", {"class": "keys"}, items)
    lead = f"Indices {least} to {most}" + (
        f"; shown are the newest {len(squares)}" if following and most - least >= WINDOW else ""
    )
    oldest = figures["oldest_pending_index"]
    body = element("div", {"class": "queue"}, squares) + ends + legend + _moves(own, first, least, most, oldest)
    return [
        Part("queue", "Queue", body, f"{lead}."),
        Part("messages", "Messages", _messages(lives)),
    ]


def _class(look: Look) -> str:
    return f"mark {look.form} {tone_class(look.tone)}"


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


def _messages(lives: Sequence[_Shown]) -> Markup:
    """Return the messages of a window as a table: those with violations first, then pending ones, then the newest."""
    order = {"broken": 0, "waiting": 1}
    chosen = sorted(lives, key=lambda each: (order.get(each.look.form, 2), -(each.life.index or 0)))[:LISTED]
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
    for each in chosen:
        life = each.life
        took = None if life.is_open else took_of(life)
        cells.append(
            [
                link(str(life.index), message_address(key_of(life))),
                life.kind,
                mark_of(each.content, VIOLATED if each.wrong else None),
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
        "This lane does not number its messages. These are its first ones.",
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
