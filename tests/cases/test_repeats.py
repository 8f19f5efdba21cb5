"""Repeated events: packet relays, deliveries after a reorganisation, partially filled deposits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cases.recorded import MAPPING, NUMBERED, TOGETHER, Case, Judge, Row

ANSWERED = '[[promises]]\npromise = "answered"\n'
PACKETS = MAPPING.replace('drop = "dropped"', 'relay = "relayed"\nanswer = "answered"')
FILLS = TOGETHER + NUMBERED + '[[promises]]\npromise = "conserved"\n'


def relayed(came: str, done: str) -> list[Row]:
    """Two relayers bring packet 2: its receipt and its acknowledgement are in two transactions each, and are executed
    once. The words that the mapping knows for a receipt and for its effect are ``came`` and ``done``."""
    at_right = {"chain": "right"}
    rows: list[Row] = []
    for n in (1, 2, 3):
        rows += [("lock", n, 10 * n, {"tx": f"s{n}"}), (came, n, 10 * n + 20, {"tx": f"r{n}", **at_right})]
        rows += [(done, n, 10 * n + 20, {"tx": f"r{n}", **at_right}), ("settle", n, 10 * n + 50, {"tx": f"a{n}"})]
    return [*rows, (came, 2, 43, {"tx": "r2 again", **at_right}), ("settle", 2, 75, {"tx": "a2 again"})]


LOGS = """
format = "jsonl"
stated_by = "logs"
[fields]
protocol = { text = "bridge" }
source = { text = "left" }
destination = { text = "right" }
lane = { text = "mailbox" }
index = "nonce"
chain = "chain"
height = "block"
block = { column = "blockHash", optional = true }
position = { column = "logIndex", optional = true }
time = { column = "at", unit = "s" }
transaction = "tx"
content = ["body"]
[[events]]
where = { name = "Dispatch" }
event = { text = "sent" }
[[events]]
where = { name = "Process", removed = "false" }
event = { text = "received" }
[[events]]
where = { name = "Process", removed = "true" }
event = { text = "reverted" }
detail = { text = "received" }
"""


def logs(*again: dict[str, Any], removed: bool = True) -> str:
    """Messages 315 to 317 are dispatched and processed, and a reorganisation removes the last two; the log of the
    processing of 316 is repeated with these members."""
    found = [log(name, n, at) for n, at in ((315, 30), (316, 32), (317, 34)) for name in ("Dispatch", "Process")]
    found += [{**log("Process", n, at), "removed": True} for n, at in ((316, 32), (317, 34)) if removed]
    return "".join(
        json.dumps(each) + "\n" for each in [*found, *({**log("Process", 316, 32), **more} for more in again)]
    )


def log(name: str, nonce: int, at: int) -> dict[str, Any]:
    chain, second = ("left", at - 30) if name == "Dispatch" else ("right", at)
    place = {"chain": chain, "block": 5000 + second, "at": 1_700_000_000 + second, "tx": f"{name} {nonce}"}
    return {"name": name, "nonce": nonce, **place, "removed": False, "body": str(nonce)}


def redelivered(content: str) -> Case:
    return Case(
        "INCONCLUSIVE (1 lane incomplete: left -> right mailbox), 1 message pending", 0,
        {"delivery": {"pending": 1}, "exactly_once": {"not_received": 1}},
        content=content, file="logs.jsonl", mapping=LOGS + TOGETHER + NUMBERED,
    )  # fmt: skip


CASES = {
    "a relay that changed nothing, with receipts and answers": Case(
        "PASSED, 2 redundant relays", 0, {"exactly_once": {"redundant_relay": 2}},
        relayed("mint", "answer"), mapping=PACKETS + TOGETHER + NUMBERED + ANSWERED,
    ),
    "a relay that changed nothing, with effects alone": Case(
        "PASSED, 1 redundant relay", 0, {"exactly_once": {"redundant_relay": 1}},
        relayed("relay", "mint"), mapping=PACKETS + TOGETHER + NUMBERED + ANSWERED,
    ),
    "a packet that was executed twice": Case(
        "FAILED: 3 violations of exactly_once", 1,
        {"exactly_once": {"executed_again": 1, "received_again": 1, "acknowledged_again": 1}},
        [*relayed("mint", "run"), ("run", 2, 43, {"tx": "r2 again"})],
        mapping=PACKETS + TOGETHER + NUMBERED + ANSWERED,
    ),
    "a delivery on the new branch, at another time": redelivered(logs({"at": 1_700_000_090})),
    "a delivery on the new branch, at the same place": redelivered(logs({})),
    "the same with the hash of the block": redelivered(logs({"blockHash": "0xnew"})),
    "the same at another position": redelivered(logs({"logIndex": 9})),
    "a row that is there twice is one": Case(
        "PASSED", 0, {}, content=logs({}, removed=False), file="logs.jsonl", mapping=LOGS + TOGETHER + NUMBERED,
    ),
    "a second delivery in another block": Case(
        "FAILED: 1 violation of exactly_once", 1, {"exactly_once": {"received_again": 1}},
        content=logs({"blockHash": "0xnew", "at": 1_700_000_090}, removed=False), file="logs.jsonl",
        mapping=LOGS + TOGETHER + NUMBERED,
    ),
    "a deposit that is filled in two parts": Case(
        "PASSED", 0, {"exactly_once": {"partial_receipt": 1}},
        [
            *(("lock", n, n, {"asset": "usdc", "amount": amount}) for n, amount in ((1, 1000), (2, 500))),
            *(("mint", 1, at, {"asset": "usdc", "amount": amount, "tx": at}) for at, amount in ((50, 600), (90, 400))),
            ("mint", 2, 70, {"asset": "usdc", "amount": 500}),
        ],
        mapping=MAPPING + FILLS,
    ),
    "a deposit that is filled too far": Case(
        "FAILED: 1 violation of exactly_once, 1 of conservation", 1,
        {"exactly_once": {"received_again": 1}, "conservation": {"more_received": 1}},
        [
            ("lock", 1, 1, {"asset": "usdc", "amount": 1000}),
            *(("mint", 1, at, {"asset": "usdc", "amount": amount, "tx": at}) for at, amount in ((50, 600), (90, 401))),
        ],
        mapping=MAPPING + FILLS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_repeated_events(name: str, judge: Judge) -> None:
    judge.check(CASES[name])
