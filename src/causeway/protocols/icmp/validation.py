"""What validators hold a candidate against before they attest it (ICMP reference 3.4)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame
from causeway.model.ledger import NO_CHAIN
from causeway.model.order import U64
from causeway.protocols.contract import Chains
from causeway.protocols.icmp.errors import Validation
from causeway.protocols.icmp.ingress import last_listed
from causeway.protocols.icmp.options import IcmpOptions

Codes = npt.NDArray[np.int64]
_QUEUE = ("number", "source", "root")


def validate_incoming(
    chains: Chains, watermarks: U64, listed: Frame, lists: Frame, now: U64, options: IcmpOptions
) -> Codes:
    """Return what is wrong with what candidates consumed (``Validation``), one code for each of ``chains``, ascending.

    ``watermarks``: the new ones. ``listed``: ``ingress(B, p)`` of the chains, each B, of a number ``now``, being its
    relay parent, with ``held``, whether the validator has the body. ``lists``: the queues consumed, in the order of the
    candidate, with the roots of their messages; ``source`` ``NO_CHAIN`` for a block that is listed without any. Both by
    ``to``.
    """
    codes = np.zeros(len(chains), dtype=np.int64)
    if len(chains) == 0:
        return codes
    row = np.minimum(np.searchsorted(chains, listed["to"]), len(chains) - 1)
    expected = listed.filter((chains[row] == listed["to"]) & (listed["number"] <= watermarks[row]))
    last = np.maximum(last_listed(now.astype(np.int64), options), 0).astype(np.uint64)
    codes[watermarks > last] = Validation.NotAPrefix
    ends = [
        (frame["to"].searchsorted(chains), frame["to"].searchsorted(chains, side="right"))
        for frame in (expected, lists, listed)
    ]
    for at in np.flatnonzero(codes == Validation.OK):
        own, given, every = (
            frame.slice(int(first[at]), int(last[at]))
            for frame, (first, last) in zip((expected, lists, listed), ends, strict=True)
        )
        if len(given) == 0 and options.allow_empty_prefix == "off" and _could_begin(every):
            codes[at] = Validation.NotAPrefix
        elif len(own) != len(given) or any((own[name] != given[name]).any() for name in _QUEUE):
            codes[at] = _difference(own, given)
    return codes


def _could_begin(listed: Frame) -> bool:
    """Return whether the first block of a list is there as a whole (D-4)."""
    first = listed.filter(listed["number"] == listed["number"][:1]) if len(listed) else listed
    return bool(len(first)) and bool(first["held"].all())


def _difference(expected: Frame, given: Frame) -> Validation:
    """Return what is wrong first: the blocks, then block by block the number of queues, the senders, the roots."""
    blocks = [*dict.fromkeys(expected["number"].tolist())]
    if [*dict.fromkeys(given["number"].tolist())] != blocks:
        return Validation.NotAPrefix
    for number in blocks:
        own, other = (frame.filter(frame["number"] == np.uint64(number)) for frame in (expected, given))
        other = other.filter(other["source"] != np.uint32(NO_CHAIN))
        if len(own) != len(other):
            return Validation.IngressCountMismatch
        if (own["source"] != other["source"]).any():
            return Validation.IngressChainMismatch
        if (own["root"] != other["root"]).any():
            return Validation.IngressRootMismatch
    return Validation.NotAPrefix


def validate_outgoing(chains: Chains, made: Frame, stated: Frame) -> Codes:
    """Return what is wrong with egress_queue_roots (``Validation``), one code for each of ``chains``, ascending.

    ``made``: the queues that the messages give, one a recipient, ascending; ``stated``: those that the receipts say,
    in their order. Both: ``source``, ``to``, ``root``, by ``source``.
    """
    codes = np.zeros(len(chains), dtype=np.int64)
    ends = [
        (frame["source"].searchsorted(chains), frame["source"].searchsorted(chains, side="right"))
        for frame in (made, stated)
    ]
    for at in range(len(chains)):
        own, said = (
            frame.slice(int(first[at]), int(last[at]))
            for frame, (first, last) in zip((made, stated), ends, strict=True)
        )
        both = min(len(own), len(said))
        to = own["to"][:both] != said["to"][:both]
        root = (own["root"][:both] != said["root"][:both]).any(axis=1)
        wrong = np.flatnonzero(to | root)
        if len(wrong):
            codes[at] = Validation.MissingEgressRoot if to[wrong[0]] else Validation.EgressRootMismatch
        elif len(own) != len(said):
            codes[at] = Validation.MissingEgressRoot
    return codes
