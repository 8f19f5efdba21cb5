"""What a served lake of parachains says of itself: the leaves of its relay chain, and what is proved at each of them
(ICMP reference 3.1, 3.2).

All is read from committed heights.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from causeway.model.errors import InvalidInput
from causeway.model.kept import remembering
from causeway.network.opened import OpenedLake
from causeway.pipeline.lake import LakeError
from causeway.protocols.icmp.chains import RELAY_POSITION
from causeway.protocols.icmp.leaves import OF_LEAVES
from causeway.protocols.limits import MAX_ANSWER_BYTES
from causeway.proving.icmp.messages import prove_message
from causeway.proving.icmp.prover import entries_document, message_document, trust_document
from causeway.proving.icmp.relay import RelayState, of_leaf, relay_leaves, rows_of
from causeway.service.lake_views import LakeViews
from causeway.service.requests import NotFound

KEPT_BYTES = 64 << 20
"""Bytes of the relay chain's states that stay in memory, one height's at least."""

ANSWER_MARGIN = 4096
"""Bytes of an answer beside its proof."""

_ROW_BYTES = 128
"""Of a row of a relay chain's table at most."""


class Views(LakeViews):
    """The views of one lake of parachains."""

    def __init__(self, opened: OpenedLake) -> None:
        super().__init__(opened)
        self.relay = opened.names[RELAY_POSITION]
        self.queues = opened.options.get("channels") != "hrmp"
        """Whether the network has egress queues; else it has channels, and its relay chain one leaf."""
        self._leaves = remembering(partial(relay_leaves, opened), KEPT_BYTES, _weight)

    def status(self) -> dict[str, Any]:
        """Return what the network is, and how far it has come."""
        return {**super().status(), "relay": self.relay}

    def heads(self, chain: str, height: int | None) -> dict[str, Any]:
        """Return the leaves of the relay chain, which ``chain`` has to be, after a height.

        Raises:
            InvalidInput: it is not (``LakeError``: no such height).
        """
        if chain != self.relay:
            raise InvalidInput(f"chain: {chain[:128]}: is no relay chain; allowed: {self.relay}")
        height = self.known(chain, height)
        heads = [
            {
                "leaf": one.place,
                "number": one.number,
                "hash": one.leaf.hash.hex(),
                "parent": one.parent.hex(),
                "root": one.root.hex(),
                "included": one.included.hex(),
            }
            for one in self._leaves(height)
        ]
        return {"height": height, "heads": heads}

    def watermark(self, chain: str, height: int | None, leaf: str | None) -> dict[str, Any]:
        """Return the proof of how far a parachain has consumed, at a leaf of the relay chain after a height: ``leaf``
        is its number or the hash of its block, None the one with the lowest number.

        Raises:
            InvalidInput: there is no such parachain (``LakeError``: no such height).
            NotFound: no such leaf.
        """
        return self._entries(chain, height, leaf, ingress=False)

    def ingress(self, chain: str, height: int | None, leaf: str | None) -> dict[str, Any]:
        """Return the proof of all that waits for a parachain; as ``watermark``, and refused as ``InvalidInput`` where
        it is longer than an answer may be."""
        return self._entries(chain, height, leaf, ingress=True)

    def _entries(self, chain: str, height: int | None, leaf: str | None, *, ingress: bool) -> dict[str, Any]:
        height = self.known(chain, height)
        leaves = self._leaves(height)
        try:
            relay = of_leaf(leaves, leaf)
        except InvalidInput as error:
            raise NotFound(str(error)) from None
        document, _ = entries_document(self.opened, relay, chain, ingress=ingress)
        return _answer(relay, document)

    def queued(self, chain: str, counterparty: str, index: int, height: int | None, leaf: str | None) -> dict[str, Any]:
        """Return the proof of a message of ``chain`` that waits for ``counterparty`` after a height.

        Raises:
            InvalidInput: as ``ingress``.
            NotFound: no queue that is listed there has it.
        """
        height = self.known(chain, height)
        try:
            shown = prove_message(
                self.opened, chain, counterparty, index=index, height=height, leaf=leaf, leaves=self._leaves
            )
        except LakeError:  # one that is damaged, say
            raise
        except InvalidInput as error:
            raise NotFound(str(error)) from None
        return _answer(shown.relay, message_document(shown))

    # ---- for metrics

    def numbers(self, height: int) -> Iterator[tuple[int, int]]:
        """Yield the number of each leaf, and of its block."""
        blocks = rows_of(self.opened, self.manifest(height), "blocks", RELAY_POSITION)
        leaves = blocks["leaf"].tolist() if self.queues else [0]
        yield from zip(leaves, blocks["number"].tolist(), strict=True)

    def waiting(self, height: int) -> Iterator[tuple[str, int]]:
        """Yield the parachains for which queues wait, at the leaf with the lowest number, and how many."""
        if not self.queues:
            return
        rows = rows_of(self.opened, self.manifest(height), "unrouted", RELAY_POSITION)
        chains, counts = np.unique(rows["to"][rows["leaf"] == rows["leaf"].min(initial=255)], return_counts=True)
        yield from ((self.opened.names[to], count) for to, count in zip(chains.tolist(), counts.tolist(), strict=True))


def _answer(relay: RelayState, document: dict[str, Any]) -> dict[str, Any]:
    size = len(json.dumps(document))
    if size > MAX_ANSWER_BYTES - ANSWER_MARGIN:
        most = f"an answer at most {MAX_ANSWER_BYTES:,}"
        raise InvalidInput(f"the proof has {size:,} bytes, {most}: it can be taken only where the lake is")
    return {"height": relay.height, "leaf": relay.place, "proof": document, "trust": trust_document(relay)}


def _weight(leaves: list[RelayState]) -> int:
    """Return about how many bytes the states of some leaves have."""
    rows = sum(len(getattr(one.leaf, name)) for one in leaves for name in OF_LEAVES)
    return sum(one.trie.tries.live_bytes for one in leaves) + _ROW_BYTES * rows
