"""An order book, a vault and traders on chains of their own: what is bought on one chain is delivered on another.

An order is for one lot. A buyer attaches its money to the order, and the book holds it by leaving the order unanswered.
When two orders meet, the book settles the trade in two steps, each a call to another chain: the vault hands the lot
over, then the seller gets the money. If the vault will not, the seller's order is rejected and the buyer's goes back
into the book. If the seller does not take the money, the book makes good for the first step: the vault takes the lot
back, and the buyer gets its money.

``examples/test_orders.py`` runs it under every protocol; ``docs/how-to/test-programs.md`` tells how it was made.
"""

from __future__ import annotations

from typing import Any

import causeway as cw

Order = dict[str, Any]


class Book(cw.Program):
    """Matches orders by price, then by time. Calls the program named ``vault``."""

    def initial_state(self) -> dict[str, Any]:
        """Return an empty book."""
        return {"bids": [], "asks": [], "trades": {}, "count": 0, "settled": 0, "undone": 0}

    def on_request(self, request: cw.Request, context: cw.Context) -> None:
        """Take an order, ``buy`` or ``sell``, whose payload is its price; it is answered once it is settled."""
        if request.method not in ("buy", "sell"):
            raise cw.Reject(f"no method {request.method}")
        price = int(request.payload)
        if request.method == "buy" and request.amount < price:
            raise cw.Reject(f"{request.amount} does not pay {price}")
        order = {"ref": request.ref, "trader": request.sender, "price": price}
        self._place(order, "bids" if request.method == "buy" else "asks")
        self._match(context)

    def _place(self, order: Order, side: str) -> None:
        best_first = 1 if side == "asks" else -1
        self.state[side] = sorted([*self.state[side], order], key=lambda one: best_first * one["price"])

    def _match(self, context: cw.Context) -> None:
        while self.state["bids"] and self.state["asks"]:
            if self.state["bids"][0]["price"] < self.state["asks"][0]["price"]:
                return
            bid, ask = self.state["bids"].pop(0), self.state["asks"].pop(0)
            self.state["count"] += 1
            number = self.state["count"]
            self.state["trades"][number] = {"bid": bid, "ask": ask, "price": ask["price"]}
            self._move(ask["trader"], bid["trader"], {"trade": number, "step": "deliver"}, context)

    def _move(self, giver: int, taker: int, note: dict[str, Any], context: cw.Context) -> None:
        context.call("vault", "move", f"{giver} {taker}".encode(), note=note)

    def on_reply(self, reply: cw.Reply, context: cw.Context) -> None:
        """Go on with the trade that the call was for."""
        trade = self.state["trades"][reply.note["trade"]]
        getattr(self, "_after_" + reply.note["step"])(reply, trade, context)

    def _after_deliver(self, reply: cw.Reply, trade: dict[str, Any], context: cw.Context) -> None:
        bid, ask, price = trade["bid"], trade["ask"], trade["price"]
        if reply.ok:
            context.answer(bid["ref"], b"bought at %d" % price, accept=price)
            context.call(ask["trader"], "pay", amount=price, note={**reply.note, "step": "pay"})
            return
        assert reply.reject is not None
        context.reject(ask["ref"], f"not delivered: {reply.reject.value}")
        del self.state["trades"][reply.note["trade"]]
        self._place(bid, "bids")
        self._match(context)

    def _after_pay(self, reply: cw.Reply, trade: dict[str, Any], context: cw.Context) -> None:
        bid, ask = trade["bid"], trade["ask"]
        if reply.ok:
            context.answer(ask["ref"], b"sold at %d" % trade["price"])
            self.state["settled"] += 1
            del self.state["trades"][reply.note["trade"]]
            return
        context.reject(ask["ref"], "the money came back")
        self._move(bid["trader"], ask["trader"], {**reply.note, "step": "return"}, context)

    def _after_return(self, reply: cw.Reply, trade: dict[str, Any], context: cw.Context) -> None:
        context.call(trade["bid"]["trader"], "pay", amount=trade["price"], note={**reply.note, "step": "refund"})

    def _after_refund(self, reply: cw.Reply, trade: dict[str, Any], context: cw.Context) -> None:
        self.state["undone"] += 1
        del self.state["trades"][reply.note["trade"]]


class Vault(cw.Program):
    """Keeps lots. Options: ``lots``, by the names of their owners."""

    def initial_state(self) -> dict[str, Any]:
        """Return the lots by name; they are kept by number once somebody moves them."""
        return {"lots": dict(self.options["lots"])}

    def on_request(self, request: cw.Request, context: cw.Context) -> bytes:
        """Move a lot from one owner to another (numbers), if the book says so and there is one."""
        if request.method != "move" or context.name_of(request.sender) != "book":
            raise cw.Reject("only the book moves lots")
        giver, taker = (str(context.name_of(int(number))) for number in request.payload.split())
        lots = self.state["lots"]
        if lots.get(giver, 0) < 1:
            raise cw.Reject(f"{giver} has no lot")
        lots[giver] -= 1
        lots[taker] = lots.get(taker, 0) + 1
        return b"moved"


class Trader(cw.Program):
    """Places the orders that its user asks for. Options: ``book``, and whether it ``takes`` money."""

    def initial_state(self) -> dict[str, Any]:
        """Return a trader without orders."""
        return {"heard": [], "earned": 0, "spent": 0}

    def on_ingress(self, message: cw.Ingress, context: cw.Context) -> None:
        """Place an order: the method is ``buy`` or ``sell``, the payload the price."""
        amount = int(message.payload) if message.method == "buy" else 0
        context.call(self.options["book"], message.method, message.payload, amount=amount, note=amount)

    def on_reply(self, reply: cw.Reply, context: cw.Context) -> None:
        """Note what became of an order, and what it cost."""
        self.state["heard"].append(reply.payload.decode())
        self.state["spent"] += reply.note - reply.refund

    def on_request(self, request: cw.Request, context: cw.Context) -> tuple[bytes, int]:
        """Take money."""
        if request.method != "pay" or not self.options.get("takes", True):
            raise cw.Reject("no, thank you")
        self.state["earned"] += request.amount
        return b"thank you", request.amount
