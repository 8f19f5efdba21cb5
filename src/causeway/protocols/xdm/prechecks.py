"""What a request whose turn it is is refused for before anybody handles it (XDM reference 3.4, step 14; D-9)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame
from causeway.protocols.xdm.allowlists import allows
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.endpoints import PROGRAMS_ENDPOINT, TRANSPORTER_ENDPOINT
from causeway.protocols.xdm.errors import OK, MessengerError, of_messenger
from causeway.protocols.xdm.state import Asked, ChannelState
from causeway.protocols.xdm.tags import request_tags
from causeway.protocols.xdm.wire import Bodies

ENDPOINTS = (TRANSPORTER_ENDPOINT, PROGRAMS_ENDPOINT)
"""Endpoints that somebody handles."""


def request_errors(
    rows: Frame, bodies: Bodies, states: npt.NDArray[np.int64], allowlist: Frame, context: Context
) -> npt.NDArray[np.uint8]:
    """Return the error of each request's response, ``OK`` where there is none so far.

    ``rows``: ``source``, ``destination`` and ``tag``; ``states``: of the channels (``ChannelState``).
    """
    options, asked = context.options, bodies.asked
    of_endpoint = asked == Asked.ENDPOINT
    error = np.full(len(rows), OK, dtype=np.uint8)
    unlisted = np.zeros(len(rows), dtype=bool)
    if options.allowlist == "on":
        unlisted = ~allows(allowlist, rows["destination"], rows["source"])
    wrong = np.zeros(len(rows), dtype=bool)
    if options.trust_tag == "on":
        wrong = rows["tag"] != request_tags(asked, bodies.dst_endpoint)
    # The first of those that apply stays.
    error[of_endpoint & unlisted] = of_messenger(MessengerError.ChainNotAllowed)
    error[of_endpoint & (states != ChannelState.OPEN)] = of_messenger(MessengerError.InvalidChannelState)
    error[wrong] = of_messenger(MessengerError.WeightTagNotMatch)
    error[of_endpoint & ~np.isin(bodies.dst_endpoint, ENDPOINTS)] = of_messenger(MessengerError.NoMessageHandler)
    error[(asked == Asked.CHANNEL_OPEN) & unlisted] = of_messenger(MessengerError.ChainNotAllowed)
    return error
