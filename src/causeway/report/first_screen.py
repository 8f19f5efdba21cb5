"""The first screen: the verdict, the key figures, what the input lacks, and examples of findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from markupsafe import Markup

from causeway.audit.findings import NOTED, UNKNOWN, VIOLATED
from causeway.audit.verdict import Verdict
from causeway.ledger.outcomes import UNSUCCESSFUL
from causeway.report.checked import worst_and_first
from causeway.report.findings import Anchors, Links, finding, linked
from causeway.report.outcomes import BAD, word_of
from causeway.report.page import Section, piece
from causeway.report.svg import element
from causeway.report.tables import Fact, facts
from causeway.report.text import count, digits, in_unit, listed, many, name, plain
from causeway.report.wording import promise_of, reason_in_words, title_of

MOST_CARDS = 3
"""Cards that have room for two examples; of more each has one."""

MEASURES = {"delivery": "Delivery", "round_trip": "Round trip", "service": "Service"}
"""Titles of delays: sent to received; sent to answered; received to executed."""

GROUPS = ((VIOLATED, "Violations"), (UNKNOWN, "Unknown"), (NOTED, "Noted"))
"""The groups of findings, and their headings."""

Data = Mapping[str, Any]


def verdict_section(data: Data) -> Section:
    """Return the first screen of a report. ``data``: of ``data.report_data``."""
    notices = [] if data["run"] is None or data["run"]["at_rest"] else ["The run is not finished: messages are due."]
    return Section("verdict", None, first_screen(data, Anchors(), about_input(data), notices=notices))


def first_screen(
    data: Data, links: Links, about: Sequence[Markup] = (), more: Sequence[Fact] = (), notices: Sequence[str] = ()
) -> Markup:
    """Return the verdict, the key figures, the checks and examples of findings.

    Args:
        data: of ``summary.summary_data``.
        links: of the page.
        about: what the input is, in a few words each.
        more: figures that stand before the key figures.
        notices: sentences about the input beside those that the data have.
    """
    groups = [
        (verdict, title, [_card(each, verdict, links) for each in data["checks"] if each[verdict]])
        for verdict, title in GROUPS
    ]
    return piece(
        "verdict.html",
        data=data,
        about=about,
        title=headline(data["sentence"], data["verdict"]),
        lead=_lead(data),
        facts=facts([*more, *key_figures(data, links)]),
        groups=[(verdict, title, cards, len(cards) > MOST_CARDS) for verdict, title, cards in groups if cards],
        notices=[*_notices(data, links), *(plain(each) for each in (*notices, *data["remarks"]))],
        idle=listed([title_of(each["check"]) for each in data["checks"] if not _applies(each)]),
        checks=[(links.check(each["check"]), title_of(each["check"]), each["verdict"]) for each in data["checks"]],
    )


def headline(sentence: str, verdict: str) -> Markup:
    """Return a sentence that begins with its verdict, with the verdict in its colour."""
    return element("em", {}, verdict) + element("span", {}, sentence.removeprefix(verdict))


def about_input(data: Data) -> list[Markup]:
    """Return what the input is: in a few words each."""
    input_, totals, run = data["input"], data["totals"], data["run"]
    found = [element("strong", {}, name(data["lake"]))]
    kinds = "a run of Causeway" if data["kind"] == "lake" else "recorded traffic"
    protocols = Markup(", ").join(name(each, 24) for each in input_["protocols"][:4])
    parts: list[Markup | str] = [kinds, protocols] if protocols else [kinds]
    parts += [many(input_["chains"], "chain"), many(totals["lanes"], "lane")]
    if run is not None:
        parts.append(many(run["heights"], "height") + ("" if run["at_rest"] else " so far"))
    if totals["unit"] != "ticks" and totals["first_time"] is not None:
        first, last = (datetime.fromisoformat(totals[each]).date() for each in ("first_time", "last_time"))
        parts.append(f"{first}" if first == last else f"{first} to {last}")
    return [*found, *(element("span", {}, plain(each)) for each in parts)]


def _applies(check: Data) -> bool:
    return bool(check["verdict"] != Verdict.NOT_APPLICABLE)


def _lead(data: Data) -> Markup:
    checks = [each for each in data["checks"] if _applies(each)]
    if not checks:
        return plain("No check applies: the input has no messages.")
    parts = [f"{many(len(checks), 'check')} of {many(data['totals']['messages'], 'message')}"]
    for verdict in (Verdict.PASSED, Verdict.FAILED, Verdict.INCONCLUSIVE):
        number = sum(each["verdict"] == verdict for each in checks)
        parts += [f"{number} {verdict.lower()}"] if number else []
    idle = len(data["checks"]) - len(checks)
    parts += [f"{idle} not applicable"] if idle else []
    return plain(f"{parts[0]}: {', '.join(parts[1:])}.")


def _notices(data: Data, links: Links) -> list[Markup]:
    """Return what the input lacks: records in quarantine, and lanes that it does not show as a whole."""
    found = []
    if data["quarantined"]:
        reason, most = next(iter(data["quarantined"].items()))
        total = sum(data["quarantined"].values())
        why = f": {reason_in_words(reason)}" if most == total else f", most ({most:,}): {reason_in_words(reason)}"
        found.append(element("b", {}, f"{many(total, 'record')} in quarantine") + plain(f"{why}."))
    incomplete = data["incomplete"]
    if incomplete["lanes"]:
        head = element("b", {}, f"{many(incomplete['lanes'], 'lane')} incomplete")
        lanes = Markup("; ").join(_incomplete(each, links) for each in incomplete["rows"][:MOST_LANES])
        left = incomplete["lanes"] - min(incomplete["lanes"], MOST_LANES)
        found.append(head + Markup(": ") + lanes + plain(f"; and {left:,} more." if left else "."))
    return found


MOST_LANES = 3
"""Incomplete lanes that the first screen names."""


def _incomplete(lane: Data, links: Links) -> Markup:
    ends = [name(lane[each], 20) for each in ("source", "destination") if lane[each] is not None]
    own = [name(lane["lane"], 20)] if lane["lane"] is not None else []
    text = Markup(" ").join([*([Markup(" \u2192 ").join(ends)] if ends else []), *own]) or plain("no lane")
    reasons = ", ".join(f"{reason_in_words(each)} {number:,}" for each, number in [*lane["reasons"].items()][:2])
    return linked(text, links.lane(lane)) + plain(f" ({reasons})")


def key_figures(data: Data, links: Links) -> list[Fact]:
    """Return the key figures: messages, backlog, delays, calls and missing messages."""
    totals, unit = data["totals"], data["totals"]["unit"] or "seconds"
    found = [Fact("Messages", _large(totals["messages"]), _sent_and_received(totals), href=links.figure("messages"))]
    oldest, pending = data["oldest_pending"], totals["pending"]
    note: Markup | str = "none without an outcome"
    if pending:
        note = plain(f"no outcome yet; still in time: {_still_in_time(data):,}")
        if oldest is not None:
            age = plain(f"oldest: {in_unit(oldest['delay'], oldest['unit'])}")
            note = note + plain("; ") + linked(age, links.message(oldest))
    found.append(Fact("Pending", _large(pending), note, UNKNOWN if pending else None, links.figure("pending")))
    for measure in ("delivery", "round_trip"):
        row = delay_of_all(data, measure, unit)
        if row is not None:
            note = f"99 %: {in_unit(row['p99'], unit)}; longest: {in_unit(row['max'], unit)}"
            title = f"{MEASURES[measure]}, median"
            found.append(Fact(title, in_unit(row["p50"], unit), note, href=links.figure("delays")))
    found += _calls(data["calls"], links)
    if totals.get("forged"):
        found.append(Fact("Forged", _large(totals["forged"]), "sent by no program", VIOLATED, links.figure("calls")))
    missing, one_sided = data["completeness"]["missing"], data["completeness"]["one_sided_lanes"]
    sides = f"{many(one_sided, 'lane')} recorded at one end only" if one_sided else "all lanes recorded at both ends"
    sides = sides if totals["lanes"] else "no lanes"
    verdict = UNKNOWN if missing else None
    found.append(Fact("Missing in the input", _large(missing), sides, verdict, links.figure("missing")))
    return found


def _still_in_time(data: Data) -> int:
    """Return the number of messages that the verdict calls pending: open, and neither overdue nor uncovered."""
    found = [each for check in data["checks"] if check["check"] == "delivery" for each in check["reasons"]]
    in_time = [(NOTED, "pending"), (NOTED, "carried_on")]
    return sum(each["findings"] for each in found if (each["verdict"], each["reason"]) in in_time)


def _calls(calls: Data, links: Links) -> list[Fact]:
    """Return the number of answered calls, and the outcomes of the others."""
    ended = [(each, calls[each]) for each in UNSUCCESSFUL if calls.get(each)]
    if not calls.get("answered") and not ended:
        return []
    parts = [(each in BAD, f"{number:,} {word_of(each)}") for each, number in ended]
    words = [element("span", {"class": "outcome bad"}, text) if bad else plain(text) for bad, text in parts]
    note = Markup(", ").join(words) or "none failed"
    return [Fact("Calls answered", count(calls.get("answered", 0)), note, href=links.figure("calls"))]


def _sent_and_received(totals: Data) -> str:
    if not totals["messages"]:
        return "none was sent or received"
    sent, received = totals["sent"], totals["received"]
    arrived = "all received" if received == sent > 1 else f"{received:,} received" if received else "arrivals not seen"
    return f"{sent:,} sent, {arrived}"


def _large(number: int) -> str | Markup:
    """Return a count that fits the width of a figure: a larger one is shortened, and its title has all of it."""
    return count(number) if number < _FITS else digits(str(number), 1)


_FITS = 10**9


def delay_of_all(data: Data, measure: str, unit: str) -> Data | None:
    """Return the delays of all lanes together, None where none is known."""
    rows = [each for each in data["latency"] if each["measure"] == measure and each["unit"] == unit]
    return rows[0] if rows else None


def _card(check: Data, verdict: str, links: Links) -> dict[str, Any]:
    reasons = [each for each in check["reasons"] if each["verdict"] == verdict]
    return {
        "href": links.check(check["check"]),
        "title": title_of(check["check"]),
        "promise": promise_of(check["check"]),
        "reasons": [f"{reason_in_words(each['reason'])} {each['findings']:,}" for each in reasons],
        "examples": [
            (which if check[verdict] > 1 else "", finding(row, links)) for which, row in worst_and_first(check, verdict)
        ],
    }


__all__ = [
    "GROUPS", "MEASURES", "about_input", "delay_of_all", "first_screen", "headline", "key_figures", "verdict_section",
]  # fmt: skip
