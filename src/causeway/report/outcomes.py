"""The shape, word and colour of each outcome, equal on every page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from causeway.audit.findings import VIOLATED
from causeway.ledger.outcomes import UNSUCCESSFUL, Outcome
from causeway.ledger.schema import LANE, LedgerEvent
from causeway.report.charts import ChartBar, ChartSeries, bar_chart
from causeway.report.elements import element, escape_html, tone_class

FORGED = "forged"
"""The outcome of a message that its sender did not send, and the ``detail`` of its ``sent`` row."""

BAD = (FORGED, Outcome.FAILED, Outcome.DROPPED, Outcome.CONTRADICTED)
"""Outcomes shown as bad everywhere."""

BAD_EVENTS = (LedgerEvent.DROPPED, LedgerEvent.FAILED)
"""Events shown as bad."""


class OutcomeStyle(NamedTuple):
    """The style of an outcome. ``form``: readable without colours; ``tone``: one of ``TONES``."""

    form: str
    tone: str


OUTCOME_STYLES: dict[str, OutcomeStyle] = {
    Outcome.ANSWERED: OutcomeStyle("done", "good"),
    Outcome.DELIVERED: OutcomeStyle("arrived", "a"),
    Outcome.PENDING: OutcomeStyle("waiting", "warn"),
    Outcome.REJECTED: OutcomeStyle("over", "d"),
    Outcome.REFUNDED: OutcomeStyle("over", "b"),
    Outcome.TIMED_OUT: OutcomeStyle("over", "e"),
    Outcome.FAILED: OutcomeStyle("broken", "bad-2"),
    Outcome.DROPPED: OutcomeStyle("broken", "bad"),
    Outcome.CONTRADICTED: OutcomeStyle("broken", "bad-3"),
    FORGED: OutcomeStyle("broken", "bad"),
    Outcome.UNKNOWN: OutcomeStyle("absent", "muted"),
}
"""The style of each outcome, in display order."""

FINDING_STYLE = OutcomeStyle("broken", "bad")
"""The style of a message with a violation."""

_OF_LIFE = {"received": Outcome.DELIVERED, "executed": Outcome.DELIVERED}


def row_outcome(life: Mapping[str, Any]) -> str:
    """Return the outcome (a key of ``OUTCOME_STYLES``) of a message.

    Args:
        life: as of ``history_to_dict``.

    Returns:
        The text.
    """
    if any(step["event"] == "sent" and step["detail"] == FORGED for step in life["events"]):
        return FORGED
    word = life["outcome"].partition("; ")[0].partition(":")[0].removesuffix(" after it was received")
    found = _OF_LIFE.get(word, word.replace(" ", "_"))
    if found == Outcome.ANSWERED and life["kind"] != "request":
        return Outcome.DELIVERED  # a response needs no answer: its acknowledgement says that it arrived
    return found if found in OUTCOME_STYLES else Outcome.UNKNOWN


def outcome_word(outcome: str) -> str:
    """Return the word of an outcome.

    Args:
        outcome: a key of ``OUTCOME_STYLES``.

    Returns:
        The word.
    """
    return outcome.replace("_", " ")


def outcome_mark(outcome: str, text: str | None = None, verdict: str | None = None) -> Markup:
    """Render an outcome with its form and colour.

    Args:
        outcome: a key of ``OUTCOME_STYLES``.
        text: replaces its word.
        verdict: of the findings about the message, if any.

    Returns:
        HTML.
    """
    look = FINDING_STYLE if verdict == VIOLATED else OUTCOME_STYLES[outcome]
    sign = element("i", class_=f"mark {look.form} {tone_class(look.tone)}", aria_hidden="true")
    bad = " bad" if look.form == "broken" else ""
    return element("span", sign + element("span", escape_html(text or outcome_word(outcome))), class_=f"outcome{bad}")


def row_outcome_mark(life: Mapping[str, Any], verdict: str | None = None) -> Markup:
    """Render the outcome of a message with its form and colour.

    Args:
        life: as of ``history_to_dict``.
        verdict: of the findings about the message, if any.

    Returns:
        HTML.
    """
    outcome, words = row_outcome(life), life["outcome"]
    if outcome == FORGED:
        return outcome_mark(outcome, f"{FORGED}, {words}", verdict)
    in_lane = any(life[name] is not None for name in LANE[1:])  # a message of a user is in none, and no chain sends it
    more = outcome == Outcome.UNKNOWN or ":" in words or ("; " in words and in_lane)
    return outcome_mark(outcome, words if more else None, verdict)


def outcome_bars(title: str, counts: Mapping[str, int]) -> Markup:
    """Render counts of outcomes as bars.

    Args:
        title: the title.
        counts: counts by outcome.

    Returns:
        HTML.
    """
    rows = [
        ChartBar(outcome_word(each), counts[each], tone=look.tone)
        for each, look in OUTCOME_STYLES.items()
        if counts.get(each)
    ]
    return bar_chart(title, rows)


def outcome_series(values: Mapping[str, Sequence[float | None]]) -> list[ChartSeries]:
    """Return the unsuccessful outcomes as lines of a chart, from values by outcome.

    Args:
        values: values by outcome.

    Returns:
        The lines.
    """
    return [
        ChartSeries(outcome_word(each), values[each], OUTCOME_STYLES[each].tone)
        for each in UNSUCCESSFUL
        if any(values.get(each, ()))
    ]


__all__ = [
    "BAD",
    "BAD_EVENTS",
    "FINDING_STYLE",
    "FORGED",
    "OUTCOME_STYLES",
    "OutcomeStyle",
    "outcome_bars",
    "outcome_mark",
    "outcome_series",
    "outcome_word",
    "row_outcome",
    "row_outcome_mark",
]  # fmt: skip
