"""Request bodies: limits on their parts, and turns of clients."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from causeway_proofs.errors import InvalidInput
from hypothesis import given
from hypothesis import strategies as st

from causeway.service.http import bodies
from causeway.service.http.bodies import MAX_PARTS, BodyTurns, client_address, read_object

SOON = 0.05
"""Seconds."""

TEXTS = st.text(st.sampled_from('ab"\\\\[{,:'), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**70), 10**70) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def parts(value: Any) -> int:
    """Return the number of strings in a value, and of marks before its values."""
    if isinstance(value, dict):
        return 2 * len(value) + max(len(value), 1) + sum(map(parts, value.values()))
    if isinstance(value, list):
        return max(len(value), 1) + sum(map(parts, value))
    return int(isinstance(value, str))


@given(st.dictionaries(TEXTS, VALUES, max_size=6))
def test_small_bodies_are_parsed_unchanged(content: dict[str, Any]) -> None:
    data = json.dumps(content, separators=(",", ":")).encode()
    assert bodies._parts(data) == parts(content)
    assert read_object(data) == content


@pytest.mark.parametrize("mark", ["[]", "{}", "0", '""', '"\\\\"', '"\\""', '{"k":1}'])
def test_bodies_with_many_parts_are_rejected_before_parsing(mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "loads", lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(InvalidInput, match="more than 4000 names and values"):
        read_object(b'{"a":[' + b",".join([mark.encode()] * MAX_PARTS) + b"]}")


def test_long_text_is_one_part_whatever_its_content() -> None:
    text = '[{,:"\\' * 10_000
    assert read_object(json.dumps({"text": text}).encode()) == {"text": text}


@pytest.mark.parametrize("digits", ["9" * 81, "-" + "9" * 80, "0." + "1" * 79, "1e" + "0" * 79])
def test_long_number_is_rejected(digits: str) -> None:
    with pytest.raises(InvalidInput, match="at most 80 are allowed"):
        read_object(b'{"a":' + digits.encode() + b"}")


def test_turns_are_limited_per_client_and_in_total() -> None:
    async def run() -> list[str]:
        turns, order = BodyTurns(2), []

        async def take(client: str, seconds: float) -> None:
            end = await turns.begin(client)
            order.append(client)
            await asyncio.sleep(seconds)
            end()
            end()  # repetition is no error

        await asyncio.gather(*(take(client, SOON) for client in ("a", "a", "a", "b", "c")))
        return order

    assert asyncio.run(run()) == ["a", "b", "c", "a", "a"]


def test_cancelled_waiter_leaves_its_turn_to_others() -> None:
    async def run() -> None:
        turns = BodyTurns(1)
        end = await turns.begin("a")
        for client in ("a", "b"):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(SOON):
                    await turns.begin(client)
        end()
        (await turns.begin("b"))()
        (await turns.begin("a"))()

    asyncio.run(run())


@pytest.mark.parametrize("others", [("next", "last"), ("slow",)])
@pytest.mark.parametrize("early", [True, False])
def test_slow_body_is_hurried_once_others_wait(
    early: bool, others: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "HURRIED_BODY", SOON)

    async def run() -> None:
        turns = BodyTurns(1)
        end = await turns.begin("slow")
        waits = [asyncio.create_task(turns.begin(name)) for name in others] if early else []
        await asyncio.sleep(0)

        async def come() -> None:
            async with turns.coming("slow"):
                await asyncio.sleep(bodies.LONGEST_BODY)

        comes = asyncio.create_task(come())
        await asyncio.sleep(0)
        waits = waits or [asyncio.create_task(turns.begin(others[0]))]
        with pytest.raises(TimeoutError):
            await comes
        end()
        for wait in waits:
            (await wait)()

    asyncio.run(run())


def test_expired_body_can_no_longer_be_hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "LONGEST_BODY", SOON)
    hurried = []

    def hurry(turns: BodyTurns) -> None:
        (deadline,) = turns._coming
        turns._hurry(turns._coming)
        hurried.append(deadline.expired())

    async def run() -> None:
        turns = BodyTurns(1)
        end = await turns.begin("slow")

        async def come() -> None:
            async with turns.coming("slow"):
                (deadline,) = turns._coming
                # Run after the deadline and before the body is notified.
                asyncio.get_running_loop().call_at(deadline.when() or 0, hurry, turns)
                await asyncio.sleep(2 * SOON)

        with pytest.raises(TimeoutError):
            await come()
        assert hurried == [True]
        end()

    asyncio.run(run())


def test_client_is_an_address_or_a_network_prefix() -> None:
    def client(host: str) -> str:
        return client_address(SimpleNamespace(client=SimpleNamespace(host=host)))  # type: ignore[arg-type]

    assert client("192.0.2.1") != client("192.0.2.2")
    assert client("2001:db8::1") == client("2001:db8::ffff:0:0:1") != client("2001:db8:0:1::1")
    assert client("fe80::1%eth0") == "fe80::/64"
    for reported in ("a:b", "::x", "%:", "1:2:3:4:5:6:7:8:9"):  # by a proxy, whatever its client sent
        assert client(reported) == reported
