"""Findings by check, and the search."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from causeway.audit.gathered import CHECK_NAMES, VERDICTS
from causeway.audit.verdict import Verdict
from causeway.explorer.addresses import (
    LINKS,
    Asked,
    address,
    chain_address,
    height_address,
    lane_address,
    message_address,
)
from causeway.explorer.found import worst_first
from causeway.explorer.frame import Page, Part
from causeway.explorer.overview import lane_link, link
from causeway.explorer.view import View
from causeway.ledger.schema import LANE
from causeway.ledger.typed import plain_rows
from causeway.model.errors import InvalidInput
from causeway.network.tracing import SeveralMessages, trace
from causeway.pipeline.ledger_search import MessageKey, find
from causeway.report.findings import finding
from causeway.report.svg import element
from causeway.report.tables import Cell, Column, badge, table
from causeway.report.text import count, safe_name
from causeway.report.wording import promise_of, reason_in_words, title_of

PAGE = 50
FOUND = 60
"""Messages of a search that are listed."""

MOST_SOUGHT = 400
"""Characters of what is sought."""


def findings(view: View, asked: Asked) -> Page:
    """Return all checks, and the findings of one, or of those that failed."""
    check = asked.text("check")
    if check is not None and check not in CHECK_NAMES:
        raise InvalidInput(f"check: {check[:40]}: must be one of {', '.join(CHECK_NAMES)}")
    checks = Part("checks", "Findings" if check is None else "All checks", _checks(view, check))
    if check is not None:
        sections = [_of_check(view, check, asked.number("page", 1_000_000) or 0), checks]
        return Page(title_of(check), sections, "Findings")
    sections = [checks]
    for each in view.audit.checks.values():
        if each.violated:
            sections.append(_of_check(view, each.name, 0))
    return Page("Findings", sections, "Findings")


def _checks(view: View, chosen: str | None) -> Markup:
    columns = [
        Column("check"),
        Column("verdict"),
        *(Column(title, "number") for title in ("examined", *VERDICTS)),
        Column("reasons"),
    ]
    cells: list[list[Cell]] = []
    for check in view.audit.checks.values():
        reasons = ", ".join(f"{reason_in_words(reason)} {number:,}" for (_, reason), number in check.reasons.items())
        current = "true" if check.name == chosen else None
        title = element("a", {"href": LINKS.check(check.name), "aria-current": current}, title_of(check.name))
        counts = [getattr(check, verdict) or None for verdict in VERDICTS]
        cells.append([title, badge(check.verdict), check.examined, *counts, reasons])
    return table(columns, cells, caption="Checks", stacked=True)


def _of_check(view: View, name: str, page: int) -> Part:
    check = view.audit.checks[name]
    found = view.audit.violations.filter(pc.equal(view.audit.violations["check"], name))
    found = worst_first(found)
    last = max(0, (found.num_rows - 1) // PAGE)
    page = min(page, last)
    rows = plain_rows(found.slice(page * PAGE, PAGE))
    columns = [Column("finding"), Column("verdict"), Column("reason"), Column("lane")]
    cells: list[list[Cell]] = []
    for row in rows:
        lane = [row[each] for each in LANE]
        cells.append(
            [
                element("div", {}, finding(row, LINKS, named=False)),
                badge(row["verdict"]),
                reason_in_words(row["reason"]),
                lane_link(lane) if any(lane[1:]) else None,
            ]
        )
    empty = "No findings." if check.verdict != Verdict.NOT_APPLICABLE else "Not applicable: nothing was examined."
    body = table(columns, cells, caption=title_of(name), stacked=True, empty=empty)
    if last:
        turns = [
            element("a", {"href": address("/findings", {"check": name, "page": number})}, word)
            if 0 <= number <= last
            else element("span", {"class": "off"}, word)
            for word, number in (("Before", page - 1), ("Next", page + 1))
        ]
        body += element(
            "div", {"class": "turn"}, [turns[0], element("span", {}, f"page {page + 1:,} of {last + 1:,}"), turns[1]]
        )
    lead = promise_of(name)
    total = check.violated + check.unknown + check.noted
    if total > found.num_rows:
        lead += f" {count(found.num_rows)} of {count(total)} findings are listed."
    above = element("a", {"href": "/findings"}, "Findings")
    return Part(f"of-{name}", title_of(name), body, lead, above)


def search(view: View, asked: Asked) -> tuple[Page, str | None]:
    """Return the page of a search, and the address of the only result, if there is one."""
    sought = (asked.text("q") or "").strip()
    if len(sought) > MOST_SOUGHT:
        raise InvalidInput(f"q: {len(sought):,} characters; at most {MOST_SOUGHT} are sought")
    if not sought:
        hint = (
            "By id, transaction hash, lane and index (channel-141/123), journey, sender, height, or a part of the name "
            "of a chain or lane."
        )
        return Page("Search", [Part("search", "Search", element("p", {"class": "empty"}, hint))]), None
    places = _places(view, sought)
    like, more = ([], 0) if places else _like(view, sought)
    try:
        traced = trace(view.ledger, sought)
        first = traced.lives[0]
        keys = [MessageKey(first.lane, first.index, first.message_id if first.index is None else None)]
    except SeveralMessages as error:
        keys = list(error.keys)
    except InvalidInput:
        keys = []
    if not keys:
        keys = find(view.ledger, [{"sender": (sought,)}, {"receiver": (sought,)}], FOUND + 1)
    only = (
        [message_address(key) for key in keys]
        if len(keys) == 1 and not places
        else [href for href, *_ in places]
        if len(places) == 1 and not keys
        else []
    )
    sections = []
    if places:
        sections.append(Part("places", "Chains, lanes and heights", _listed(places, 0)))
    elif like:
        sections.append(Part("places", "Chains and lanes with similar names", _listed(like, more)))
    if keys:
        sections.append(Part("found", "Messages", _found(keys)))
    if not sections:
        said = f"No chain, lane, message or sender is called {safe_name(sought)}."
        sections.append(Part("search", "No results", element("p", {"class": "empty"}, said)))
    return Page("Search", sections, sought=sought, status=200), only[0] if only else None


Place = tuple[str, str, str]
"""An address, a name, and a kind."""


def _places(view: View, sought: str) -> list[Place]:
    """Return the chains and lanes with this name, and the height of that number."""
    found: list[tuple[str | None, str, str]] = []
    if sought in view.chains:
        found.append((chain_address(sought), safe_name(sought), "chain"))
    same = view.lanes.filter(pc.fill_null(pc.equal(view.lanes["lane"], sought), False))
    found += _lane_places(same.slice(0, FOUND))
    digits = sought.replace(",", "")
    last = view.last_height
    if digits.isascii() and digits.isdecimal() and len(digits) <= 19 and last is not None and int(digits) <= last:
        found.append((height_address(int(digits)), f"Height {int(digits):,}", "of the network"))
    return [(href, text, what) for href, text, what in found if href is not None]


def _like(view: View, sought: str) -> tuple[list[Place], int]:
    """Return chains and lanes that have this in their names, large letters or small, and how many more there are."""
    folded = sought.casefold()
    chains = [chain for chain in view.chains if folded in chain.casefold()]
    names = view.lanes["lane"].cast(pa.string())
    lanes = view.lanes.filter(pc.fill_null(pc.match_substring(names, sought, ignore_case=True), False))
    found: list[tuple[str | None, str, str]] = [
        (chain_address(chain), safe_name(chain), "chain") for chain in chains[:FOUND]
    ]
    found += _lane_places(lanes.slice(0, FOUND))
    more = max(0, len(chains) - FOUND) + max(0, lanes.num_rows - FOUND)
    return [(href, text, what) for href, text, what in found if href is not None], more


def _lane_places(lanes: pa.Table) -> list[tuple[str | None, str, str]]:
    found: list[tuple[str | None, str, str]] = []
    for row in lanes.select([*LANE]).to_pylist():
        ends = f"{safe_name(row['source'] or '?')} → {safe_name(row['destination'] or '?')}"
        own = [row[each] for each in LANE]
        found.append((lane_address(own), f"{safe_name(row['lane'] or '?')}: {ends}", "lane"))
    return found


def _listed(places: Sequence[Place], more: int) -> Markup:
    items = [
        element("li", {}, [element("a", {"href": href}, text), Markup(" {}").format(what)])
        for href, text, what in places
    ]
    if more:
        items.append(element("li", {}, f"and {more:,} more"))
    return element("ul", {"class": "remarks"}, items)


def _found(keys: Sequence[MessageKey]) -> Markup:
    columns = [Column("message", "name"), Column("lane")]
    cells: list[list[Cell]] = []
    for key in keys[:FOUND]:
        number = key.message_id if key.index is None else str(key.index)
        cells.append([link(number, message_address(key)), lane_link(key.lane) if any(key.lane[1:]) else None])
    return table(columns, cells, caption="Messages", more=max(0, len(keys) - FOUND))


__all__ = ["findings", "search"]
