"""Cross-domain messages and their SCALE types (XDM reference 2.1 to 2.4).

Outboxes and the responses of inboxes hold these messages. The dataclasses mirror the deployed types; ``Message.encode``
and ``Message.decode`` are the only conversions to and from bytes, for both payload layouts, V0 and V1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from causeway_proofs.errors import InvalidInput
from causeway_proofs.substrate.scale import ScaleTypes, parse_definitions, struct

_DEFINITIONS = """
enum ChainId { Consensus, Domain(u32) }
enum Endpoint { Id(u64) }
// Errors of runtime calls; the order of variants is their index.
struct ModuleError { index: u8, error: [u8; 4] }
enum TokenError { FundsUnavailable, OnlyProvider, BelowMinimum, CannotCreate, UnknownAsset, Frozen, Unsupported,
    CannotCreateHold, NotExpendable, Blocked }
enum ArithmeticError { Underflow, Overflow, DivisionByZero }
enum TransactionalError { LimitReached, NoLayer }
enum TrieError { InvalidStateRoot, IncompleteDatabase, ValueAtIncompleteKey, DecoderError, InvalidHash, DuplicateKey,
    ExtraneousNode, ExtraneousValue, ExtraneousHashReference, InvalidChildReference, ValueMismatch, IncompleteProof,
    RootMismatch, DecodeError }
enum DispatchError { Other, CannotLookup, BadOrigin, Module(ModuleError), ConsumerRemaining, NoProviders,
    TooManyConsumers, Token(TokenError), Arithmetic(ArithmeticError), Transactional(TransactionalError), Exhausted,
    Corruption, Unavailable, RootNotAllowed, Trie(TrieError) }
enum ProtocolResult { Ok, Err(DispatchError) }
enum EndpointResult { Ok(Vec<u8>), Err(DispatchError) }
struct FeeModel { relay_fee: u128 }
struct ChannelParamsV0 { max_outgoing_messages: u32, fee_model: FeeModel }
struct ChannelParamsV1 { max_outgoing_messages: u32 }
enum ProtocolRequestV0 { ChannelOpen(ChannelParamsV0), ChannelClose }
enum ProtocolRequestV1 { ChannelOpen(ChannelParamsV1), ChannelClose }
struct EndpointRequest { src_endpoint: Endpoint, dst_endpoint: Endpoint, payload: Vec<u8> }
struct CollectedFee { src_chain_fee: u128, dst_chain_fee: u128 }
struct EndpointRequestWithFee { req: EndpointRequest, collected_fee: CollectedFee }
enum ProtocolV0 { Request(ProtocolRequestV0), Response(ProtocolResult) }
enum ProtocolV1 { Request(ProtocolRequestV1), Response(ProtocolResult) }
enum EndpointV0 { Request(EndpointRequest), Response(EndpointResult) }
enum EndpointV1 { Request(EndpointRequestWithFee), Response(EndpointResult) }
enum PayloadV0 { Protocol(ProtocolV0), Endpoint(EndpointV0) }
enum PayloadV1 { Protocol(ProtocolV1), Endpoint(EndpointV1) }
enum VersionedPayload { V0(PayloadV0), V1(PayloadV1) }
struct Message { src_chain_id: ChainId, dst_chain_id: ChainId, channel_id: u256, nonce: u256,
    payload: VersionedPayload, last_delivered_message_response_nonce: Option<u256> }
// Storage keys of messages and channels, behind the prefix of their item (2.4).
struct MessageKey { chain_id: ChainId, channel_id: u256, nonce: u256 }
struct ChannelKey { chain_id: ChainId, channel_id: u256 }
enum MessageWeightTag { ProtocolChannelOpen, ProtocolChannelClose, EndpointRequest(Endpoint),
    EndpointResponse(Endpoint), None }
enum ChannelState { Initiated, Open, Closed }
struct MmrProof { leaf_indices: Vec<u64>, leaf_count: u64, items: Vec<H256> }
struct ConsensusChainMmrLeafProof { consensus_block_number: u32, consensus_block_hash: H256, opaque_mmr_leaf: Vec<u8>,
    proof: MmrProof }
struct ConsensusProof { consensus_chain_mmr_proof: ConsensusChainMmrLeafProof, message_proof: BTreeSet<Vec<u8>> }
struct DomainProof { consensus_chain_mmr_proof: ConsensusChainMmrLeafProof, domain_proof: BTreeSet<Vec<u8>>,
    message_proof: BTreeSet<Vec<u8>> }
enum Proof { Consensus(ConsensusProof), Domain(DomainProof) }
struct CrossDomainMessage { src_chain_id: ChainId, dst_chain_id: ChainId, channel_id: u256, nonce: u256, proof: Proof,
    weight_tag: MessageWeightTag }
struct MmrLeafV0 { block_number: u32, block_hash: H256, state_root: H256, extrinsics_root: H256 }
enum MmrLeaf { V0(MmrLeafV0) }
enum InvalidBundleType { UndecodableTx(u32), OutOfRangeTx(u32), IllegalTx(u32), InvalidXDM(u32),
    InherentExtrinsic(u32), InvalidBundleWeight }
enum BundleValidity { Invalid(InvalidBundleType), Valid(H256) }
struct InboxedBundle { bundle: BundleValidity, extrinsics_root: H256 }
struct ChainAmount { chain_id: ChainId, amount: u128 }
struct BlockFees { consensus_storage_fee: u128, domain_execution_fee: u128, burned_balance: u128,
    chain_rewards: SortedVec<ChainAmount> }
struct Transfers { transfers_in: SortedVec<ChainAmount>, transfers_out: SortedVec<ChainAmount>,
    rejected_transfers_claimed: SortedVec<ChainAmount>, transfers_rejected: SortedVec<ChainAmount> }
struct ExecutionReceiptV0 { domain_block_number: u32, domain_block_hash: H256, domain_block_extrinsic_root: H256,
    parent_domain_block_receipt_hash: H256, consensus_block_number: u32, consensus_block_hash: H256,
    inboxed_bundles: Vec<InboxedBundle>, final_state_root: H256, execution_trace: Vec<H256>,
    execution_trace_root: H256, block_fees: BlockFees, transfers: Transfers }
enum ExecutionReceipt { V0(ExecutionReceiptV0) }
"""

_CHANNELS = {
    f"ChannelV{version}{accounts}": struct(
        ("channel_id", "u256"),
        ("state", "ChannelState"),
        ("next_inbox_nonce", "u256"),
        ("next_outbox_nonce", "u256"),
        ("latest_response_received_message_nonce", "Option<u256>"),
        ("max_outgoing_messages", "u32"),
        *([("fee", "FeeModel")] if version == 0 else []),
        ("maybe_owner", owner),
        ("channel_reserve_fee", "u128"),
    )
    for version in (0, 1)
    for accounts, owner in (("", "Option<[u8; 32]>"), ("Account20", "Option<[u8; 20]>"))
}

XDM_TYPES = ScaleTypes(parse_definitions(_DEFINITIONS) | _CHANNELS)
"""All types; an outbox holds a ``Message``, its envelope is a ``CrossDomainMessage``."""


MAX_MESSAGE_BYTES = 5 << 20
"""Longest decoded message in bytes; no XDM carrier accepts more."""


@dataclass(frozen=True, slots=True, order=True)
class ChainId:
    """A chain: the consensus chain or a domain.

    Attributes:
        domain: number of the domain (u32); None for the consensus chain.
    """

    domain: int | None = None

    def encode(self) -> bytes:
        """Return the SCALE encoding: ``00``, or ``01`` and the number in four little-endian bytes.

        Returns:
            The encoding.
        """
        return XDM_TYPES.encode("ChainId", chain_to_plain(self))


CONSENSUS = ChainId()


@dataclass(frozen=True, slots=True)
class DispatchError:
    """Error of a failed call.

    Attributes:
        kind: name of the variant.
        detail: None; the inner variant's name (Token, Arithmetic, Transactional, Trie); or for Module, the pallet's
            index followed by four bytes of its error.
    """

    kind: str
    detail: str | bytes | None = None


@dataclass(frozen=True, slots=True)
class ChannelOpen:
    """Request to open a channel.

    Attributes:
        max_outgoing_messages: capacity of the channel.
        relay_fee: fee model of payload V0, None in V1.
    """

    max_outgoing_messages: int
    relay_fee: int | None = None


@dataclass(frozen=True, slots=True)
class ChannelClose:
    """Request to close a channel."""


@dataclass(frozen=True, slots=True)
class CollectedFee:
    """Fees paid by the sender.

    Attributes:
        src_chain_fee: fee for the response on the source chain.
        dst_chain_fee: fee for the message on the destination chain.
    """

    src_chain_fee: int
    dst_chain_fee: int


@dataclass(frozen=True, slots=True)
class EndpointRequest:
    """Request from one chain's endpoint to another's.

    Attributes:
        src_endpoint: number of the sending endpoint.
        dst_endpoint: number of the receiving endpoint.
        payload: content for the endpoint.
        collected_fee: fees; None in payload V0.
    """

    src_endpoint: int
    dst_endpoint: int
    payload: bytes
    collected_fee: CollectedFee | None = None


@dataclass(frozen=True, slots=True)
class ProtocolResponse:
    """Response to ``ChannelOpen`` or ``ChannelClose``; ``error`` is None for Ok."""

    error: DispatchError | None = None


@dataclass(frozen=True, slots=True)
class EndpointResponse:
    """Response to an ``EndpointRequest``: the bytes of Ok, or the error."""

    result: bytes | DispatchError


Payload = ChannelOpen | ChannelClose | EndpointRequest | ProtocolResponse | EndpointResponse


@dataclass(frozen=True, slots=True)
class Message:
    """A request or a response between two chains.

    Attributes:
        src_chain_id, dst_chain_id: sending and receiving chain; a response reverses its request's.
        channel_id, nonce: 256-bit numbers; a response has its request's.
        payload: the request or response.
        last_delivered_message_response_nonce: acknowledgement; None before the first response and in responses.
        version: layout of the payload, 0 or 1.
    """

    src_chain_id: ChainId
    dst_chain_id: ChainId
    channel_id: int
    nonce: int
    payload: Payload
    last_delivered_message_response_nonce: int | None = None
    version: int = 1

    @property
    def is_response(self) -> bool:
        """Return True if the message is a response."""
        return isinstance(self.payload, ProtocolResponse | EndpointResponse)

    def encode(self) -> bytes:
        """Return the SCALE encoding.

        Returns:
            The encoding.

        Raises:
            InvalidInput: a number does not fit its type, or the version lacks the payload.
        """
        return XDM_TYPES.encode(
            "Message",
            {
                "src_chain_id": chain_to_plain(self.src_chain_id),
                "dst_chain_id": chain_to_plain(self.dst_chain_id),
                "channel_id": self.channel_id,
                "nonce": self.nonce,
                "payload": {f"V{self.version}": _payload_to_plain(self.payload)},
                "last_delivered_message_response_nonce": self.last_delivered_message_response_nonce,
            },
        )

    @classmethod
    def decode(cls, data: bytes) -> Message:
        """Decode the canonical encoding of a message.

        Args:
            data: the encoding.

        Returns:
            The message.

        Raises:
            OverLimit: ``data`` exceeds 5 MiB.
            FailedToDecode: ``data`` is not a message, or not canonical.
        """
        plain = XDM_TYPES.decode("Message", data, "a cross-domain message", MAX_MESSAGE_BYTES)
        ((version, payload),) = plain["payload"].items()
        return cls(
            chain_from_plain(plain["src_chain_id"]),
            chain_from_plain(plain["dst_chain_id"]),
            plain["channel_id"],
            plain["nonce"],
            _payload_of_plain(payload),
            plain["last_delivered_message_response_nonce"],
            int(version[1:]),
        )


@dataclass(frozen=True, slots=True)
class WeightTag:
    """A carrier's statement of a message's weight: a variant of MessageWeightTag.

    Attributes:
        kind: name of the variant.
        endpoint: its endpoint, or None.
    """

    kind: str = "None"
    endpoint: int | None = None

    def __str__(self) -> str:
        return self.kind if self.endpoint is None else f"{self.kind}({self.endpoint})"

    def to_plain(self) -> Any:
        """Convert the tag to the form of ``XDM_TYPES``.

        Returns:
            The plain value.

        Raises:
            InvalidInput: the variant requires an endpoint, or forbids one.
        """
        if (self.endpoint is not None) != self.kind.startswith("Endpoint"):
            raise InvalidInput(f"a weight tag {self.kind} does not come with the endpoint {self.endpoint}")
        return self.kind if self.endpoint is None else {self.kind: {"Id": self.endpoint}}

    @classmethod
    def from_plain(cls, plain: Any) -> WeightTag:
        """Convert a tag from the form of ``XDM_TYPES``.

        Args:
            plain: the plain value.

        Returns:
            The tag.
        """
        kind, endpoint = variant(plain)
        return cls(kind, None if endpoint is None else endpoint["Id"])


def variant(plain: Any) -> tuple[str, Any]:
    """Return name and content of a plain enum value; None for a variant without content."""
    if isinstance(plain, str):
        return plain, None
    ((name, content),) = plain.items()
    return name, content


def chain_to_plain(chain: ChainId) -> Any:
    """Convert a chain to the form of ``XDM_TYPES``."""
    return "Consensus" if chain.domain is None else {"Domain": chain.domain}


def chain_from_plain(plain: Any) -> ChainId:
    """Convert a chain from the form of ``XDM_TYPES``."""
    return ChainId(variant(plain)[1])


def _payload_to_plain(payload: Payload) -> Any:
    match payload:
        case ChannelOpen():
            params: dict[str, Any] = {"max_outgoing_messages": payload.max_outgoing_messages}
            if payload.relay_fee is not None:
                params["fee_model"] = {"relay_fee": payload.relay_fee}
            return {"Protocol": {"Request": {"ChannelOpen": params}}}
        case ChannelClose():
            return {"Protocol": {"Request": "ChannelClose"}}
        case ProtocolResponse():
            return {"Protocol": {"Response": "Ok" if payload.error is None else _error_to_plain(payload.error)}}
        case EndpointRequest():
            request = {
                "src_endpoint": {"Id": payload.src_endpoint},
                "dst_endpoint": {"Id": payload.dst_endpoint},
                "payload": payload.payload,
            }
            fee = payload.collected_fee
            if fee is None:
                return {"Endpoint": {"Request": request}}
            paid = {"src_chain_fee": fee.src_chain_fee, "dst_chain_fee": fee.dst_chain_fee}
            return {"Endpoint": {"Request": {"req": request, "collected_fee": paid}}}
        case EndpointResponse(bytes() as result):
            return {"Endpoint": {"Response": {"Ok": result}}}
        case EndpointResponse(DispatchError() as error):
            return {"Endpoint": {"Response": _error_to_plain(error)}}


def _payload_of_plain(plain: Any) -> Payload:
    layer, content = variant(plain)
    direction, body = variant(content)
    return _READERS[layer, direction](body)


def _protocol_request(plain: Any) -> Payload:
    kind, params = variant(plain)
    if kind == "ChannelClose":
        return ChannelClose()
    fee_model = params.get("fee_model")
    return ChannelOpen(params["max_outgoing_messages"], None if fee_model is None else fee_model["relay_fee"])


def _endpoint_request(plain: Any) -> Payload:
    request, fee = plain.get("req", plain), plain.get("collected_fee")
    return EndpointRequest(
        request["src_endpoint"]["Id"],
        request["dst_endpoint"]["Id"],
        request["payload"],
        None if fee is None else CollectedFee(fee["src_chain_fee"], fee["dst_chain_fee"]),
    )


def _protocol_response(plain: Any) -> Payload:
    kind, error = variant(plain)
    return ProtocolResponse(None if kind == "Ok" else _error_of_plain(error))


def _endpoint_response(plain: Any) -> Payload:
    kind, content = variant(plain)
    return EndpointResponse(content if kind == "Ok" else _error_of_plain(content))


_READERS = {
    ("Protocol", "Request"): _protocol_request,
    ("Protocol", "Response"): _protocol_response,
    ("Endpoint", "Request"): _endpoint_request,
    ("Endpoint", "Response"): _endpoint_response,
}


_DETAILED = {"Module", "Token", "Arithmetic", "Transactional", "Trie"}


def _error_to_plain(error: DispatchError) -> Any:
    fits = len(error.detail) == 5 if isinstance(error.detail, bytes) else isinstance(error.detail, str)
    if (error.kind in _DETAILED) != fits or (error.kind == "Module") != isinstance(error.detail, bytes):
        raise InvalidInput(f"a DispatchError of the kind {error.kind} does not come with the detail {error.detail!r}")
    if error.detail is None:
        return {"Err": error.kind}
    if isinstance(error.detail, bytes):
        return {"Err": {error.kind: {"index": error.detail[0], "error": error.detail[1:]}}}
    return {"Err": {error.kind: error.detail}}


def _error_of_plain(plain: Any) -> DispatchError:
    kind, detail = variant(plain)
    if isinstance(detail, dict):
        return DispatchError(kind, bytes([detail["index"]]) + detail["error"])
    return DispatchError(kind, detail)
