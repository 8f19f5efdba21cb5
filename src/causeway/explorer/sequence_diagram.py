"""Draw a message's path as a sequence diagram.

Chains are columns, time runs downwards, and an arrow leads from sending to receipt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from causeway.analysis.tracing import FAULT_REMARKS, TAKEN_BACK, MessageHistory, MessageStep
from causeway.core.text import count_noun, shorten_name
from causeway.report.elements import element, format_coordinate, format_duration, safe_name
from causeway.report.outcomes import BAD_EVENTS

MAX_CHAINS = 8
MAX_ROWS = 60
"""Maximum chains and moments in a drawing."""

MAX_WORDS = 2
"""Maximum words at a point; its dot has all of them as a tip."""

_ROW, _TOP, _LEFT = 38, 40, 15.0
_SENT, _CAME = ("sent", "committed"), ("received", "executed", "rejected")


@dataclass(frozen=True)
class _Point:
    """The events of a message at one moment on one chain."""

    life: int
    chain: str
    moment: tuple[Any, ...]
    words: tuple[str, ...]
    bad: bool


def draw_sequence(lives: Sequence[MessageHistory]) -> Markup:
    """Render the path of related messages; empty without a known chain.

    Args:
        lives: the histories.

    Returns:
        SVG, or nothing.
    """
    points = _points(lives)
    chains = [*dict.fromkeys(point.chain for point in points)][:MAX_CHAINS]
    points = [point for point in points if point.chain in chains]
    moments = sorted({point.moment for point in points})
    left_out = len(moments) - MAX_ROWS
    moments = moments[:MAX_ROWS]
    points = [point for point in points if point.moment in set(moments)]
    if not points:
        return Markup("")
    row = {moment: place for place, moment in enumerate(moments)}
    width = (100 - _LEFT) / len(chains)
    at = {chain: _LEFT + width * (place + 0.5) for place, chain in enumerate(chains)}
    height = _TOP + _ROW * len(moments) + 8

    def y(moment: tuple[Any, ...]) -> float:
        return _TOP + _ROW * (row[moment] + 0.5)

    parts = [_marker()]
    for chain, x in at.items():
        parts.append(
            element(
                "text", safe_name(chain, 22), class_="chain", x=f"{format_coordinate(x)}%", y=18, text_anchor="middle"
            )
        )
        parts.append(
            element(
                "line",
                class_="lane-line",
                x1=f"{format_coordinate(x)}%",
                x2=f"{format_coordinate(x)}%",
                y1=28,
                y2=height,
            )
        )
    for moment in moments:
        parts.append(element("text", _moment(moment, moments[0]), x=0, y=format_coordinate(y(moment) + 4)))
    parts += _hops(lives, points, at, y)
    labels: dict[tuple[str, tuple[Any, ...]], list[str]] = {}
    for point in points:
        middle = f"{format_coordinate(at[point.chain])}%"
        description = f"{_message_name(lives[point.life])}: {', '.join(point.words)} on {shorten_name(point.chain)}"
        dot: dict[str, object] = {
            "cx": middle,
            "cy": format_coordinate(y(point.moment)),
            "r": 5,
            "class": "bad" if point.bad else None,
        }
        parts.append(element("circle", element("title", description), **dot))
        words = labels.setdefault((point.chain, point.moment), [])
        words += [word for word in point.words if word not in words]
    for (chain, moment), words in labels.items():
        label: dict[str, object] = {
            "x": f"{format_coordinate(at[chain])}%",
            "y": format_coordinate(y(moment) - 10),
            "text-anchor": "middle",
        }
        parts.append(element("text", ", ".join(words[:MAX_WORDS]) + ("…" if len(words) > MAX_WORDS else ""), **label))
    description = f"The way of {count_noun(len(lives), 'message')} over {count_noun(len(chains), 'chain')}"
    drawn = element(
        "svg", parts, class_="rail", width="100%", height=format_coordinate(height), role="img", aria_label=description
    )
    box = element(
        "div",
        drawn,
        class_=f"canvas rail-box{' wide' if len(chains) > 3 else ''}",
        tabindex=0,
        role="region",
        aria_label=description,
    )
    return (
        box
        if left_out <= 0
        else box + element("p", f"{count_noun(left_out, 'later moment')} not drawn.", class_="note")
    )


def _points(lives: Sequence[MessageHistory]) -> list[_Point]:
    ticked = all(step.row["tick"] is not None for life in lives for step in life.steps if step.chain is not None)
    found: dict[tuple[int, str, tuple[Any, ...]], tuple[list[str], bool]] = {}
    for place, life in enumerate(lives):
        for order, step in enumerate(life.steps):
            if step.chain is None:
                continue
            words, bad = found.setdefault((place, step.chain, _sort_key(step, order, ticked=ticked)), ([], False))
            noted = bool((FAULT_REMARKS | {TAKEN_BACK}) & {*step.notes}) or step.event in BAD_EVENTS
            word = step.event.replace("_", " ")
            if word not in words:
                words.append(word)
            if noted and not bad:
                found[place, step.chain, _sort_key(step, order, ticked=ticked)] = (words, True)
    return [_Point(place, chain, moment, tuple(words), bad) for (place, chain, moment), (words, bad) in found.items()]


def _sort_key(step: MessageStep, order: int, *, ticked: bool) -> tuple[Any, ...]:
    if ticked:
        return (0, int(step.row["tick"]))
    if step.time is not None:
        return (1, step.time)
    return (2, order)


def _moment(moment: tuple[Any, ...], first: tuple[Any, ...]) -> str:
    kind, value = moment
    if kind == 0:
        return f"tick {value:,}"
    if kind == 1 and first[0] == 1:
        return f"+{format_duration((value - first[1]).total_seconds())}"
    return ""


def _hops(lives: Sequence[MessageHistory], points: Sequence[_Point], at: dict[str, float], y: Any) -> list[Markup]:
    parts = []
    for place, life in enumerate(lives):
        own = [point for point in points if point.life == place]
        began = next((point for point in own if {*_SENT} & {*point.words}), None)
        came = next((point for point in own if "received" in point.words), None)
        came = came or next(
            (point for point in own if {*_CAME} & {*point.words} and (began is None or point.chain != began.chain)),
            None,
        )
        if began is None or came is None or began.chain == came.chain:
            continue
        answer = life.kind != "request"
        line: dict[str, object] = {
            "class": f"hop{' answer' if answer else ''}{' bad' if came.bad else ''}",
            "x1": f"{format_coordinate(at[began.chain])}%", "y1": format_coordinate(y(began.moment)),
            "x2": f"{format_coordinate(at[came.chain])}%", "y2": format_coordinate(y(came.moment)),
            "marker-end": "url(#arrow)",
        }  # fmt: skip
        parts.append(element("line", element("title", _message_name(life)), **line))
    return parts


def _marker() -> Markup:
    tip = element("path", d="M0 0L8 4L0 8Z", class_="arrow-tip")
    box = {
        "id": "arrow",
        "markerWidth": 8,
        "markerHeight": 8,
        "refX": 14,
        "refY": 4,
        "orient": "auto",
        "markerUnits": "userSpaceOnUse",
    }
    return element("defs", element("marker", tip, **box))


def _message_name(life: MessageHistory) -> str:
    number_of = life.message_id if life.index is None else str(life.index)
    return f"{life.kind} {shorten_name(life.lane[3] or '')} {shorten_name(number_of or '?')}"


__all__ = ["draw_sequence"]
