"""The books of one transfer program: who holds what, what is in escrow for whom, which transfers are open (ICS-20).

Every operation checks first and writes last: what it refuses has changed nothing.
"""

from __future__ import annotations

from typing import Any

import cbor2

from causeway.programs.token_packet import MAX_AMOUNT, Refused, TokenPacket, hop, require_denom, trace_of, user_of

NO_BOOKS: dict[str, Any] = {
    "accounts": {},
    "escrow": {},
    "supply": {},
    "open": {},
    "delivered": 0,
    "refunded": 0,
    "received": 0,
    "refused": {},
}
"""The books of a new program. ``accounts``: denomination -> user -> amount. ``escrow``: peer -> denomination -> amount.
``supply``: denomination -> all that there is of it here. ``open``: callback id -> [user, peer, denomination, amount] of
a transfer that has no outcome yet. ``refused``: why users' messages were refused -> how many. Nothing is kept at 0."""


class TokenBook:
    """The books of program ``number``, over a mapping as in ``NO_BOOKS``, which it changes."""

    def __init__(self, number: int, books: dict[str, Any], blocked: frozenset[int] = frozenset()) -> None:
        self.number = number
        self.books = books
        self._blocked = blocked
        self._accounts: dict[str, dict[int, int]] = books["accounts"]
        self._escrow: dict[int, dict[str, int]] = books["escrow"]
        self._supply: dict[str, int] = books["supply"]

    @classmethod
    def decode(cls, number: int, encoded: bytes, blocked: frozenset[int] = frozenset()) -> TokenBook:
        """Return the books that ``encode`` gave."""
        return cls(number, cbor2.loads(encoded), blocked)

    def encode(self) -> bytes:
        """Return the books as canonical CBOR: equal books are equal bytes."""
        return cbor2.dumps(self.books, canonical=True)

    def balance(self, user: int, denom: str) -> int:
        """Return what a user holds of a denomination."""
        return self._accounts.get(denom, {}).get(user, 0)

    # ---- on one zone

    def mint(self, user: int, denom: str, amount: int) -> None:
        """Make new units of a denomination that is at home here, and give them to a user."""
        require_denom(denom)
        if trace_of(denom)[0]:
            raise Refused("InvalidDenom", "vouchers come from their channel only")
        self._require_room(denom, amount)
        self._require_creditable(user)
        self._supply[denom] = self._supply.get(denom, 0) + amount
        self._credit(user, denom, amount)

    def send(self, user: int, receiver: int, denom: str, amount: int) -> None:
        """Give units of one user to another on this zone."""
        self._require_funds(user, denom, amount)
        self._require_creditable(receiver)
        self._debit(user, denom, amount)
        self._credit(receiver, denom, amount)

    # ---- between zones

    def begin(self, callback: int, user: int, peer: int, packet: TokenPacket) -> None:
        """Begin the transfer that the call ``callback`` to ``peer`` carries: its amount leaves the user's account.

        A voucher that came from this very peer is burnt; anything else goes into the escrow for the peer.
        """
        denom, amount = packet.denom, packet.amount
        if peer == self.number:
            raise Refused("InvalidPeer", "a transfer goes to another program")
        self._require_funds(user, denom, amount)
        self._debit(user, denom, amount)
        if denom.startswith(hop(peer)):
            _add(self._supply, denom, -amount)
        else:
            _add(self._escrow.setdefault(peer, {}), denom, amount)
        self.books["open"][callback] = [user, peer, denom, amount]

    def receive(self, peer: int, packet: TokenPacket) -> None:
        """Credit what a packet of ``peer`` brings.

        A token that is at home here, or came through here, comes out of the escrow for that peer, which never pays more
        than it holds: whatever a peer claims, it cannot make tokens of ours. Anything else becomes a voucher.
        """
        if peer == self.number:
            raise Refused("InvalidPeer", "a transfer comes from another program")
        receiver, amount = user_of(packet.receiver), packet.amount
        self._require_creditable(receiver)
        if packet.denom.startswith(hop(self.number)):
            denom = packet.denom.removeprefix(hop(self.number))
            held = self._escrow.get(peer, {}).get(denom, 0)
            if amount > held:
                raise Refused("InsufficientEscrow", f"{amount} asked, {held} held for this peer")
            self._release(peer, denom, amount)
        else:
            denom = hop(peer) + packet.denom
            require_denom(denom)
            self._require_room(denom, amount)
            _add(self._supply, denom, amount)
        self._credit(receiver, denom, amount)
        self.books["received"] += 1

    def end(self, callback: int, *, delivered: bool) -> bool:
        """End a transfer with its outcome; one that was not delivered goes back to the user.

        Returns whether it was open: each transfer ends once, whatever comes again. A refund needs nobody's leave: not
        room below 2**256, for it was ours, nor an account that may be credited.
        """
        transfer = self.books["open"].pop(callback, None)
        if transfer is None:
            return False
        if delivered:
            self.books["delivered"] += 1
            return True
        user, peer, denom, amount = transfer
        if denom.startswith(hop(peer)):
            _add(self._supply, denom, amount)
        else:
            self._release(peer, denom, amount)
        self._credit(user, denom, amount)
        self.books["refunded"] += 1
        return True

    def count_refusal(self, reason: str) -> None:
        """Note that a user's message was refused."""
        refused = self.books["refused"]
        refused[reason] = refused.get(reason, 0) + 1

    # ---- steps

    def _require_funds(self, user: int, denom: str, amount: int) -> None:
        held = self.balance(user, denom)
        if amount > held:
            raise Refused("InsufficientFunds", f"{amount} asked, {held} held")

    def _require_creditable(self, user: int) -> None:
        if user in self._blocked:
            raise Refused("BlockedReceiver", f"user {user} may not be credited")

    def _require_room(self, denom: str, amount: int) -> None:
        if self._supply.get(denom, 0) + amount > MAX_AMOUNT:
            raise Refused("SupplyOverflow", "more than 2**256 - 1 of one denomination")

    def _credit(self, user: int, denom: str, amount: int) -> None:
        _add(self._accounts.setdefault(denom, {}), user, amount)

    def _debit(self, user: int, denom: str, amount: int) -> None:
        accounts = self._accounts[denom]
        _add(accounts, user, -amount)
        if not accounts:
            del self._accounts[denom]

    def _release(self, peer: int, denom: str, amount: int) -> None:
        _add(self._escrow[peer], denom, -amount)
        if not self._escrow[peer]:
            del self._escrow[peer]


def _add(amounts: dict[Any, int], key: Any, amount: int) -> None:
    after = amounts.get(key, 0) + amount
    if after:
        amounts[key] = after
    else:
        del amounts[key]
