"""The addresses that a served lake of parachains has beside those of every lake.

What a served lake of parachains says of itself: the leaves of its relay chain, and what is proved at each of them
(ICMP reference 3.1, 3.2).

All is read from committed heights.

What a served lake of parachains with HRMP says of itself: its relay chain's last block, channels, what is in them,
with proofs (ICMP reference X-6).

All is read from committed heights.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from causeway_proofs.errors import InvalidInput
from pydantic import Field

from causeway.core.caches import cache_results
from causeway.network.opened_lake import OpenedLake
from causeway.protocols.hrmp.state import PAIR
from causeway.protocols.relay_chain.network import RELAY_POSITION
from causeway.protocols.relay_chain.state import OF_LEAVES
from causeway.protocols.shared.limits import MAX_ANSWER_BYTES
from causeway.proving.icmp.channels import (
    COMMITTED,
    ChannelRelay,
    ProvenChannels,
    channel_relay,
    prove_channel_contents,
)
from causeway.proving.icmp.messages import RelayState, program_free_rows, prove_message, relay_leaves, select_leaf
from causeway.proving.icmp.prover import entries_document, message_document, trust_document
from causeway.service.http.requests import Address, NotFound, Number, Query, address_of_view
from causeway.service.icmp.answers import (
    BlockAnswer,
    ChannelProofAnswer,
    ChannelsAnswer,
    HeadsAnswer,
    ProofAnswer,
    StateProofAnswer,
)
from causeway.service.node.endpoint import LakeViews
from causeway.storage.lake import LakeError

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

    def relay_height(self, chain: str, height: int | None) -> int:
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
        self._leaves = cache_results(partial(relay_leaves, opened), KEPT_BYTES, _weight)

    def heads(self, chain: str, height: int | None) -> dict[str, Any]:
        """Return the leaves of the relay chain, which ``chain`` has to be, after a height; refuses as ``of_relay``."""
        height = self.relay_height(chain, height)
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
            relay = select_leaf(leaves, leaf)
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
        blocks = program_free_rows(self.opened, self.manifest(height), "blocks", RELAY_POSITION)
        yield from zip(blocks["leaf"].tolist(), blocks["number"].tolist(), strict=True)

    def waiting(self, height: int) -> Iterator[tuple[str, int]]:
        """Yield what ``RelayViews`` says."""
        rows = program_free_rows(self.opened, self.manifest(height), "unrouted", RELAY_POSITION)
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


_SHOWN = ("max_capacity", "max_total_size", "max_message_size", "msg_count", "total_size", "closing")


class ChannelViews(RelayViews):
    """The views of a network with HRMP channels, whose relay chain has one leaf."""

    def __init__(self, opened: OpenedLake) -> None:
        super().__init__(opened)
        self._relays = cache_results(partial(channel_relay, opened), KEPT_BYTES, _channel_views_weight)

    def head(self, chain: str, height: int | None) -> dict[str, Any]:
        """Return the last block of the relay chain, which ``chain`` has to be, after a height; refuses as
        ``of_relay``."""
        relay = self._relays(self.relay_height(chain, height))
        block = relay.tables["blocks"]
        digests = {name: block[name][-1].tobytes().hex() for name in ("hash", "parent")}
        return {"height": relay.height, "number": relay.number, **digests, "root": relay.trie.root.hex()}

    def received(self, what: str, chain: str, height: int | None) -> dict[str, Any]:
        """Return the proof of how far a parachain has consumed (``watermark``), or of all that waits for it, too
        (``ingress``), after a height.

        Raises:
            InvalidInput: there is no such parachain, or the proof is longer than an answer may be (``LakeError``: no
                such height).
        """
        return _channel_views_answer(self._shown(what, chain, self.known(chain, height)))

    def channels(self, chain: str, height: int | None) -> dict[str, Any]:
        """Return the channels from a parachain and to it after a height, with a proof that there are no others; refuses
        as ``received``."""
        shown = self._shown("channels", chain, self.known(chain, height))
        table, para = shown.relay.tables["channels"], self.opened.position(chain)
        mine = table.filter((table["sender"] == np.uint32(para)) | (table["recipient"] == np.uint32(para)))
        numbers = zip(*(mine[name].tolist() for name in (*PAIR, *_SHOWN)), strict=True)
        names = self.opened.names
        rows = [
            {
                "sender": names[sender],
                "recipient": names[recipient],
                **dict(zip(_SHOWN, values, strict=True)),
                "mqc_head": head.tobytes().hex(),
            }
            for (sender, recipient, *values), head in zip(numbers, mine["mqc_head"], strict=True)
        ]
        return {**_channel_views_answer(shown, rows), "channels": rows}

    def channel(self, chain: str, counterparty: str, height: int | None) -> dict[str, Any]:
        """Return the proof of the channel from a parachain to another one after a height, and the messages in it.

        Raises:
            InvalidInput: as ``received``.
            NotFound: there is no such channel.
        """
        return self._between("channel", chain, counterparty, None, self.known(chain, height))

    def queued(self, chain: str, counterparty: str, index: int, height: int | None) -> dict[str, Any]:
        """Return the same of the channel in which message ``index`` waits; ``height`` None: after the first height
        after which it does. Refuses as ``channel``; ``NotFound``, too, where it is not in the channel."""
        height = None if height is None else self.known(chain, height)
        return self._between("index", chain, counterparty, index, height)

    def _between(
        self, what: str, chain: str, counterparty: str, index: int | None, height: int | None
    ) -> dict[str, Any]:
        for name in (chain, counterparty):
            self.known(name, None)
        try:
            shown = self._shown(what, chain, height, counterparty, index)
        except LakeError:  # one that is damaged, say
            raise
        except InvalidInput as error:
            raise NotFound(str(error)) from None
        return {**_channel_views_answer(shown, shown.queue), "queue": shown.queue}

    def _shown(
        self, what: str, chain: str, height: int | None, counterparty: str | None = None, index: int | None = None
    ) -> ProvenChannels:
        return prove_channel_contents(self.opened, what, chain, counterparty, index, height, self._relays)

    def numbers(self, height: int) -> Iterator[tuple[int, int]]:
        """Yield what ``RelayViews`` says."""
        blocks = program_free_rows(self.opened, self.manifest(height), "blocks", RELAY_POSITION)
        yield 0, int(blocks["number"][-1])

    def waiting(self, height: int) -> Iterator[tuple[str, int]]:
        """Yield what ``RelayViews`` says."""
        channels = program_free_rows(self.opened, self.manifest(height), "channels", RELAY_POSITION)
        counts: Counter[int] = Counter()
        for to, count in zip(channels["recipient"].tolist(), channels["msg_count"].tolist(), strict=True):
            counts[to] += count
        yield from ((self.opened.names[to], count) for to, count in sorted(counts.items()) if count)


def _channel_views_answer(shown: ProvenChannels, beside: Any = None) -> dict[str, Any]:
    require_fits([shown.document, beside])
    return {"height": shown.relay.height, "proof": shown.document, "trust": shown.relay.trust()}


def _channel_views_weight(relay: ChannelRelay) -> int:
    """Return about how many bytes the state of a relay chain has."""
    rows = sum(len(relay.tables[name]) for name in COMMITTED)
    # Contents are there in the tables, as well.
    values = 2 * sum(map(len, relay.entries.values()))
    return relay.trie.tries.live_bytes + values + ROW_BYTES * (rows + len(relay.entries))


CHAIN = "/v1/chains/{chain}"
QUEUED = f"{CHAIN}/queued/{{counterparty}}"


class HeightQuery(Query):
    """A height."""

    height: Number | None = Field(None, description="A committed height; without it, the last.")


class LeafQuery(HeightQuery):
    """A leaf of the relay chain after a height."""

    leaf: str | None = Field(
        None,
        pattern=r"^([0-9]{1,3}|[0-9a-fA-F]{64})$",
        description="Its number, or the hash of its block; without it, the one with the lowest number.",
    )


class PageQuery(HeightQuery):
    """A message of a lane."""

    index: Number = Field(..., description="Its number in the lane, from 0.")


class MessageQuery(PageQuery, LeafQuery):
    """A message of a lane, at a leaf of the relay chain."""


def addresses(views: Views | ChannelViews) -> list[Address]:
    """Return the leaves of the relay chain, and proofs at each of them; of a network with channels, its last block and
    proofs of channels and of what is in them."""
    relay = [views.relay]
    paras = [name for name in views.opened.names if name != views.relay]
    at = address_of_view
    if isinstance(views, ChannelViews):
        about = "proved under the relay chain's state"
        watermark, ingress = (partial(views.received, what) for what in ("watermark", "ingress"))
        consumed = f"How far a parachain has consumed, {about}."
        waiting = f"All channels to a parachain with what is in them, {about}."
        every = f"All channels from a parachain and to it, {about}."
        one = f"The channel to another parachain and what is in it, {about}."
        message = f"A message to another parachain that is not consumed, with all that is in their channel, {about}."
        pair = {"chain": paras, "counterparty": paras}
        return [
            at(
                f"{CHAIN}/head", "The last block of the relay chain.", views.head, BlockAnswer, HeightQuery, chain=relay
            ),
            at(f"{CHAIN}/watermark", consumed, watermark, StateProofAnswer, HeightQuery, chain=paras),
            at(f"{CHAIN}/ingress", waiting, ingress, StateProofAnswer, HeightQuery, chain=paras),
            at(f"{CHAIN}/channels", every, views.channels, ChannelsAnswer, HeightQuery, chain=paras),
            at(f"{CHAIN}/channel/{{counterparty}}", one, views.channel, ChannelProofAnswer, HeightQuery, **pair),
            at(QUEUED, message, views.queued, ChannelProofAnswer, PageQuery, **pair),
        ]
    about = "proved at a leaf of the relay chain"
    consumed = f"How far a parachain has consumed, {about}."
    waiting = f"All queues that wait for a parachain, {about}."
    message = f"A message to another parachain that is not consumed, {about}."
    return [
        at(f"{CHAIN}/heads", "The leaves of the relay chain.", views.heads, HeadsAnswer, HeightQuery, chain=relay),
        at(f"{CHAIN}/watermark", consumed, views.watermark, ProofAnswer, LeafQuery, chain=paras),
        at(f"{CHAIN}/ingress", waiting, views.ingress, ProofAnswer, LeafQuery, chain=paras),
        at(QUEUED, message, views.queued, ProofAnswer, MessageQuery, chain=paras, counterparty=paras),
    ]
