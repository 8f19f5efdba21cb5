"""A token ledger on every subnet; calls move value between ledgers, and rejects return it.

Ingress methods, with payloads as CBOR maps:

- ``mint`` {"amount"}: new units for the user; they raise the supply.
- ``transfer`` {"to": user, "amount", "ledger": number of the other ledger, absent for this one}.

A transfer to another ledger debits the user at once and holds the amount in escrow until the other ledger answers the
call ``credit``. On data the escrow is burnt, since the other ledger has raised its supply. On a reject it is returned.
"""

from __future__ import annotations

from typing import Any

import cbor2

from causeway.programs.scalar import Context, Ingress, Program, Reject, Reply, Request


class TokenLedger(Program):
    """Accounts of users on a subnet.

    Option ``peers``: ledgers with accepted credits (default: all).
    """

    def initial_state(self) -> dict[str, Any]:
        """Return empty accounts, escrow and supply."""
        return {"accounts": {}, "escrow": 0, "supply": 0, "refused": 0}

    def on_ingress(self, message: Ingress, context: Context) -> None:
        """Mint or transfer; an impossible transfer only raises the counter ``refused``."""
        order = cbor2.loads(message.payload)
        amount = order["amount"]
        if message.method == "mint":
            self._add(message.user, amount)
            self.state["supply"] += amount
        elif self.state["accounts"].get(message.user, 0) < amount:
            self.state["refused"] += 1
        elif order.get("ledger", context.program) == context.program:
            self._add(message.user, -amount)
            self._add(order["to"], amount)
        else:
            self._add(message.user, -amount)
            self.state["escrow"] += amount
            credit = cbor2.dumps({"to": order["to"], "amount": amount}, canonical=True)
            context.call(order["ledger"], "credit", credit, note=[message.user, amount])

    def on_request(self, request: Request, context: Context) -> bytes:
        """Accept a credit from another ledger."""
        peers = self.options.get("peers")
        if request.method != "credit" or (peers is not None and request.sender not in peers):
            raise Reject("only known ledgers may credit")
        order = cbor2.loads(request.payload)
        self._add(order["to"], order["amount"])
        self.state["supply"] += order["amount"]
        return b"credited"

    def on_reply(self, reply: Reply, context: Context) -> None:
        """Burn the escrow of an accepted credit, or return that of a rejected one."""
        user, amount = reply.note
        self.state["escrow"] -= amount
        if reply.ok:
            self.state["supply"] -= amount
        else:
            self._add(user, amount)

    def _add(self, user: int, amount: int) -> None:
        accounts = self.state["accounts"]
        accounts[user] = accounts.get(user, 0) + amount
        if accounts[user] == 0:
            del accounts[user]
