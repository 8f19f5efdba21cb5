"""Wire and trie encoding of messages, channels and weight tags.

A weight tag is one number: the variant below the endpoint's number.

Reference: XDM, sections 2.1 to 2.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.order import U64
from causeway_proofs.substrate import numbers_column, to_limbs
from causeway_proofs.xdm import CHANNELS, INBOX_RESPONSES, MESSAGES, OUTBOX, message_map_keys, messenger_keys

from causeway.core.frame import Frame
from causeway.protocols.shared.digests import fixed_column
from causeway.protocols.xdm.chains import chain_ids, positions_of_ids
from causeway.protocols.xdm.errors import OK, dispatch_errors, error_codes
from causeway.protocols.xdm.state import RESPONSE, FeeModel, RequestKind, channel_rows, is_response, lane_channels

U256_BYTES = 32
U128_BYTES = 16

V0, V1 = 0, 1
PROTOCOL, ENDPOINT = 0, 1
ACCOUNT_BYTES = 32

_CHANNELS = CHANNELS[(V1, ACCOUNT_BYTES)]
_CHANNELS_WITH_FEE = CHANNELS[(V0, ACCOUNT_BYTES)]


def _where(mask: npt.NDArray[np.bool_], values: Any, kind: pa.DataType) -> pa.Array:
    """Return a numeric column with null at false positions of ``mask``."""
    return pa.array(np.broadcast_to(values, mask.shape).astype(kind.to_pandas_dtype()), kind, mask=~mask)


def _bytes_where(mask: npt.NDArray[np.bool_], values: pa.Array) -> pa.LargeBinaryArray:
    """Return a column of bytes with null at false positions of ``mask``."""
    return pc.if_else(pa.array(mask), values.cast(pa.large_binary()), None)


def encode_requests(outbox: Frame, channels: Frame) -> pa.LargeBinaryArray:
    """Encode the ``Message`` of each row of the outbox.

    Endpoint requests carry the collected fees (payload version 1) under both fee models. Under ``v0`` an open request
    carries the channel's relay fee (version 0).

    Args:
        outbox: Requests (``OUTBOX_SCHEMA``).
        channels: Channels of their sources (``CHANNELS_SCHEMA``).
    """
    kinds, count = outbox["asked"], len(outbox)
    opening, endpoint = kinds == RequestKind.CHANNEL_OPEN, kinds == RequestKind.ENDPOINT
    relay_fee, with_fee = np.zeros(count, dtype=np.uint64), np.zeros(count, dtype=bool)
    if not endpoint.all():
        protocol = outbox.filter(~endpoint)
        rows = channel_rows(channels, protocol["source"], protocol["destination"], lane_channels(protocol["substream"]))
        with_fee[~endpoint] = channels["fee_model"][rows] == FeeModel.V0
        relay_fee[~endpoint] = channels["relay_fee"][rows]
    columns = {
        **_header(outbox),
        "version": pa.array(np.where(with_fee, V0, V1).astype(np.uint8)),
        "layer": pa.array(np.where(endpoint, ENDPOINT, PROTOCOL).astype(np.uint8)),
        "direction": pa.array(np.zeros(count, dtype=np.uint8)),
        "request": _where(~endpoint, kinds, pa.uint8()),
        "max_outgoing_messages": _where(opening, outbox["max_outgoing"], pa.uint32()),
        "relay_fee": numbers_column(relay_fee, U128_BYTES, opening & with_fee),
        "src_endpoint": _where(endpoint, outbox["src_endpoint"], pa.uint64()),
        "dst_endpoint": _where(endpoint, outbox["dst_endpoint"], pa.uint64()),
        "payload": _bytes_where(endpoint, outbox["payload"]),
        "src_chain_fee": numbers_column(outbox["src_fee"], U128_BYTES, endpoint),
        "dst_chain_fee": numbers_column(outbox["dst_fee"], U128_BYTES, endpoint),
        "last_delivered_message_response_nonce": _optional(outbox["next_response"]),
    }
    return MESSAGES.encode(columns)


def encode_responses(responses: Frame) -> pa.LargeBinaryArray:
    """Encode the ``Message`` of each response (``RESPONSES_SCHEMA``)."""
    count, endpoint = len(responses), responses["layer"] == ENDPOINT
    failed = responses["error"] != OK
    variant = module = np.zeros(count, dtype=np.uint8)
    numbers = np.zeros((count, 4), dtype=np.uint8)
    if failed.any():
        variant, module, numbers[:, 0] = dispatch_errors(responses["error"])
    of_module = failed & (variant == 3)
    module_error = pc.if_else(pa.array(of_module), fixed_column(numbers), pa.scalar(None, pa.binary(4)))
    columns = {
        **_header(responses),
        "version": pa.array(np.full(count, V1, dtype=np.uint8)),
        "layer": pa.array(responses["layer"]),
        "direction": pa.array(np.ones(count, dtype=np.uint8)),
        "result": pa.array(failed.astype(np.uint8)),
        "error": _where(failed, variant, pa.uint8()),
        "error_module_index": _where(of_module, module, pa.uint8()),
        "error_module_error": module_error,
        "response": _bytes_where(endpoint & ~failed, responses["payload"]),
    }
    return MESSAGES.encode(columns)


def _header(lanes: Frame) -> dict[str, pa.Array]:
    return {
        "src_chain_id": chain_ids(lanes["source"]),
        "dst_chain_id": chain_ids(lanes["destination"]),
        "channel_id": numbers_column(lane_channels(lanes["substream"]), U256_BYTES),
        "nonce": numbers_column(lanes["index"], U256_BYTES),
    }


def _optional(after: U64) -> pa.FixedSizeBinaryArray:
    """Encode ``Option<Nonce>`` from nonces plus one, 0 for None."""
    return numbers_column(np.where(after > 0, after - np.uint64(1), np.uint64(0)), U256_BYTES, after > 0)


def map_keys(lanes: Frame) -> pa.LargeBinaryArray:
    """Return the storage key suffix of each message on its sender's chain.

    Args:
        lanes: Lane and ``index`` of each message.
    """
    channels = numbers_column(lane_channels(lanes["substream"]), U256_BYTES)
    return message_map_keys(chain_ids(lanes["destination"]), channels, numbers_column(lanes["index"], U256_BYTES))


def message_keys(lanes: Frame) -> pa.LargeBinaryArray:
    """Return the storage key of each message on its sender's chain.

    Args:
        lanes: Lane and ``index`` of each message.
    """
    keys = map_keys(lanes)
    responses = is_response(lanes["substream"])
    if not responses.any():
        return messenger_keys(OUTBOX, keys)
    if responses.all():
        return messenger_keys(INBOX_RESPONSES, keys)
    both = [messenger_keys(item, keys) for item in (OUTBOX, INBOX_RESPONSES)]
    return pc.if_else(pa.array(responses), both[RESPONSE], both[0])


def encode_channels(channels: Frame, accounts: pa.FixedSizeBinaryArray) -> pa.LargeBinaryArray:
    """Encode the ``Channel`` of each row (``CHANNELS_SCHEMA``).

    Args:
        channels: ``CHANNELS_SCHEMA``.
        accounts: Accounts of the owners, null for none.
    """
    v0 = channels["fee_model"] == FeeModel.V0
    if v0.any() and not v0.all():
        parts = [encode_channels(channels.filter(part), accounts.filter(pa.array(part))) for part in (v0, ~v0)]
        order = np.argsort(np.concatenate([np.flatnonzero(v0), np.flatnonzero(~v0)]), kind="stable")
        return pa.concat_arrays(parts).take(pa.array(order))
    columns = {
        "channel_id": numbers_column(channels["channel"], U256_BYTES),
        "state": pa.array(channels["state"]),
        "next_inbox_nonce": numbers_column(channels["next_inbox"], U256_BYTES),
        "next_outbox_nonce": numbers_column(channels["next_outbox"], U256_BYTES),
        "latest_response_received_message_nonce": _optional(channels["next_response"]),
        "max_outgoing_messages": pa.array(channels["max_outgoing"]),
        "maybe_owner": accounts,
        "channel_reserve_fee": numbers_column(channels["reserve"], U128_BYTES),
    }
    if v0.all():
        return _CHANNELS_WITH_FEE.encode({**columns, "relay_fee": numbers_column(channels["relay_fee"], U128_BYTES)})
    return _CHANNELS.encode(columns)


@dataclass(frozen=True)
class DecodedBodies:
    """Messages decoded from proofs; a ``malformed`` row is zero elsewhere.

    ``source`` and ``destination`` are chain positions; unknown chains are -1 or beyond the network. ``beyond`` marks a
    channel or nonce above 64 bits. ``asked`` is the ``RequestKind`` of requests, ``error`` that of responses.
    """

    malformed: npt.NDArray[np.bool_]
    beyond: npt.NDArray[np.bool_]
    source: npt.NDArray[np.int64]
    destination: npt.NDArray[np.int64]
    channel: U64
    nonce: U64
    response: npt.NDArray[np.bool_]
    layer: npt.NDArray[np.uint8]
    asked: npt.NDArray[np.uint8]
    max_outgoing: npt.NDArray[np.uint32]
    fee_model: npt.NDArray[np.uint8]
    relay_fee: U64
    src_endpoint: U64
    dst_endpoint: U64
    src_fee: U64
    dst_fee: U64
    payload: pa.LargeBinaryArray
    error: npt.NDArray[np.uint8]
    next_response: U64


def decode_bodies(bodies: pa.LargeBinaryArray) -> DecodedBodies:
    """Decode messages; fees above 64 bits also count as ``beyond``."""
    decoded = MESSAGES.decode(bodies)
    rows, codes = decoded.columns, decoded.verdicts.codes
    numbers = {
        name: rows[name].fill_null(0).to_numpy(zero_copy_only=False).astype(kind)
        for name, kind in (
            *((name, np.uint8) for name in ("layer", "direction", "request", "result")),
            ("max_outgoing_messages", np.uint32),
            ("src_endpoint", np.uint64),
            ("dst_endpoint", np.uint64),
        )
    }
    limbs = {
        name: to_limbs(rows[name].fill_null(bytes(rows[name].type.byte_width)))
        for name in (
            "channel_id",
            "nonce",
            "relay_fee",
            "src_chain_fee",
            "dst_chain_fee",
            "last_delivered_message_response_nonce",
        )
    }
    beyond = np.zeros(len(codes), dtype=bool)
    for words in limbs.values():
        beyond |= (words[:, 1:] != 0).any(axis=1)
    last = limbs["last_delivered_message_response_nonce"][:, 0]
    acknowledges = rows["last_delivered_message_response_nonce"].is_valid().to_numpy(zero_copy_only=False)
    beyond |= acknowledges & (last == np.uint64(2**64 - 1))
    layer = numbers["layer"]
    payload = pc.coalesce(rows["payload"], rows["response"], pa.scalar(b"", pa.large_binary()))
    error = np.full(len(codes), OK, dtype=np.uint8)
    failed = numbers["result"] == 1
    if failed.any():
        words = rows["error_module_error"].fill_null(bytes(4))
        raw = np.frombuffer(words.buffers()[1], dtype=np.uint8)[4 * words.offset : 4 * (words.offset + len(words))]
        known = error_codes(rows["error"], rows["error_module_index"], raw.reshape(-1, 4)[:, 0].copy())
        error[failed] = known[failed]
    return DecodedBodies(
        malformed=codes != 0,
        beyond=beyond,
        source=positions_of_ids(rows["src_chain_id"]),
        destination=positions_of_ids(rows["dst_chain_id"]),
        channel=limbs["channel_id"][:, 0],
        nonce=limbs["nonce"][:, 0],
        response=numbers["direction"] == 1,
        layer=layer,
        asked=np.where(layer == ENDPOINT, np.uint8(RequestKind.ENDPOINT), numbers["request"]).astype(np.uint8),
        max_outgoing=numbers["max_outgoing_messages"],
        fee_model=np.where(
            rows["relay_fee"].is_valid().to_numpy(zero_copy_only=False), np.uint8(FeeModel.V0), np.uint8(FeeModel.V1)
        ),
        relay_fee=limbs["relay_fee"][:, 0],
        src_endpoint=numbers["src_endpoint"],
        dst_endpoint=numbers["dst_endpoint"],
        src_fee=limbs["src_chain_fee"][:, 0],
        dst_fee=limbs["dst_chain_fee"][:, 0],
        payload=payload,
        error=error,
        next_response=np.where(acknowledges, last + np.uint64(1), np.uint64(0)),
    )


TAG_BITS = 3
"""Bits of the variant, below the endpoint's number."""


NO_ENDPOINT = 2**64 - 1
"""Endpoint of a response to a request without an endpoint tag; no tag can hold this number."""


class Tag(IntEnum):
    """Variants of weight tags, numbered as on the wire."""

    CHANNEL_OPEN = 0
    CHANNEL_CLOSE = 1
    ENDPOINT_REQUEST = 2
    ENDPOINT_RESPONSE = 3
    NONE = 4


def _endpoint_tags(endpoint: U64, tag: Tag) -> U64:
    return (endpoint << np.uint64(TAG_BITS)) | np.uint64(tag)


def request_tags(kinds: np.ndarray, dst_endpoint: U64) -> U64:
    """Return the tag of each request."""
    of_protocol = np.where(kinds == RequestKind.CHANNEL_OPEN, np.uint64(Tag.CHANNEL_OPEN), np.uint64(Tag.CHANNEL_CLOSE))
    of_endpoint = _endpoint_tags(dst_endpoint, Tag.ENDPOINT_REQUEST)
    found: U64 = np.where(kinds == RequestKind.ENDPOINT, of_endpoint, of_protocol)
    return found


def response_tags(layer: np.ndarray, error: np.ndarray, kinds: np.ndarray, endpoint: U64) -> U64:
    """Return the tag of each response: of an accepted open request, of an endpoint, or none."""
    opened = (layer != ENDPOINT) & (kinds == RequestKind.CHANNEL_OPEN) & (error == OK)
    of_protocol = np.where(opened, np.uint64(Tag.CHANNEL_OPEN), np.uint64(Tag.NONE))
    of_endpoint = _endpoint_tags(endpoint, Tag.ENDPOINT_RESPONSE)
    found: U64 = np.where(layer == ENDPOINT, of_endpoint, of_protocol)
    return found


def message_tags(table: str, rows: Frame) -> U64:
    """Return the weight tags of messages.

    Args:
        table: ``outbox`` or ``responses``.
        rows: Rows of that table.
    """
    if table == "outbox":
        return request_tags(rows["asked"], rows["dst_endpoint"])
    tags = response_tags(rows["layer"], rows["error"], rows["asked"], rows["endpoint"])
    found: U64 = np.where(rows["endpoint"] == np.uint64(NO_ENDPOINT), np.uint64(Tag.NONE), tags)
    return found
