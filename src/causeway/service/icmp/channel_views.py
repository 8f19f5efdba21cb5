"""What a served lake of parachains with HRMP says of itself: its relay chain's last block, channels, what is in them,
with proofs (ICMP reference X-6).

All is read from committed heights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from causeway.model.errors import InvalidInput
from causeway.model.kept import remembering
from causeway.network.opened import OpenedLake
from causeway.pipeline.lake import LakeError
from causeway.protocols.icmp.chains import RELAY_POSITION
from causeway.protocols.icmp.hrmp.tables import PAIR
from causeway.proving.icmp.channels import COMMITTED, ChannelRelay, ShownChannels, channel_relay, show_channels
from causeway.proving.icmp.relay import rows_of
from causeway.service.icmp.views import KEPT_BYTES, ROW_BYTES, RelayViews, require_fits
from causeway.service.requests import NotFound

_SHOWN = ("max_capacity", "max_total_size", "max_message_size", "msg_count", "total_size", "closing")


class ChannelViews(RelayViews):
    """The views of a network with HRMP channels, whose relay chain has one leaf."""

    def __init__(self, opened: OpenedLake) -> None:
        super().__init__(opened)
        self._relays = remembering(partial(channel_relay, opened), KEPT_BYTES, _weight)

    def head(self, chain: str, height: int | None) -> dict[str, Any]:
        """Return the last block of the relay chain, which ``chain`` has to be, after a height; refuses as
        ``of_relay``."""
        relay = self._relays(self.of_relay(chain, height))
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
        return _answer(self._shown(what, chain, self.known(chain, height)))

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
        return {**_answer(shown, rows), "channels": rows}

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
        return {**_answer(shown, shown.queue), "queue": shown.queue}

    def _shown(
        self, what: str, chain: str, height: int | None, counterparty: str | None = None, index: int | None = None
    ) -> ShownChannels:
        return show_channels(self.opened, what, chain, counterparty, index, height, self._relays)

    def numbers(self, height: int) -> Iterator[tuple[int, int]]:
        """Yield what ``RelayViews`` says."""
        blocks = rows_of(self.opened, self.manifest(height), "blocks", RELAY_POSITION)
        yield 0, int(blocks["number"][-1])

    def waiting(self, height: int) -> Iterator[tuple[str, int]]:
        """Yield what ``RelayViews`` says."""
        channels = rows_of(self.opened, self.manifest(height), "channels", RELAY_POSITION)
        counts: Counter[int] = Counter()
        for to, count in zip(channels["recipient"].tolist(), channels["msg_count"].tolist(), strict=True):
            counts[to] += count
        yield from ((self.opened.names[to], count) for to, count in sorted(counts.items()) if count)


def _answer(shown: ShownChannels, beside: Any = None) -> dict[str, Any]:
    require_fits([shown.document, beside])
    return {"height": shown.relay.height, "proof": shown.document, "trust": shown.relay.trust()}


def _weight(relay: ChannelRelay) -> int:
    """Return about how many bytes the state of a relay chain has."""
    rows = sum(len(relay.tables[name]) for name in COMMITTED)
    # Contents are there in the tables, as well.
    values = 2 * sum(map(len, relay.entries.values()))
    return relay.trie.tries.live_bytes + values + ROW_BYTES * (rows + len(relay.entries))
