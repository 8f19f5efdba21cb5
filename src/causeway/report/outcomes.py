"""The form, word and colour of each outcome: the same on every page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from causeway.audit.findings import VIOLATED
from causeway.ledger.outcomes import UNSUCCESSFUL, Outcome
from causeway.ledger.schema import LANE, Event
from causeway.report.charts import Bar, Series, bars
from causeway.report.svg import element, tone_class
from causeway.report.text import plain

FORGED = "forged"
"""The outcome of a message that its sender never sent, and the ``detail`` of its ``sent`` row."""

BAD = (FORGED, Outcome.FAILED, Outcome.DROPPED, Outcome.CONTRADICTED)
"""Outcomes that are shown as bad wherever they stand."""

BAD_EVENTS = (Event.DROPPED, Event.FAILED)
"""Events that are shown as bad."""


class Look(NamedTuple):
    """How an outcome is shown: the ``form`` is read without colours, the ``tone`` is one of ``svg.TONES``."""

    form: str
    tone: str


LOOKS: dict[str, Look] = {
    Outcome.ANSWERED: Look("done", "good"),
    Outcome.DELIVERED: Look("arrived", "a"),
    Outcome.PENDING: Look("waiting", "warn"),
    Outcome.REJECTED: Look("over", "d"),
    Outcome.REFUNDED: Look("over", "b"),
    Outcome.TIMED_OUT: Look("over", "e"),
    Outcome.FAILED: Look("broken", "bad-2"),
    Outcome.DROPPED: Look("broken", "bad"),
    Outcome.CONTRADICTED: Look("broken", "bad-3"),
    FORGED: Look("broken", "bad"),
    Outcome.UNKNOWN: Look("absent", "muted"),
}
"""The look of each outcome, in the order in which they are shown."""

IN_A_FINDING = Look("broken", "bad")
"""The look of a message that a violation is about."""

_OF_LIFE = {"received": Outcome.DELIVERED, "executed": Outcome.DELIVERED}


def outcome_of(life: Mapping[str, Any]) -> str:
    """Return the outcome (a key of ``LOOKS``) of a message.

    Args:
        life: as of ``network.tracing.life_as_dict``.
    """
    if any(step["event"] == "sent" and step["detail"] == FORGED for step in life["events"]):
        return FORGED
    word = life["outcome"].partition("; ")[0].partition(":")[0].removesuffix(" after it was received")
    found = _OF_LIFE.get(word, word.replace(" ", "_"))
    if found == Outcome.ANSWERED and life["kind"] != "request":
        return Outcome.DELIVERED  # a response needs no answer: its acknowledgement says that it arrived
    return found if found in LOOKS else Outcome.UNKNOWN


def word_of(outcome: str) -> str:
    """Return the word of an outcome."""
    return outcome.replace("_", " ")


def mark(outcome: str, text: str | None = None, verdict: str | None = None) -> Markup:
    """Return an outcome with its form and colour.

    Args:
        outcome: a key of ``LOOKS``.
        text: instead of its word.
        verdict: of the findings about the message, if there are any.
    """
    look = IN_A_FINDING if verdict == VIOLATED else LOOKS[outcome]
    sign = element("i", {"class": f"mark {look.form} {tone_class(look.tone)}", "aria-hidden": "true"})
    bad = " bad" if look.form == "broken" else ""
    return element("span", {"class": f"outcome{bad}"}, sign + element("span", {}, plain(text or word_of(outcome))))


def mark_of(life: Mapping[str, Any], verdict: str | None = None) -> Markup:
    """Return the outcome of a message, with its form and colour.

    Args:
        life: as of ``network.tracing.life_as_dict``.
        verdict: of the findings about the message, if there are any.
    """
    outcome, said = outcome_of(life), life["outcome"]
    if outcome == FORGED:
        return mark(outcome, f"{FORGED}, {said}", verdict)
    in_lane = any(life[name] is not None for name in LANE[1:])  # a message of a user is in none, and no chain sends it
    more = outcome == Outcome.UNKNOWN or ":" in said or ("; " in said and in_lane)
    return mark(outcome, said if more else None, verdict)


def outcome_bars(title: str, counts: Mapping[str, int]) -> Markup:
    """Return counts of outcomes as bars."""
    rows = [Bar(word_of(each), counts[each], tone=look.tone) for each, look in LOOKS.items() if counts.get(each)]
    return bars(title, rows)


def outcome_series(values: Mapping[str, Sequence[float | None]]) -> list[Series]:
    """Return the unsuccessful outcomes that occur as lines of a chart, from values by outcome."""
    return [Series(word_of(each), values[each], LOOKS[each].tone) for each in UNSUCCESSFUL if any(values.get(each, ()))]


__all__ = [
    "BAD", "BAD_EVENTS", "FORGED", "IN_A_FINDING", "LOOKS", "Look", "mark", "mark_of", "outcome_bars",
    "outcome_of", "outcome_series", "word_of",
]  # fmt: skip
