"""The page of a message: its path over chains, its steps and its proofs."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass

from cachetools import LRUCache
from causeway_proofs.documents.trust import parse_trust
from causeway_proofs.documents.verification import DocumentVerdict, parse_document, verify_document
from causeway_proofs.errors import CausewayError, InvalidInput
from markupsafe import Markup

from causeway.analysis.tracing import TAKEN_BACK, MessageHistory, MessageTrace, history_to_dict
from causeway.audit.findings import VIOLATED
from causeway.audit.passes.results import VERDICTS
from causeway.audit.verdict import Verdict as Audited
from causeway.core.arrow_types import to_python_rows
from causeway.core.text import count_noun, to_one_line
from causeway.explorer.addresses import LINKS, PageRequest, message_address, message_values, page_address
from causeway.explorer.frame import ExplorerPage, PagePart, render_piece
from causeway.explorer.network_page import PageNotFound
from causeway.explorer.overview import lane_link, name_link
from causeway.explorer.sequence_diagram import draw_sequence
from causeway.explorer.view import LedgerView, history_key, outcome_delay, related_histories, select_lane
from causeway.ledger.commits import FilesMerged, LedgerDamaged
from causeway.ledger.search import MessageKey
from causeway.network.opened_lake import OpenedLake
from causeway.network.replay import ReplayBusy
from causeway.proving.prover import OfferProof, ProofOffer, ProvableMessage, find_offers, prove_offer
from causeway.report.elements import (
    element,
    escape_html,
    format_bytes,
    safe_name,
    verdict_badge,
)
from causeway.report.findings import finding_sentence
from causeway.report.journey import draw_journey
from causeway.report.outcomes import row_outcome_mark
from causeway.storage.layout import LakeDamaged

MAX_SHOWN = 12
"""Maximum messages of a journey with steps."""

MAX_PROVABLE = 4
"""Maximum messages of a journey with proofs."""

CACHED_PROOFS = 32
"""Number of cached proofs for downloads."""

MAX_SUBSTREAM = (1 << 63) - 1


def message_page(view: LedgerView, query: PageRequest) -> ExplorerPage:
    """Return the page of a message.

    Args:
        view: the snapshot's data.
        query: the query parameters.

    Returns:
        The page.

    Raises:
        PageNotFound: there is no such message.
    """
    key = query.message()
    traced = _trace(view, key)
    own = next((life for life in traced.lives if history_key(life) == key), traced.lives[0])
    title = f"{own.kind.capitalize()} {safe_name(own.message_id or '?') if own.index is None else own.index}"
    crumbs = [element("a", "Lanes", href="/lanes")]
    if any(own.lane[1:]):
        crumbs.append(Markup(" · ") + lane_link(own.lane))
    lasted = None if own.is_open else outcome_delay(own)
    findings = _findings(view, key)
    verdict = VIOLATED if any(each == VIOLATED for each, _ in findings) else None
    outcome = row_outcome_mark(history_to_dict(own, traced), verdict)
    outcome += escape_html("" if lasted is None else f" after {lasted}")
    if verdict is not None:
        outcome += Markup(" ") + verdict_badge(VIOLATED, "in a violation")
    others = len(traced.lives) + traced.more - 1
    way = draw_sequence(traced.lives)
    sections = [PagePart("message", title, way, outcome, Markup("").join(crumbs))]
    if findings:
        items = [element("li", verdict_badge(verdict) + Markup(" ") + sentence) for verdict, sentence in findings]
        sections.append(PagePart("findings", "Findings", element("ul", items, class_="remarks")))
    sections.append(
        PagePart(
            "steps",
            "Steps"
            if not others
            else f"Steps, with {count_noun(others, 'message')} that belong{'s' if others == 1 else ''} to it",
            _steps(traced, key),
        )
    )
    sections.append(PagePart("proofs", "Proofs", _proofs(view, traced)))
    return ExplorerPage(title, sections, "Lanes")


def _trace(view: LedgerView, key: MessageKey) -> MessageTrace:
    try:
        return related_histories(view.ledger, key)
    except (LedgerDamaged, FilesMerged):
        raise
    except InvalidInput as error:
        raise PageNotFound(str(error)) from None


def _findings(view: LedgerView, key: MessageKey) -> list[tuple[str, Markup]]:
    """Return the findings of a message with their verdicts, violations first."""
    found = []
    for row in to_python_rows(select_lane(view.audit.violations, key.lane)):
        own = row["index"] == key.index and (key.index is not None or row["message_id"] == key.message_id)
        if own and row["check"] not in ("watermarks", "headers"):
            found.append((row["verdict"], finding_sentence(row, LINKS, named=False)))
    return sorted(found, key=lambda each: VERDICTS.index(each[0]))[:MAX_SHOWN]


def _steps(traced: MessageTrace, key: MessageKey) -> Markup:
    cards = []
    for life in traced.lives[:MAX_SHOWN]:
        other = history_key(life)
        why = None
        if other != key:
            href = message_address(other)
            why = name_link("its page", href) if href is not None else None
        cards.append(draw_journey(history_to_dict(life, traced), why=why))
    more = len(traced.lives) - len(cards) + traced.more
    note = element("p", f"{count_noun(more, 'more message')} not shown.", class_="note") if more > 0 else Markup("")
    return element("div", cards, class_="journeys") + note


# ---- proofs


def _proofs(view: LedgerView, traced: MessageTrace) -> Markup:
    note = "This is a recorded ledger: it has events, and no state to prove."
    offers = []
    if view.opened is not None:
        note = "No proofs: it is in no lane between two chains of this lake, or not there yet."
        for life in traced.lives[:MAX_PROVABLE]:
            for place, offer in enumerate(provable_offers(view.opened, life)):
                href = page_address("/proof", {**message_values(history_key(life)), "offer": place})
                title, _, words = offer.what.partition(": ")
                offers.append((title.capitalize(), to_one_line(words), f"{life.kind} {life.index}", href))
    return render_piece("elements/proofs.html", offers=offers, note=note)


def provable_offers(opened: OpenedLake, life: MessageHistory) -> tuple[ProofOffer, ...]:
    """Return the available proofs of a message in a lake.

    Args:
        opened: the lake.
        life: the history.

    Returns:
        The offers.
    """
    _, source, destination, lane = life.lane
    if source is None or destination is None or life.index is None or lane is None:
        return ()
    if not (lane.isascii() and lane.isdecimal() and int(lane) <= MAX_SUBSTREAM):
        return ()  # loopback lanes have other names
    heights: dict[str, list[int]] = {}
    for step in life.steps:
        if step.height is not None and TAKEN_BACK not in step.notes:
            heights.setdefault(step.event, []).append(step.height)
    there = {event: sorted(each) for event, each in heights.items()}
    return find_offers(opened, ProvableMessage(source, destination, int(lane), life.index, there))


@dataclass(frozen=True)
class PageProof:
    """A verified proof. ``document``, ``trust``: as files. ``verdict``: of the verifier."""

    offer: ProofOffer
    proved: OfferProof
    document: bytes
    trust: bytes
    verdict: DocumentVerdict


class ProofMaker:
    """Creates and caches proofs."""

    def __init__(self) -> None:
        self._cache: LRUCache[tuple[str, MessageKey, int], PageProof] = LRUCache(CACHED_PROOFS)
        self._lock = threading.Lock()

    def of(self, view: LedgerView, query: PageRequest) -> PageProof:
        """Return the verified proof of an offer.

        Raises:
            PageNotFound: there is no such message or offer.
            InvalidInput: the proof cannot be created.
        """
        key, place = query.message(), query.number("offer", 16) or 0
        name = ("" if view.opened is None else view.opened.lake.identity, key, place)
        with self._lock:
            if (cached := self._cache.get(name)) is not None:
                return cached
        created = _create_proof(view, key, place)
        with self._lock:
            self._cache[name] = created
        return created


def _create_proof(view: LedgerView, key: MessageKey, place: int) -> PageProof:
    if view.opened is None:
        raise PageNotFound("a recorded ledger has no state to prove")
    traced = _trace(view, key)
    own = next((life for life in traced.lives if history_key(life) == key), None)
    found = () if own is None else provable_offers(view.opened, own)
    if place >= len(found):
        raise PageNotFound(f"offer: {place}: the message has no such proof")
    try:
        proved = prove_offer(view.opened, found[place])
    except (LakeDamaged, ReplayBusy):
        raise
    except CausewayError as error:
        raise PageNotFound(f"not provable: {error}") from None
    document = f"{json.dumps(proved.proved.document, indent=1)}\n".encode()
    trust = f"{json.dumps(proved.trust, indent=1)}\n".encode()
    verdict = verify_document(parse_document(document, "proof", {}), parse_trust(trust, "trust"))
    return PageProof(found[place], proved, document, trust, verdict)


def proof_page(query: PageRequest, proof: PageProof) -> ExplorerPage:
    """Return the page of a proof: its claims, the steps of the verifier, and its files.

    Args:
        query: the query parameters.
        proof: the verified proof.

    Returns:
        The page.
    """
    key, place = query.message(), query.number("offer", 16) or 0
    values = {**message_values(key), "offer": place}
    title, _, words = proof.offer.what.partition(": ")
    verdict = (
        verdict_badge(Audited.PASSED, "the verifier says true")
        if proof.verdict.valid
        else verdict_badge(Audited.FAILED, f"false: {proof.verdict.error}")
    )
    back = element("a", "The message", href=message_address(key))
    names = {part: file_name(key, place, part) for part in ("proof", "trust")}
    files = [
        (page_address("/proof.json", {**values, "part": part}), names[part], f"{word} ({format_bytes(size)})")
        for part, word, size in (
            ("proof", "Download the proof", len(proof.document)),
            ("trust", "Download the trust document", len(proof.trust)),
        )
    ]
    lines = [to_one_line(line.strip()) for line in proof.proved.proved.lines]
    body = render_piece("elements/proof.html", lines=lines, files=files, names=names)
    summary = verdict + Markup(" ") + escape_html(to_one_line(words))
    sections = [PagePart("proof", title.capitalize(), body, summary, back)]
    if proof.verdict.tracks and proof.verdict.trust is not None:
        tracks = [
            (
                to_one_line(track.title),
                [
                    (
                        to_one_line(f"{step.operation}: {step.detail}" if step.detail else step.operation),
                        step.result.hex(),
                    )
                    for step in track.steps[:MAX_STEPS]
                ],
                len(track.steps) - MAX_STEPS,
            )
            for track in proof.verdict.tracks
        ]
        lead = f"From the claim to the trusted {to_one_line(proof.verdict.trust.subject)}."
        path = render_piece("elements/tracks.html", tracks=tracks)
        sections.append(PagePart("path", "The path of the proof", path, lead))
    return ExplorerPage(title.capitalize(), sections, "Lanes")


MAX_STEPS = 64
"""Maximum steps of a proof."""


def file_name(key: MessageKey, place: int, part: str) -> str:
    """Return the name of a download: letters, digits and dashes only.

    Args:
        key: the key of the message.
        place: position of the offer.
        part: kind of the file.

    Returns:
        The name.
    """
    _, source, destination, lane = key.lane
    words = [source or "", destination or "", lane or "", "" if key.index is None else str(key.index), str(place)]
    safe = "-".join(each for each in (re.sub(r"[^0-9A-Za-z]+", "-", word).strip("-")[:24] for word in words) if each)
    return f"{part}-{safe}.json"


__all__ = ["PageProof", "ProofMaker", "file_name", "message_page", "proof_page", "provable_offers"]
