"""Checks, reasons and findings in words. A finding is a row of the table ``violations`` (docs/audit)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from causeway.audit.delays import MICROSECONDS
from causeway.ledger.order import EVENTS
from causeway.model.text import about
from causeway.report.text import duration, time_text

CHECKS = {
    "exactly_once": ("Exactly once", "Every message is received once, and nothing happens to it twice."),
    "authenticity": ("Authenticity", "What is received was sent, with this content, to this chain."),
    "order": ("Order", "A lane keeps the order that it promises."),
    "gaps": ("Gaps", "No number is missing, and no message is skipped."),
    "causality": ("Causality", "Nothing happens before what it needs."),
    "finality": ("Finality", "Nothing is received sooner than it can be final."),
    "answers": ("Answers", "Every request is answered, within the time promised."),
    "answers_without_request": ("Answers have a request", "What is answered, acknowledged or timed out was sent."),
    "conservation": ("Conservation", "What is received and paid out of an asset is what was sent of it."),
    "back_pressure": ("Back-pressure", "No lane has more messages in flight than it promises."),
    "watermarks": ("Watermarks", "A number of a lane that never falls does not."),
    "headers": ("Headers", "A chain has one header a height, and each follows the one before it."),
}
"""Titles of the checks and what each asks."""

_PHRASES = {
    "sent_again": "was sent again",
    "received_again": "was received again",
    "executed_again": "was executed again",
    "answered_again": "was answered again",
    "acknowledged_again": "was acknowledged again",
    "timed_out_again": "timed out again",
    "answered_twice": "has more than one response",
    "timed_out_and_received": "timed out, and was received too",
    "timeout_observed_and_received": "was received after an observer had stopped waiting for it",
    "timeout_observed": "was given up by an observer; the input does not show how it ended",
    "not_received": "was sent, and the input does not show that it came",
    "content_differs": "was received with another content than was sent",
    "wrong_chain": "was received by another chain than its lane goes to",
    "not_sent": "came, and was never sent",
    "not_sent_yet": "came before a message with its number was sent",
    "number_reused": "was sent with several contents under one number",
    "content_unseen": "cannot be compared: a content was not recorded",
    "missing_in_sequence": "came, and the input lacks its sending",
    "before_first_sent": "came, and was sent before the input begins",
    "sends_not_covered": "came, and the input does not cover its sending",
    "sent_out_of_order": "was sent before one with a lower number",
    "received_out_of_order": "was received before one with a lower number",
    "acknowledged_out_of_order": "was acknowledged before one with a lower number",
    "index_unseen": "has no number, so its place in the order is not known",
    "place_unseen": "has neither height nor time, so nothing says when it was",
    "time_unseen": "has a time that was not seen",
    "too_early": "was received {size} before it could be final",
    "late": "was answered after {size}, later than promised",
    "unanswered": "has no answer {size} after it was sent",
    "open": "has no answer, and may still get one",
    "no_request": "answers a request that was never sent",
    "request_not_covered": "answers a request that the input does not cover",
    "more_received": "delivered {size} more of its asset than was sent",
    "less_received": "delivered {size} less of its asset than was sent",
    "more_paid": "paid out {size} more than was sent",
    "asset_differs": "delivered another asset than was sent",
    "received_and_refunded": "was refunded, and received too",
    "paid_not_sent": "paid out value, and was never sent",
    "amount_unseen": "has an amount or asset that was not seen",
    "payments_not_covered": "may have paid out value that the input does not cover",
    "over_capacity": "was sent with {size} more in flight than promised",
    "ends_not_covered": "may have been sent with {size} too many in flight; the input may lack how others ended",
    "skipped_not_covered": "begins a run of {size} that may have been skipped; the input does not cover it",
}
"""What a finding says of its message. ``{size}``: its magnitude."""

_PHRASES_OF = {
    ("answers_without_request", "not_sent"): "was answered, and never sent",
    ("answers_without_request", "not_sent_yet"): "was answered before a message with its number was sent",
    ("answers_without_request", "missing_in_sequence"): "was answered, and the input lacks its sending",
    ("answers_without_request", "before_first_sent"): "was answered, and was sent before the input begins",
    ("answers_without_request", "sends_not_covered"): "was answered, and the input does not cover its sending",
    ("conservation", "not_sent"): "brought value, and was never sent",
    ("conservation", "not_sent_yet"): "brought value before a message with its number was sent",
    ("conservation", "more_came_than_left"): "received {size} more of an asset than had left for it",
    ("conservation", "departures_not_covered"): "received {size} more of an asset than the input shows to have left",
    ("conservation", "chain_unseen"): "has value abroad, on a chain that the input does not show",
    ("conservation", "content_unseen"): "has amounts that cannot be compared: a content was not recorded",
    ("gaps", "missing_inside_window"): "begins a run of {size} that the input lacks",
    ("gaps", "missing_outside_windows"): "begins a run of {size} between two recordings",
    ("gaps", "skipped"): "begins a run of {size} that were skipped, though a later one came",
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

_HEIGHTS = "headers"
_OF_CHAINS = ("more_came_than_left", "departures_not_covered", "chain_unseen")

_REASON_HEADINGS = {
    "missing_inside_window": "missing in the input",
    "missing_outside_windows": "between two recordings",
    "not_received": "sent, arrival not shown",
    "content_differs": "content differs",
    "wrong_chain": "received by another chain",
    "sends_not_covered": "sending not covered",
    "missing_in_sequence": "sending missing",
    "before_first_sent": "sent before the input begins",
    "content_unseen": "content not recorded",
    "place_unseen": "place not seen",
    "time_unseen": "time not seen",
    "amount_unseen": "amount not seen",
    "index_unseen": "number not seen",
}

Row = Mapping[str, Any]


def title_of(check: str) -> str:
    """Return what a check is called."""
    return CHECKS[check][0] if check in CHECKS else check.replace("_", " ").capitalize()


def promise_of(check: str) -> str:
    """Return what a check asks, as a sentence."""
    return CHECKS[check][1] if check in CHECKS else ""


def reason_in_words(reason: str) -> str:
    """Return the name of a reason as words."""
    return _REASON_HEADINGS.get(reason, reason.replace("_", " "))


def phrase(row: Row) -> str:
    """Return what a finding says of its subject, from the verb on."""
    check, reason = row["check"], row["reason"]
    words = _PHRASES_OF.get((check, reason)) or _PHRASES.get(reason) or _before(reason)
    if words is None:
        words = f"is named for {reason_in_words(reason)}" + (", {size}" if row["magnitude"] is not None else "")
    if row["magnitude"] == 1:
        words = words.replace(" that were ", " that was ")
    # By the blocks of one chain something can be before another in time that is the same.
    sized = row["magnitude"] is not None and (row["magnitude"] != 0 or row["unit"] != MICROSECONDS)
    return words.format(size=size(row)) if sized else words.replace(" {size}", "")


def size(row: Row) -> str:
    """Return the magnitude of a finding."""
    magnitude, unit = row["magnitude"], row["unit"]
    if magnitude is None:
        return ""
    said = about(magnitude) if row.get("size") is None else f"{int(row['size']):,}"
    if unit == MICROSECONDS:
        return duration(magnitude / 1e6)
    if unit == "messages":
        unit = "height" if row["check"] == _HEIGHTS else "message"
        unit += "" if magnitude == 1 else "s"
    return f"{said} {unit or ''}".strip()


def subject(row: Row) -> tuple[str, str | None, str | None]:
    """Return what a finding is about: a word, a name from the ledger and a number or name beside it."""
    if row["check"] == _HEIGHTS:
        return "Block", None if row["height"] is None else f"{row['height']:,}", row["chain"]
    if row["check"] == "watermarks":
        return "Watermark", row["message_id"], row["lane"]
    if row["reason"] in _OF_CHAINS:
        return "Chain", row["chain"] or row["destination"], None
    number = row["message_id"] if row["index"] is None else str(row["index"])
    return "Message", number, row["lane"]


def where_and_when(row: Row) -> str:
    """Return when a finding was and at which block."""
    parts = []
    if row["time"] is not None:
        parts.append(time_text(row["time"]))
    if row["height"] is not None and row["check"] != _HEIGHTS:
        parts.append(f"block {row['height']:,}")
    return ", ".join(parts)


def _before(reason: str) -> str | None:
    """Return the words of ``received_before_sent`` and the like."""
    one, found, other = reason.partition("_before_")
    if not found or one not in EVENTS or other not in EVENTS:
        return None
    return f"was {_passive(one)} {{size}} before it was {_passive(other)}"


def _passive(event: str) -> str:
    return event.replace("_", " ")


__all__ = ["CHECKS", "phrase", "promise_of", "reason_in_words", "size", "subject", "title_of", "where_and_when"]
