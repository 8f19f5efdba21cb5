"""Channels as the messenger stores them (XDM reference 2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from causeway_proofs.substrate.errors import FailedToDecode
from causeway_proofs.xdm.messages import XDM_TYPES

STATES = ("Initiated", "Open", "Closed")


@dataclass(frozen=True, slots=True)
class Channel:
    """One side's record of a channel.

    ``relay_fee`` is the fee model of the old layout, None in the deployed one; ``maybe_owner`` is an account of 32
    bytes, or of 20 on a domain with such accounts, None on the side that did not initiate.
    """

    channel_id: int
    state: str = "Initiated"
    next_inbox_nonce: int = 0
    next_outbox_nonce: int = 0
    latest_response_received_message_nonce: int | None = None
    max_outgoing_messages: int = 1
    relay_fee: int | None = None
    maybe_owner: bytes | None = None
    channel_reserve_fee: int = 0

    def encode(self) -> bytes:
        """Return the SCALE encoding, in the old layout if there is a ``relay_fee``.

        Raises:
            InvalidInput: a field does not fit its type.
        """
        plain: dict[str, Any] = {name: getattr(self, name) for name in _PLAIN_FIELDS}
        if self.relay_fee is not None:
            plain["fee"] = {"relay_fee": self.relay_fee}
        short = self.maybe_owner is not None and len(self.maybe_owner) == _SHORT_ACCOUNT
        return XDM_TYPES.encode(_layout(self.relay_fee is None, short), plain)

    @classmethod
    def decode(cls, data: bytes, *, version: int = 1, account_bytes: int = 32) -> Channel:
        """Return the channel that ``data`` is the canonical encoding of, in layout 0 (with a fee) or 1.

        Raises:
            FailedToDecode: it is no channel.
        """
        if version not in (0, 1) or account_bytes not in (_SHORT_ACCOUNT, 32):
            raise FailedToDecode(f"no channel has layout {version} with accounts of {account_bytes} bytes")
        plain = XDM_TYPES.decode(_layout(version == 1, account_bytes == _SHORT_ACCOUNT), data, "a channel")
        fee = plain.pop("fee", None)
        return cls(**plain, relay_fee=None if fee is None else fee["relay_fee"])


_SHORT_ACCOUNT = 20

_PLAIN_FIELDS = (
    "channel_id",
    "state",
    "next_inbox_nonce",
    "next_outbox_nonce",
    "latest_response_received_message_nonce",
    "max_outgoing_messages",
    "maybe_owner",
    "channel_reserve_fee",
)


def _layout(deployed: bool, short_accounts: bool) -> str:
    return f"ChannelV{int(deployed)}" + ("Account20" if short_accounts else "")
