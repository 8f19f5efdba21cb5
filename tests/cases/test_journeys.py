"""Journeys of XCM messages: failed executions, equal hashes, and changing topics."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from tests.cases.recorded import Case, Judge

HOME, HUB, AWAY = "urn:ocn:polkadot:2004", "urn:ocn:polkadot:1000", "urn:ocn:polkadot:2034"
SECOND = 1_000


def event(what: str, topic: str | None, chain: str, block: int, at: int, content: str, **known: Any) -> dict[str, Any]:
    """Return an event of a message from ``HOME`` to ``AWAY``, as an observer emits it."""
    waypoint = {"chainId": chain, "blockNumber": str(block), "timestamp": 1_744_800_000_000 + at * SECOND}
    waypoint |= {"messageHash": content, "outcome": known.get("outcome", "Success")}
    ends = {"origin": {"chainId": known.get("origin", HOME)}, "destination": {"chainId": known.get("to", AWAY)}}
    return {"type": f"xcm.{what}", "messageId": topic, **ends, "waypoint": waypoint}


JOURNEYS = [
    event("sent", "0xfailed", HOME, 130, 300, "0x4"),
    event("received", "0xfailed", AWAY, 330, 330, "0x4", outcome="Fail"),
    # Two messages of one hash, without a topic.
    *(event("sent", None, HOME, 110 + n, 120 + 60 * n, "0xsame", to=HUB) for n in (0, 1)),
    *(event("received", None, HUB, 920 + n, 140 + 60 * n, "0xsame", to=HUB) for n in (0, 1)),
    # The hub sends the message on under a topic of its own.
    event("sent", "0xfirst", HOME, 101, 60, "0x2"),
    event("hop", "0xfirst", HUB, 905, 72, "0x2 on"),
    event("sent", "0xsecond", HUB, 905, 72, "0x2 on", origin=HUB),
    event("received", "0xsecond", AWAY, 305, 90, "0x2 on", origin=HUB),
    # The observer stopped waiting too early.
    event("sent", "0xlate", HOME, 140, 360, "0x5"),
    event("timeout", "0xlate", HOME, 140, 960, "0x5"),
    event("received", "0xlate", AWAY, 990, 8_000, "0x5"),
]


def lines(events: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(each) + "\n" for each in events)


CONTENT = lines(JOURNEYS)


def test_failed_messages_are_not_delivered_and_none_is_delivered_twice(judge: Judge) -> None:
    lanes = f"2 lanes incomplete: {HUB} -> {AWAY}, {HOME} -> {AWAY}"
    sentence = f"INCONCLUSIVE ({lanes}), 1 message failed to execute, 1 message carried on under a new id"
    reasons = {
        "delivery": {"failed": 1, "carried_on": 1},
        "exactly_once": {"timeout_observed_and_received": 1, "not_arrived": 1},
        "authenticity": {"content_unseen": 3},
    }
    judge.check(Case(sentence, 0, reasons, content=CONTENT, file="journeys.jsonl", kind="xcm-journeys", mapping=None))
    code, out, _ = judge.command("calls", judge.lake, "--json")
    outcomes = Counter(json.loads(line)["outcome"] for line in out.splitlines())
    assert code == 0 and outcomes["failed"] == 1


def test_message_is_followed_under_its_second_topic(judge: Judge) -> None:
    judge.ingest(CONTENT, "journeys.jsonl", "xcm-journeys", None)
    for topic in ("0xfirst", "0xsecond"):
        code, out, _ = judge.command("trace", judge.lake, topic, "--json")
        found = [(life["message_id"], life["continues"], life["outcome"]) for life in json.loads(out)["messages"]]
        assert code == 0
        assert found == [("0xfirst", None, "carried on by 0xsecond"), ("0xsecond", "0xfirst", "received")]


def test_message_continued_under_another_topic_is_not_overdue(judge: Judge) -> None:
    later = [
        event("sent", "0xnow", HOME, 9_000, 200_000, "0x9"),
        event("received", "0xnow", AWAY, 9_000, 200_030, "0x9"),
    ]
    judge.ingest(CONTENT + lines(later), "journeys.jsonl", "xcm-journeys", None)
    assert judge.audit("--check", "delivery")[1]["sentence"] == (
        "PASSED, 1 message failed to execute, 1 message carried on under a new id"
    )


def test_message_without_a_continuation_is_overdue(judge: Judge) -> None:
    later = [
        event("sent", "0xnow", HOME, 9_000, 200_000, "0x9"),
        event("received", "0xnow", AWAY, 9_000, 200_030, "0x9"),
    ]
    judge.ingest(
        lines([event("sent", "0xfirst", HOME, 101, 60, "0x2"), *later]), "journeys.jsonl", "xcm-journeys", None
    )
    assert judge.audit("--check", "delivery")[1]["sentence"] == "FAILED: 1 violation of delivery"
