"""The journey of a message: its events, their blocks, and the delays between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from causeway.analysis.tracing import FAULT_REMARKS, TAKEN_BACK
from causeway.audit.findings import UNKNOWN, VIOLATED
from causeway.report.elements import format_duration, format_ticks, list_words
from causeway.report.outcomes import BAD_EVENTS, row_outcome_mark
from causeway.report.page import render_piece

SHOWN_STEPS = 24
"""Maximum steps of a message; of more the first ones and the last."""

_NOTED = {**dict.fromkeys(FAULT_REMARKS, VIOLATED), TAKEN_BACK: UNKNOWN}
_LEGS = ("a", "b", "c", "d", "e", "f")

JourneyMessage = Mapping[str, Any]
"""A message as printed by ``causeway trace --json`` (``history_to_dict``)."""


def draw_journey(
    message: JourneyMessage,
    *,
    ident: str | None = None,
    why: Markup | str | None = None,
    lane: str | None = None,
    verdict: str | None = None,
) -> Markup:
    """Render a message and its steps.

    Args:
        message: as of ``history_to_dict``.
        ident: its anchor.
        why: the reason to show it.
        lane: the anchor of its lane.
        verdict: of the finding about it, if any.

    Returns:
        HTML.
    """
    steps = message["events"]
    clock = _clock(steps)
    groups = group_steps(steps)
    half = SHOWN_STEPS // 2
    shown = groups if len(groups) <= SHOWN_STEPS else [*groups[:half], *groups[-half:]]
    return render_piece(
        "elements/journey.html",
        message=message,
        ident=ident,
        why=why,
        lane=lane,
        outcome=row_outcome_mark(message, verdict),
        legs=_legs(steps, clock),
        about=_about(message),
        steps=[_step(each, clock) for each in shown],
        left_out=len(groups) - len(shown),
        noted=_NOTED,
    )


def _about(message: JourneyMessage) -> list[tuple[str, str]]:
    """Return the known names of the message with their titles."""
    names = (
        ("id", message["message_id"] if message["index"] is not None else None),
        ("answers", message["answers"]),
        ("journey", message["journey"] if message["journey"] != message["message_id"] else None),
        ("from", message["sender"]),
        ("to", message["receiver"]),
    )
    return [(title, name) for title, name in names if name is not None]


@dataclass(frozen=True)
class _Clock:
    """The clock of a message's steps: ticks since the ``first`` one; None: seconds."""

    first: int | None

    def since(self, step: JourneyMessage) -> float | None:
        """Return the time of a step."""
        number: float | None = step["seconds"] if self.first is None else step["tick"] - self.first
        return number

    def text(self, since: float) -> str:
        """Return a time in words."""
        return format_duration(since) if self.first is None else format_ticks(since)


def _clock(steps: Sequence[JourneyMessage]) -> _Clock:
    seen = [step["tick"] for step in steps]
    return _Clock(None if not seen or None in seen else min(seen))


def _legs(steps: Sequence[JourneyMessage], clock: _Clock) -> dict[str, Any] | None:
    """Return the parts of a bar, one for each delay between two steps, and its label; None for less than two."""
    timed = [(since, step) for step in steps if (since := clock.since(step)) is not None]
    whole = max((since for since, _ in timed), default=0.0)
    pieces = []
    for place, ((begin, before), (end, after)) in enumerate(pairwise(timed)):
        if whole > 0 and (took := end - begin) > 0:
            text = f"{_words(before['event'])} to {_words(after['event'])}: {clock.text(took)}"
            pieces.append((begin / whole, took / whole, _LEGS[place % len(_LEGS)], text))
    if len(pieces) < 2:
        return None
    return {"pieces": pieces, "label": f"Where {clock.text(whole)} went: {'; '.join(each[3] for each in pieces[:6])}"}


def group_steps(steps: Sequence[JourneyMessage]) -> list[list[JourneyMessage]]:
    """Group consecutive steps of one chain, height and transaction.

    Args:
        steps: the steps of a message.

    Returns:
        The groups.
    """
    found: list[list[JourneyMessage]] = []
    for step in steps:
        if found and not step["notes"] and not found[-1][-1]["notes"] and _same_place(found[-1][-1], step):
            found[-1].append(step)
        else:
            found.append([step])
    return found


_PLACE = ("chain", "height", "tick", "time", "transaction", "code", "detail")


def _same_place(one: JourneyMessage, other: JourneyMessage) -> bool:
    return all(one[name_] == other[name_] for name_ in _PLACE)


def _step(steps: Sequence[JourneyMessage], clock: _Clock) -> dict[str, Any]:
    """Return the content of a group of steps."""
    step, since = steps[0], clock.since(steps[0])
    bad = any(_NOTED.get(note) == VIOLATED for note in step["notes"]) or step["event"] in BAD_EVENTS
    because = [*([step["detail"]] if step["detail"] else []), *([f"code {step['code']}"] if step["code"] else [])]
    events = list_words([_words(each["event"]) for each in steps])
    after = f"+{clock.text(since)}" if since else ""
    return {"first": step, "events": events, "after": after, "because": ", ".join(because), "bad": bad}


def _words(event: str) -> str:
    return event.replace("_", " ")


__all__ = ["SHOWN_STEPS", "JourneyMessage", "draw_journey", "group_steps"]
