"""Chains, messages, proofs and receipts with their SCALE encodings (2.1 to 2.4)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.spec.xdm.errors import FIELDS, DispatchError, XdmError
from tests.spec.xdm.scale import Reader, blob, compact, little, option, u128, u256, vec

Chain = int
CONSENSUS = -1
"""The consensus chain; a domain is its number. So consensus comes first in ascending order, as it does in SCALE."""
Key = tuple[Chain, int, int]
"""(foreign chain, channel, nonce), the key of all queues."""


@dataclass(frozen=True)
class ChannelOpen:
    """`relay_fee` is the fee model of a V0 payload; None in V1."""

    max_outgoing_messages: int
    relay_fee: int | None = None


@dataclass(frozen=True)
class ChannelClose:
    pass


@dataclass(frozen=True)
class EndpointRequest:
    src_endpoint: int
    dst_endpoint: int
    payload: bytes


@dataclass(frozen=True)
class CollectedFee:
    src_chain_fee: int
    dst_chain_fee: int


@dataclass(frozen=True)
class EndpointCall:
    """Endpoint(Request): the request and, in V1, what was collected for it."""

    req: EndpointRequest
    collected_fee: CollectedFee | None = None


@dataclass(frozen=True)
class ProtocolResponse:
    """None: Ok."""

    error: DispatchError | None = None


@dataclass(frozen=True)
class EndpointResponse:
    result: bytes | DispatchError


Payload = ChannelOpen | ChannelClose | EndpointCall | ProtocolResponse | EndpointResponse
Response = ProtocolResponse | EndpointResponse


@dataclass(frozen=True)
class Message:
    src: Chain
    dst: Chain
    channel_id: int
    nonce: int
    payload: Payload
    last_delivered: int | None = None
    version: int = 1


@dataclass(frozen=True)
class Tag:
    """MessageWeightTag: kind and, for the two of endpoints, which."""

    kind: int = 4
    endpoint: int | None = None


TAG_OPEN, TAG_CLOSE, TAG_NONE = Tag(0), Tag(1), Tag(4)


def request_tag(m: Message) -> Tag:
    """The tag that belongs to a request."""
    if isinstance(m.payload, ChannelOpen):
        return TAG_OPEN
    if isinstance(m.payload, ChannelClose):
        return TAG_CLOSE
    if isinstance(m.payload, EndpointCall):
        return Tag(2, m.payload.req.dst_endpoint)
    return TAG_NONE


def response_tag(request: Tag, response: Payload) -> Tag:
    """3.4, last line."""
    if request == TAG_OPEN and response == ProtocolResponse(None):
        return TAG_OPEN
    if request.kind == 2 and isinstance(response, EndpointResponse):
        return Tag(3, request.endpoint)
    return TAG_NONE


@dataclass(frozen=True)
class MmrProof:
    leaf_indices: tuple[int, ...]
    leaf_count: int
    items: tuple[bytes, ...]


@dataclass(frozen=True)
class ConsensusProof:
    """consensus_chain_mmr_proof."""

    consensus_block_number: int
    consensus_block_hash: bytes
    opaque_mmr_leaf: bytes
    proof: MmrProof


@dataclass(frozen=True)
class MmrLeaf:
    block_number: int
    block_hash: bytes
    state_root: bytes
    extrinsics_root: bytes


StorageProof = tuple[bytes, ...]


@dataclass(frozen=True)
class Proof:
    """Consensus without `domain_proof`, Domain with one (D-6)."""

    consensus: ConsensusProof
    domain_proof: StorageProof | None
    message_proof: StorageProof


@dataclass(frozen=True)
class CrossDomainMessage:
    src: Chain
    dst: Chain
    channel_id: int
    nonce: int
    proof: Proof
    tag: Tag


@dataclass(frozen=True)
class Bundle:
    """An inboxed bundle: Invalid(type, extrinsic) or Valid(hash)."""

    invalid: tuple[int, int] | None
    valid: bytes
    extrinsics_root: bytes


Amounts = Mapping[Chain, int]


@dataclass(frozen=True)
class Receipt:
    """An execution receipt (ER). What follows final_state_root is "..." in the reference: trace, fees and transfers
    stand in the deployed order, which the receipts of the fixtures fit to the byte."""

    domain_block_number: int
    domain_block_hash: bytes
    extrinsic_root: bytes
    parent_receipt_hash: bytes
    consensus_block_number: int
    consensus_block_hash: bytes
    final_state_root: bytes
    inboxed_bundles: tuple[Bundle, ...] = ()
    execution_trace: tuple[bytes, ...] = ()
    execution_trace_root: bytes = bytes(32)
    storage_fee: int = 0
    execution_fee: int = 0
    burned: int = 0
    rewards: Amounts = field(default_factory=dict)
    transfers_in: Amounts = field(default_factory=dict)
    transfers_out: Amounts = field(default_factory=dict)
    claimed: Amounts = field(default_factory=dict)
    rejected: Amounts = field(default_factory=dict)


# Encoding


def encode_chain(chain: Chain) -> bytes:
    return b"\0" if chain == CONSENSUS else b"\1" + little(chain, 4)


def encode_error(error: DispatchError) -> bytes:
    return bytes([error.index]) + error.fields


def encode_payload(payload: Payload, version: int) -> bytes:
    v = bytes([version])
    if isinstance(payload, ChannelOpen):
        fee = u128(payload.relay_fee or 0) if version == 0 else b""
        return v + b"\0\0\0" + little(payload.max_outgoing_messages, 4) + fee
    if isinstance(payload, ChannelClose):
        return v + b"\0\0\1"
    if isinstance(payload, ProtocolResponse):
        return v + b"\0\1" + (b"\0" if payload.error is None else b"\1" + encode_error(payload.error))
    if isinstance(payload, EndpointCall):
        q = payload.req
        data = b"\0" + little(q.src_endpoint, 8) + b"\0" + little(q.dst_endpoint, 8) + blob(q.payload)
        collected = payload.collected_fee or CollectedFee(0, 0)
        fees = u128(collected.src_chain_fee) + u128(collected.dst_chain_fee)
        return v + b"\1\0" + data + (fees if version else b"")
    if isinstance(payload.result, DispatchError):
        return v + b"\1\1\1" + encode_error(payload.result)
    return v + b"\1\1\0" + blob(payload.result)


def encode_message(m: Message) -> bytes:
    last = None if m.last_delivered is None else u256(m.last_delivered)
    ends = encode_chain(m.src) + encode_chain(m.dst)
    return ends + u256(m.channel_id) + u256(m.nonce) + encode_payload(m.payload, m.version) + option(last)


def encode_tag(tag: Tag) -> bytes:
    return bytes([tag.kind]) + (b"" if tag.endpoint is None else b"\0" + little(tag.endpoint, 8))


def encode_leaf(leaf: MmrLeaf) -> bytes:
    return b"\0" + little(leaf.block_number, 4) + leaf.block_hash + leaf.state_root + leaf.extrinsics_root


def encode_storage_proof(proof: StorageProof) -> bytes:
    return vec([blob(node) for node in proof])


def encode_proof(proof: Proof) -> bytes:
    c = proof.consensus
    mmr = vec([little(i, 8) for i in c.proof.leaf_indices]) + little(c.proof.leaf_count, 8) + vec(list(c.proof.items))
    head = little(c.consensus_block_number, 4) + c.consensus_block_hash + blob(c.opaque_mmr_leaf) + mmr
    if proof.domain_proof is None:
        return b"\0" + head + encode_storage_proof(proof.message_proof)
    return b"\1" + head + encode_storage_proof(proof.domain_proof) + encode_storage_proof(proof.message_proof)


def encode_xdm(x: CrossDomainMessage) -> bytes:
    ends = encode_chain(x.src) + encode_chain(x.dst)
    return ends + u256(x.channel_id) + u256(x.nonce) + encode_proof(x.proof) + encode_tag(x.tag)


def encode_amounts(amounts: Amounts) -> bytes:
    return compact(len(amounts)) + b"".join(encode_chain(c) + u128(amounts[c]) for c in sorted(amounts))


def encode_bundle(bundle: Bundle) -> bytes:
    if bundle.invalid is None:
        return b"\1" + bundle.valid + bundle.extrinsics_root
    kind, extrinsic = bundle.invalid
    return b"\0" + bytes([kind]) + little(extrinsic, 4) + bundle.extrinsics_root


def encode_receipt(r: Receipt) -> bytes:
    blocks = little(r.domain_block_number, 4) + r.domain_block_hash + r.extrinsic_root + r.parent_receipt_hash
    consensus = little(r.consensus_block_number, 4) + r.consensus_block_hash
    trace = vec(list(r.execution_trace)) + r.execution_trace_root
    fees = u128(r.storage_fee) + u128(r.execution_fee) + u128(r.burned) + encode_amounts(r.rewards)
    moves = b"".join(map(encode_amounts, (r.transfers_in, r.transfers_out, r.claimed, r.rejected)))
    bundles = vec([encode_bundle(b) for b in r.inboxed_bundles])
    return b"\0" + blocks + consensus + bundles + r.final_state_root + trace + fees + moves


# Decoding


def read_chain(r: Reader) -> Chain:
    return r.integer(4) if r.index(2) else CONSENSUS


def read_error(r: Reader) -> DispatchError:
    index = r.index(15)
    return DispatchError(index, r.take(FIELDS.get(index, 0)))


def read_endpoint(r: Reader) -> int:
    r.index(1)
    return r.integer(8)


def read_payload(r: Reader, version: int) -> Payload:
    endpoint, response = r.index(2), r.index(2)
    if response:
        failed = r.index(2)
        if endpoint:
            return EndpointResponse(read_error(r) if failed else r.blob())
        return ProtocolResponse(read_error(r) if failed else None)
    if endpoint:
        request = EndpointRequest(read_endpoint(r), read_endpoint(r), r.blob())
        return EndpointCall(request, CollectedFee(r.integer(16), r.integer(16)) if version else None)
    if r.index(2):
        return ChannelClose()
    return ChannelOpen(r.integer(4), None if version else r.integer(16))


def decode_message(data: bytes) -> Message:
    r = Reader(data)
    src, dst, channel, nonce, version = read_chain(r), read_chain(r), r.integer(32), r.integer(32), r.index(2)
    payload = read_payload(r, version)
    last = r.option(lambda: r.integer(32))
    r.end()
    return Message(src, dst, channel, nonce, payload, last, version)


def decode_leaf(data: bytes) -> MmrLeaf:
    r = Reader(data)
    r.index(1)
    leaf = MmrLeaf(r.integer(4), r.take(32), r.take(32), r.take(32))
    r.end()
    return leaf


def read_proof(r: Reader) -> Proof:
    domain = r.index(2)
    number, block, leaf = r.integer(4), r.take(32), r.blob()
    indices, count, items = r.vec(lambda: r.integer(8)), r.integer(8), r.vec(lambda: r.take(32))
    consensus = ConsensusProof(number, block, leaf, MmrProof(tuple(indices), count, tuple(items)))
    domain_proof = tuple(r.vec(r.blob)) if domain else None
    return Proof(consensus, domain_proof, tuple(r.vec(r.blob)))


def read_tag(r: Reader) -> Tag:
    kind = r.index(5)
    return Tag(kind, read_endpoint(r) if kind in (2, 3) else None)


def decode_xdm(data: bytes) -> CrossDomainMessage:
    r = Reader(data)
    src, dst, channel, nonce = read_chain(r), read_chain(r), r.integer(32), r.integer(32)
    x = CrossDomainMessage(src, dst, channel, nonce, read_proof(r), read_tag(r))
    r.end()
    return x


def read_amounts(r: Reader) -> dict[Chain, int]:
    return dict(r.vec(lambda: (read_chain(r), r.integer(16))))


def read_bundle(r: Reader) -> Bundle:
    if r.index(2):
        return Bundle(None, r.take(32), r.take(32))
    return Bundle((r.integer(1), r.integer(4)), b"", r.take(32))


def decode_receipt(data: bytes) -> Receipt:
    r = Reader(data)
    r.index(1)
    number, block, extrinsics, parent = r.integer(4), r.take(32), r.take(32), r.take(32)
    at, at_hash, bundles, root = r.integer(4), r.take(32), r.vec(lambda: read_bundle(r)), r.take(32)
    trace, trace_root = r.vec(lambda: r.take(32)), r.take(32)
    fees = r.integer(16), r.integer(16), r.integer(16), read_amounts(r)
    moves = read_amounts(r), read_amounts(r), read_amounts(r), read_amounts(r)
    r.end()
    head = (number, block, extrinsics, parent, at, at_hash, root)
    return Receipt(*head, tuple(bundles), tuple(trace), trace_root, *fees, *moves)


def require_receipt(data: bytes) -> Receipt:
    """A receipt as a proof shows it."""
    try:
        return decode_receipt(data)
    except XdmError as error:
        raise XdmError("BadProof") from error
