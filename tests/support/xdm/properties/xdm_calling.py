"""The oracle's network with programs that call each other by numbers, and wait for channels and for room.

What stands here is beside the reference (docs/decisions/0030-xdm-calls-and-late-answers.md).
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from tests.spec.xdm.channels import send_message
from tests.spec.xdm.endpoints import TRANSPORTER, Transfer, encode_transfer
from tests.spec.xdm.errors import XdmError
from tests.spec.xdm.network import Network
from tests.spec.xdm.programs import PROGRAMS, Call, account, encode, is_asked
from tests.spec.xdm.state import Account, ChainNode, Channel, ChannelState, note_transfer_out, subtract, transaction
from tests.spec.xdm.values import Chain, EndpointRequest
from tests.support.xdm.properties.xdm_driven import WIDTH, number_of
from tests.support.xdm.properties.xdm_kernel_rows import position_of
from tests.support.xdm.properties.xdm_networks import FUNDS
from tests.support.xdm.properties.xdm_scene_programs import Programs, credit_known
from tests.support.xdm.properties.xdm_scenes import Ask, Scene

RETURNED, WAITING = "returned", "waiting"


class Queued(NamedTuple):
    """A call of a program that has no channel so far: what it attached is in hand."""

    sender: Account
    dst: Chain
    amount: int
    callback: int
    receiver: int
    payload: bytes
    named: Account | None


class CallingNetwork(Network):
    """What users ask for stands in a journal; a chain queues its places there, and takes them in its next block."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.journal: list[tuple[int, Ask]] = []
        """Everything that users ask for, with the number of its tick."""
        self.queued: dict[Chain, list[int]] = defaultdict(list)
        self.given_up: set[tuple[Chain, Chain, int]] = set()
        super().__init__(scene.options, scene.domains, allowlists=scene.lists)

    def _called(self, c: ChainNode) -> None:
        """Programs have back what was refused in the block before, then they run, then what they sent goes out."""
        notes = c.state.notes
        programs = c.handlers[PROGRAMS]
        assert isinstance(programs, Programs)
        for sender, amount in notes.pop(RETURNED, ()):
            subtract_in_hand(c, amount)
            credit_known({sender})(c, sender, amount)
            programs.count(c, sender, False)
        queue = [*notes.pop(WAITING, ())]
        known = len(queue)
        asks, self.queued[c.chain_id] = self.queued[c.chain_id], []
        for ask in asks:
            try:
                queue.append(self._attach(c, self.journal[ask][1]))
            except XdmError as error:
                c.log("Refused", call="user", error=error.name)
        waits = []
        for place, call in enumerate(queue):
            try:
                with transaction(c):
                    self._send(c, call, fresh=place >= known)
            except XdmError as error:
                if error.name == "NoOpenChannel" and self._waits(c, call):
                    waits.append(call)
                else:
                    c.log("Refused", call="user", error=error.name)
                    notes = c.state.notes
                    notes[RETURNED] = (*notes.get(RETURNED, ()), (call.sender, call.amount))
        if waits:
            c.state.notes[WAITING] = tuple(waits)

    def _attach(self, c: ChainNode, ask: Ask) -> Queued:
        """A program makes a call: it has what it attaches, and the call has a number."""
        caller = number_of(ask.chain, ask.by)
        subtract(c.state.balances, account(caller), ask.amount, "LowBalance")
        c.state.in_hand += ask.amount
        callback = c.state.notes.get(("calls", caller), 0)
        c.state.notes["calls", caller] = callback + 1
        receiver = WIDTH * position_of(ask.dst) + ask.place
        named = ask.receiver
        if named is not None and named.rstrip() in FUNDS:
            named = account(number_of(ask.dst, named))
        return Queued(account(caller), ask.dst, ask.amount, callback, receiver, ask.payload, named)

    def _send(self, c: ChainNode, call: Queued, fresh: bool) -> None:
        """The checks of X-3 come first, when the call is made; then those of 3.3, whenever it may leave."""
        if call.named is not None and fresh:
            if call.amount < c.options.minimum_transfer:
                raise XdmError("MinimumTransferAmount")
            if not any(call.named):
                raise XdmError("InvalidAccountId")
            if not c.state.balances.get(call.sender, 0):
                raise XdmError("LowBalance")
        if call.named is not None:
            endpoint = TRANSPORTER
            content = encode_transfer(Transfer(call.amount, (c.chain_id, call.sender), (call.dst, call.named)))
        else:
            endpoint = PROGRAMS
            sender = int.from_bytes(call.sender[:8], "little")
            content = encode(Call(call.callback, sender, call.receiver, call.amount, 0, b"call", call.payload))
        request = EndpointRequest(endpoint, endpoint, content)
        channel, nonce = send_message(c, call.sender, call.dst, request)
        if call.named is not None:
            c.state.outgoing_transfers[call.dst, channel, nonce] = content
        if call.amount:
            subtract_in_hand(c, call.amount)
            note_transfer_out(c, call.amount, call.dst)
            where = {"foreign": call.dst, "channel_id": channel, "nonce": nonce}
            c.log("Transfer", **where, kind="out", amount=call.amount, by=call.sender)

    def _waits(self, c: ChainNode, call: Queued) -> bool:
        """Whether a channel for a call may have room, or be opened, later."""
        if not self.scene.waits:
            return False
        own = {number: ch for (foreign, number), ch in c.state.channels.items() if foreign == call.dst}
        if any(ch.state == ChannelState.OPEN for ch in own.values()):
            return True
        asked = [n for n, ch in own.items() if is_asked(ch) and (c.chain_id, call.dst, n) not in self.given_up]
        shown = self.shown[call.dst]
        theirs = [n for (foreign, n), ch in shown.items() if foreign == c.chain_id and is_asked(ch)]
        tick = self.view.best - 1
        later = any(
            (ask.channel is None and (ask.chain, ask.foreign, ask.tick > tick) == (c.chain_id, call.dst, True))
            or (ask.channel is None and (ask.chain, ask.foreign, ask.tick >= tick) == (call.dst, c.chain_id, True))
            for ask in self.scene.channels
        )  # fmt: skip
        return bool(asked) or any(n not in own for n in theirs) or later

    @property
    def shown(self) -> dict[Chain, dict[tuple[Chain, int], Channel]]:
        """The channels of every chain at the height before."""
        return self._shown

    def _consensus_block(self, number: int) -> None:
        self._shown = {chain: dict(c.state.channels) for chain, c in self.chains.items()}
        super()._consensus_block(number)


def subtract_in_hand(c: ChainNode, amount: int) -> None:
    assert amount <= c.state.in_hand
    c.state.in_hand -= amount
