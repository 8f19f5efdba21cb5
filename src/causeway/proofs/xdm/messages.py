"""Messages between domains: what an outbox and the responses of an inbox hold (XDM reference 2.1 to 2.3).

The dataclasses say what the deployed types say; ``Message.encode`` and ``Message.decode`` are the only way in and out
of bytes, and both payload layouts, V0 and V1, go through them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from causeway.model.errors import InvalidInput
from causeway.proofs.xdm.types import XDM_TYPES

MAX_MESSAGE_BYTES = 5 << 20
"""Longest message that is decoded, in bytes: no carrier of XDM takes more."""


@dataclass(frozen=True, slots=True, order=True)
class ChainId:
    """A chain: Consensus, whose ``domain`` is None, or the domain of that number (u32)."""

    domain: int | None = None

    def encode(self) -> bytes:
        """Return the SCALE encoding: ``00``, or ``01`` and the number in four bytes, little-endian."""
        return XDM_TYPES.encode("ChainId", chain_to_plain(self))


CONSENSUS = ChainId()


@dataclass(frozen=True, slots=True)
class DispatchError:
    """Why a call failed: the variant's name, and what it carries.

    ``detail`` is None, the name of the inner variant (Token, Arithmetic, Transactional, Trie), or for Module the index
    of the pallet followed by four bytes of its error.
    """

    kind: str
    detail: str | bytes | None = None


@dataclass(frozen=True, slots=True)
class ChannelOpen:
    """Request to open a channel; ``relay_fee`` is the fee model of payload V0, None in V1."""

    max_outgoing_messages: int
    relay_fee: int | None = None


@dataclass(frozen=True, slots=True)
class ChannelClose:
    """Request to close a channel."""


@dataclass(frozen=True, slots=True)
class CollectedFee:
    """What the sender paid: for the response on the source chain and for the message on the destination chain."""

    src_chain_fee: int
    dst_chain_fee: int


@dataclass(frozen=True, slots=True)
class EndpointRequest:
    """Request from one chain's endpoint to another's; ``collected_fee`` is None in payload V0."""

    src_endpoint: int
    dst_endpoint: int
    payload: bytes
    collected_fee: CollectedFee | None = None


@dataclass(frozen=True, slots=True)
class ProtocolResponse:
    """Answer to ``ChannelOpen`` or ``ChannelClose``; ``error`` is None for Ok."""

    error: DispatchError | None = None


@dataclass(frozen=True, slots=True)
class EndpointResponse:
    """Answer to an ``EndpointRequest``: the bytes of Ok, or the error."""

    result: bytes | DispatchError


Payload = ChannelOpen | ChannelClose | EndpointRequest | ProtocolResponse | EndpointResponse


@dataclass(frozen=True, slots=True)
class Message:
    """A request or a response between two chains.

    Attributes:
        src_chain_id, dst_chain_id: who sends it, and to whom; a response goes the other way than its request.
        channel_id, nonce: 256-bit numbers; a response has its request's.
        payload: what it asks or answers.
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
        """Return whether the message answers another one."""
        return isinstance(self.payload, ProtocolResponse | EndpointResponse)

    def encode(self) -> bytes:
        """Return the SCALE encoding.

        Raises:
            InvalidInput: a number does not fit its type, or the version does not have such a payload.
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
        """Return the message that ``data`` is the canonical encoding of.

        Raises:
            OverLimit: it has more than 5 MiB.
            FailedToDecode: it is no message, or not in canonical form.
        """
        plain = XDM_TYPES.decode("Message", data, "a cross-domain message", MAX_MESSAGE_BYTES)
        ((version, payload),) = plain["payload"].items()
        return cls(
            chain_of_plain(plain["src_chain_id"]),
            chain_of_plain(plain["dst_chain_id"]),
            plain["channel_id"],
            plain["nonce"],
            _payload_of_plain(payload),
            plain["last_delivered_message_response_nonce"],
            int(version[1:]),
        )


@dataclass(frozen=True, slots=True)
class WeightTag:
    """What a carrier says of a message's weight: a variant of MessageWeightTag, with an endpoint where it has one."""

    kind: str = "None"
    endpoint: int | None = None

    def __str__(self) -> str:
        return self.kind if self.endpoint is None else f"{self.kind}({self.endpoint})"

    def to_plain(self) -> Any:
        """Return the tag as ``XDM_TYPES`` writes it.

        Raises:
            InvalidInput: there is an endpoint where the variant has none, or none where it has one.
        """
        if (self.endpoint is not None) != self.kind.startswith("Endpoint"):
            raise InvalidInput(f"a weight tag {self.kind} does not come with the endpoint {self.endpoint}")
        return self.kind if self.endpoint is None else {self.kind: {"Id": self.endpoint}}

    @classmethod
    def of_plain(cls, plain: Any) -> WeightTag:
        """Return the tag that ``XDM_TYPES`` read."""
        kind, endpoint = variant(plain)
        return cls(kind, None if endpoint is None else endpoint["Id"])


def variant(plain: Any) -> tuple[str, Any]:
    """Return the name and content of an enum's value as ``XDM_TYPES`` reads it; None for a variant without content."""
    if isinstance(plain, str):
        return plain, None
    ((name, content),) = plain.items()
    return name, content


def chain_to_plain(chain: ChainId) -> Any:
    """Return a chain as ``XDM_TYPES`` writes it."""
    return "Consensus" if chain.domain is None else {"Domain": chain.domain}


def chain_of_plain(plain: Any) -> ChainId:
    """Return the chain that ``XDM_TYPES`` read."""
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
