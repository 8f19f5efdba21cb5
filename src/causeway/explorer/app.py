"""The HTTP application of the explorer, and its server process.

Answers: pages of the latest snapshot, a poll for news, and proofs as files. Page work runs in threads with a limit of
parallel jobs, a bounded queue and a deadline. The socket is bound to this machine only; requests run in the main
thread's loop, the reader of the lake in other threads.
"""

from __future__ import annotations

import asyncio
import hashlib
import queue
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar
from urllib.parse import urlsplit

import uvicorn
from cachetools import LRUCache
from causeway_proofs.errors import CausewayError, InvalidInput, describe_os_error
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from causeway.core.text import to_one_line
from causeway.explorer.addresses import LANE, MESSAGE, PageRequest
from causeway.explorer.findings import findings_page, search_page
from causeway.explorer.frame import HEADERS, ExplorerPage, LiveStatus, PagePart, render_explorer_page, static_files
from causeway.explorer.height_page import height_page, state_page
from causeway.explorer.lane_page import lane_charts, lane_page
from causeway.explorer.live import LedgerSnapshot, LiveHead, LiveLedger, NothingYet
from causeway.explorer.message_page import ProofMaker, file_name, message_page, proof_page
from causeway.explorer.network_page import PageNotFound, chain_page, lanes_page, network_page
from causeway.explorer.overview import overview_page
from causeway.explorer.view import LedgerView
from causeway.ledger.commits import FilesMerged, LedgerDamaged
from causeway.network.replay import ReplayBusy
from causeway.report.elements import element, format_count, safe_name
from causeway.service.http.connections import ConnectionLimits, HttpConnection
from causeway.service.http.guard import HostGuard
from causeway.service.http.listening import ListeningSocket, ServerLoop, bind_socket
from causeway.storage.layout import Freed, LakeError

__all__ = [
    "Explorer",
    "LiveHead",
    "TooLong",
    "TooMany",
    "WorkerPool",
    "bind_loopback",
    "create_server",
    "serve_explorer",
    "socket_url",
]

JobResult = TypeVar("JobResult")


class TooMany(CausewayError):
    """The work queue is full; a temporary error."""


class TooLong(CausewayError):
    """A job missed its deadline."""


class WorkerPool:
    """A pool of daemon threads with a bounded queue and a deadline.

    Args:
        name: name of the work, for errors.
        threads: number of parallel jobs. The threads end with the process, even during a job.
        waiting: maximum number of queued jobs.
        seconds: deadline of a job, queueing included. Threads cannot be stopped: an overdue job keeps its thread, and
            its
            result is dropped.
    """

    def __init__(self, name: str, threads: int, waiting: int, seconds: float) -> None:
        self._name, self._seconds = name, seconds
        self._most = threads + waiting
        self._open = 0
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        for number in range(threads):
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True).start()

    async def run(self, work: Callable[[], JobResult]) -> JobResult:
        """Run a job and return its result, or raise its error.

        Raises:
            TooMany: the queue is full.
            TooLong: the job missed its deadline.
        """
        with self._lock:
            if self._open >= self._most:
                raise TooMany(f"{self._name}: {self._most} are under way, which is all that may be; come again")
            self._open += 1
        future: Future[JobResult] = Future()
        future.add_done_callback(self._done)
        self._queue.put((future, work))
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.shield(asyncio.wrap_future(future))
        except TimeoutError:
            future.cancel()
            raise TooLong(f"{self._name}: not done within {self._seconds:g} s; come again, or ask for less") from None
        except asyncio.CancelledError:
            future.cancel()
            raise

    def _done(self, future: Future[Any]) -> None:
        with self._lock:
            self._open -= 1

    def _work(self) -> None:
        while True:
            future, work = self._queue.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = work()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            del future, work


PAGE_SECONDS, PROOF_SECONDS = 30.0, 120.0
PAGE_THREADS, PROOF_THREADS = 4, 2
PAGES_WAITING, PROOFS_WAITING = 32, 8
"""Limits of pages, and of proofs or states: deadline in seconds, threads, queued jobs."""

CACHED_PAGES, KEPT_BYTES = 64, 1 << 20
"""Number of cached pages of a snapshot, and maximum size of one in bytes."""

MAX_QUERY = 8_192
"""Maximum bytes of the query of an address."""

PageMaker = Callable[[LedgerView, PageRequest], ExplorerPage]

ERROR_STATUS: dict[type[Exception], int] = {
    PageNotFound: 404,
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
"""HTTP status by error; the first match counts."""


class Explorer:
    """The application of one lake or ledger."""

    def __init__(self, live: LiveLedger) -> None:
        self._live = live
        self._pages = WorkerPool("pages", PAGE_THREADS, PAGES_WAITING, PAGE_SECONDS)
        self._slow = WorkerPool("proofs and states", PROOF_THREADS, PROOFS_WAITING, PROOF_SECONDS)
        self._proofs = ProofMaker()
        self._page_cache: LRUCache[tuple[str, str], tuple[str, str, int]] = LRUCache(CACHED_PAGES)
        self._view: LedgerView | None = None
        self._name = safe_name(_last_part(live.place), 40)

    def application(self) -> ASGIApp:
        """Return the application."""
        own = self._page
        routes = [
            Route("/", own(lambda view, _: overview_page(view, self._live.head), ())),
            Route("/network", own(lambda view, _: network_page(view), ())),
            Route("/lanes", own(lanes_page, ("source", "destination", "sort", "page"))),
            Route("/lane", own(lane_page, (*LANE, "from"))),
            Route("/lane/time", own(lane_charts, LANE, self._slow)),
            Route("/chain", own(chain_page, ("name",))),
            Route("/message", own(message_page, MESSAGE)),
            Route("/height", own(height_page, ("n", "chain"))),
            Route("/state", own(state_page, ("table", "height", "chain"), self._slow)),
            Route("/findings", own(findings_page, ("check", "page"))),
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

    # ---- requests

    def _page(
        self, make: PageMaker, allowed: Sequence[str], jobs: WorkerPool | None = None
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            cached = self._cached_page(request)
            if cached is not None:
                return _html(request, *cached)
            # The page may be newer than this serial, never older; at worst it is built once more.
            serial = self.status().serial

            def build() -> tuple[str, int]:
                page = self._live.read(
                    lambda snapshot: make(self._view_of(snapshot), PageRequest(request.query_params, allowed))
                )
                return self._rendered(page), page.status

            try:
                _bounded(request)
                text, status = await (jobs or self._pages).run(build)
            except (CausewayError, OSError) as error:
                return self._failed(request, error)
            if len(text) <= KEPT_BYTES and status == 200:
                self._page_cache[request.url.path, request.url.query] = (serial, text, status)
            return _html(request, text, status)

        return answer

    async def _search(self, request: Request) -> Response:
        def build() -> tuple[str, str | None]:
            page, only = self._live.read(
                lambda snapshot: search_page(self._view_of(snapshot), PageRequest(request.query_params, ("q",)))
            )
            return self._rendered(page), only

        try:
            _bounded(request)
            text, only = await self._pages.run(build)
        except (CausewayError, OSError) as error:
            return self._failed(request, error)
        return _html(request, text, 200) if only is None else RedirectResponse(only, 303)

    def _proof(self, view: LedgerView, query: PageRequest) -> ExplorerPage:
        return proof_page(query, self._proofs.of(view, query))

    async def _proof_file(self, request: Request) -> Response:
        def build() -> tuple[bytes, str]:
            asked = PageRequest(request.query_params, (*MESSAGE, "offer", "part"))
            part = asked.word("part", ("proof", "trust"))
            proof = self._live.read(lambda snapshot: self._proofs.of(self._view_of(snapshot), asked))
            content = proof.document if part == "proof" else proof.trust
            return content, file_name(asked.message(), asked.number("offer", 16) or 0, part)

        try:
            _bounded(request)
            content, called = await self._slow.run(build)
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
            return self._failed(request, PageNotFound("no such file"))
        if request.headers.get("if-none-match") == f'"{found.tag}"':
            return Response(status_code=304, headers={"ETag": f'"{found.tag}"'})
        fields = {"ETag": f'"{found.tag}"', "Cache-Control": "max-age=31536000, immutable"}
        return Response(found.content, 200, fields, found.kind)

    async def _refused(self, request: Request, error: Exception) -> Response:
        code = error.status_code if isinstance(error, HTTPException) else 500
        what = {404: "There is no such page.", 405: "Only GET and HEAD are answered: the explorer changes nothing."}
        page = ExplorerPage(
            "Not answered", [_note("Not answered", what.get(code, "This is not answered."))], status=code
        )
        answer = _html(request, self._rendered(page), code)
        if isinstance(error, HTTPException) and error.headers:
            answer.headers.update(error.headers)
        return answer

    async def _unexpected(self, request: Request, error: Exception) -> Response:
        """Return the page of an internal error; the server continues."""
        text = f"Unexpected {type(error).__name__}: {to_one_line(str(error))[:300]}"
        return _html(request, self._rendered(ExplorerPage("Unexpected", [_note("Unexpected", text)], status=500)), 500)

    def _failed(self, request: Request, error: Exception) -> Response:
        """Return the page of an error; before the first snapshot, the progress page."""
        if isinstance(error, NothingYet):
            return self._waiting(request)
        status = next(status for kind, status in ERROR_STATUS.items() if isinstance(error, kind))
        title = {404: "Not there", 400: "Not understood", 503: "Not now"}.get(status, "It cannot be read")
        text = to_one_line(describe_os_error(error) or str(error))[:600]
        answer = _html(request, self._rendered(ExplorerPage(title, [_note(title, text)], status=status)), status)
        if status == 503:
            answer.headers["Retry-After"] = "2"
        return answer

    def _waiting(self, request: Request) -> Response:
        """Return the page before the first snapshot: progress, or the reason of a failure."""
        failure = self._live.failure
        if not failure:
            return _html(request, self._rendered(ExplorerPage("Reading", [self._reading()])), 200)
        text = f"{failure}. It is tried again, and shown once it can be read."
        return _html(request, self._rendered(ExplorerPage("Not readable", [_note("It cannot be read", text)])), 500)

    # ---- snapshot and cache

    def status(self) -> LiveStatus:
        """Return the freshness of the snapshot."""
        snapshot, head, failure = self._live.newest, self._live.head, self._live.failure
        parts = [self._name]
        serial = ["-" if snapshot is None else str(snapshot.serial), failure]
        state = ""
        if head.height is not None:
            parts.append(f"height {format_count(head.height)}")
            serial.append(str(head.height))
            behind = snapshot is None or (snapshot.height or 0) < head.height
            moving = bool(head.rate)
            state = "behind" if behind else "live" if moving else ""
            if head.rate:
                parts.append(f"{format_count(round(head.rate))} messages a second")
                serial.append(str(round(head.rate)))
            if behind and snapshot is not None and snapshot.height is not None:
                parts.append(f"read up to height {format_count(snapshot.height)}")
        elif snapshot is not None:
            parts.append(
                f"commit {format_count(snapshot.watched.commit)}"
                if snapshot.watched.commit >= 0
                else "nothing in it yet"
            )
        if snapshot is not None and snapshot.behind and snapshot.counted is not None:
            parts.append(
                f"figures as of {'commit' if head.height is None else 'height'} {format_count(snapshot.counted)}"
            )
        if snapshot is None:
            serial.append(f"{self._live.progress} {self._live.waited}")
        if snapshot is not None and snapshot.watched.unread:
            text = "; ".join(
                f"bucket {bucket}: {to_one_line(why)}" for bucket, why in [*snapshot.watched.unread.items()][:3]
            )
            failure = failure or f"Some of it cannot be read, and counts as it was last read. {text}"
        if failure:
            state = "failed"
        return LiveStatus("|".join(serial), state, parts, failure[:600])

    def _rendered(self, page: ExplorerPage) -> str:
        snapshot = self._live.newest
        verdict = None if snapshot is None else self._view_of(snapshot).verdict
        return render_explorer_page(page, self._name, self.status(), verdict)

    def _view_of(self, snapshot: LedgerSnapshot) -> LedgerView:
        view = self._view
        if view is None or view.snapshot is not snapshot:
            self._view = view = LedgerView(snapshot, self._live.opened)
        return view

    def _reading(self) -> PagePart:
        """Return the progress of the first pass; its first and last step have no share."""
        what, done, of = self._live.progress or ("rows read", 0, 0)
        share = {"max": of, "value": done} if 0 < done < of else {}
        bar = element("progress", **share, aria_label=what)
        counts = f"{format_count(done)} of {format_count(of)} {what}, " if of else ""
        parts = [
            element("p", "Reading the ledger for the first time."),
            bar,
            element("p", f"{counts}{self._live.waited} s so far."),
        ]
        return PagePart("reading", None, element("div", parts, class_="waits"))

    def _cached_page(self, request: Request) -> tuple[str, int] | None:
        cached = self._page_cache.get((request.url.path, request.url.query))
        if cached is None or cached[0] != self.status().serial:
            return None
        return cached[1:]


class _Headers:
    """Middleware that adds the common headers to every answer."""

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
    if len(request.scope["query_string"]) > MAX_QUERY:
        raise InvalidInput(f"the address asks for more than {MAX_QUERY:,} bytes")


def _html(request: Request, text: str, status: int) -> Response:
    content = text.encode()
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    if status == 200 and request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    return Response(content, status, {"ETag": tag}, "text/html; charset=utf-8")


def _note(title: str, text: str) -> PagePart:
    return PagePart("note", title, element("p", text, class_="lead"))


def _last_part(place: str) -> str:
    path = urlsplit(place).path if "://" in place else place
    return path.rstrip("/").rpartition("/")[2] or place


HOST = "127.0.0.1"

MAX_REQUESTS = 64
"""Maximum number of parallel requests and connections; others are refused."""

GRACE = 3
"""Seconds for open requests when the server stops."""


def bind_loopback(port: int) -> ListeningSocket:
    """Bind a socket on this machine only; port 0: any free port.

    Args:
        port: the port.

    Returns:
        The bound socket.

    Raises:
        InvalidInput: the port is not available.
    """
    return bind_socket(HOST, port)


def socket_url(listening: socket.socket) -> str:
    """Return the URL of a socket.

    Args:
        listening: the socket.

    Returns:
        The URL.
    """
    return f"http://{HOST}:{listening.getsockname()[1]}/"


def create_server(live: LiveLedger) -> uvicorn.Server:
    """Create the server of a lake or ledger.

    Args:
        live: the followed lake or ledger.

    Returns:
        The server.
    """
    app = HostGuard(Explorer(live).application(), loopback=True)
    config = uvicorn.Config(
        ConnectionLimits(app, MAX_REQUESTS),
        http=HttpConnection,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
    )
    return uvicorn.Server(config)


def serve_explorer(live: LiveLedger, listening: ListeningSocket, started: Callable[[], None] = lambda: None) -> None:
    """Serve a lake or a ledger until SIGINT or SIGTERM; errors of the reader are raised.

    Args:
        live: the followed lake or ledger.
        listening: the bound socket.
        started: called once connections are accepted.
    """
    server = create_server(live)
    # A signal before uvicorn installs its handlers counts, too. uvicorn raises handled signals again at its end; these
    # are ignored.
    before = {number: signal.signal(number, server.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        listening.listen(server.config.backlog)  # clients may connect before the loop has started
        live.start()
        started()
        with asyncio.Runner(loop_factory=ServerLoop) as runner:
            runner.run(server.serve(sockets=[listening]))
    finally:
        live.close()
        for number, handler in before.items():
            signal.signal(number, handler)
    if live.broken is not None:
        raise live.broken
