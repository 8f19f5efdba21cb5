"""The page of a message: its way over chains, its steps, and its proofs."""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from dataclasses import dataclass

from markupsafe import Markup

from causeway.audit.findings import VIOLATED
from causeway.audit.gathered import VERDICTS
from causeway.audit.lives import TAKEN_BACK, Life
from causeway.audit.verdict import Verdict as Audited
from causeway.explorer.addresses import LINKS, Asked, address, message_address, message_values
from causeway.explorer.frame import Page, Part
from causeway.explorer.networks import NotFound
from causeway.explorer.overview import lane_link, link
from causeway.explorer.rail import rail
from causeway.explorer.reading import followed, key_of, of_lane, took_of
from causeway.explorer.view import View
from causeway.ledger.typed import plain_rows
from causeway.model.errors import CausewayError, InvalidInput
from causeway.model.text import readable
from causeway.network.opened import OpenedLake
from causeway.network.replayed import ReplayBusy
from causeway.network.tracing import Traced, life_as_dict
from causeway.pipeline.layout import LakeDamaged
from causeway.pipeline.ledger_commits import FilesMerged, LedgerDamaged
from causeway.pipeline.ledger_search import MessageKey
from causeway.proofs.documents.reading import document_in
from causeway.proofs.documents.trust import trust_in
from causeway.proofs.documents.verdict import Verdict, judge
from causeway.proving.offers import OfferProved, offers_of, prove_offer
from causeway.proving.prover import Offer, ProvableMessage
from causeway.report.findings import finding
from causeway.report.journey import journey
from causeway.report.outcomes import mark_of
from causeway.report.svg import element
from causeway.report.tables import badge
from causeway.report.text import byte_size, many, name, plain, safe_name

SHOWN = 12
"""Messages of one journey whose steps are shown."""

PROVED = 4
"""Messages of one journey of which proofs are offered."""

KEPT = 32
"""Proofs that are kept for who downloads them."""

MOST_SUBSTREAM = (1 << 63) - 1


def message(view: View, asked: Asked) -> Page:
    """Return the page of a message. Raises ``NotFound``."""
    key = asked.message()
    traced = _followed(view, key)
    own = next((life for life in traced.lives if key_of(life) == key), traced.lives[0])
    title = f"{own.kind.capitalize()} {safe_name(own.message_id or '?') if own.index is None else own.index}"
    crumbs = [element("a", {"href": "/lanes"}, "Lanes")]
    if any(own.lane[1:]):
        crumbs.append(Markup(" · ") + lane_link(own.lane))
    lasted = None if own.is_open else took_of(own)
    findings = _findings(view, key)
    verdict = VIOLATED if any(each == VIOLATED for each, _ in findings) else None
    outcome = mark_of(life_as_dict(own, traced), verdict)
    outcome += plain("" if lasted is None else f" after {lasted}")
    if verdict is not None:
        outcome += Markup(" ") + badge(VIOLATED, "in a violation")
    others = len(traced.lives) + traced.more - 1
    way = rail(traced.lives)
    sections = [Part("message", title, way, outcome, Markup("").join(crumbs))]
    if findings:
        items = [element("li", {}, badge(verdict) + Markup(" ") + said) for verdict, said in findings]
        sections.append(Part("findings", "Findings", element("ul", {"class": "remarks"}, items)))
    sections.append(
        Part(
            "steps",
            "Steps"
            if not others
            else f"Steps, with {many(others, 'message')} that belong{'s' if others == 1 else ''} to it",
            _steps(traced, key),
        )
    )
    sections.append(Part("proofs", "Proofs", _proofs(view, traced)))
    return Page(title, sections, "Lanes")


def _followed(view: View, key: MessageKey) -> Traced:
    try:
        return followed(view.ledger, key)
    except (LedgerDamaged, FilesMerged):
        raise
    except InvalidInput as error:
        raise NotFound(str(error)) from None


def _findings(view: View, key: MessageKey) -> list[tuple[str, Markup]]:
    """Return the findings about a message, each with its verdict, violations first."""
    found = []
    for row in plain_rows(of_lane(view.audit.violations, key.lane)):
        own = row["index"] == key.index and (key.index is not None or row["message_id"] == key.message_id)
        if own and row["check"] not in ("watermarks", "headers"):
            found.append((row["verdict"], finding(row, LINKS, named=False)))
    return sorted(found, key=lambda each: VERDICTS.index(each[0]))[:SHOWN]


def _steps(traced: Traced, key: MessageKey) -> Markup:
    cards = []
    for life in traced.lives[:SHOWN]:
        other = key_of(life)
        why = None
        if other != key:
            href = message_address(other)
            why = link("its page", href) if href is not None else None
        cards.append(journey(life_as_dict(life, traced), why=why))
    more = len(traced.lives) - len(cards) + traced.more
    said = element("p", {"class": "note"}, f"{many(more, 'more message')} not shown.") if more > 0 else Markup("")
    return element("div", {"class": "journeys"}, cards) + said


# ---- proofs


def _proofs(view: View, traced: Traced) -> Markup:
    if view.opened is None:
        return element(
            "p",
            {"class": "empty"},
            "This is a recorded ledger: it has events, and no state to prove.",
        )
    cards = []
    for life in traced.lives[:PROVED]:
        for place, offer in enumerate(offers(view.opened, life)):
            href = address("/proof", {**message_values(key_of(life)), "offer": place})
            what = name(f"{life.kind} {life.index}", 40)
            title, _, words = offer.what.partition(": ")
            make = element("a", {"class": "button", "href": href}, "Prove and verify")
            cards.append(
                element(
                    "article",
                    {"class": "proof"},
                    [
                        element("h3", {}, title.capitalize()),
                        element("p", {}, plain(readable(words))),
                        element("p", {}, [Markup("of "), what]),
                        element("div", {"class": "turn"}, make),
                    ],
                )
            )
    if not cards:
        return element(
            "p",
            {"class": "empty"},
            "No proofs: it is in no lane between two chains of this lake, or not there yet.",
        )
    return element("div", {"class": "proofs"}, cards)


def offers(opened: OpenedLake, life: Life) -> tuple[Offer, ...]:
    """Return what may be proved of a message of a lake."""
    _, source, destination, lane = life.lane
    if source is None or destination is None or life.index is None or lane is None:
        return ()
    if not (lane.isascii() and lane.isdecimal() and int(lane) <= MOST_SUBSTREAM):
        return ()  # lanes of a chain to itself have other names
    heights: dict[str, list[int]] = {}
    for step in life.steps:
        if step.height is not None and TAKEN_BACK not in step.notes:
            heights.setdefault(step.event, []).append(step.height)
    there = {event: sorted(each) for event, each in heights.items()}
    return offers_of(opened, ProvableMessage(source, destination, int(lane), life.index, there))


@dataclass(frozen=True)
class Proof:
    """A proof that was made and verified. ``document``, ``trust``: as files; ``verdict``: the verifier's."""

    offer: Offer
    proved: OfferProved
    document: bytes
    trust: bytes
    verdict: Verdict


class Proofs:
    """Makes proofs, and keeps the last ones."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, MessageKey, int], Proof] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, view: View, asked: Asked) -> Proof:
        """Return the proof of an offer of a message, verified. Raises ``NotFound``, ``InvalidInput``."""
        key, place = asked.message(), asked.number("offer", 16) or 0
        name = ("" if view.opened is None else view.opened.lake.identity, key, place)
        with self._lock:
            kept = self._kept.get(name)
            if kept is not None:
                self._kept.move_to_end(name)
                return kept
        made = _made(view, key, place)
        with self._lock:
            self._kept[name] = made
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return made


def _made(view: View, key: MessageKey, place: int) -> Proof:
    if view.opened is None:
        raise NotFound("a recorded ledger has no state to prove")
    traced = _followed(view, key)
    own = next((life for life in traced.lives if key_of(life) == key), None)
    found = () if own is None else offers(view.opened, own)
    if place >= len(found):
        raise NotFound(f"offer: {place}: the message has no such proof")
    try:
        proved = prove_offer(view.opened, found[place])
    except (LakeDamaged, ReplayBusy):
        raise
    except CausewayError as error:
        raise NotFound(f"not provable: {error}") from None
    document = f"{json.dumps(proved.proved.document, indent=1)}\n".encode()
    trust = f"{json.dumps(proved.trust, indent=1)}\n".encode()
    verdict = judge(document_in(document, "proof", {}), trust_in(trust, "trust"))
    return Proof(found[place], proved, document, trust, verdict)


def proof_page(asked: Asked, proof: Proof) -> Page:
    """Return the page of a proof: what it proves, the steps of the verifier, the files."""
    key, place = asked.message(), asked.number("offer", 16) or 0
    values = {**message_values(key), "offer": place}
    title, _, words = proof.offer.what.partition(": ")
    verdict = (
        badge(Audited.PASSED, "the verifier says true")
        if proof.verdict.valid
        else badge(Audited.FAILED, f"false: {proof.verdict.error}")
    )
    back = element("a", {"href": message_address(key)}, "The message")
    lines = [readable(line.strip()) for line in proof.proved.proved.lines]
    files = [
        element(
            "a",
            {
                "class": "button",
                "href": address("/proof.json", {**values, "part": part}),
                "download": file_name(key, place, part),
            },
            f"{word} ({byte_size(size)})",
        )
        for part, word, size in (
            ("proof", "Download the proof", len(proof.document)),
            ("trust", "Download the trust document", len(proof.trust)),
        )
    ]
    command = f"causeway verify {file_name(key, place, 'proof')} --trust {file_name(key, place, 'trust')}"
    body = [
        element("ul", {"class": "remarks"}, [element("li", {}, plain(line)) for line in lines]),
        element("div", {"class": "turn"}, files),
        element("pre", {}, command),
    ]
    said = verdict + Markup(" ") + plain(readable(words))
    sections = [Part("proof", title.capitalize(), Markup("").join(body), said, back)]
    tracks = []
    for track in proof.verdict.tracks:
        steps = [
            element(
                "li",
                {},
                [
                    plain(readable(f"{step.operation}: {step.detail}" if step.detail else step.operation)),
                    element("div", {"class": "result code"}, name(step.result.hex(), 44)),
                ],
            )
            for step in track.steps[:MOST_STEPS]
        ]
        more = len(track.steps) - len(steps)
        if more > 0:
            steps.append(element("li", {}, f"{many(more, 'more step')}"))
        tracks.append(
            element(
                "div",
                {"class": "panel-box"},
                [
                    element("h3", {"class": "chart-title"}, plain(readable(track.title))),
                    element("ol", {"class": "ladder"}, steps),
                ],
            )
        )
    if tracks and proof.verdict.trust is not None:
        lead = f"From what is claimed to what is trusted: {readable(proof.verdict.trust.subject)}."
        sections.append(Part("path", "The path of the proof", Markup("").join(tracks), lead))
    return Page(title.capitalize(), sections, "Lanes")


MOST_STEPS = 64
"""Steps of a proof that are shown."""


def file_name(key: MessageKey, place: int, part: str) -> str:
    """Return the name of a file that is downloaded: letters, digits and dashes, whatever the lane is called."""
    _, source, destination, lane = key.lane
    words = [source or "", destination or "", lane or "", "" if key.index is None else str(key.index), str(place)]
    safe = "-".join(each for each in (re.sub(r"[^0-9A-Za-z]+", "-", word).strip("-")[:24] for word in words) if each)
    return f"{part}-{safe}.json"


__all__ = ["Proof", "Proofs", "file_name", "message", "offers", "proof_page"]
