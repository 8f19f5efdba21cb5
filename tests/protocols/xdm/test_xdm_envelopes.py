"""Wire envelopes: equal to their tables, verified one by one, and rejected when altered."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.xdm.envelope import CrossDomainMessage, verify_cross_domain_message

from causeway.core.frame import Frame, concat, empty_frame
from causeway.network.opened_lake import OpenedLake, open_lake
from causeway.programs.runner import Programs
from causeway.protocols.contract import Tick
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.errors import MessageValidity
from causeway.protocols.xdm.kernel import XdmKernel
from causeway.protocols.xdm.options import XdmOptions
from causeway.protocols.xdm.relay.envelopes import decode_envelopes, encode_envelopes
from causeway.protocols.xdm.state import is_response
from causeway.protocols.xdm.tables import DECLARED_UNDER_SCHEMA
from causeway.protocols.xdm.validate import DeliveredEnvelopes, JudgedEnvelopes, read_envelopes, validate
from tests.support.xdm.xdm_lake import make_lake

CHAINS = range(3)
NOTHING_DECLARED = empty_frame(DECLARED_UNDER_SCHEMA)


@dataclass(frozen=True)
class ProvedHeight:
    """Proofs of a chain's operators at a height, and the recipients' knowledge of the others."""

    brought: DeliveredEnvelopes
    blocks: Frame
    channels: Frame
    next_channels: Frame
    context: Context

    def read(self, brought: DeliveredEnvelopes) -> JudgedEnvelopes:
        return read_envelopes(brought, self.blocks, NOTHING_DECLARED, self.channels, self.next_channels, self.context)

    def roots(self) -> dict[tuple[int, bytes], bytes]:
        """Return the root of the mountain range at each known block, by number and hash."""
        rows = zip(self.blocks["number"].tolist(), self.blocks["hash"], self.blocks["mmr_root"], strict=True)
        return {(number, digest.tobytes()): root.tobytes() for number, digest, root in rows}


def tables(opened: OpenedLake, height: int, name: str, chain: int) -> Frame:
    return opened.state_rows(opened.manifest(height), name, chain, lambda programs: programs)


@pytest.fixture(scope="module")
def proved_heights(tmp_path_factory: pytest.TempPathFactory) -> list[ProvedHeight]:
    opened = open_lake(make_lake(tmp_path_factory.mktemp("xdm")))
    kernel = XdmKernel(opened.topology, Programs(opened.topology), XdmOptions(**opened.options))
    found = []
    for height in range(opened.last_height()):
        frames = {
            name: concat([tables(opened, height, name, chain) for chain in CHAINS])
            for name in ("envelopes", "nodes", "bases", "blocks", "channels", "next_channels")
        }
        if not len(frames["envelopes"]):
            continue
        context = kernel.context(np.arange(3, dtype=np.uint32), Tick(height + 1, opened.manifest(height + 1).tick))
        brought = DeliveredEnvelopes(
            *(
                frames[name].with_columns(base=np.full(len(frames[name]), 4, dtype=np.uint64))
                for name in ("envelopes", "nodes", "bases")
            )
        )
        found.append(ProvedHeight(brought, frames["blocks"], frames["channels"], frames["next_channels"], context))
    assert sum(len(item.brought.envelopes) for item in found) == 24, "every request and every response, once"
    return found


def test_each_envelope_proves_its_message(proved_heights: list[ProvedHeight]) -> None:
    for item in proved_heights:
        raw = item.read(item.brought).raw.to_pylist()
        rows = item.brought.envelopes
        for value, body, response in zip(
            encode_envelopes(item.brought).to_pylist(), raw, is_response(rows["substream"]).tolist(), strict=True
        ):
            envelope = CrossDomainMessage.decode(value)
            assert envelope.encode() == value
            mmr = envelope.proof.consensus_chain_mmr_proof
            root = item.roots()[mmr.consensus_block_number, mmr.consensus_block_hash]
            message, _ = verify_cross_domain_message(root, envelope, response=response)
            assert message.encode() == body


def test_tables_match_the_wire_format(proved_heights: list[ProvedHeight]) -> None:
    for item in proved_heights:
        encoded = encode_envelopes(item.brought)
        responses = is_response(item.brought.envelopes["substream"])
        again, refused = decode_envelopes(encoded, responses)
        assert not refused.any()
        assert encode_envelopes(again).equals(encoded)
        for name in ("source", "destination", "substream", "index", "tag"):
            assert again.envelopes[name].tolist() == item.brought.envelopes[name].tolist(), name
        assert len(again.bases) == len(item.brought.bases)
        assert len(again.nodes) == len(item.brought.nodes)
        assert item.read(again).raw.equals(item.read(item.brought).raw)
        assert (validate(item.read(again)) == MessageValidity.VALID).all()


def test_envelopes_of_several_blocks_retain_their_bases(proved_heights: list[ProvedHeight]) -> None:
    values = pa.concat_arrays([encode_envelopes(item.brought) for item in proved_heights])
    responses = np.concatenate([is_response(item.brought.envelopes["substream"]) for item in proved_heights])
    order = np.random.default_rng(5).permutation(len(values))
    mixed, responses = values.take(pa.array(order)), responses[order]
    brought, refused = decode_envelopes(mixed, responses)
    assert not refused.any()
    assert len(brought.bases) > len(proved_heights[0].brought.bases)
    assert encode_envelopes(brought).equals(mixed)


def test_altered_bytes_are_never_accepted(proved_heights: list[ProvedHeight]) -> None:
    """An altered byte yields no other message, channel or nonce.

    The weight tag alone is outside every proof; it is decoded as written.
    """
    chance = random.Random(11)
    for item in proved_heights:
        rows = item.brought.envelopes
        values = encode_envelopes(item.brought).to_pylist()
        honest, responses = item.read(item.brought).raw.to_pylist(), is_response(rows["substream"])
        altered, owner = [], []
        for row, value in enumerate(values):
            for position in {chance.randrange(len(value)) for _ in range(24)}:
                altered.append(alter_byte(value, position, 1 << chance.randrange(8)))
                owner.append(row)
        brought, refused = decode_envelopes(pa.array(altered, pa.large_binary()), responses[owner])
        kept = np.flatnonzero(~refused)
        found = item.read(brought)
        good = validate(found) == MessageValidity.VALID
        for row, taken in zip(kept.tolist(), good.tolist(), strict=True):
            data = altered[row]
            if taken:
                assert differs_only_in_tag(values[owner[row]], data)
        assert found.raw.filter(pa.array(good)).to_pylist() == [honest[owner[row]] for row in kept[good].tolist()]
        for data, row in zip(altered, owner, strict=True):
            assert is_verified(item, data, bool(responses[row])) == differs_only_in_tag(values[row], data)


def alter_byte(value: bytes, position: int, bits: int) -> bytes:
    return value[:position] + bytes([value[position] ^ bits]) + value[position + 1 :]


def differs_only_in_tag(value: bytes, other: bytes) -> bool:
    """Return whether two envelopes differ only in the weight tag."""
    try:
        envelope = CrossDomainMessage.decode(other)
    except ProofError:
        return False
    return replace(envelope, weight_tag=CrossDomainMessage.decode(value).weight_tag).encode() == value


def is_verified(item: ProvedHeight, value: bytes, response: bool) -> bool:
    """Return whether an envelope verifies under the root of its named block."""
    try:
        envelope = CrossDomainMessage.decode(value)
        mmr = envelope.proof.consensus_chain_mmr_proof
        root = item.roots().get((mmr.consensus_block_number, mmr.consensus_block_hash))
        if root is None:
            return False
        verify_cross_domain_message(root, envelope, response=response)
    except ProofError:
        return False
    return True


def test_first_error_in_reference_order_is_reported(proved_heights: list[ProvedHeight]) -> None:
    """Channel and nonce are checked after the consensus leaf, and before the receipt and the message."""
    item = next(item for item in proved_heights if (item.brought.envelopes["source"] > 0).any())
    rows = item.brought.envelopes
    chosen = (rows["source"] > 0) & ~is_response(rows["substream"])
    encoded = encode_envelopes(item.brought).filter(pa.array(chosen))
    value = CrossDomainMessage.decode(encoded[0].as_py())
    of_receipt = value.proof.domain_proof
    assert of_receipt is not None
    bare = replace(value, proof=replace(value.proof, domain_proof=of_receipt[:-1]))
    mmr = replace(value.proof.consensus_chain_mmr_proof, opaque_mmr_leaf=b"")
    leafless = replace(bare, proof=replace(bare.proof, consensus_chain_mmr_proof=mmr))
    row = rows.filter(chosen).slice(0, 1)
    channels = item.channels
    come = (channels["chain"] == row["destination"]) & (channels["foreign"] == row["source"])
    after = channels.with_columns(next_inbox=np.where(come, row["index"] + np.uint64(1), channels["next_inbox"]))

    def told(envelope: CrossDomainMessage, channels: Frame = item.channels) -> int:
        brought, refused = decode_envelopes(pa.array([envelope.encode()], pa.large_binary()), np.zeros(1, dtype=bool))
        assert not refused.any()
        found = replace(item, channels=channels).read(brought)
        return int(validate(found)[0])

    assert told(value) == MessageValidity.VALID
    assert told(bare) == MessageValidity.BadProof
    assert told(bare, after) == MessageValidity.INVALID_NONCE
    assert told(replace(bare, channel_id=9)) == MessageValidity.INVALID_CHANNEL
    assert told(replace(leafless, channel_id=9), after) == MessageValidity.BadProof


def test_unreadable_envelopes_are_reported(proved_heights: list[ProvedHeight]) -> None:
    value = CrossDomainMessage.decode(encode_envelopes(proved_heights[0].brought)[0].as_py())
    mmr = value.proof.consensus_chain_mmr_proof

    def proving(**fields: Any) -> CrossDomainMessage:
        return replace(value, proof=replace(value.proof, consensus_chain_mmr_proof=replace(mmr, **fields)))

    cases = [
        replace(value, channel_id=1 << 63),
        replace(value, nonce=1 << 64),
        replace(value, nonce=1 << 255),
        proving(leaf_indices=()),
        proving(leaf_indices=(0, 1)),
    ]
    encoded = [case.encode() for case in cases] + [b"", value.encode() + b"\0"]
    _, refused = decode_envelopes(pa.array(encoded, pa.large_binary()), np.zeros(len(encoded), dtype=bool))
    assert refused.all()


def test_tables_without_an_envelope_form(proved_heights: list[ProvedHeight]) -> None:
    envelopes, nodes, bases = (
        proved_heights[0].brought.envelopes,
        proved_heights[0].brought.nodes,
        proved_heights[0].brought.bases,
    )
    first = envelopes["members"][0].as_py()
    for members, told in ((first + b"\0", "a part of a number"), (first[:4] * 2, "twice"), (b"\xff" * 4, "not")):
        other = envelopes.with_columns(members=pa.array([members] * len(envelopes), pa.binary()))
        with pytest.raises(InvalidInput, match=told):
            encode_envelopes(DeliveredEnvelopes(other, nodes, bases))
    with pytest.raises(InvalidInput, match="no row of bases"):
        encode_envelopes(DeliveredEnvelopes(envelopes, nodes, bases.slice(0, 0)))
