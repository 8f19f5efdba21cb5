"""State entries proved by delivered envelopes, decoded by the oracle under the state roots of headers.

So the checks use bytes that the kernel did not produce.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from causeway_proofs.errors import InvalidInput

from causeway.protocols.xdm.relay.envelopes import encode_envelopes
from causeway.protocols.xdm.validate import DeliveredEnvelopes
from tests.spec.xdm.errors import XdmError
from tests.spec.xdm.keys import outbox_key, responses_key
from tests.spec.xdm.proofs import message_root, read_message
from tests.spec.xdm.trie import read_storage
from tests.spec.xdm.values import Chain, Message, decode_leaf, decode_xdm

Lane = tuple[str, Chain, Chain, int, int]
"""(request or response, from, to, channel, nonce)."""


class Proved(NamedTuple):
    message: Message
    payload: bytes
    block: int


def shown(every: Iterable[DeliveredEnvelopes], roots: Mapping[int, bytes], lax: bool) -> dict[Lane, Proved]:
    """What was shown by proofs that the oracle's code finds sound. ``roots``: of consensus blocks; ``lax``: whether the
    form of a proof and its body may be those of another source (D-7)."""
    found: dict[Lane, Proved] = {}
    for brought in every:
        if not len(brought.envelopes):
            continue
        response = (brought.envelopes["substream"] & np.uint64(1)).tolist()
        try:
            encoded = encode_envelopes(brought).to_pylist()
        except InvalidInput:  # one that was altered into none of the wire: the others one by one
            encoded = [_encoded(brought, row) for row in range(len(brought.envelopes))]
        for data, answers in zip(encoded, response, strict=True):
            if data is None:
                continue
            x = decode_xdm(data)
            kind = "response" if answers else "request"
            try:
                leaf = decode_leaf(x.proof.consensus.opaque_mmr_leaf)
                if roots.get(leaf.block_number) != leaf.state_root:
                    continue
                root = message_root(leaf.state_root, x, not lax)
                m = read_message(x.dst, root, x, kind, not lax)  # type: ignore[arg-type]
            except XdmError:
                continue
            where = (kind, x.src, x.dst, x.channel_id, x.nonce)
            payload = _shown(x.proof.message_proof, root, x, kind)
            found[where] = Proved(m, payload, x.proof.consensus.consensus_block_number)
    return found


def _encoded(brought: Any, row: int) -> bytes | None:
    try:
        one = replace(brought, envelopes=brought.envelopes.slice(row, row + 1))
        return bytes(encode_envelopes(one).to_pylist()[0])
    except InvalidInput:  # it is none of the wire
        return None


def _shown(proof: tuple[bytes, ...], root: bytes, x: Any, kind: str) -> bytes:
    key = (outbox_key if kind == "request" else responses_key)(x.dst, x.channel_id, x.nonce)
    return read_storage(root, proof, key)
