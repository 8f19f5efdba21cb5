"""The journey of a message: what happened to it, where, and where the time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from causeway.audit.lives import AGAIN, OTHER_CONTENT, TAKEN_BACK
from causeway.report.svg import element, share, tone_class
from causeway.report.text import duration, many, name, plain, time_text

SHOWN_STEPS = 24
"""Steps of one message that are shown; of more the first ones and the last."""

_NOTED = {AGAIN: "violated", OTHER_CONTENT: "violated", TAKEN_BACK: "unknown"}
_LEGS = ("a", "b", "c", "d", "e", "f")

Message = Mapping[str, Any]
"""A message as ``causeway trace --json`` prints it (``network.tracing.life_as_dict``)."""


def journey(message: Message, *, ident: str | None = None, why: Markup | str | None = None) -> Markup:
    """Return a message and its steps.

    Args:
        message: as of ``network.tracing.life_as_dict``.
        ident: the anchor that others link to.
        why: why it is shown.
    """
    steps = message["events"]
    ends = [name(message["source"], 24), element("span", {"class": "to", "aria-label": "to"}, "→")]
    ends.append(name(message["destination"], 24))
    kind = element("span", {"class": "kind"}, message["kind"])
    outcome = element("span", {"class": f"outcome{' open' if message['open'] else ''}"}, message["outcome"])
    head = [element("h4", {}, _title(message)), element("p", {"class": "ends"}, [kind, *ends, outcome])]
    if why is not None:
        head.insert(0, element("p", {"class": "why"}, why))
    parts = [element("header", {}, head), _legs(steps)]
    if about := _about(message):
        parts.append(about)
    parts.append(element("ol", {"class": "steps"}, _steps(steps)))
    return element("article", {"class": "journey", "id": ident}, parts)


def title(message: Message) -> str:
    """Return what a message is called: its lane and number."""
    number = message["message_id"] if message["index"] is None else message["index"]
    return f"{message['lane'] or message['source'] or '?'} {number}"


def _title(message: Message) -> Markup:
    number = message["message_id"] if message["index"] is None else f"{message['index']}"
    return name(message["lane"] or message["source"] or "?", 32) + Markup(" ") + name(number, 32)


def _about(message: Message) -> Markup:
    pairs = [
        ("id", message["message_id"] if message["index"] is not None else None),
        ("answers", message["answers"]),
        ("journey", message["journey"] if message["journey"] != message["message_id"] else None),
        ("from", message["sender"]),
        ("to", message["receiver"]),
    ]
    rows = [element("dt", {}, what) + element("dd", {}, name(value, 32)) for what, value in pairs if value is not None]
    if message["amount"] is not None:
        amount = plain(f"{int(message['amount']):,}")
        asset = name(message["asset"], 24) if message["asset"] is not None else Markup("")
        rows.append(element("dt", {}, "value") + element("dd", {}, amount + Markup(" ") + asset))
    return element("dl", {"class": "about"}, rows) if rows else Markup("")


def _legs(steps: Sequence[Message]) -> Markup:
    """Return the time from the first to the last step as one bar, a piece for each step that took some."""
    timed = [step for step in steps if step["seconds"] is not None]
    whole = max((step["seconds"] for step in timed), default=0.0)
    if len(timed) < 2 or whole <= 0:
        return Markup("")
    pieces, said = [], []
    for place, (before, after) in enumerate(pairwise(timed)):
        took = after["seconds"] - before["seconds"]
        if took <= 0:
            continue
        what = f"{_words(before['event'])} to {_words(after['event'])}: {duration(took)}"
        said.append(what)
        box = {"x": share(before["seconds"] / whole), "width": share(took / whole), "height": "100%"}
        tone = tone_class(_LEGS[place % len(_LEGS)])
        pieces.append(element("rect", {**box, "class": f"leg {tone}"}, element("title", {}, what)))
    label = f"Where {duration(whole)} went: {'; '.join(said[:6])}"
    return element("svg", {"class": "legs", "width": "100%", "height": 6, "role": "img", "aria-label": label}, pieces)


def _steps(steps: Sequence[Message]) -> list[Markup]:
    half = SHOWN_STEPS // 2
    left_out = len(steps) - SHOWN_STEPS
    chosen = [*steps] if left_out <= 0 else [*steps[:half], *steps[-half:]]
    items = [_step(step) for step in chosen]
    if left_out > 0:
        items.insert(half, element("li", {"class": "left-out"}, f"{many(left_out, 'more step')}"))
    return items


def _step(step: Message) -> Markup:
    notes = [element("span", {"class": f"step-note {_NOTED.get(note, '')}"}, note) for note in step["notes"]]
    event = element("b", {}, _words(step["event"]))
    where = Markup("") if step["chain"] is None else Markup(" on ") + name(step["chain"], 24)
    block = Markup("") if step["height"] is None else plain(f", block {step['height']:,}")
    after = "" if step["seconds"] is None else f"+{duration(step['seconds'])}" if step["seconds"] else "0 s"
    details = []
    if step["time"] is not None:
        details.append(element("time", {"datetime": step["time"]}, time_text(datetime.fromisoformat(step["time"]))))
    elif step["tick"] is not None:
        details.append(element("span", {}, f"tick {step['tick']:,}"))
    if step["transaction"] is not None:
        details.append(element("span", {"class": "code"}, name(step["transaction"], 28)))
    for root in step["roots"][:1]:
        details.append(element("span", {"class": "code"}, Markup("root ") + name(root, 24)))
    because = [step["detail"]] if step["detail"] else []
    because += [f"code {step['code']}"] if step["code"] else []
    if because:
        details.append(element("span", {}, plain(", ".join(because))))
    what = element("p", {}, [event, where, block, *notes])
    more = element("p", {"class": "details"}, Markup(" ").join(details))
    tone = "bad" if any(_NOTED.get(note) == "violated" for note in step["notes"]) else None
    return element("li", {"class": tone}, [element("span", {"class": "after"}, after), what, more])


def _words(event: str) -> str:
    return event.replace("_", " ")


__all__ = ["SHOWN_STEPS", "Message", "journey", "title"]
