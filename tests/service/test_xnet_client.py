"""The client of remote subnets' nodes: requests, choice of nodes, and handling of bad answers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest
from causeway_proofs.errors import InvalidInput
from causeway_proofs.ic.primitives import principal_to_text
from causeway_proofs.ic.slice import CertifiedStreamSlice

from causeway.protocols.ic.streams.remote_slices import SliceReader
from causeway.protocols.ic.streams.slice_pool import SlicePool, StreamPosition
from causeway.service.ic.xnet_client import BODY_BYTES, FAULT_SECONDS, LONGEST, NodeChoice, RemoteNodes, XNetClient
from causeway.service.ic.xnet_endpoint import PROTOBUF, SliceTamperer, answer_request
from tests.support.ic.ic_streams import BEGIN, END, KEY, OWN, REMOTE, certified

PATH = f"/api/v1/stream/{principal_to_text(OWN)}"
Node = Callable[[httpx.Request], httpx.Response]


def honest(request: httpx.Request, **state: int) -> httpx.Response:
    reply = answer_request(certified(**state), request.url.path, request.url.query.decode())
    return httpx.Response(reply.status, content=reply.body, headers=dict(reply.headers))


def lying(liar: SliceTamperer) -> Node:
    def node(request: httpx.Request) -> httpx.Response:
        reply = answer_request(certified(), request.url.path, request.url.query.decode(), liar)
        return httpx.Response(reply.status, content=reply.body, headers=dict(reply.headers))

    return node


def down(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("nobody listens")


def of(
    content: bytes, status: int = 200, kind: str = PROTOBUF, encoding: str = "identity", where: str = "http://a:1/"
) -> Node:
    headers = {"content-type": kind, "content-encoding": encoding, "location": where}
    return lambda _: httpx.Response(status, content=content, headers=headers)


class Setting:
    """Client of a remote subnet with some nodes, on its own clock."""

    def __init__(self, nodes: Mapping[str, Node], position: int = BEGIN, seed: int = 1) -> None:
        self.nodes, self.now, self.asked = dict(nodes), 0.0, Counter[str]()
        reader = SliceReader({REMOTE: KEY.public_key()})
        self.pool = SlicePool(lambda remote, held: reader.verify(OWN, remote, held), slice_messages=6)
        self.pool.garbage_collect({REMOTE: StreamPosition(position, 1)})
        remote = RemoteNodes(REMOTE, KEY.public_key(), tuple(f"http://{name}:1" for name in nodes))
        transport = httpx.MockTransport(self._answer)
        self.client = XNetClient(
            OWN, self.pool, reader, {REMOTE: remote}, seed, transport=transport, clock=lambda: self.now
        )

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked[request.url.host] += 1
        self.now += 0.01
        return self.nodes[request.url.host](request)

    def pull(self, times: int = 1) -> list[bool]:
        async def pulls() -> list[bool]:
            return [await self.client.pull(REMOTE) for _ in range(times)]

        return asyncio.run(pulls())

    def run(self) -> tuple[int | None, int]:
        held = self.pool.pooled(REMOTE)
        return (None, 0) if held is None else (held.payload.messages_begin, len(held.payload.messages))

    @property
    def failures(self) -> dict[str, int]:
        return dict(self.client.pulled[REMOTE].failures)


def test_continuation_of_the_pooled_slice_is_requested_with_a_full_witness() -> None:
    seen: list[dict[str, Any]] = []

    def growing(request: httpx.Request) -> httpx.Response:
        seen.append(dict(request.url.params))
        return honest(request, end=BEGIN + 2 * len(seen))

    one = Setting({"a": growing})
    assert one.pull(3) == [True, True, True] and one.run() == (BEGIN, 6)
    assert [(int(each["witness_begin"]), int(each["msg_begin"]), int(each["msg_limit"])) for each in seen] == [
        (BEGIN, BEGIN, 6),
        (BEGIN, BEGIN + 2, 4),
        (BEGIN, BEGIN + 4, 2),
    ]
    assert one.pull() == [False] and len(seen) == 3, "the pool has no room"
    assert one.pool.take(REMOTE) is not None
    assert one.pull() == [True] and (int(seen[3]["msg_begin"]), one.run()) == (BEGIN + 6, (BEGIN + 6, 2))


def test_subnet_without_news_returns_nothing_and_no_node_is_penalized() -> None:
    one = Setting({"a": lambda request: honest(request, signals=9)}, END)
    assert one.pull(2) == [True, False], "signals are news once"
    one = Setting({"a": of(b"", 204)}, 1)
    assert one.pull() == [False] and one.failures == {}
    one = Setting({"a": of(b"", 204)})
    assert one.pull() == [False] and one.failures == {"NoStream": 1} and one.client.excluded_nodes(REMOTE) == []


@pytest.mark.parametrize(
    ("node", "cause"),
    [
        (down, "ConnectError"),
        (lying(SliceTamperer.create()), "RootHashMismatch"),
        (of(b"", 503), "Status503"),
        (of(b"", 302), "Status302"),
        (of(b"", 302, where="user@?]"), "Status302"),
        (of(b"", 301, where="https://xn--"), "Status301"),
        (of(b"x" * 1000), "MalformedProof"),
        (of(b"[]", kind="application/json"), "NoSlice"),
        (of(b"", encoding="gzip"), "Compressed"),
        (of(b"x" * (BODY_BYTES + 1)), "TooLong"),
    ],
)
def test_bad_answer_penalizes_the_node_and_another_is_asked(node: Node, cause: str) -> None:
    for seed in range(8):
        one = Setting({"bad": node, "good": honest}, seed=seed)
        assert one.pull(3)[0] and one.run() == (BEGIN, 6)
        assert one.asked["bad"] <= 1
        if one.asked["bad"]:
            assert one.failures == {cause: 1} and one.client.excluded_nodes(REMOTE) == ["http://bad:1"]
            return
    raise AssertionError("the bad node was never asked")


def test_unexpected_errors_are_reported_and_the_next_pull_asks_another_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Setting({"bad": honest, "good": honest})
    decode = one.client._reader.decode

    def broken(data: bytes) -> CertifiedStreamSlice:
        monkeypatch.setattr(one.client._reader, "decode", decode)
        raise IndexError("nobody thought of this")

    monkeypatch.setattr(one.client._reader, "decode", broken)
    with pytest.raises(IndexError):
        one.pull()
    assert one.failures == {"IndexError": 1} and len(one.client.excluded_nodes(REMOTE)) == 1
    assert one.pull() == [True] and one.run() == (BEGIN, 6) and set(one.asked.values()) == {1}
    one.now += FAULT_SECONDS
    assert one.client.excluded_nodes(REMOTE) == []


def test_values_set_by_a_node_are_neither_stored_nor_forwarded() -> None:
    told: list[str | None] = []

    def setting(request: httpx.Request) -> httpx.Response:
        told.append(request.headers.get("cookie"))
        return httpx.Response(204, headers={"set-cookie": f"number{len(told)}={'x' * 4000}"})

    Setting({"a": setting}).pull(3)
    assert told == [None] * 3


def test_lagging_node_is_skipped_without_penalty() -> None:
    one = Setting({"stale": lambda request: honest(request, end=BEGIN + 2), "good": honest}, BEGIN + 3)
    for _ in range(20):
        one.pull()
        one.pool.drop(REMOTE)
    assert one.failures == {"OutOfRange": one.asked["stale"]} and one.asked["stale"] > 3
    assert one.client.excluded_nodes(REMOTE) == []
    one = Setting({"stale": lambda request: honest(request, end=BEGIN + 3, signals=8), "good": honest})
    one.nodes["good"] = lambda request: honest(request, end=BEGIN + 3)
    while one.run()[1] == 0 or one.asked["good"] == 0:
        one.pool.drop(REMOTE)
        one.pull()
    held = one.pool.pooled(REMOTE)
    assert held is not None
    if held.payload.header.signals_end == 9:
        one.pull(10)
        assert set(one.failures) == {"SignalsEndRegresses"}


def test_slice_without_continuation_is_dropped_and_pulled_anew() -> None:
    one = Setting({"a": lambda request: honest(request, end=BEGIN + 4)})
    assert one.pull() == [True] and one.run() == (BEGIN, 4)
    one.nodes["a"] = lambda request: honest(request, begin=BEGIN + 1)
    one.pull()
    assert one.run() == (None, 0) and one.failures == {"OutOfRange": 1}


def test_request_size_shrinks_after_a_time_out_and_grows_on_success() -> None:
    asked: list[int] = []

    def slow(request: httpx.Request) -> httpx.Response:
        asked.append(int(request.url.params["msg_limit"]))
        if asked[-1] > 2:
            raise httpx.ReadTimeout("too slow")
        return honest(request)

    one = Setting({"a": slow})
    for _ in range(2):
        one.pull(2)  # skipped the second time
        one.now += 1.0
    one.pull()
    assert asked == [6, 3, 1] and one.run() == (BEGIN, 1)
    one.pull(2)
    assert asked[3:] == [2, 3]


def test_slow_nodes_are_given_up_after_the_deadline() -> None:
    async def never(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(30)

    async def pull() -> tuple[bool, Counter[str]]:
        reader = SliceReader({REMOTE: KEY.public_key()})
        pool = SlicePool(lambda remote, held: reader.verify(OWN, remote, held))
        remotes = {REMOTE: RemoteNodes(REMOTE, KEY.public_key(), ("http://slow:1",))}
        transport = httpx.ASGITransport(never)
        async with XNetClient(OWN, pool, reader, remotes, 1, transport=transport, deadline=0.05) as client:
            return await client.pull(REMOTE), client.pulled[REMOTE].failures

    assert asyncio.run(pull()) == (False, Counter({"TimeoutError": 1}))


def test_near_nodes_are_preferred_by_inverse_average_latency() -> None:
    choice = NodeChoice(["near", "far"], seed=3)
    for _ in range(50):
        choice.answered("near", 0.01)
        choice.answered("far", 0.03)
    first = Counter(next(choice.order(0.0)) for _ in range(2000))
    assert 2.6 < first["near"] / first["far"] < 3.4
    one, other = NodeChoice("abc", seed=5), NodeChoice("abc", seed=5)
    assert [list(one.order(0.0)) for _ in range(9)] == [list(other.order(0.0)) for _ in range(9)]


def test_failing_node_backs_off_and_is_restored_on_success() -> None:
    choice = NodeChoice(["a", "b"], seed=1)
    choice.failed("a", 0.0, 2.0)
    assert choice.bad(1.9) == ["a"] and list(choice.order(1.0)) == ["b"] and choice.bad(2.0) == []
    choice.failed("a", 10.0, 2.0)
    assert choice.bad(13.9) == ["a"] and choice.bad(14.0) == []
    for _ in range(40):
        choice.failed("a", 20.0, 2.0)
    assert choice.bad(20.0 + LONGEST * 2.0 - 1) == ["a"] and choice.bad(20.0 + LONGEST * 2.0) == []
    choice.failed("b", 20.0, 2.0)
    assert (choice.pause(21.5), choice.pause(22.5)) == (0.5, 0.0)
    assert list(choice.order(21.9)) == [] and list(choice.order(22.0)) == ["b"], "nobody before the first time is over"
    choice.answered("a", 0.01)
    choice.failed("a", 30.0, 2.0)
    assert choice.bad(32.0) == []


def test_node_addresses_are_validated() -> None:
    with pytest.raises(InvalidInput, match="no address of a node"):
        Setting({"a:b": down})
