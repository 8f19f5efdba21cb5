"""An auction across chains: a house on one chain, bidders on others, money attached to calls.

A bid is a call to the house with the money attached. The house leaves the best bid unanswered and so holds its money;
who is outbid is answered with a reject, which brings the money back. When the auction closes, the best bid is answered
with "sold".

    causeway run examples/auction.toml --executor in_process --lake lake-auction
    causeway state lake-auction --table program_auction:Bidder
"""

from __future__ import annotations

from typing import Any

import causeway as cw


class House(cw.Program):
    """Sells one thing. Option ``reserve``: the least that it is sold for."""

    def initial_state(self) -> dict[str, Any]:
        """Return an open auction without bids."""
        return {"open": True, "best": None, "bids": 0, "sold_to": None, "price": 0}

    def on_request(self, request: cw.Request, context: cw.Context) -> None:
        """Take a bid: hold it if it is the best, and send back the one that was."""
        if not self.state["open"]:
            raise cw.Reject("closed")
        self.state["bids"] += 1
        best = self.state["best"]
        least = best["amount"] + 1 if best else self.options.get("reserve", 1)
        if request.amount < least:
            raise cw.Reject(f"bid at least {least}")
        if best:
            context.reject(best["ref"], f"bid at least {request.amount + 1}")
        self.state["best"] = {"ref": request.ref, "amount": request.amount, "bidder": request.sender}

    def on_ingress(self, message: cw.Ingress, context: cw.Context) -> None:
        """Close the auction: the best bid gets its answer, and its money stays here."""
        best, self.state["open"] = self.state["best"], False
        if best:
            context.answer(best["ref"], b"sold", accept=best["amount"])
            self.state.update(best=None, sold_to=best["bidder"], price=best["amount"])


class Bidder(cw.Program):
    """Bids when its user says so, and again when it is outbid. Options: ``house`` (a program), ``step``, ``limit``."""

    def initial_state(self) -> dict[str, Any]:
        """Return a bidder that has not bid."""
        return {"bids": 0, "won": False, "paid": 0}

    def on_ingress(self, message: cw.Ingress, context: cw.Context) -> None:
        """Make the first bid: the amount stands in the payload."""
        self._bid(int(message.payload), context)

    def on_reply(self, reply: cw.Reply, context: cw.Context) -> None:
        """Note that it has won; or, told what the house wants to hear, bid again up to the limit."""
        if reply.ok:
            self.state.update(won=True, paid=reply.note)
            return
        words = reply.payload.decode().split()
        if words[0] == "bid":
            least = int(words[-1])
            amount = min(least + self.options["step"], self.options["limit"])
            if amount >= least:
                self._bid(amount, context)

    def _bid(self, amount: int, context: cw.Context) -> None:
        context.call(self.options["house"], "bid", amount=amount, note=amount)
        self.state["bids"] += 1
