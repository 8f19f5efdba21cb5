"""Available proofs of a message under all protocols: each offered proof verifies."""

from __future__ import annotations

import json

import pytest
from causeway_proofs.documents.trust import parse_trust
from causeway_proofs.documents.verification import parse_document, verify_document

import causeway as cw
from causeway.ledger.lake.names import LOCAL_LANES
from causeway.network.opened_lake import OpenedLake, open_lake
from causeway.protocols.registry import protocol_names
from causeway.proving.prover import ProvableMessage, find_offers, prove_offer


@pytest.fixture(scope="module", params=protocol_names("prover"))
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Make a lake in which programs of two chains called each other."""
    short = {"xdm": {"archiving_depth": 1, "challenge_period": 1}}.get(request.param, {})
    net = cw.Network(["left", "right"], [cw.Deploy("echo", chain="left")], protocol=request.param, options=short)
    for text in ("one", "two"):
        assert net.call("echo", "echo", text, sender="caller/right").result() == text.encode()
    place = tmp_path_factory.mktemp("offers") / "lake"
    net.export(str(place))
    return str(place)


def messages(place: str) -> list[ProvableMessage]:
    with cw.open(place) as opened:
        rows = opened.ledger.arrow().to_pylist()
    found: dict[tuple[str, str, int, int], dict[str, list[int]]] = {}
    for row in rows:
        if row["lane"] is not None and not row["lane"].startswith(LOCAL_LANES) and row["kind"] != "control":
            key = (row["source"], row["destination"], int(row["lane"]), row["index"])
            found.setdefault(key, {}).setdefault(row["event"], []).append(row["height"])
    return [
        ProvableMessage(*key, {event: sorted(of) for event, of in heights.items()}) for key, heights in found.items()
    ]


def test_every_offered_proof_of_a_message_between_chains_verifies(lake: str) -> None:
    opened = open_lake(lake)
    between = messages(lake)
    assert len(between) == 4  # two requests, two responses
    for message in between:
        offers = find_offers(opened, message)
        assert offers
        for offer in offers:
            found = prove_offer(opened, offer)
            document = parse_document(json.dumps(found.proved.document).encode(), "proof", {})
            assert verify_document(document, parse_trust(json.dumps(found.trust).encode(), "trust")).valid


def test_missing_message_has_no_proof(lake: str) -> None:
    opened = open_lake(lake)
    message = messages(lake)[0]
    beyond = ProvableMessage(message.source, message.destination, message.substream, 999, message.heights)
    for offer in find_offers(opened, beyond):
        with pytest.raises(cw.InvalidInput):
            prove_offer(opened, offer)


def test_missing_chains_have_no_offers(lake: str) -> None:
    opened: OpenedLake = open_lake(lake)
    assert find_offers(opened, ProvableMessage("left", "nowhere", 0, 0, {"committed": [1]})) == ()
    assert find_offers(opened, ProvableMessage("left", "left", 0, 0, {"committed": [1]})) == ()
