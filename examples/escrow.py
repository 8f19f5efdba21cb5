"""An escrow across chains: it takes the buyer's money, pays the seller, and answers the buyer when the seller is paid.

``Context.accept`` puts the attached amount into the escrow's balance before the buyer has an answer, so that the escrow
can attach it to its call to the seller. What is accepted does not come back with the answer: when the seller does not
take the money, the escrow calls the buyer to return it.
"""

from __future__ import annotations

from typing import Any

import causeway as cw


class Escrow(cw.Program):
    """Passes payments on. Option ``seller``: the program that is paid."""

    def initial_state(self) -> dict[str, Any]:
        """Return an escrow through which nothing was sold."""
        return {"sold": 0, "returned": 0}

    def on_request(self, request: cw.Request, context: cw.Context) -> None:
        """Take custody of the amount and pay the seller; the buyer has to wait."""
        context.accept(request.amount)
        note = {"buyer": request.ref, "amount": request.amount}
        context.call(self.options["seller"], "pay", amount=request.amount, note=note)

    def on_reply(self, reply: cw.Reply, context: cw.Context) -> None:
        """Answer the buyer; return the money if the seller did not take it."""
        if reply.note is None:  # the answer to a return: the money of a buyer that does not take it stays here
            return
        buyer = reply.note["buyer"]
        if reply.ok:
            self.state["sold"] += 1
            context.answer(buyer, b"sold")
        else:
            self.state["returned"] += 1
            context.call(buyer[0], "return", amount=reply.note["amount"])
            context.reject(buyer, "the seller does not take the money")


class Seller(cw.Program):
    """Takes money, unless its option ``open`` is false."""

    def on_request(self, request: cw.Request, context: cw.Context) -> tuple[bytes, int]:
        """Accept the whole amount."""
        if not self.options.get("open", True):
            raise cw.Reject("closed")
        return b"paid", request.amount


class Buyer(cw.Program):
    """Buys through the option ``escrow`` when its user says so."""

    def initial_state(self) -> dict[str, Any]:
        """Return a buyer that has bought nothing."""
        return {"bought": 0, "refused": 0}

    def on_ingress(self, message: cw.Ingress, context: cw.Context) -> None:
        """Pay the amount that stands in the payload."""
        context.call(self.options["escrow"], "buy", amount=int(message.payload))

    def on_request(self, request: cw.Request, context: cw.Context) -> tuple[bytes, int]:
        """Take money back."""
        return b"", request.amount

    def on_reply(self, reply: cw.Reply, context: cw.Context) -> None:
        """Count purchases."""
        self.state["bought" if reply.ok else "refused"] += 1
