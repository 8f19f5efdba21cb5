"""The explorer's answers over HTTP: pages of what was seen last, whether anything is new, proofs as files."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from causeway.explorer.addresses import LANE, MESSAGE, Asked
from causeway.explorer.finding_pages import findings, search
from causeway.explorer.frame import HEADERS, Page, Part, Status, rendered, static_files
from causeway.explorer.heights import height
from causeway.explorer.jobs import Jobs, TooLong, TooMany
from causeway.explorer.live import Head, Live, NothingYet, Snapshot
from causeway.explorer.messages import Proofs, file_name, message, proof_page
from causeway.explorer.networks import NotFound, chain, lanes, network
from causeway.explorer.overview import overview
from causeway.explorer.queue import lane, lane_over_time
from causeway.explorer.states import state
from causeway.explorer.view import View
from causeway.model.errors import CausewayError, InvalidInput, bad_place
from causeway.model.text import readable
from causeway.network.replayed import ReplayBusy
from causeway.pipeline.layout import Freed, LakeError
from causeway.pipeline.ledger_commits import FilesMerged, LedgerDamaged
from causeway.report.svg import element
from causeway.report.text import count, safe_name

PAGE_SECONDS, PROOF_SECONDS = 30.0, 120.0
PAGE_THREADS, PROOF_THREADS = 4, 2
PAGES_WAITING, PROOFS_WAITING = 32, 8
"""Of pages, and of proofs and states: how long one may take, how many are made at a time, and how many wait."""

KEPT_PAGES, KEPT_BYTES = 64, 1 << 20
"""So many pages are kept until something is new, none longer than so many bytes."""

MOST_QUERY = 8_192
"""Bytes of what stands behind the question mark of an address."""

Make = Callable[[View, Asked], Page]

STATUS: dict[type[Exception], int] = {
    NotFound: 404,
    FilesMerged: 503,
    LedgerDamaged: 500,
    Freed: 404,
    LakeError: 500,
    InvalidInput: 400,
    TooMany: 503,
    TooLong: 503,
    ReplayBusy: 503,
    CausewayError: 500,
    OSError: 500,
}
"""The status of each error; of several that fit, the first."""


class Explorer:
    """Answers for one lake or ledger."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._pages = Jobs("pages", PAGE_THREADS, PAGES_WAITING, PAGE_SECONDS)
        self._slow = Jobs("proofs and states", PROOF_THREADS, PROOFS_WAITING, PROOF_SECONDS)
        self._proofs = Proofs()
        self._kept: OrderedDict[tuple[str, str], tuple[str, str, int]] = OrderedDict()
        self._view: View | None = None
        self._name = safe_name(_last_part(live.place), 40)

    def application(self) -> ASGIApp:
        """Return the application."""
        own = self._page
        routes = [
            Route("/", own(lambda view, _: overview(view, self._live.head), ())),
            Route("/network", own(lambda view, _: network(view), ())),
            Route("/lanes", own(lanes, ("source", "destination", "sort", "page"))),
            Route("/lane", own(lane, (*LANE, "from"))),
            Route("/lane/time", own(lane_over_time, LANE, self._slow)),
            Route("/chain", own(chain, ("name",))),
            Route("/message", own(message, MESSAGE)),
            Route("/height", own(height, ("n", "chain"))),
            Route("/state", own(state, ("table", "height", "chain"), self._slow)),
            Route("/findings", own(findings, ("check", "page"))),
            Route("/search", self._search),
            Route("/proof", own(self._proof, (*MESSAGE, "offer"), self._slow)),
            Route("/proof.json", self._proof_file),
            Route("/live", self._is_new),
            Route("/static/{name}", self._static),
        ]
        handlers: dict[int | type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
            HTTPException: self._refused,
            Exception: self._unexpected,
        }
        return _Headers(Starlette(routes=routes, exception_handlers=handlers))

    # ---- answers

    def _page(
        self, make: Make, allowed: Sequence[str], jobs: Jobs | None = None
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            kept = self._kept_page(request)
            if kept is not None:
                return _html(request, *kept)
            # What is shown may be newer than this says, but never older: then it is made again once too often.
            serial = self.status().serial

            def made() -> tuple[str, int]:
                page = self._live.read(
                    lambda snapshot: make(self._view_of(snapshot), Asked(request.query_params, allowed))
                )
                return self._rendered(page), page.status

            try:
                _bounded(request)
                text, status = await (jobs or self._pages).run(made)
            except (CausewayError, OSError) as error:
                return self._failed(request, error)
            self._keep(request, serial, text, status)
            return _html(request, text, status)

        return answer

    async def _search(self, request: Request) -> Response:
        def made() -> tuple[str, str | None]:
            page, only = self._live.read(
                lambda snapshot: search(self._view_of(snapshot), Asked(request.query_params, ("q",)))
            )
            return self._rendered(page), only

        try:
            _bounded(request)
            text, only = await self._pages.run(made)
        except (CausewayError, OSError) as error:
            return self._failed(request, error)
        return _html(request, text, 200) if only is None else RedirectResponse(only, 303)

    def _proof(self, view: View, asked: Asked) -> Page:
        return proof_page(asked, self._proofs.of(view, asked))

    async def _proof_file(self, request: Request) -> Response:
        def made() -> tuple[bytes, str]:
            asked = Asked(request.query_params, (*MESSAGE, "offer", "part"))
            part = asked.word("part", ("proof", "trust"))
            proof = self._live.read(lambda snapshot: self._proofs.of(self._view_of(snapshot), asked))
            content = proof.document if part == "proof" else proof.trust
            return content, file_name(asked.message(), asked.number("offer", 16) or 0, part)

        try:
            _bounded(request)
            content, called = await self._slow.run(made)
        except (CausewayError, OSError) as error:
            return self._failed(request, error)
        fields = {"Content-Disposition": f'attachment; filename="{called}"'}
        return Response(content, 200, fields, "application/json")

    async def _is_new(self, request: Request) -> Response:
        status = self.status()
        tag = f'"{hashlib.sha256(status.serial.encode()).hexdigest()[:16]}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        snapshot, head = self._live.newest, self._live.head
        content = {
            "serial": status.serial,
            "state": status.state or "whole",
            "height": None if snapshot is None else snapshot.height,
            "head": head.height,
            "commit": None if snapshot is None else snapshot.watched.commit,
        }
        return JSONResponse(content, headers={"ETag": tag})

    async def _static(self, request: Request) -> Response:
        found = static_files().get(request.path_params["name"])
        if found is None:
            return self._failed(request, NotFound("no such file"))
        if request.headers.get("if-none-match") == f'"{found.tag}"':
            return Response(status_code=304, headers={"ETag": f'"{found.tag}"'})
        fields = {"ETag": f'"{found.tag}"', "Cache-Control": "max-age=31536000, immutable"}
        return Response(found.content, 200, fields, found.kind)

    async def _refused(self, request: Request, error: Exception) -> Response:
        code = error.status_code if isinstance(error, HTTPException) else 500
        what = {404: "There is no such page.", 405: "Only GET and HEAD are answered: the explorer changes nothing."}
        page = Page("Not answered", [_note("Not answered", what.get(code, "This is not answered."))], status=code)
        answer = _html(request, self._rendered(page), code)
        if isinstance(error, HTTPException) and error.headers:
            answer.headers.update(error.headers)
        return answer

    async def _unexpected(self, request: Request, error: Exception) -> Response:
        """Return the page about an error that nobody thought of; the server goes on."""
        text = f"Unexpected {type(error).__name__}: {readable(str(error))[:300]}"
        return _html(request, self._rendered(Page("Unexpected", [_note("Unexpected", text)], status=500)), 500)

    def _failed(self, request: Request, error: Exception) -> Response:
        """Return the page about an error; one while nothing was read yet says how far that is."""
        if isinstance(error, NothingYet):
            return self._waiting(request)
        status = next(status for kind, status in STATUS.items() if isinstance(error, kind))
        title = {404: "Not there", 400: "Not understood", 503: "Not now"}.get(status, "It cannot be read")
        text = readable(bad_place(error) or str(error))[:600]
        answer = _html(request, self._rendered(Page(title, [_note(title, text)], status=status)), status)
        if status == 503:
            answer.headers["Retry-After"] = "2"
        return answer

    def _waiting(self, request: Request) -> Response:
        """Return the page before anything was read: how far that is, or why it cannot be."""
        failure = self._live.failure
        if not failure:
            return _html(request, self._rendered(Page("Reading", [self._reading()])), 200)
        text = f"{failure}. It is tried again, and shown once it can be read."
        return _html(request, self._rendered(Page("Not readable", [_note("It cannot be read", text)])), 500)

    # ---- what they are made of

    def status(self) -> Status:
        """Return how far what is shown is."""
        snapshot, head, failure = self._live.newest, self._live.head, self._live.failure
        parts = [self._name]
        serial = ["-" if snapshot is None else str(snapshot.serial), failure]
        state = ""
        if head.height is not None:
            parts.append(f"height {count(head.height)}")
            serial.append(str(head.height))
            behind = snapshot is None or (snapshot.height or 0) < head.height
            moving = bool(head.rate)
            state = "behind" if behind else "live" if moving else ""
            if head.rate:
                parts.append(f"{count(round(head.rate))} messages a second")
                serial.append(str(round(head.rate)))
            if behind and snapshot is not None and snapshot.height is not None:
                parts.append(f"read up to height {count(snapshot.height)}")
        elif snapshot is not None:
            parts.append(
                f"commit {count(snapshot.watched.commit)}" if snapshot.watched.commit >= 0 else "nothing in it yet"
            )
        if snapshot is not None and snapshot.behind and snapshot.counted is not None:
            parts.append(f"figures as of {'commit' if head.height is None else 'height'} {count(snapshot.counted)}")
        if snapshot is None:
            serial.append(f"{self._live.progress} {self._live.waited}")
        if snapshot is not None and snapshot.watched.unread:
            text = "; ".join(
                f"bucket {bucket}: {readable(why)}" for bucket, why in [*snapshot.watched.unread.items()][:3]
            )
            failure = failure or f"Some of it cannot be read, and counts as it was last read. {text}"
        if failure:
            state = "failed"
        return Status("|".join(serial), state, parts, failure[:600])

    def _rendered(self, page: Page) -> str:
        snapshot = self._live.newest
        verdict = None if snapshot is None else self._view_of(snapshot).verdict
        return rendered(page, self._name, self.status(), verdict)

    def _view_of(self, snapshot: Snapshot) -> View:
        view = self._view
        if view is None or view.snapshot is not snapshot:
            self._view = view = View(snapshot, self._live.opened)
        return view

    def _reading(self) -> Part:
        """Return how far the first look is. What is at its first or last part has no share that says anything."""
        what, done, of = self._live.progress or ("rows read", 0, 0)
        share = {"max": of, "value": done} if 0 < done < of else {}
        bar = element("progress", {**share, "aria-label": what})
        said = f"{count(done)} of {count(of)} {what}, " if of else ""
        parts = [
            element("p", {}, "Reading the ledger for the first time."),
            bar,
            element("p", {}, f"{said}{self._live.waited} s so far."),
        ]
        return Part("reading", None, element("div", {"class": "waits"}, parts))

    def _kept_page(self, request: Request) -> tuple[str, int] | None:
        kept = self._kept.get((request.url.path, request.url.query))
        if kept is None or kept[0] != self.status().serial:
            return None
        return kept[1:]

    def _keep(self, request: Request, serial: str, text: str, status: int) -> None:
        if len(text) > KEPT_BYTES or status != 200:
            return
        key = (request.url.path, request.url.query)
        self._kept[key] = (serial, text, status)
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT_PAGES:
            self._kept.popitem(last=False)


class _Headers:
    """Adds to every answer what holds for all of them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._fields = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(field for field in self._fields if field[0] not in there)]
            await send(message)

        await self._app(scope, receive, sent)


def _bounded(request: Request) -> None:
    if len(request.scope["query_string"]) > MOST_QUERY:
        raise InvalidInput(f"the address asks for more than {MOST_QUERY:,} bytes")


def _html(request: Request, text: str, status: int) -> Response:
    content = text.encode()
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    if status == 200 and request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    return Response(content, status, {"ETag": tag}, "text/html; charset=utf-8")


def _note(title: str, text: str) -> Part:
    return Part("note", title, element("p", {"class": "lead"}, text))


def _last_part(place: str) -> str:
    path = urlsplit(place).path if "://" in place else place
    return path.rstrip("/").rpartition("/")[2] or place


__all__ = ["Explorer", "Head"]
