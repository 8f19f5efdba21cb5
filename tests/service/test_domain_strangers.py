"""Untrusted submissions to domain lakes: each is rejected by name, and honest traffic continues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from causeway_proofs.errors import InvalidInput
from causeway_proofs.tendermint.validators import SigningKey
from causeway_proofs.xdm.envelope import CrossDomainMessage, ExecutionReceipt

from causeway.protocols.shared.limits import MAX_CALLS, MAX_TRANSACTION_BYTES
from causeway.protocols.xdm.operators import ChainSigners, block_signing_bytes
from causeway.protocols.xdm.transactions import (
    MAX_BLOCKS,
    Blocks,
    Confirmed,
    ConfirmedDomain,
    Receipts,
    RelayedMessages,
    SignedReceipt,
    Transaction,
    decode_transaction,
    encode_transaction,
)
from causeway.service.http.requests import NotFound
from causeway.service.xdm.relay_state import ChainPair
from tests.support.common.domain_lakes import DomainLakes, both, sending

BOTH_WAYS = {"near": sending("alice", "echo-right", 3, tick=6), "far": sending("bob", "echo-left", 3)}
STRANGER = SigningKey.from_name("stranger")
DRAWN = ChainSigners(5, needed=True)
"""The keys of the scenario's seed: those of the chains themselves."""


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DomainLakes]:
    """Return lakes with deliveries in both directions and continuing blocks."""
    with both(tmp_path_factory.mktemp("strangers"), BOTH_WAYS) as found:
        for _ in range(14):
            found.around()
        yield found


def direction(lakes: DomainLakes, name: str) -> ChainPair:
    return next(way for way in lakes.ends.directions if str(way) == name)


def handed_over(lakes: DomainLakes, kind: type[Transaction], chain: str) -> Any:
    """Return the last submitted transaction of a kind for a chain."""
    read = (decode_transaction(one.transaction) for one in reversed(lakes.submitted) if one.chain == chain)
    return next(one for one in read if isinstance(one, kind))


def new_rejections(lakes: DomainLakes, lake: str, chain: str, *transactions: Transaction) -> dict[str, int]:
    """Return the new reasons in a lake's events after transactions."""
    before = lakes.refusals(lake)
    for transaction in transactions:
        lakes.submit(lake, chain, encode_transaction(transaction))
    lakes.nodes[lake].produce()
    after = lakes.refusals(lake)
    return {name: count - before.get(name, 0) for name, count in after.items() if count > before.get(name, 0)}


# ---- blocks of the consensus chain


def test_unsigned_or_unlinked_blocks_are_rejected(lakes: DomainLakes) -> None:
    lakes.produce(2)
    known = lakes.views["far"].followed()["best"]
    found = lakes.read_blocks(known)
    assert len(found.headers) > 1
    last = found.headers[-1]

    def signed(blocks: Blocks) -> Blocks:
        """Return author-signed blocks, which require a stolen key."""
        return replace(blocks, signature=DRAWN._key("main").sign(block_signing_bytes("main", blocks.headers[-1].hash)))

    stranger = STRANGER.sign(block_signing_bytes("main", last.hash))
    assert new_rejections(lakes, "far", "main", replace(found, signature=stranger)) == {"BadSignature": 1}
    other = (*found.headers[:-1], replace(last, state_root=bytes(32)))
    assert new_rejections(lakes, "far", "main", replace(found, headers=other)) == {"BadSignature": 1}
    # Signed by the author as a domain's block, or on another author's blocks.
    wrong = replace(found, signature=DRAWN._key("main").sign(block_signing_bytes("left", last.hash)))
    assert new_rejections(lakes, "far", "main", wrong) == {"BadSignature": 1}
    gap = signed(Blocks((last,), b""))
    assert new_rejections(lakes, "far", "main", gap) == {"UnknownParent": 1}
    broken = signed(Blocks((replace(found.headers[0], state_root=bytes(32)), *found.headers[1:]), b""))
    assert new_rejections(lakes, "far", "main", broken) == {"UnknownParent": 1}
    first = found.headers[0]
    same = signed(Blocks((first, replace(last, parent=first.hash, number=first.number)), b""))
    assert new_rejections(lakes, "far", "main", same) == {"NumberNotAscending": 1}
    back = lakes.read_blocks(known - 2)
    again = signed(Blocks(back.headers[:1], b""))
    assert new_rejections(lakes, "far", "main", again) == {"Stale": 1}
    forked = signed(Blocks((replace(back.headers[0], state_root=bytes(32)),), b""))
    assert new_rejections(lakes, "far", "main", forked) == {"ConsensusForked": 1}
    assert lakes.views["far"].followed()["best"] == known
    assert new_rejections(lakes, "far", "main", found) == {"BlocksFollowed": 1}
    assert lakes.views["far"].followed()["best"] == last.number


def shown_of(lakes: DomainLakes, domain: str, receipt: bool = True, declared: bool = True) -> tuple[int, Any]:
    """Return the block to prove next to the following lake, and its domain contents."""
    anchor = lakes.views["near"].anchor(lakes.views["far"].followed()["final"], domain)
    nodes = [
        tuple(bytes.fromhex(node) for node in proof) if wanted else ()
        for wanted, proof in ((receipt, anchor["receipt"]["proof"]), (declared, anchor["declared"]))
    ]
    return anchor["block"], ConfirmedDomain(lakes.ends.place.domain(domain), *nodes)


def _known_blocks(followed: dict[str, Any], what: str) -> dict[str, int]:
    return {one["domain"]: one["block"] for one in followed[what]}


def test_domain_contents_of_a_final_block_are_proved(lakes: DomainLakes) -> None:
    lakes.around()
    final = lakes.views["far"].followed()["final"]
    lakes.produce(2)
    lakes.relay(direction(lakes, "blocks of main"))
    lakes.nodes["far"].produce()
    honest = handed_over(lakes, Confirmed, "main")
    followed = lakes.views["far"].followed()
    assert followed["final"] > final
    block, right = shown_of(lakes, "right")
    if _known_blocks(followed, "receipts") == {"right": block, "third": block}:
        assert new_rejections(lakes, "far", "main", honest) == {"Stale": 1}
        assert new_rejections(lakes, "far", "main", Confirmed(block + 1, (right,))) == {"BlockNotFinal": 1}
    lakes.produce(2)
    lakes.relay(direction(lakes, "receipts of right"))
    blocks = lakes.read_blocks(lakes.views["far"].followed()["best"])
    assert new_rejections(lakes, "far", "main", blocks) == {"BlocksFollowed": 1}
    block, right = shown_of(lakes, "right")
    _, third = shown_of(lakes, "third")
    for name in ("receipt", "declared"):
        proof = getattr(right, name)
        for row in range(len(proof)):
            nodes = tuple(sorted((*proof[:row], flipped(proof[row], len(proof[row]) - 1), *proof[row + 1 :])))
            bad = replace(right, **{name: nodes})
            assert new_rejections(lakes, "far", "main", Confirmed(block, (bad,))) == {"BadProof": 1}
        missing = replace(right, **{name: proof[1:]})
        assert new_rejections(lakes, "far", "main", Confirmed(block, (missing,))) == {"BadProof": 1}
        swapped = replace(right, **{name: getattr(third, name)})
        assert new_rejections(lakes, "far", "main", Confirmed(block, (swapped,))) == {"BadProof": 1}
    assert new_rejections(lakes, "far", "main", Confirmed(block, (replace(right, domain=0),))) == {"InvalidChain": 1}
    assert new_rejections(lakes, "far", "main", Confirmed(block, (right, right))) == {"InvalidChain": 1}
    assert new_rejections(lakes, "far", "main", Confirmed(block - 5, (right,))) in ({"Stale": 1}, {"BadProof": 1})
    # A carrier's omissions delay nothing permanently.
    _, part = shown_of(lakes, "right", declared=False)
    assert new_rejections(lakes, "far", "main", Confirmed(block, (part,))) == {"ReceiptsFollowed": 1}
    assert new_rejections(lakes, "far", "main", Confirmed(block, (part,))) == {"Stale": 1}
    followed = lakes.views["far"].followed()
    assert _known_blocks(followed, "receipts")["right"] == block > _known_blocks(followed, "declared")["right"]
    assert _known_blocks(followed, "receipts")["third"] < block, "of the other domain what was known is"
    lakes.relay(direction(lakes, "blocks of main"))
    lakes.nodes["far"].produce()
    followed = lakes.views["far"].followed()
    assert (
        _known_blocks(followed, "receipts") == _known_blocks(followed, "declared") == {"right": block, "third": block}
    )
    assert new_rejections(lakes, "far", "main", Confirmed(block, (right, third))) == {"Stale": 1}


@pytest.mark.parametrize(("comes", "shows"), [("first", "one domain"), ("last", "nothing")])
def test_incomplete_block_evidence_by_strangers_stops_nobody(tmp_path: Path, comes: str, shows: str) -> None:
    """Anyone may submit author-signed blocks and public proofs ahead of the relayers."""
    sends = {"near": sending("alice", "echo-right", 2), "far": sending("bob", "echo-third", 2, tick=1)}
    with both(tmp_path, sends) as lakes:
        lakes.produce()
        for _ in range(40):
            if comes == "first":
                _submit_ahead(lakes, shows)
            for way in lakes.ends.directions:
                lakes.relay(way)
            if comes == "last":
                _submit_ahead(lakes, shows)
            lakes.produce()
            if answered := [lakes.program(name)["answered"] for name in ("alice", "bob")] == [2, 2]:
                break
        assert lakes.refusals("far").get("Stale", 0) > 5, "the stranger's come into blocks"
        assert answered


def _submit_ahead(lakes: DomainLakes, shows: str) -> None:
    known = lakes.views["far"].followed()["best"]
    blocks = lakes.read_blocks(known)
    lakes.submit("far", "main", encode_transaction(blocks), relayer=66)
    best = blocks.headers[-1].number if blocks.headers else known
    if best is None or best < 4:
        return
    found = lakes.views["near"].anchor(best - 2, "right")
    proof = found["receipt"]["proof"] if found["receipt"] is not None and shows == "one domain" else []
    domain = ConfirmedDomain(lakes.ends.place.domain("right"), tuple(map(bytes.fromhex, proof)), ())
    lakes.submit("far", "main", encode_transaction(Confirmed(found["block"], (domain,))), relayer=66)


# ---- receipts


def test_unsigned_or_unlinked_receipts_are_rejected(lakes: DomainLakes) -> None:
    lakes.produce(2)
    known = lakes.views["near"].receipted("right")["number"]
    rows = lakes.views["far"].receipts("right", known)["receipts"]
    assert len(rows) > 1
    first, second = (
        SignedReceipt(1, bytes.fromhex(row["receipt"]), bytes.fromhex(row["signature"])) for row in rows[:2]
    )

    def signed(receipt: bytes, chain: str = "right") -> bytes:
        return DRAWN.receipt(chain, receipt)

    def altered(**fields: Any) -> SignedReceipt:
        """Return the next receipt with other content, signed by the operator."""
        decoded = ExecutionReceipt.decode(first.receipt)
        changed = replace(decoded, fields={**decoded.fields, **fields}).encode()
        return SignedReceipt(1, changed, signed(changed))

    def one(receipt: SignedReceipt) -> dict[str, int]:
        return new_rejections(lakes, "near", "main", Receipts((receipt,)))

    assert one(replace(first, signature=bytes(64))) == {"BadSignature": 1}
    assert one(replace(first, domain=2)) == {"BadSignature": 1}
    assert one(replace(first, signature=signed(first.receipt, "third"))) == {"BadSignature": 1}
    assert one(replace(first, domain=0, signature=signed(first.receipt, "left"))) == {"InvalidChain": 1}
    assert one(replace(first, domain=2**32 - 1)) == {"InvalidChain": 1}
    assert one(SignedReceipt(1, b"none", signed(b"none"))) == {"InvalidReceipt": 1}
    assert one(second) == {"UnknownParent": 1}
    assert one(altered(domain_block_number=known)) == {"Stale": 1}
    assert one(altered(consensus_block_hash=b"\x11" * 32)) == {"UnknownConsensusBlock": 1}
    assert one(altered(consensus_block_number=2**32 - 1)) == {"UnknownConsensusBlock": 1}
    transfers = ExecutionReceipt.decode(first.receipt).fields["transfers"]
    for foreign in ({"Domain": 1}, {"Domain": 3}, {"Domain": 2**32 - 1}):
        out = {**transfers, "transfers_out": [{"chain_id": foreign, "amount": 1}]}
        assert one(altered(transfers=out)) == {"InvalidReceipt": 1}
    assert lakes.views["near"].receipted("right")["number"] == known
    assert new_rejections(lakes, "near", "main", Receipts((first, second))) == {}
    assert lakes.views["near"].receipted("right")["number"] == rows[1]["number"]
    assert one(first) == {"Stale": 1}


def test_domain_withdraws_no_more_than_it_received(tmp_path: Path) -> None:
    """The operator signs an uncovered transfer: no later receipt is confirmed."""
    with both(tmp_path) as lakes:
        for _ in range(3):
            lakes.around()
        lakes.nodes["far"].produce()
        (row, *_) = lakes.views["far"].receipts("right", lakes.views["near"].receipted("right")["number"])["receipts"]
        decoded = ExecutionReceipt.decode(bytes.fromhex(row["receipt"]))
        out = {
            **decoded.fields["transfers"],
            "transfers_out": [{"chain_id": {"Domain": 0}, "amount": 10**12}],
        }
        false = replace(decoded, fields={**decoded.fields, "transfers": out}).encode()
        lakes.submit(
            "near", "main", encode_transaction(Receipts((SignedReceipt(1, false, DRAWN.receipt("right", false)),)))
        )
        lakes.produce()
        assert lakes.views["near"].receipted("right")["number"] == row["number"]
        for _ in range(6):
            lakes.around()
        assert lakes.refusals("near")["LowBalanceOnDomain"] == 1
        assert lakes.refusals("near")["UnknownParent"] >= 1
        found = lakes.views["near"].receipted("right")
        assert found["confirmed"] < row["number"]
        assert lakes.views["near"].receipted("third")["confirmed"] > row["number"]


# ---- envelopes


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


@pytest.mark.parametrize("target", ["left", pytest.param("right", marks=pytest.mark.slow)])
def test_envelope_with_one_altered_byte_is_rejected(tmp_path: Path, target: str) -> None:
    lake = {"left": "near", "right": "far"}[target]
    source = {"left": "right", "right": "left"}[target]
    sends = {"far": sending("bob", "echo-left")} if target == "left" else {"near": sending("alice", "echo-right")}
    with both(tmp_path, sends) as lakes:
        way = direction(lakes, f"{source}>{target}")
        taken: list[bytes] = []
        submit = lakes.submit

        def held_back(lake: str, chain: str, data: bytes, relayer: int = 1) -> Any:
            return taken.append(data) if chain == target else submit(lake, chain, data, relayer)

        setattr(lakes, "submit", held_back)  # noqa: B010 - what mypy does not let be assigned
        while not taken:
            lakes.around()
        setattr(lakes, "submit", submit)  # noqa: B010
        (envelope,) = decode_transaction(taken[0]).envelopes  # type: ignore[union-attr]
        places = range(0, len(envelope), max(1, len(envelope) // 60))
        bad = tuple(flipped(envelope, at) for at in places)
        before = lakes.views[lake].channels(target, source, None)["channels"]
        found = new_rejections(lakes, lake, target, RelayedMessages(bad, (False,) * len(bad)))
        decoded = CrossDomainMessage.decode(envelope)
        tag = sum(1 for one in bad if _differs_in_tag_alone(one, decoded))
        assert sum(found.values()) == len(bad) - tag
        assert set(found) <= {"BadProof", "FailedToDecode", "InvalidChain", "INVALID_CHANNEL", "IN_FUTURE_NONCE"}
        assert lakes.views[lake].channels(target, source, None)["channels"] == before or tag
        assert new_rejections(lakes, lake, target, RelayedMessages((envelope,), (True,))) == {"BadProof": 1}
        lakes.memories[str(way)].lanes.clear()
        lakes.until_idle()
        (row,) = lakes.views[lake].channels(target, source, None)["channels"]
        assert row["next_inbox"] == 1


def _differs_in_tag_alone(data: bytes, honest: CrossDomainMessage) -> bool:
    try:
        return replace(CrossDomainMessage.decode(data), weight_tag=honest.weight_tag) == honest
    except Exception:
        return False


def test_messages_a_chain_would_reject_are_rejected_before_queueing(lakes: DomainLakes) -> None:
    blocks = lakes.read_blocks(None)
    messages = RelayedMessages((b"none",), (False,))
    receipts = Receipts((SignedReceipt(1, b"none", bytes(64)),))
    for lake, chain, transaction in (
        ("near", "main", blocks),
        ("near", "left", blocks),
        ("near", "left", receipts),
        ("far", "right", receipts),
        ("far", "main", receipts),
        ("far", "main", messages),
    ):
        with pytest.raises(InvalidInput, match=f"{chain} takes"):
            lakes.submit(lake, chain, encode_transaction(transaction))
    with pytest.raises(InvalidInput, match="another lake runs left"):
        lakes.submit("far", "left", encode_transaction(messages))
    for data, text in (
        (b"", "transaction: it is empty"),
        (b"\xff", "SCALE"),
        (bytes(MAX_TRANSACTION_BYTES + 1), "at most"),
        (encode_transaction(RelayedMessages((), ())), "0 items"),
        (encode_transaction(RelayedMessages((b"",) * (MAX_CALLS + 1), (False,) * (MAX_CALLS + 1))), "201 items"),
        (encode_transaction(Blocks(blocks.headers[:1] * (MAX_BLOCKS + 1), blocks.signature)), "items"),
        (encode_transaction(messages) + b"\0", "SCALE"),
        (b"\x03\x02\x00\x00\x00\x80", "compact"),
    ):
        with pytest.raises(InvalidInput, match=text):
            lakes.submit("near", "left", data)
    assert new_rejections(lakes, "near", "left", messages) == {"FailedToDecode": 1}


def test_invalid_requests_are_reported_by_key(lakes: DomainLakes) -> None:
    near, far = lakes.views["near"], lakes.views["far"]
    for key, ask in (
        ("chain", lambda: near.channels("nowhere", "left", None)),
        ("counterparty", lambda: near.channels("left", "nowhere", None)),
        ("counterparty", lambda: far.messages("right", "nowhere", 1, [(0, False, 0)], 1)),
        ("domain", lambda: near.receipted("nowhere")),
        ("domain", lambda: near.anchor(2, "nowhere")),
        ("domain", lambda: near.anchor(2, "main")),
    ):
        with pytest.raises(InvalidInput, match=f"^{key}: "):
            ask()
    # Block 0 is known, and has no predecessor whose leaf could be proved.
    with pytest.raises(NotFound, match=r"^under: 0; main proves under blocks 1 to \d+"):
        near.anchor(0, None)
    assert near.anchor(1, None)["block"] == 0
