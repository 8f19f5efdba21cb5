"""Outcomes of relayed transactions by hash: rejections of the block with their items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from causeway_proofs.xdm.envelope import CrossDomainMessage

from causeway.protocols.xdm.transactions import Receipts, RelayedMessages, Transaction, encode_transaction
from tests.service.test_domain_strangers import handed_over
from tests.support.common.domain_lakes import DomainLakes, both, sending


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DomainLakes]:
    with both(tmp_path_factory.mktemp("outcomes"), {"far": sending("bob", "echo-left", 3)}) as found:
        while not any(one.chain == "left" for one in found.submitted):
            found.around()
        yield found


def rejection_outcomes(
    lakes: DomainLakes, lake: str, *carried: tuple[str, Transaction]
) -> list[list[tuple[str, str, int]]]:
    """Return reason, location and count of the rejections per transaction of one block."""
    names = [
        lakes.submit(lake, chain, encode_transaction(content), 2 + row).hash
        for row, (chain, content) in enumerate(carried)
    ]
    lakes.nodes[lake].produce()
    found: list[list[dict[str, Any]]] = [lakes.nodes[lake].outcome(name)["faults"] for name in names]
    assert all((one["program"], one["what"]) == ("", "refused") for faults in found for one in faults)
    return [[(one["why"], one["where"], one["count"]) for one in faults] for faults in found]


def test_messages_are_looked_up_by_lane_and_nonce(lakes: DomainLakes) -> None:
    taken = handed_over(lakes, RelayedMessages, "left")
    envelope = taken.envelopes[0]
    ahead = replace(CrossDomainMessage.decode(taken.envelopes[1]), nonce=40).encode()
    found = rejection_outcomes(
        lakes,
        "near",
        ("left", RelayedMessages((envelope,), (False,))),
        ("left", RelayedMessages((ahead, envelope), (False, True))),
        ("left", RelayedMessages((envelope, b"\x07"), (False, False))),
    )
    items = "request 0", "request 40", "response 0"
    first, tampered, response = (f"left: {item} of channel 0 from right" for item in items)
    # Items other than messages have no index: all who delivered to the chain in this block learn of them.
    unread = ("FailedToDecode", "left", 1)
    assert found == [
        [unread, ("INVALID_NONCE", first, 2)],
        [("BadProof", tampered, 1), ("BadProof", response, 1), unread],
        [unread, ("INVALID_NONCE", first, 2)],
    ]


def test_receipts_and_headers(lakes: DomainLakes) -> None:
    known = handed_over(lakes, Receipts, "main")
    nobody = Receipts((replace(known.receipts[0], domain=50),))
    stale, strange = rejection_outcomes(lakes, "near", ("main", known), ("main", nobody))
    domain = lakes.ends.place.chains[known.receipts[0].domain + 1]
    assert stale == [("Stale", f"main: receipt of {domain}", len(known.receipts))]
    assert strange == [("InvalidChain", "main: receipt", 1)]
    blocks = lakes.read_blocks(None)
    assert rejection_outcomes(lakes, "far", ("main", blocks)) == [[]]
    assert rejection_outcomes(lakes, "far", ("main", blocks)) == [[("Stale", "main", 1)]]


def test_user_messages_are_excluded(lakes: DomainLakes) -> None:
    """Include a key with a rejected delivery in the same block."""
    taken = lakes.send("near", {"to": "echo-left", "method": "x"})
    known = handed_over(lakes, RelayedMessages, "left")
    carried = lakes.submit("near", "left", encode_transaction(known), 9)
    lakes.nodes["near"].produce()
    assert lakes.nodes["near"].outcome(taken.hash)["faults"] == []
    assert lakes.nodes["near"].outcome(carried.hash)["faults"]
