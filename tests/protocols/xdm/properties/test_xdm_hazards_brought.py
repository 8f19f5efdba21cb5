"""Hazards 1 to 8, 16, 17 and 35 of section 6 of the reference: order, proofs, tags and bytes of deliveries.

On every engine. Test names carry the hazard number.
"""

from dataclasses import replace

import pytest

from tests.spec.xdm.errors import XdmError
from tests.spec.xdm.keys import outbox_key
from tests.spec.xdm.options import MAX_FUTURE_ALLOWED_NONCES, Options
from tests.spec.xdm.proofs import Kind, read_message
from tests.spec.xdm.trie import Trie
from tests.spec.xdm.values import (
    CONSENSUS,
    TAG_NONE,
    Chain,
    ChannelOpen,
    ConsensusProof,
    CrossDomainMessage,
    Message,
    MmrProof,
    Proof,
    Tag,
    decode_message,
    decode_xdm,
    encode_message,
    encode_xdm,
)
from tests.support.xdm.properties.xdm_engines import Engine
from tests.support.xdm.properties.xdm_hazards import (
    FAST,
    ONE_WAY,
    ROUND_TRIP,
    Make,
    opened,
    refusals,
    results,
    rows,
    sound,
)
from tests.support.xdm.properties.xdm_hazards import every_engine as every_engine
from tests.support.xdm.properties.xdm_networks import ALICE


def test_01_message_relayed_by_ten_is_processed_once(make: Make) -> None:
    e = opened(make, relayers_each=10)
    e.send(0, 1, b"once")
    e.step(ROUND_TRIP)
    assert [row.nonce for row in rows(e, "InboxMessage", 1)] == [0, 1]
    assert len(refusals(e, 1)) == 18
    assert set(refusals(e, 1)) <= {"Stale", "Custom(201)"}
    sound(e)


@pytest.mark.parametrize("inbox", ["stored", "pool"])
def test_02_out_of_order_is_executed_in_order(make: Make, inbox) -> None:
    e = opened(make, replace(FAST, inbox=inbox))
    e.relaying(False)
    for _ in range(3):
        e.send(0, 1, b"x")
    e.step(ONE_WAY)
    for nonce in (3, 1, 2):
        assert e.deliver("request", e.proof("request", 0, 1, 0, nonce)) == []
    e.step()
    assert [row.nonce for row in rows(e, "InboxMessage", 1)] == [0, 1, 2, 3]
    e.relaying(True)
    e.step(ROUND_TRIP)
    assert results(e, 0) == ["Ok"] * 4
    sound(e)


def test_03_maximum_future_nonce(make: Make) -> None:
    e = opened(make, replace(FAST, max_outgoing_messages=MAX_FUTURE_ALLOWED_NONCES + 4))
    e.relaying(False)
    for _ in range(MAX_FUTURE_ALLOWED_NONCES + 2):
        e.send(0, 1, b"")
    e.step(ONE_WAY)
    next_nonce = e.channel(1, 0, 0).next_inbox_nonce
    furthest = e.proof("request", 0, 1, 0, next_nonce + MAX_FUTURE_ALLOWED_NONCES)
    beyond = e.proof("request", 0, 1, 0, next_nonce + MAX_FUTURE_ALLOWED_NONCES + 1)
    assert e.deliver("request", furthest, beyond) == ["Custom(204)"]


def early_request(make: Make, domains: int = 2) -> tuple[Engine, CrossDomainMessage]:
    """Return an honest undelivered item."""
    e = opened(make, domains=domains)
    e.relaying(False)
    e.send(0, 1, b"x")
    e.step(ONE_WAY)
    return e, e.proof("request", 0, 1, 0, 1)


@pytest.mark.parametrize("src", [2, CONSENSUS])
def test_04_changed_source_is_rejected(make: Make, src: Chain) -> None:
    e, x = early_request(make, 3)
    assert e.deliver("request", replace(x, src=src, nonce=0)) == ["BadProof"]
    assert e.deliver("request", replace(x, src=src)) == ["BadProof"]
    if e.misdelivers:
        assert e.deliver("request", replace(x, dst=CONSENSUS), to=1) == ["InvalidCall"]
    assert e.deliver("request", replace(x, nonce=2)) == ["BadProof"]
    assert e.deliver("request", replace(x, channel_id=1, nonce=1)) == ["BadProof"]
    assert e.deliver("request", x) == []


def test_05_domain_with_a_consensus_proof(make: Make) -> None:
    e, x = early_request(make)
    assert e.deliver("request", replace(x, proof=replace(x.proof, domain_proof=None))) == ["BadProof"]
    assert e.deliver("request", replace(x, proof=replace(x.proof, domain_proof=()))) == ["BadProof"]


@pytest.mark.parametrize("part", ["domain_proof", "message_proof"])
def test_06_extra_missing_or_repeated_node(make: Make, part: str) -> None:
    e, x = early_request(make)
    nodes = getattr(x.proof, part)
    extra = b"\x41\x01\x04\x07"
    for wrong in ((*nodes, extra), nodes[:-1], nodes[1:], (*nodes, nodes[-1]), sorted((*nodes, extra))):
        proof = replace(x.proof, **{part: tuple(wrong)})  # type: ignore[arg-type]
        changed = replace(x, proof=proof)
        assert e.deliver("request", changed) == ["BadProof"]
    assert e.deliver("request", x) == []


def test_07_expired_root(make: Make) -> None:
    """With 20 known roots instead of 1024; to consensus, proofs may use the latest block."""
    assert Options().mmr_roots == 1024
    e = opened(make, replace(FAST, mmr_roots=20, max_outgoing_messages=9), 0, CONSENSUS)
    e.relaying(False)
    e.send(0, CONSENSUS, b"x")
    e.send(0, CONSENSUS, b"y")
    e.step(ONE_WAY)
    first, second = (e.proof("request", 0, CONSENSUS, 0, nonce) for nonce in (1, 2))
    e.step(19)
    assert e.deliver("request", first) == []
    assert e.deliver("request", second) == ["BadProof"]
    assert e.deliver("request", e.proof("request", 0, CONSENSUS, 0, 2)) == []
    assert [row.nonce for row in rows(e, "InboxMessage", CONSENSUS)] == [0, 1, 2]


def test_08_unconfirmed_receipt(make: Make) -> None:
    e = opened(make)
    e.relaying(False)
    e.send(0, 1, b"x")
    e.step()
    assert e.deliver("request", e.proof("request", 0, 1, 0, 1, unconfirmed=True)) == ["BadProof"]
    assert e.channel(1, 0, 0).next_inbox_nonce == 1


def altered_tags(data: bytes, kind: Kind, dst: Chain, relayer: str) -> list[tuple[int, bytes]]:
    x = decode_xdm(data)
    return [(0, encode_xdm(replace(x, tag=Tag(3, 99))) if kind == "response" else data)]


@pytest.mark.parametrize("trust", ["off", "on"])
def test_16_altered_tag_on_a_response(make: Make, trust) -> None:
    e = opened(make, replace(FAST, trust_tag=trust))
    e.gossip(altered_tags)
    before = e.balance(0, ALICE)
    e.transfer(0, 1, b"no account", 100)
    e.step(ROUND_TRIP)
    assert results(e, 0) == ["Ok", "InvalidAccountId"]
    fees = sum(row.src_fee + row.dst_fee for row in rows(e, "OutboxMessage", 0))
    delivered = rows(e, "OutboxMessageResult", 0)[-1].result
    if trust == "off":
        assert delivered == "Ok" and e.balance(0, ALICE) == before - fees
    else:
        assert delivered == "WeightTagNotMatch" and e.balance(0, ALICE) == before - fees - 100
        assert e.cancelled(0, 1) == 100
    sound(e)


@pytest.mark.parametrize("tag", ["with_src", "without_src"])
def test_17_two_sources_of_one_channel_id(make: Make, tag) -> None:
    e = make(replace(FAST, pool_tag=tag), domains=3)
    e.relaying(False)
    e.initiate(0, 2)
    e.initiate(1, 2)
    e.step(ONE_WAY)
    refused = e.deliver("request", e.proof("request", 0, 2, 0, 0), e.proof("request", 1, 2, 0, 0))
    assert refused == ([] if tag == "with_src" else ["Stale"])
    assert [row.foreign for row in rows(e, "InboxMessage", 2)] == ([0, 1] if tag == "with_src" else [0])
    assert len({row.block for row in rows(e, "InboxMessage", 2)}) == 1


def test_35_bytes_other_than_messages() -> None:
    good = encode_message(Message(0, 1, 0, 0, ChannelOpen(25)))
    unknown = good[:74] + b"\2" + good[75:]
    head = ConsensusProof(1, bytes(32), b"", MmrProof((), 0, ()))
    for wrong in (unknown, good + b"\0", good[:-1]):
        with pytest.raises(XdmError, match="FailedToDecode"):
            decode_message(wrong)
        trie = Trie({outbox_key(1, 0, 0): wrong})
        x = CrossDomainMessage(0, 1, 0, 0, Proof(head, None, trie.prove(outbox_key(1, 0, 0))), TAG_NONE)
        with pytest.raises(XdmError, match="BadProof"):
            read_message(1, trie.root, x, "request", True)
