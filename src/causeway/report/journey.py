"""The journey of a message: its events, their blocks, and the delays between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from causeway.analysis.tracing import FAULT_REMARKS, TAKEN_BACK
from causeway.audit.findings import UNKNOWN, VIOLATED
from causeway.report.elements import (
    count_words,
    escape_html,
    format_duration,
    format_name,
    format_share,
    format_ticks,
    format_time,
    group_digits,
    list_words,
    svg_element,
    tone_class,
)
from causeway.report.outcomes import BAD_EVENTS, row_outcome_mark

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
    of = _lane(message, lane)
    kind = svg_element("span", {"class": "kind"}, message["kind"] + (":" if of else ""))
    about = [kind, of, row_outcome_mark(message, verdict)]
    head = [svg_element("h4", {}, _title(message)), svg_element("p", {"class": "ends"}, about)]
    if why is not None:
        head.insert(0, svg_element("p", {"class": "why"}, why))
    parts = [svg_element("header", {}, head), _legs(steps, clock)]
    if pairs := _about(message):
        parts.append(pairs)
    parts.append(svg_element("ol", {"class": "steps"}, _steps(steps, clock)))
    return svg_element("article", {"class": "journey", "id": ident}, parts)


def _title(message: JourneyMessage) -> Markup:
    number = message["message_id"] if message["index"] is None else f"{message['index']}"
    ends = [format_name(message["source"], 20), svg_element("span", {"class": "to", "aria-label": "to"}, "\u2192")]
    return Markup(" ").join(
        [*ends, format_name(message["destination"], 20), svg_element("b", {}, format_name(number, 24))]
    )


def _lane(message: JourneyMessage, ident: str | None) -> Markup:
    if message["lane"] is None:
        return Markup("")
    of = format_name(message["lane"], 28)
    return Markup("lane ") + (of if ident is None else svg_element("a", {"href": f"#{ident}"}, of))


def _about(message: JourneyMessage) -> Markup:
    pairs = [
        ("id", message["message_id"] if message["index"] is not None else None),
        ("answers", message["answers"]),
        ("journey", message["journey"] if message["journey"] != message["message_id"] else None),
        ("from", message["sender"]),
        ("to", message["receiver"]),
    ]
    rows = [
        svg_element("dt", {}, what) + svg_element("dd", {}, format_name(value, 32))
        for what, value in pairs
        if value is not None
    ]
    if message["amount"] not in (None, "0"):
        amount = group_digits(message["amount"])
        asset = format_name(message["asset"], 24) if message["asset"] is not None else Markup("")
        rows.append(svg_element("dt", {}, "value") + svg_element("dd", {}, amount + Markup(" ") + asset))
    return svg_element("dl", {"class": "about"}, rows) if rows else Markup("")


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


def _legs(steps: Sequence[JourneyMessage], clock: _Clock) -> Markup:
    """Render the time from the first to the last step as one bar with a part for each delay."""
    timed = [(since, step) for step in steps if (since := clock.since(step)) is not None]
    whole = max((since for since, _ in timed), default=0.0)
    if len(timed) < 2 or whole <= 0:
        return Markup("")
    pieces: list[Markup] = []
    parts: list[str] = []
    for place, ((begin, before), (end, after)) in enumerate(pairwise(timed)):
        took = end - begin
        if took <= 0:
            continue
        what = f"{_words(before['event'])} to {_words(after['event'])}: {clock.text(took)}"
        parts.append(what)
        box = {"x": format_share(begin / whole), "width": format_share(took / whole), "height": "100%"}
        tone = tone_class(_LEGS[place % len(_LEGS)])
        pieces.append(svg_element("rect", {**box, "class": f"leg {tone}"}, svg_element("title", {}, what)))
    if len(pieces) < 2:
        return Markup("")
    label = f"Where {clock.text(whole)} went: {'; '.join(parts[:6])}"
    return svg_element(
        "svg", {"class": "legs", "width": "100%", "height": 6, "role": "img", "aria-label": label}, pieces
    )


def _steps(steps: Sequence[JourneyMessage], clock: _Clock) -> list[Markup]:
    found = group_steps(steps)
    half = SHOWN_STEPS // 2
    left_out = len(found) - SHOWN_STEPS
    chosen = found if left_out <= 0 else [*found[:half], *found[-half:]]
    items = [_step(each, clock) for each in chosen]
    if left_out > 0:
        items.insert(half, svg_element("li", {"class": "left-out"}, f"{count_words(left_out, 'more step')}"))
    return items


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


def _step(steps: Sequence[JourneyMessage], clock: _Clock) -> Markup:
    """Render the steps of one group."""
    step = steps[0]
    notes = [svg_element("span", {"class": f"step-note {_NOTED.get(note, '')}"}, note) for note in step["notes"]]
    event = svg_element("b", {}, list_words([_words(each["event"]) for each in steps]))
    where = Markup("") if step["chain"] is None else Markup(" on ") + format_name(step["chain"], 24)
    block = Markup("") if step["height"] is None else escape_html(f", block {step['height']:,}")
    since = clock.since(step)
    after = f"+{clock.text(since)}" if since else ""
    details = []
    if step["tick"] is not None:
        details.append(svg_element("span", {}, f"tick {step['tick']:,}"))
    elif step["time"] is not None:
        details.append(svg_element("time", {"datetime": step["time"]}, format_time(step["time"])))
    if step["transaction"] is not None:
        details.append(svg_element("span", {"class": "code"}, format_name(step["transaction"], 28)))
    for root in step["roots"][:1]:
        details.append(svg_element("span", {"class": "code"}, Markup("root ") + format_name(root, 16)))
    because = [step["detail"]] if step["detail"] else []
    because += [f"code {step['code']}"] if step["code"] else []
    if because:
        details.append(svg_element("span", {}, escape_html(", ".join(because))))
    what = svg_element("p", {}, [event, where, block, *notes])
    more = svg_element("p", {"class": "details"}, Markup(" ").join(details))
    bad = any(_NOTED.get(note) == VIOLATED for note in step["notes"]) or step["event"] in BAD_EVENTS
    return svg_element(
        "li", {"class": "bad" if bad else None}, [svg_element("span", {"class": "after"}, after), what, more]
    )


def _words(event: str) -> str:
    return event.replace("_", " ")


__all__ = ["SHOWN_STEPS", "JourneyMessage", "draw_journey", "group_steps"]
