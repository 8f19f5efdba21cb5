"""Weight tags of envelopes as one number each (XDM reference 2.3): the variant below the endpoint's number."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from causeway.model.frame import Frame
from causeway.model.order import U64
from causeway.protocols.xdm.errors import OK
from causeway.protocols.xdm.state import Asked
from causeway.protocols.xdm.wire import ENDPOINT

TAG_BITS = 3
"""Bits of the variant, below the endpoint's number."""


NO_ENDPOINT = 2**64 - 1
"""The endpoint of responses whose requests came under no tag of one; no tag has room for this number."""


class Tag(IntEnum):
    """The variants, by the numbers of the wire."""

    CHANNEL_OPEN = 0
    CHANNEL_CLOSE = 1
    ENDPOINT_REQUEST = 2
    ENDPOINT_RESPONSE = 3
    NONE = 4


def of_endpoint(tag: Tag, endpoint: U64) -> U64:
    """Return tags of endpoints' messages."""
    found: U64 = (endpoint << np.uint64(TAG_BITS)) | np.uint64(tag)
    return found


def request_tags(asked: np.ndarray, dst_endpoint: U64) -> U64:
    """Return the tag that the request of each row has."""
    of_protocol = np.where(asked == Asked.CHANNEL_OPEN, np.uint64(Tag.CHANNEL_OPEN), np.uint64(Tag.CHANNEL_CLOSE))
    found: U64 = np.where(asked == Asked.ENDPOINT, of_endpoint(Tag.ENDPOINT_REQUEST, dst_endpoint), of_protocol)
    return found


def response_tags(layer: np.ndarray, error: np.ndarray, asked: np.ndarray, endpoint: U64) -> U64:
    """Return the tag that each response has: that of an open request that is taken, an endpoint's, or none."""
    opened = (layer != ENDPOINT) & (asked == Asked.CHANNEL_OPEN) & (error == OK)
    of_protocol = np.where(opened, np.uint64(Tag.CHANNEL_OPEN), np.uint64(Tag.NONE))
    found: U64 = np.where(layer == ENDPOINT, of_endpoint(Tag.ENDPOINT_RESPONSE, endpoint), of_protocol)
    return found


def tags_of(table: str, rows: Frame) -> U64:
    """Return the tags of messages in ``outbox`` or ``responses``."""
    if table == "outbox":
        return request_tags(rows["asked"], rows["dst_endpoint"])
    tags = response_tags(rows["layer"], rows["error"], rows["asked"], rows["endpoint"])
    found: U64 = np.where(rows["endpoint"] == np.uint64(NO_ENDPOINT), np.uint64(Tag.NONE), tags)
    return found
