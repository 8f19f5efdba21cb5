"""Endpoints: the transporter (X-3) and a request/reply endpoint for programs."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.spec.xdm.channels import credit, send_message, withdraw
from tests.spec.xdm.errors import DispatchError, XdmError
from tests.spec.xdm.relay import OverWeight
from tests.spec.xdm.scale import Reader, blob, u128
from tests.spec.xdm.state import (
    Account,
    ChainNode,
    note_claimed,
    note_rejected,
    note_transfer_in,
    note_transfer_out,
    transaction,
)
from tests.spec.xdm.values import Chain, EndpointRequest, encode_chain, read_chain

TRANSPORTER = 1


@dataclass(frozen=True)
class Transfer:
    """Decision: the reference gives no layout. As deployed: amount, sender (chain, account), receiver (chain, account),
    an account being 0 [32] | 1 [20] | 2 Vec<u8>."""

    amount: int
    sender: tuple[Chain, Account]
    receiver: tuple[Chain, Account]


def encode_account(account: Account) -> bytes:
    return {32: b"\0", 20: b"\1"}[len(account)] + account if len(account) in (20, 32) else b"\2" + blob(account)


def read_account(r: Reader) -> Account:
    form = r.index(3)
    return r.blob() if form == 2 else r.take((32, 20)[form])


def encode_transfer(t: Transfer) -> bytes:
    ends = [encode_chain(chain) + encode_account(account) for chain, account in (t.sender, t.receiver)]
    return u128(t.amount) + b"".join(ends)


def decode_transfer(data: bytes) -> Transfer:
    r = Reader(data)
    t = Transfer(r.integer(16), (read_chain(r), read_account(r)), (read_chain(r), read_account(r)))
    r.end()
    return t


def transfer(c: ChainNode, sender: Account, dst: Chain, receiver: Account, amount: int) -> tuple[int, int]:
    """transfer(dst, amount)."""
    with transaction(c):
        if amount < c.options.minimum_transfer:
            raise XdmError("MinimumTransferAmount")
        if not any(receiver):
            raise XdmError("InvalidAccountId")
        withdraw(c, sender, amount, "LowBalance")
        payload = encode_transfer(Transfer(amount, (c.chain_id, sender), (dst, receiver)))
        channel, nonce = send_message(c, sender, dst, EndpointRequest(TRANSPORTER, TRANSPORTER, payload))
        c.state.outgoing_transfers[dst, channel, nonce] = payload
        note_transfer_out(c, amount, dst)
        c.log("Transfer", foreign=dst, channel_id=channel, nonce=nonce, kind="out", amount=amount, by=sender)
        return channel, nonce


@dataclass
class Transporter:
    """`credit`: what credits an account; a chain may know some accounts only (InvalidAccountId)."""

    message_weight: int
    response_weight: int
    credit: Callable[[ChainNode, Account, int], None] = credit

    def message(
        self, c: ChainNode, src: Chain, key: tuple[int, int], req: EndpointRequest, pre_check: XdmError | None
    ) -> bytes:
        try:
            t = decode_transfer(req.payload)
        except XdmError:
            c.state.undecodable_transfers += 1
            raise XdmError("InvalidPayload") from None
        try:
            with transaction(c):
                self.accept(c, src, key, req, t, pre_check)
        except XdmError:
            note_rejected(c, t.amount, src)
            raise
        return b""

    def accept(
        self,
        c: ChainNode,
        src: Chain,
        key: tuple[int, int],
        req: EndpointRequest,
        t: Transfer,
        pre_check: XdmError | None,
    ) -> None:
        if c.chain_id == src:
            raise XdmError("InvalidTransferRequest")
        if req.dst_endpoint != TRANSPORTER or req.src_endpoint != TRANSPORTER:
            raise XdmError("UnexpectedMessage")
        if pre_check:
            raise pre_check
        account = t.receiver[1]
        if len(account) != c.account_size:
            raise XdmError("InvalidAccountId")
        self.credit(c, account, t.amount)
        note_transfer_in(c, t.amount, src)
        channel, nonce = key
        c.log("Transfer", foreign=src, channel_id=channel, nonce=nonce, kind="in", amount=t.amount, to=account)

    def message_response(
        self, c: ChainNode, dst: Chain, key: tuple[int, int], req: EndpointRequest, result: bytes | DispatchError
    ) -> None:
        kept = c.state.outgoing_transfers.pop((dst, *key), None)
        if kept is None:
            raise XdmError("MissingTransferRequest")
        if kept != req.payload:
            raise XdmError("InvalidTransferRequest")
        if isinstance(result, DispatchError):
            t = decode_transfer(req.payload)
            note_claimed(c, t.amount, dst)
            credit(c, t.sender[1], t.amount)
            columns = {"channel_id": key[0], "nonce": key[1], "amount": t.amount, "to": t.sender[1]}
            c.log("Transfer", foreign=dst, kind="back", **columns)


@dataclass
class Program:
    """A program behind an endpoint: what it answers is `reply(payload)`; what is answered to it stands in the log.

    Payloads that begin so are special: `!` answers Err(Other), `*` panics, `#` uses more weight than a message may.
    """

    message_weight: int
    response_weight: int
    reply: Callable[[bytes], bytes] = bytes

    def message(
        self, c: ChainNode, src: Chain, key: tuple[int, int], req: EndpointRequest, pre_check: XdmError | None
    ) -> bytes:
        if pre_check:
            raise pre_check
        if req.payload.startswith(b"!"):
            raise XdmError("Other")
        if req.payload.startswith(b"*"):
            raise RuntimeError("the program fails")
        if req.payload.startswith(b"#"):
            raise OverWeight
        return self.reply(req.payload)

    def message_response(
        self, c: ChainNode, dst: Chain, key: tuple[int, int], req: EndpointRequest, result: bytes | DispatchError
    ) -> None:
        return None
