"""Findings of a lane, chain or height; the page of findings by check; the search."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput
from markupsafe import Markup

from causeway.analysis.tracing import SeveralMessages, trace_message
from causeway.audit.findings import VIOLATED
from causeway.audit.passes.results import CHECK_NAMES, VERDICTS
from causeway.audit.verdict import Verdict
from causeway.core.arrow_types import to_python_rows, value_type
from causeway.core.text import count_noun
from causeway.explorer.addresses import (
    LINKS,
    PageRequest,
    chain_address,
    height_address,
    lane_address,
    message_address,
)
from causeway.explorer.frame import ExplorerPage, PagePart, empty_part, page_links
from causeway.explorer.overview import lane_link, name_link
from causeway.explorer.view import LedgerView
from causeway.ledger.schema import LANE
from causeway.ledger.search import MessageKey, find_messages
from causeway.report.elements import (
    TableCell,
    element,
    format_count,
    render_table,
    safe_name,
    table_columns,
    verdict_badge,
)
from causeway.report.findings import check_promise, check_title, finding_sentence, reason_words

__all__ = ["chain_violations", "findings_page", "findings_part", "height_violations", "search_page", "worst_first"]

MAX_LISTED = 20
"""Maximum findings on a page with another subject."""


def chain_violations(view: LedgerView, chain: str) -> PagePart | None:
    """Return the violations on a chain, and on its lanes; None without any.

    Args:
        view: the snapshot's data.
        chain: name of the chain.

    Returns:
        The part, or None.
    """
    rows = _violated(view)
    wanted = [_equal(rows, name, chain) for name in ("chain", "source", "destination")]
    return findings_part(rows.filter(pc.or_(pc.or_(*wanted[:2]), wanted[2])), named=True)


def height_violations(view: LedgerView, height: int, chain: str | None) -> PagePart | None:
    """Return the violations at a height, on all chains or one; None without any.

    Args:
        view: the snapshot's data.
        height: the height.
        chain: only this chain; None: all.

    Returns:
        The part, or None.
    """
    rows = _violated(view)
    rows = rows.filter(_equal(rows, "height", height))
    return findings_part(rows if chain is None else rows.filter(_equal(rows, "chain", chain)), named=True)


def findings_part(rows: pa.Table, *, named: bool, total: int = 0) -> PagePart | None:
    """Return findings as a page part; None without any.

    Args:
        rows: rows of the table ``violations``.
        named: each finding names its lane.
        total: their number, if only some are listed.

    Returns:
        The part, or None.
    """
    if not rows.num_rows:
        return None
    items = []
    for row in to_python_rows(worst_first(rows).slice(0, MAX_LISTED)):
        check = element("a", check_title(row["check"]), href=LINKS.check(row["check"]))
        sentence = finding_sentence(row, LINKS, named=named)
        items.append(element("li", [verdict_badge(row["verdict"]), Markup(" "), check, Markup(": "), sentence]))
    if (more := max(total, rows.num_rows) - len(items)) > 0:
        items.append(element("li", f"{count_noun(more, 'more finding')}"))
    return PagePart("findings", "Findings", element("ul", items, class_="remarks"))


def worst_first(rows: pa.Table) -> pa.Table:
    """Sort findings by verdict, violations first; stable.

    Args:
        rows: rows of the table ``violations``.

    Returns:
        The sorted rows.
    """
    ranks = pc.index_in(rows["verdict"], pa.array(VERDICTS))
    return rows.append_column("rank", ranks).sort_by("rank").drop_columns("rank")


def _violated(view: LedgerView) -> pa.Table:
    rows = view.audit.violations
    return rows.filter(pc.equal(rows["verdict"], VIOLATED))


def _equal(rows: pa.Table, name: str, value: object) -> pa.ChunkedArray:
    kind = value_type(rows.schema.field(name).type)
    return pc.fill_null(pc.equal(rows[name].cast(kind), pa.scalar(value, kind)), False)


PAGE = 50
MAX_RESULTS = 60
"""Maximum messages in a search result."""

MAX_SEARCH_TEXT = 400
"""Maximum characters of a search text."""


def findings_page(view: LedgerView, query: PageRequest) -> ExplorerPage:
    """Return the page of all checks, with the findings of one, or of failed checks.

    Args:
        view: the snapshot's data.
        query: the query parameters.

    Returns:
        The page.
    """
    check = query.text("check")
    if check is not None and check not in CHECK_NAMES:
        raise InvalidInput(f"check: {check[:40]}: must be one of {', '.join(CHECK_NAMES)}")
    checks = PagePart("checks", "Findings" if check is None else "All checks", _checks(view, check))
    if check is not None:
        sections = [_of_check(view, check, query.number("page", 1_000_000) or 0), checks]
        return ExplorerPage(check_title(check), sections, "Findings")
    sections = [checks]
    for each in view.audit.checks.values():
        if each.violated:
            sections.append(_of_check(view, each.name, 0))
    return ExplorerPage("Findings", sections, "Findings")


def _checks(view: LedgerView, chosen: str | None) -> Markup:
    columns = table_columns("check", "verdict", *(f"{title}:number" for title in ("examined", *VERDICTS)), "reasons")
    cells: list[list[TableCell]] = []
    for check in view.audit.checks.values():
        reasons = ", ".join(f"{reason_words(reason)} {number:,}" for (_, reason), number in check.reasons.items())
        current = "true" if check.name == chosen else None
        title = element("a", check_title(check.name), href=LINKS.check(check.name), aria_current=current)
        counts = [getattr(check, verdict) or None for verdict in VERDICTS]
        cells.append([title, verdict_badge(check.verdict), check.examined, *counts, reasons])
    return render_table(columns, cells, caption="Checks", stacked=True)


def _of_check(view: LedgerView, name: str, page: int) -> PagePart:
    check = view.audit.checks[name]
    found = view.audit.violations.filter(pc.equal(view.audit.violations["check"], name))
    found = worst_first(found)
    last = max(0, (found.num_rows - 1) // PAGE)
    page = min(page, last)
    rows = to_python_rows(found.slice(page * PAGE, PAGE))
    columns = table_columns("finding", "verdict", "reason", "lane")
    cells: list[list[TableCell]] = []
    for row in rows:
        lane = [row[each] for each in LANE]
        cells.append(
            [
                element("div", finding_sentence(row, LINKS, named=False)),
                verdict_badge(row["verdict"]),
                reason_words(row["reason"]),
                lane_link(lane) if any(lane[1:]) else None,
            ]
        )
    empty = "No findings." if check.verdict != Verdict.NOT_APPLICABLE else "Not applicable: nothing was examined."
    body = render_table(columns, cells, caption=check_title(name), stacked=True, empty=empty)
    body += page_links("/findings", {"check": name}, page, last)
    lead = check_promise(name)
    total = check.violated + check.unknown + check.noted
    if total > found.num_rows:
        lead += f" {format_count(found.num_rows)} of {format_count(total)} findings are listed."
    above = element("a", "Findings", href="/findings")
    return PagePart(f"of-{name}", check_title(name), body, lead, above)


def search_page(view: LedgerView, query: PageRequest) -> tuple[ExplorerPage, str | None]:
    """Return the page of a search, and the address of a single result.

    Args:
        view: the snapshot's data.
        query: the query parameters.

    Returns:
        The page, and an address or None.
    """
    phrase = (query.text("q") or "").strip()
    if len(phrase) > MAX_SEARCH_TEXT:
        raise InvalidInput(f"q: {len(phrase):,} characters; at most {MAX_SEARCH_TEXT} are sought")
    if not phrase:
        hint = (
            "By id, transaction hash, lane and index (channel-141/123), journey, sender, height, or a part of the name "
            "of a chain or lane."
        )
        return ExplorerPage("Search", [empty_part("search", "Search", hint)]), None
    places = _exact_matches(view, phrase)
    like, more = ([], 0) if places else _partial_matches(view, phrase)
    try:
        traced = trace_message(view.ledger, phrase)
        first = traced.lives[0]
        keys = [MessageKey(first.lane, first.index, first.message_id if first.index is None else None)]
    except SeveralMessages as error:
        keys = list(error.keys)
    except InvalidInput:
        keys = []
    if not keys:
        keys = find_messages(view.ledger, [{"sender": (phrase,)}, {"receiver": (phrase,)}], MAX_RESULTS + 1)
    only = (
        [message_address(key) for key in keys]
        if len(keys) == 1 and not places
        else [href for href, *_ in places]
        if len(places) == 1 and not keys
        else []
    )
    sections = []
    if places:
        sections.append(PagePart("places", "Chains, lanes and heights", _place_list(places, 0)))
    elif like:
        sections.append(PagePart("places", "Chains and lanes with similar names", _place_list(like, more)))
    if keys:
        sections.append(PagePart("found", "Messages", _message_list(keys)))
    if not sections:
        note = f"No chain, lane, message or sender is called {safe_name(phrase)}."
        sections.append(empty_part("search", "No results", note))
    return ExplorerPage("Search", sections, sought=phrase, status=200), only[0] if only else None


PageOrAddress = tuple[str, str, str]
"""Address, name and kind of a result."""


def _exact_matches(view: LedgerView, phrase: str) -> list[PageOrAddress]:
    """Return the chains and lanes of this name, and the height of this number."""
    found: list[tuple[str | None, str, str]] = []
    if phrase in view.chains:
        found.append((chain_address(phrase), safe_name(phrase), "chain"))
    same = view.lanes.filter(pc.fill_null(pc.equal(view.lanes["lane"], phrase), False))
    found += _lane_places(same.slice(0, MAX_RESULTS))
    digits = phrase.replace(",", "")
    last = view.last_height
    if digits.isascii() and digits.isdecimal() and len(digits) <= 19 and last is not None and int(digits) <= last:
        found.append((height_address(int(digits)), f"Height {int(digits):,}", "of the network"))
    return [(href, text, what) for href, text, what in found if href is not None]


def _partial_matches(view: LedgerView, phrase: str) -> tuple[list[PageOrAddress], int]:
    """Return chains and lanes that contain a text in any case, and the number of further ones."""
    folded = phrase.casefold()
    chains = [chain for chain in view.chains if folded in chain.casefold()]
    names = view.lanes["lane"].cast(pa.string())
    lanes = view.lanes.filter(pc.fill_null(pc.match_substring(names, phrase, ignore_case=True), False))
    found: list[tuple[str | None, str, str]] = [
        (chain_address(chain), safe_name(chain), "chain") for chain in chains[:MAX_RESULTS]
    ]
    found += _lane_places(lanes.slice(0, MAX_RESULTS))
    more = max(0, len(chains) - MAX_RESULTS) + max(0, lanes.num_rows - MAX_RESULTS)
    return [(href, text, what) for href, text, what in found if href is not None], more


def _lane_places(lanes: pa.Table) -> list[tuple[str | None, str, str]]:
    found: list[tuple[str | None, str, str]] = []
    for row in lanes.select([*LANE]).to_pylist():
        ends = f"{safe_name(row['source'] or '?')} → {safe_name(row['destination'] or '?')}"
        own = [row[each] for each in LANE]
        found.append((lane_address(own), f"{safe_name(row['lane'] or '?')}: {ends}", "lane"))
    return found


def _place_list(places: Sequence[PageOrAddress], more: int) -> Markup:
    items = [element("li", [element("a", text, href=href), Markup(" {}").format(what)]) for href, text, what in places]
    if more:
        items.append(element("li", f"and {more:,} more"))
    return element("ul", items, class_="remarks")


def _message_list(keys: Sequence[MessageKey]) -> Markup:
    columns = table_columns("message:name", "lane")
    cells: list[list[TableCell]] = []
    for key in keys[:MAX_RESULTS]:
        number = key.message_id if key.index is None else str(key.index)
        cells.append([name_link(number, message_address(key)), lane_link(key.lane) if any(key.lane[1:]) else None])
    return render_table(columns, cells, caption="Messages", more=max(0, len(keys) - MAX_RESULTS))
