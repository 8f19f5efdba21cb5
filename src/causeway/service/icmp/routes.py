"""Addresses and views of a served lake of parachains.

``EgressViews`` covers egress queues: the leaves of the relay chain, and proofs at each of them (ICMP reference
3.1, 3.2). ``ChannelViews`` covers HRMP: the last relay block, channels, their content, and proofs (ICMP
reference X-6). All views read committed heights.
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
from causeway.protocols.relay_chain.options import RELAY_POSITION
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
    HeadsAnswer,
    HrmpChannelsAnswer,
    ProofAnswer,
    StateProofAnswer,
)
from causeway.service.node.endpoint import LakeViews
from causeway.storage.lake import LakeError

KEPT_BYTES = 64 << 20
"""Cache size in bytes for states of the relay chain; at least one height's is cached."""

ANSWER_MARGIN = 4096
"""Bytes of an answer besides its proof."""

ROW_BYTES = 128
"""Maximum size in bytes of a row of a relay chain's table."""


class RelayViews(LakeViews, ABC):
    """Views of one lake of parachains; ``relay`` is the name of the relay chain."""

    def __init__(self, opened: OpenedLake) -> None:
        super().__init__(opened)
        self.relay = opened.names[RELAY_POSITION]

    def status(self) -> dict[str, Any]:
        """Return the network's identity and progress."""
        return {**super().status(), "relay": self.relay}

    def relay_height(self, chain: str, height: int | None) -> int:
        """Validate the relay chain's name and a height; return the height, by default the last.

        Args:
            chain: Name of the chain.
            height: A height.

        Raises:
            InvalidInput: The chain is not the relay chain.
            LakeError: The height is not committed.
        """
        if chain != self.relay:
            raise InvalidInput(f"chain: {chain[:128]}: is no relay chain; allowed: {self.relay}")
        return self.known(chain, height)

    @abstractmethod
    def numbers(self, height: int) -> Iterator[tuple[int, int]]:
        """Yield the number of each leaf and of its block."""

    @abstractmethod
    def waiting(self, height: int) -> Iterator[tuple[str, int]]:
        """Yield the parachains with pending input and its amount.

        It counts queues at the leaf with the lowest number, or messages in channels.
        """


class EgressViews(RelayViews):
    """Views of a network with egress queues."""

    def __init__(self, opened: OpenedLake) -> None:
        super().__init__(opened)
        self._leaves = cache_results(partial(relay_leaves, opened), KEPT_BYTES, _weight)

    def heads(self, chain: str, height: int | None) -> dict[str, Any]:
        """Return the leaves of the relay chain after a height.

        Raises:
            InvalidInput: The chain is not the relay chain.
        """
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
        """Prove a parachain's watermark at a leaf of the relay chain.

        Args:
            chain: Name of the parachain.
            height: A height, by default the last.
            leaf: Number or block hash of the leaf; by default the lowest number.

        Raises:
            InvalidInput: There is no such parachain.
            LakeError: The height is not committed.
            NotFound: There is no such leaf.
        """
        return self._entries(chain, height, leaf, ingress=False)

    def ingress(self, chain: str, height: int | None, leaf: str | None) -> dict[str, Any]:
        """Prove a parachain's watermark and pending ingress; arguments and errors as ``watermark``.

        Raises:
            InvalidInput: The proof exceeds the size of an answer.
        """
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
        """Prove a message of ``chain`` that is pending for ``counterparty``.

        Args:
            chain: Name of the sender.
            counterparty: Name of the recipient.
            index: Number of the message.
            height: A height, by default the last.
            leaf: Number or block hash of the leaf.

        Raises:
            InvalidInput: The proof exceeds the size of an answer.
            NotFound: No listed queue has the message.
        """
        height = self.known(chain, height)
        try:
            proven = prove_message(
                self.opened, chain, counterparty, index=index, height=height, leaf=leaf, leaves=self._leaves
            )
        except LakeError:  # one that is damaged, say
            raise
        except InvalidInput as error:
            raise NotFound(str(error)) from None
        return _answer(proven.relay, message_document(proven))

    def numbers(self, height: int) -> Iterator[tuple[int, int]]:
        """Yield the number of each leaf and of its block."""
        blocks = program_free_rows(self.opened, self.manifest(height), "blocks", RELAY_POSITION)
        yield from zip(blocks["leaf"].tolist(), blocks["number"].tolist(), strict=True)

    def waiting(self, height: int) -> Iterator[tuple[str, int]]:
        """Yield the parachains with pending queues at the lowest leaf."""
        rows = program_free_rows(self.opened, self.manifest(height), "unrouted", RELAY_POSITION)
        chains, counts = np.unique(rows["to"][rows["leaf"] == rows["leaf"].min(initial=255)], return_counts=True)
        yield from ((self.opened.names[to], count) for to, count in zip(chains.tolist(), counts.tolist(), strict=True))


def require_fits(document: Any) -> None:
    """Verify that a proof fits into an answer.

    Args:
        document: The proof.

    Raises:
        InvalidInput: It does not.
    """
    size = len(json.dumps(document))
    if size > MAX_ANSWER_BYTES - ANSWER_MARGIN:
        most = f"an answer at most {MAX_ANSWER_BYTES:,}"
        raise InvalidInput(f"the proof has {size:,} bytes, {most}: it can be taken only where the lake is")


def _answer(relay: RelayState, document: dict[str, Any]) -> dict[str, Any]:
    require_fits(document)
    return {"height": relay.height, "leaf": relay.place, "proof": document, "trust": trust_document(relay)}


def _weight(leaves: list[RelayState]) -> int:
    """Estimate the memory of leaves' states in bytes."""
    rows = sum(len(getattr(one.leaf, name)) for one in leaves for name in OF_LEAVES)
    return sum(one.trie.tries.live_bytes for one in leaves) + ROW_BYTES * rows


_CHANNEL_COLUMNS = ("max_capacity", "max_total_size", "max_message_size", "msg_count", "total_size", "closing")


class ChannelViews(RelayViews):
    """Views of a network with HRMP channels, whose relay chain has one leaf."""

    def __init__(self, opened: OpenedLake) -> None:
        super().__init__(opened)
        self._relays = cache_results(partial(channel_relay, opened), KEPT_BYTES, _channel_views_weight)

    def head(self, chain: str, height: int | None) -> dict[str, Any]:
        """Return the last relay block after a height.

        Raises:
            InvalidInput: The chain is not the relay chain.
        """
        relay = self._relays(self.relay_height(chain, height))
        block = relay.tables["blocks"]
        digests = {name: block[name][-1].tobytes().hex() for name in ("hash", "parent")}
        return {"height": relay.height, "number": relay.number, **digests, "root": relay.trie.root.hex()}

    def received(self, what: str, chain: str, height: int | None) -> dict[str, Any]:
        """Prove a parachain's watermark (``watermark``), or also its pending content (``ingress``).

        Args:
            what: ``watermark`` or ``ingress``.
            chain: Name of the parachain.
            height: A height, by default the last.

        Raises:
            InvalidInput: There is no such parachain, or the proof exceeds the size of an answer.
            LakeError: The height is not committed.
        """
        return _channel_views_answer(self._prove(what, chain, self.known(chain, height)))

    def channels(self, chain: str, height: int | None) -> dict[str, Any]:
        """Return all channels of a parachain, with a proof of completeness; errors as ``received``."""
        proven = self._prove("channels", chain, self.known(chain, height))
        table, para = proven.relay.tables["channels"], self.opened.position(chain)
        mine = table.filter((table["sender"] == np.uint32(para)) | (table["recipient"] == np.uint32(para)))
        numbers = zip(*(mine[name].tolist() for name in (*PAIR, *_CHANNEL_COLUMNS)), strict=True)
        names = self.opened.names
        rows = [
            {
                "sender": names[sender],
                "recipient": names[recipient],
                **dict(zip(_CHANNEL_COLUMNS, values, strict=True)),
                "mqc_head": head.tobytes().hex(),
            }
            for (sender, recipient, *values), head in zip(numbers, mine["mqc_head"], strict=True)
        ]
        return {**_channel_views_answer(proven, rows), "channels": rows}

    def channel(self, chain: str, counterparty: str, height: int | None) -> dict[str, Any]:
        """Prove the channel between two parachains with its messages.

        Args:
            chain: Name of the sender.
            counterparty: Name of the recipient.
            height: A height, by default the last.

        Raises:
            InvalidInput: As ``received``.
            NotFound: There is no such channel.
        """
        return self._between("channel", chain, counterparty, None, self.known(chain, height))

    def queued(self, chain: str, counterparty: str, index: int, height: int | None) -> dict[str, Any]:
        """Prove a channel with a pending message.

        Args:
            chain: Name of the sender.
            counterparty: Name of the recipient.
            index: Number of the message.
            height: A height, by default the first with the message.

        Raises:
            InvalidInput: As ``received``.
            NotFound: There is no such channel, or it does not hold the message.
        """
        height = None if height is None else self.known(chain, height)
        return self._between("index", chain, counterparty, index, height)

    def _between(
        self, selection: str, chain: str, counterparty: str, index: int | None, height: int | None
    ) -> dict[str, Any]:
        for name in (chain, counterparty):
            self.known(name, None)
        try:
            proven = self._prove(selection, chain, height, counterparty, index)
        except LakeError:  # one that is damaged, say
            raise
        except InvalidInput as error:
            raise NotFound(str(error)) from None
        return {**_channel_views_answer(proven, proven.queue), "queue": proven.queue}

    def _prove(
        self, selection: str, chain: str, height: int | None, counterparty: str | None = None, index: int | None = None
    ) -> ProvenChannels:
        return prove_channel_contents(self.opened, selection, chain, counterparty, index, height, self._relays)

    def numbers(self, height: int) -> Iterator[tuple[int, int]]:
        """Yield the leaf's and its block's number."""
        blocks = program_free_rows(self.opened, self.manifest(height), "blocks", RELAY_POSITION)
        yield 0, int(blocks["number"][-1])

    def waiting(self, height: int) -> Iterator[tuple[str, int]]:
        """Yield the parachains with messages in channels."""
        channels = program_free_rows(self.opened, self.manifest(height), "channels", RELAY_POSITION)
        counts: Counter[int] = Counter()
        for to, count in zip(channels["recipient"].tolist(), channels["msg_count"].tolist(), strict=True):
            counts[to] += count
        yield from ((self.opened.names[to], count) for to, count in sorted(counts.items()) if count)


def _channel_views_answer(proven: ProvenChannels, beside: Any = None) -> dict[str, Any]:
    require_fits([proven.document, beside])
    return {"height": proven.relay.height, "proof": proven.document, "trust": proven.relay.trust()}


def _channel_views_weight(relay: ChannelRelay) -> int:
    """Estimate the memory of a relay chain's state in bytes."""
    rows = sum(len(relay.tables[name]) for name in COMMITTED)
    # The tables hold the contents a second time.
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


def addresses(views: EgressViews | ChannelViews) -> list[Address]:
    """List the addresses of leaves and proofs, or of the last relay block and channels."""
    relay = [views.relay]
    paras = [name for name in views.opened.names if name != views.relay]
    at = address_of_view
    if isinstance(views, ChannelViews):
        about = "proved under the relay chain's state"
        watermark, ingress = (partial(views.received, selection) for selection in ("watermark", "ingress"))
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
            at(f"{CHAIN}/channels", every, views.channels, HrmpChannelsAnswer, HeightQuery, chain=paras),
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
