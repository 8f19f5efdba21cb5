"""What a served lake of parachains says of itself: the leaves of its relay chain, and what is proved at each of them
(ICMP reference 3.1, 3.2).

All is read from committed heights.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
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

ROW_BYTES = 128
"""Of a row of a relay chain's table at most."""


class RelayViews(LakeViews, ABC):
    """The views of one lake of parachains. ``relay``: the name of the relay chain."""

    def __init__(self, opened: OpenedLake) -> None:
        super().__init__(opened)
        self.relay = opened.names[RELAY_POSITION]

    def status(self) -> dict[str, Any]:
        """Return what the network is, and how far it has come."""
        return {**super().status(), "relay": self.relay}

    def of_relay(self, chain: str, height: int | None) -> int:
        """Return ``height``, or the last, of the relay chain, which ``chain`` has to be.

        Raises:
            InvalidInput: it is not (``LakeError``: no such height).
        """
        if chain != self.relay:
            raise InvalidInput(f"chain: {chain[:128]}: is no relay chain; allowed: {self.relay}")
        return self.known(chain, height)

    @abstractmethod
    def numbers(self, height: int) -> Iterator[tuple[int, int]]:
        """Yield the number of each leaf, and of its block, for metrics."""

    @abstractmethod
    def waiting(self, height: int) -> Iterator[tuple[str, int]]:
        """Yield the parachains for which something waits (queues at the leaf with the lowest number, or messages in
        channels), and how many, for metrics."""


class Views(RelayViews):
    """The views of a network with egress queues."""

    def __init__(self, opened: OpenedLake) -> None:
        super().__init__(opened)
        self._leaves = remembering(partial(relay_leaves, opened), KEPT_BYTES, _weight)

    def heads(self, chain: str, height: int | None) -> dict[str, Any]:
        """Return the leaves of the relay chain, which ``chain`` has to be, after a height; refuses as ``of_relay``."""
        height = self.of_relay(chain, height)
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

    def numbers(self, height: int) -> Iterator[tuple[int, int]]:
        """Yield what ``RelayViews`` says."""
        blocks = rows_of(self.opened, self.manifest(height), "blocks", RELAY_POSITION)
        yield from zip(blocks["leaf"].tolist(), blocks["number"].tolist(), strict=True)

    def waiting(self, height: int) -> Iterator[tuple[str, int]]:
        """Yield what ``RelayViews`` says."""
        rows = rows_of(self.opened, self.manifest(height), "unrouted", RELAY_POSITION)
        chains, counts = np.unique(rows["to"][rows["leaf"] == rows["leaf"].min(initial=255)], return_counts=True)
        yield from ((self.opened.names[to], count) for to, count in zip(chains.tolist(), counts.tolist(), strict=True))


def require_fits(document: Any) -> None:
    """Raise ``InvalidInput`` where what is proved is longer than an answer may be."""
    size = len(json.dumps(document))
    if size > MAX_ANSWER_BYTES - ANSWER_MARGIN:
        most = f"an answer at most {MAX_ANSWER_BYTES:,}"
        raise InvalidInput(f"the proof has {size:,} bytes, {most}: it can be taken only where the lake is")


def _answer(relay: RelayState, document: dict[str, Any]) -> dict[str, Any]:
    require_fits(document)
    return {"height": relay.height, "leaf": relay.place, "proof": document, "trust": trust_document(relay)}


def _weight(leaves: list[RelayState]) -> int:
    """Return about how many bytes the states of some leaves have."""
    rows = sum(len(getattr(one.leaf, name)) for one in leaves for name in OF_LEAVES)
    return sum(one.trie.tries.live_bytes for one in leaves) + ROW_BYTES * rows
