"""The first screen: whether all holds, what does not with the worst examples, what is not known and why, what waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from markupsafe import Markup, escape

from causeway.model.text import escaped
from causeway.report.checked import worst_and_first
from causeway.report.page import Section, piece
from causeway.report.svg import element
from causeway.report.tables import Fact, facts
from causeway.report.text import count, digits, in_unit, listed, many, name, plain
from causeway.report.wording import phrase, promise_of, reason_in_words, subject, title_of, where_and_when

NAMED_CHECKS = 3
"""Up to so many violated checks are in the title by name."""

MEASURES = {"delivery": "Delivery", "round_trip": "Round trip", "service": "Service"}
"""What delays are called: sent to received; sent to answered; received to executed."""

_FAILED = ("rejected", "refunded", "timed_out", "dropped")

Data = Mapping[str, Any]


def verdict_section(data: Data) -> Section:
    """Return the first screen of a report. ``data``: of ``data.report_data``."""
    checks = data["checks"]
    violated = [each for each in checks if each["verdict"] == "violated"]
    unknown = [each for each in checks if each["unknown"]]
    idle = [each for each in checks if not each["examined"] and not each["unknown"]]
    body = piece(
        "verdict.html",
        data=data,
        about=about_input(data),
        title=_title(data, violated),
        lead=_lead(data, violated, unknown),
        facts=facts(key_figures(data)),
        violated=[_card(each, "violated") for each in violated],
        brief=len(violated) > NAMED_CHECKS,
        unknown=[_card(each, "unknown") for each in unknown],
        idle=listed([title_of(each["check"]) for each in idle]) if len(idle) < len(checks) else "",
        checks=[(each["check"], title_of(each["check"]), each["verdict"], not each["examined"]) for each in checks],
    )
    return Section("verdict", None, body)


def about_input(data: Data) -> list[Markup]:
    """Return what was looked at: in a few words each."""
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


def _title(data: Data, violated: Sequence[Data]) -> Markup:
    if data["verdict"] == "holds":
        return Markup("<em>Holds:</em> {}").format(_all_of(data["held"], len(data["checks"])))
    if not data["totals"]["messages"] and not violated:
        return Markup("<em>Nothing to examine:</em> {}").format("there are no messages")
    if not violated:
        return Markup("<em>Nothing is violated</em>, ") + plain("as far as the input shows")
    if len(violated) <= NAMED_CHECKS:
        named = listed([title_of(each["check"]).lower() for each in violated])
        return Markup("<em>Violated:</em> {}").format(named)
    return Markup("<em>Violated:</em> {} of {} checks").format(len(violated), len(data["checks"]))


def _all_of(held: int, checks: int) -> str:
    return f"all {checks} checks" if held == checks else "everything that could be checked"


def _lead(data: Data, violated: Sequence[Data], unknown: Sequence[Data]) -> Markup:
    totals = data["totals"]
    if not totals["messages"] and not violated and not unknown:
        return plain("So no check had anything to examine.")
    among = f"{many(totals['messages'], 'message')}"
    parts = []
    if violated:
        findings = sum(each["violated"] for each in violated)
        parts.append(Markup("<b>{}</b> among {}.").format(many(findings, "finding"), among))
    held = f"{many(data['held'], 'check')} {'holds' if data['held'] == 1 else 'hold'}"
    idle = len(data["checks"]) - data["held"] - len(violated) - len([each for each in unknown if not each["violated"]])
    without = f", {idle} had nothing to examine" if idle else ""
    parts.append(plain(f"{held}{without}." if violated else f"{held} for {among}{without}."))
    if unknown:
        met = many(len(unknown), "check")
        parts.append(plain(f"{met} met holes in the input, and cannot say there."))
    if data["run"] is not None and not data["run"]["at_rest"]:
        parts.append(plain("The run has not come to rest: something is still due."))
    return Markup(" ").join(parts)


def verdict_in_words(data: Data) -> str:
    """Return what a report says in a line."""
    violated = [f"{each['check']} {each['violated']:,}" for each in data["checks"] if each["violated"]]
    if violated:
        return f"violated: {', '.join(violated)}"
    if data["verdict"] == "holds":
        return f"holds: {_all_of(data['held'], len(data['checks']))}"
    if not data["totals"]["messages"]:
        return "nothing to examine: there are no messages"
    return "nothing is violated, as far as the input shows"


def key_figures(data: Data) -> list[Fact]:
    """Return the figures that a person asks for first."""
    totals, unit = data["totals"], data["totals"]["unit"] or "seconds"
    found = [Fact("Messages", _large(totals["messages"]), _sent_and_came(data))]
    oldest = _oldest(data)
    found.append(
        Fact(
            "Backlog now",
            _large(totals["pending"]),
            "none is waiting" if not totals["pending"] else None if oldest is None else oldest[0],
            "unknown" if totals["pending"] else None,
            None if oldest is None else oldest[1],
        )
    )
    for measure in ("delivery", "round_trip"):
        row = delay_of_all(data, measure, unit)
        if row is not None:
            note = f"99 %: {in_unit(row['p99'], unit)}; longest: {in_unit(row['max'], unit)}"
            found.append(Fact(f"{MEASURES[measure]}, median", in_unit(row["p50"], unit), note, href="#time"))
    requests = data["requests"]
    if requests.get("answered") or requests.get("rejected"):
        failed = [f"{requests[each]:,} {each.replace('_', ' ')}" for each in _FAILED if requests.get(each)]
        note = ", ".join(failed) or "none was rejected"
        found.append(Fact("Requests answered", count(requests.get("answered", 0)), note, href="#outcomes"))
    missing = data["completeness"]["missing"]
    one_sided = data["completeness"]["one_sided_lanes"]
    sides = f"{many(one_sided, 'lane')} seen at one end only" if one_sided else "both ends of all lanes seen"
    sides = sides if totals["lanes"] else "there are no lanes"
    found.append(Fact("Missing in the input", _large(missing), sides, "unknown" if missing else None, "#completeness"))
    return found


def _sent_and_came(data: Data) -> str:
    totals = data["totals"]
    if not totals["messages"]:
        return "none was sent or received"
    sent, received = totals["sent"], totals["received"]
    came = "all received" if received == sent > 1 else f"{received:,} received" if received else "arrivals not seen"
    if data["kind"] != "lake" or totals["messages"] == sent:
        return f"{sent:,} sent, {came}"
    return f"{sent:,} between chains, {came}; the rest of users and relayers"


def _large(number: int) -> str | Markup:
    """Return a count in the room that a figure has; a larger one is shortened, and its title has all of it."""
    return count(number) if number < _FITS else digits(str(number), 1)


_FITS = 10**9


def delay_of_all(data: Data, measure: str, unit: str) -> Data | None:
    """Return the delays of all lanes together, None where none is known."""
    rows = [each for each in data["latency"] if each["measure"] == measure and each["unit"] == unit]
    return rows[0] if rows else None


def _oldest(data: Data) -> tuple[str, str] | None:
    """Return how old the oldest pending message is, and where it is shown."""
    for each in data["messages"]:
        for why in each["why"]:
            if why["kind"] == "oldest_pending" and why["rank"] == 1:
                return f"the oldest: {in_unit(why['delay'], why['unit'])}", f"#{each['ident']}"
    return None


def _card(check: Data, verdict: str) -> dict[str, Any]:
    rows = [each for each in check["examples"] if each["verdict"] == verdict]
    reasons = [each for each in check["reasons"] if each["verdict"] == verdict]
    said = [f"{reason_in_words(each['reason'])} {each['findings']:,}" for each in reasons]
    return {
        "name": check["check"],
        "title": title_of(check["check"]),
        "promise": promise_of(check["check"]),
        "tally": many(check[verdict], "finding"),
        "examined": check["examined"],
        "reasons": said,
        "examples": [(which if check[verdict] > 1 else "", finding(row)) for which, row in worst_and_first(rows)],
    }


def finding(row: Data) -> Markup:
    """Return a finding as a sentence, with links to its message and lane."""
    word, number, of = subject(row)
    about = plain(f"{word} ")
    if number is not None:
        about += _linked(name(number, 32), row.get("message_ident"))
    if word == "Message":
        ends = [name(row[each], 20) for each in _ENDS if row[each] is not None]
        if len(ends) == len(_ENDS):
            way = Markup("from {} to {}").format(*ends)
            about += plain(" ") + (_linked(way, row.get("lane_ident")) + plain(",") if of is None else way)
    if of is not None:
        what = {"Block": " of "}.get(word, ", lane ")
        about += plain(what) + _linked(name(of, 32), row.get("lane_ident")) + plain("," if word != "Block" else "")
    sentence = about + escape(escaped(f" {phrase(row)}."))
    when = where_and_when(row)
    return sentence + (Markup(" ") + element("span", {"class": "when"}, plain(when)) if when else Markup(""))


_ENDS = ("source", "destination")


def _linked(text: Markup, ident: str | None) -> Markup:
    return text if ident is None else element("a", {"href": f"#{ident}"}, text)


__all__ = ["MEASURES", "about_input", "delay_of_all", "finding", "key_figures", "verdict_in_words", "verdict_section"]
