"""Checks, reasons and findings in words, with links to message, lane and chain.

A finding is a row of the table ``violations`` (docs/reference/audit).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from markupsafe import Markup, escape

from causeway.audit.arrays import MICROSECONDS
from causeway.core.text import escape_controls, format_number, pluralize
from causeway.ledger.row_order import EVENTS
from causeway.report.elements import element, escape_html, format_duration, format_name, format_time, safe_name

__all__ = [
    "CHAIN_CHECKS",
    "CHECKS",
    "FindingLinks",
    "FindingRow",
    "PageAnchors",
    "check_promise",
    "check_title",
    "finding_phrase",
    "finding_position",
    "finding_sentence",
    "finding_size",
    "finding_subject",
    "link_text",
    "reason_words",
]

CHECKS = {
    "delivery": ("Delivery", "Every message that was sent arrives, comes back, or is pending within its deadline."),
    "exactly_once": ("Exactly once", "Every message is received and executed once."),
    "authenticity": ("Authenticity", "Every received message was sent, with this content, to this chain."),
    "agreement": ("Agreement", "Source and destination report one end of each message."),
    "order": ("Order", "A lane keeps the order that it promises."),
    "gaps": ("Gaps", "No number is missing, and no message is skipped."),
    "causality": ("Causality", "No event of a message happens before its cause."),
    "causal_order": ("Causal order", "No event happens before an event that it depends on, across all chains."),
    "finality": ("Finality", "No message is received before its sending is final."),
    "answers": ("Answers", "Every request is answered, within the time promised."),
    "answers_without_request": (
        "Answers have a request",
        "Every answered, acknowledged or timed-out message was sent.",
    ),
    "conservation": ("Conservation", "The amounts received, paid out and refunded of an asset are those sent."),
    "back_pressure": ("Back-pressure", "No lane has more messages in flight than it promises."),
    "watermarks": ("Watermarks", "The watermarks of a lane never fall."),
    "headers": ("Headers", "A chain has one header at each height, and each follows the one before it."),
}
"""Titles and promises of the checks."""

_PHRASES = {
    "sent_again": "was sent again",
    "received_again": "was received again",
    "executed_again": "was executed again",
    "failed_again": "failed to execute again",
    "answered_again": "was answered again",
    "acknowledged_again": "was acknowledged again",
    "timed_out_again": "timed out again",
    "refunded_again": "was refunded again",
    "answered_twice": "has more than one response",
    "redundant_relay": "was relayed again, without effect",
    "partial_receipt": "was received in part, and in full with its other receipts",
    "timed_out_and_received": "timed out, and was received",
    "timeout_observed_and_received": "was received after an observer stopped waiting for it",
    "timeout_observed": "was given up by an observer; the input does not show its end",
    "not_received": "was sent, and the input does not show its receipt",
    "not_arrived": "had not arrived when the input ended",
    "dropped": "was dropped",
    "dropped_as_declared": "was dropped, as its protocol declares",
    "overdue": "has not arrived {size} after it was sent",
    "lost": "was lost: its lane has ended without it",
    "late": "arrived {size} after it was sent, later than its deadline",
    "failed": "failed to execute",
    "pending": "is pending",
    "carried_on": "is carried on under a new id",
    "ends_not_recorded": "has no arrival {size} after it was sent; the input has none for its lane",
    "arrival_not_covered": "has no arrival; the input does not cover its destination",
    "chain_stopped": "its chain stopped: it violated an invariant",
    "acknowledged_and_timed_out": "was acknowledged, and timed out",
    "acknowledged_not_received": "was acknowledged, and its destination did not receive it",
    "receipt_not_covered": "was acknowledged; the input does not cover its receipt",
    "timed_out_too_early": "timed out {size} before its limit",
    "received_after_timeout": "was received {size} after its limit",
    "not_refunded": "failed or timed out, and was not refunded",
    "executed_and_timed_out": "was executed, and timed out",
    "executed_and_refunded": "was executed with success, and refunded",
    "executed_and_failed": "was executed with success, and failed",
    "executed_and_rejected": "was executed, and rejected by the same chain",
    "failed_and_acknowledged": "failed, and was acknowledged with success",
    "acknowledged_another_answer": "was acknowledged with another result than its destination answered",
    "refund_exceeds_amount": "was refunded with more than was sent",
    "content_differs": "was received with another content than was sent",
    "wrong_chain": "was received or executed by another chain than its lane goes to",
    "wrong_source": "was sent by another chain than its lane comes from",
    "not_sent": "was received, and never sent",
    "not_sent_yet": "was received before a message with its number was sent",
    "number_reused": "was sent with several contents under one number",
    "content_unseen": "cannot be compared: a content was not recorded",
    "missing_in_sequence": "was received; the input lacks its sending",
    "before_first_sent": "was received; it was sent before the input begins",
    "sends_not_covered": "was received; the input does not cover its sending",
    "sent_out_of_order": "was sent before one with a lower number",
    "received_out_of_order": "was received before one with a lower number",
    "acknowledged_out_of_order": "was acknowledged before one with a lower number",
    "index_unseen": "has no number, so its place in the order is unknown",
    "place_unseen": "has neither height nor time, so its place in the order is unknown",
    "time_unseen": "has a time that was not recorded",
    "too_early": "was received {size} before its sending was final",
    "unanswered": "has no answer {size} after it was sent",
    "open": "has no answer, and may still get one",
    "reply_not_covered": "has no answer; the input does not cover its reply",
    "no_request": "answers a request that was never sent",
    "request_not_covered": "answers a request that the input does not cover",
    "received_in_causal_cycle": "was received in a block that its sending depends on",
    "acknowledged_in_causal_cycle": "was acknowledged in a block that its receipt depends on",
    "received_out_of_causal_order": "was received before a message that was sent in an earlier block",
    "acknowledged_out_of_causal_order": "was acknowledged before a message that was received in an earlier block",
    "not_compared": "is one of {size} that were not compared: the input has too many",
    "heights_restarted": "is on a chain whose heights began again, so its place in the order is unknown",
    "more_received": "delivered {size} more of its asset than was sent",
    "less_received": "delivered {size} less of its asset than was sent",
    "more_paid": "paid out {size} more than was sent",
    "asset_differs": "delivered another asset than was sent",
    "received_and_refunded": "was refunded, and received",
    "paid_not_sent": "paid out value, and was never sent",
    "amount_unseen": "has an amount or asset that was not recorded",
    "payments_not_covered": "may have paid out value that the input does not cover",
    "over_capacity": "was sent with {size} more in flight than promised",
    "ends_not_covered": "may have been sent with {size} too many in flight; the input may lack the ends of others",
    "skipped_not_covered": "begins a run of {size} that may have been skipped; the input does not cover it",
}
"""The predicate of a finding about a message. ``{size}``: its magnitude."""

_PHRASES_OF = {
    ("delivery", "time_unseen"): "has a time that was not recorded, so its deadline cannot be checked",
    ("answers", "pending"): "has no answer yet",
    ("answers", "late"): "was answered after {size}, later than promised",
    ("answers_without_request", "not_sent"): "was answered, and never sent",
    ("answers_without_request", "not_sent_yet"): "was answered before a message with its number was sent",
    ("answers_without_request", "missing_in_sequence"): "was answered; the input lacks its sending",
    ("answers_without_request", "before_first_sent"): "was answered; it was sent before the input begins",
    ("answers_without_request", "sends_not_covered"): "was answered; the input does not cover its sending",
    ("delivery", "not_compared"): "is open; whether another one carries it on is unknown: the input has too many",
    ("causal_order", "place_unseen"): "has an event without height or chain, so its place in the order is unknown",
    ("conservation", "not_sent"): "brought value, and was never sent",
    ("conservation", "not_sent_yet"): "brought value before a message with its number was sent",
    ("conservation", "more_came_than_left"): "received {size} more of an asset than had left for it",
    ("conservation", "departures_not_covered"): "received {size} more of an asset than the input shows to have left",
    ("conservation", "chain_unseen"): "has value abroad, on a chain that the input does not show",
    ("conservation", "content_unseen"): "has amounts that cannot be compared: a content was not recorded",
    ("gaps", "missing_inside_window"): "begins a run of {size} that the input lacks",
    ("gaps", "missing_outside_windows"): "begins a run of {size} between two recordings",
    ("gaps", "missing_on_all_lanes"): "begins a run of {size} that no lane of its source has",
    ("gaps", "skipped"): "begins a run of {size} that were skipped, though a later one was received",
    ("watermarks", "fell"): "fell by {size}",
    ("watermarks", "two_values"): "has two values at one place",
    ("watermarks", "place_unseen"): "has a value with neither height nor time",
    ("headers", "two_headers"): "has two headers",
    ("headers", "parent_differs"): "names another parent than the block before it",
    ("headers", "time_fell"): "is {size} earlier than the block before it",
    ("headers", "root_differs"): "has another root when it is executed again",
    ("headers", "rows_differ"): "logs other rows when it is executed again",
    ("headers", "state_differs"): "has another state when it is executed again",
    ("headers", "missing_inside_window"): "begins a run of {size} without header",
    ("headers", "not_executed"): "could not be executed again, with {size} after it",
}

_WITH_CAUSE = ("dropped", "dropped_as_declared", "failed")
"""Reasons with the cause as ``detail``."""

_HEIGHTS = "headers"
CHAIN_CHECKS = ("more_came_than_left", "departures_not_covered", "chain_unseen")
"""Reasons of findings about a chain."""

_REASON_HEADINGS = {
    "missing_inside_window": "missing in the input",
    "missing_outside_windows": "between two recordings",
    "missing_on_all_lanes": "missing on all lanes of a source",
    "not_received": "receipt not recorded",
    "wrong_chain": "at another chain",
    "wrong_source": "sent by another chain",
    "sends_not_covered": "sending not covered",
    "missing_in_sequence": "sending missing",
    "before_first_sent": "sent before the input begins",
    "content_unseen": "content not recorded",
    "place_unseen": "place not recorded",
    "time_unseen": "time not recorded",
    "amount_unseen": "amount not recorded",
    "index_unseen": "number not recorded",
    "failed": "failed to execute",
    "received_in_causal_cycle": "received in a cycle of causes",
    "acknowledged_in_causal_cycle": "acknowledged in a cycle of causes",
}

WordedRow = Mapping[str, Any]


def check_title(check: str) -> str:
    """Return the title of a check.

    Args:
        check: name of the check.

    Returns:
        The title.
    """
    return CHECKS[check][0] if check in CHECKS else check.replace("_", " ").capitalize()


def check_promise(check: str) -> str:
    """Return the promise of a check, as a sentence.

    Args:
        check: name of the check.

    Returns:
        The sentence.
    """
    return CHECKS[check][1] if check in CHECKS else ""


def reason_words(reason: str) -> str:
    """Return the name of a reason as words.

    Args:
        reason: name of the reason.

    Returns:
        The words.
    """
    return _REASON_HEADINGS.get(reason, reason.replace("_", " "))


def finding_phrase(row: WordedRow) -> str:
    """Return the predicate of a finding, from its verb on.

    Args:
        row: a row of the table ``violations``.

    Returns:
        The predicate.
    """
    check, reason = row["check"], row["reason"]
    words = _PHRASES_OF.get((check, reason)) or _PHRASES.get(reason) or _before(reason)
    if words is None:
        words = f"is named for {reason_words(reason)}" + (", {size}" if row["magnitude"] is not None else "")
    if row["magnitude"] == 1:
        words = words.replace(" that were ", " that was ")
    # Within one chain the order of blocks can decide between equal times.
    sized = row["magnitude"] is not None and (row["magnitude"] != 0 or row["unit"] != MICROSECONDS)
    words = words.format(size=finding_size(row)) if sized else words.replace(" {size}", "")
    cause = row.get("detail") if reason in _WITH_CAUSE else None
    return words if cause is None else f"{words} ({safe_name(cause, 80)})"


def finding_size(row: WordedRow) -> str:
    """Return the magnitude of a finding.

    Args:
        row: a row of the table ``violations``.

    Returns:
        The magnitude in words.
    """
    magnitude, unit = row["magnitude"], row["unit"]
    if magnitude is None:
        return ""
    digits = format_number(magnitude) if row.get("size") is None else f"{int(row['size']):,}"
    if unit == MICROSECONDS:
        return format_duration(magnitude / 1e6)
    if unit == "messages":
        unit = "heights" if row["check"] == _HEIGHTS else "messages"
    return f"{digits} {pluralize(magnitude, unit or '')}".strip()


def finding_subject(row: WordedRow) -> tuple[str, str | None, str | None]:
    """Return the subject of a finding: a word, a name, and a number or name beside it.

    Args:
        row: a row of the table ``violations``.

    Returns:
        The word, the name or None, and the number or None.
    """
    if row["check"] == _HEIGHTS:
        return "Block", None if row["height"] is None else f"{row['height']:,}", row["chain"]
    if row["check"] == "watermarks":
        return "Watermark", row["message_id"], row["lane"]
    if row["reason"] in CHAIN_CHECKS:
        return "Chain", row["chain"] or row["destination"], None
    number = row["message_id"] if row["index"] is None else str(row["index"])
    return "Message", number, row["lane"]


def finding_position(row: WordedRow) -> str:
    """Return the time and block of a finding.

    Args:
        row: a row of the table ``violations``.

    Returns:
        The text.
    """
    parts = []
    if row["time"] is not None:
        parts.append(format_time(row["time"]))
    if row["height"] is not None and row["check"] != _HEIGHTS:
        parts.append(f"block {row['height']:,}")
    return ", ".join(parts)


def _before(reason: str) -> str | None:
    """Return the words of reasons such as ``received_before_sent``."""
    one, found, other = reason.partition("_before_")
    if not found or one not in EVENTS or other not in EVENTS:
        return None
    return f"{_past(one)} {{size}} before it {_past(other)}"


def _past(event: str) -> str:
    return event.replace("_", " ") if event in ("failed", "timed_out") else f"was {event.replace('_', ' ')}"


FindingRow = Mapping[str, Any]


class FindingLinks(Protocol):
    """Addresses of the links of a page: anchors or other pages; None: no link."""

    def check(self, name: str) -> str | None:
        """Return the address of a check."""

    def message(self, row: FindingRow) -> str | None:
        """Return the address of the message, or missing number, of a row."""

    def lane(self, row: FindingRow) -> str | None:
        """Return the address of the lane of a row."""

    def chain(self, chain: str | None) -> str | None:
        """Return the address of a chain."""

    def block(self, row: FindingRow) -> str | None:
        """Return the address of the block of a row."""

    def figure(self, name: str) -> str | None:
        """Return the address of the details of a key figure."""


class PageAnchors:
    """Anchors in the same page, a report: rows have ``message_ident`` and ``lane_ident``."""

    _FIGURES: Mapping[str, str] = {"delays": "#time", "calls": "#outcomes", "missing": "#completeness"}

    def check(self, name: str) -> str | None:
        """Return the anchor of a check."""
        return f"#check-{name}"

    def message(self, row: FindingRow) -> str | None:
        """Return the anchor of the journey of a message."""
        ident = row.get("message_ident")
        return None if ident is None else f"#{ident}"

    def lane(self, row: FindingRow) -> str | None:
        """Return the anchor of the row of a lane."""
        ident = row.get("lane_ident")
        return None if ident is None else f"#{ident}"

    def chain(self, chain: str | None) -> str | None:
        """Return None: a report has no anchors of chains."""
        return None

    def block(self, row: FindingRow) -> str | None:
        """Return None: a report has no anchors of blocks."""
        return None

    def figure(self, name: str) -> str | None:
        """Return the anchor of the section with the details of a key figure."""
        return self._FIGURES.get(name)


def finding_sentence(row: FindingRow, links: FindingLinks, *, named: bool = True) -> Markup:
    """Render a finding as a sentence.

    Args:
        row: of the table ``violations``.
        links: of the page.
        named: include the name of the lane.

    Returns:
        HTML.
    """
    word, number, of = finding_subject(row)
    target = links.block(row) if word == "Block" else links.chain(number) if word == "Chain" else links.message(row)
    parts = (
        [escape_html(word)] if number is None else [escape_html(f"{word} "), link_text(format_name(number, 32), target)]
    )
    if word == "Block" and of is not None:
        parts += [Markup(" of "), link_text(format_name(of, 32), links.chain(of))]
    elif word != "Chain" and named:
        parts += _lane(row, of, links)
    sentence = Markup("").join(parts) + escape(escape_controls(f" {finding_phrase(row)}."))
    when = finding_position(row)
    return sentence + (Markup(" ") + element("span", escape_html(when), class_="when") if when else Markup(""))


def _lane(row: FindingRow, of: str | None, links: FindingLinks) -> list[Markup]:
    """Render the lane of a finding, with a link on its name, or on its ends without a name."""
    ends = [format_name(row[each], 20) for each in ("source", "destination") if row[each] is not None]
    way = Markup("from {} to {}").format(*ends) if len(ends) == 2 and row["check"] != "watermarks" else None
    if of is not None:
        between = [] if way is None else [Markup(" "), way]
        return [*between, Markup(", lane "), link_text(format_name(of, 32), links.lane(row)), Markup(",")]
    return [] if way is None else [Markup(" "), link_text(way, links.lane(row)), Markup(",")]


def link_text(text: Markup, href: str | None) -> Markup:
    """Render a text with a link, if there is an address.

    Args:
        text: the text.
        href: the address, or None.

    Returns:
        HTML.
    """
    return text if href is None else element("a", text, href=href)
