"""The consensus chain's part in messaging: execution receipts, challenge period, fraud proofs (1.4, X-3, X-4, X-6)."""

from dataclasses import replace

from tests.spec.xdm.errors import XdmError
from tests.spec.xdm.events import Event
from tests.spec.xdm.keys import blake2b
from tests.spec.xdm.state import ChainNode, settle, transaction
from tests.spec.xdm.values import Chain, Receipt, encode_receipt

NOTHING: tuple[frozenset[Chain], frozenset[Chain]] = (frozenset(), frozenset())


def receipt_hash(er: Receipt) -> bytes:
    return blake2b(encode_receipt(er))


def register_domain(c: ChainNode, domain: Chain, owner: bytes, genesis: Receipt, balance: int) -> None:
    """A domain begins with a confirmed receipt of its block 0, and with what its genesis issues in the books."""
    c.domains[domain] = owner
    c.state.confirmed[domain] = genesis
    c.state.receipts[domain, 0] = genesis
    c.state.receipts_at[domain, 0] = 0
    c.state.head_receipt[domain] = 0
    c.state.domain_balances[domain] = balance
    c.state.domain_updates[domain] = NOTHING


def submit_receipt(c: ChainNode, domain: Chain, er: Receipt) -> None:
    """A receipt in a bundle: of a later block than the one it goes on from."""
    with transaction(c):
        head = c.state.head_receipt[domain]
        known = c.state.receipts[domain, head]
        number = er.domain_block_number
        if number <= head or er.parent_receipt_hash != receipt_hash(known):
            raise XdmError("UnknownParentBlockReceipt")
        c.state.receipts[domain, number] = er
        c.state.receipts_at[domain, number] = c.block
        c.state.head_receipt[domain] = number


def unconfirmed(c: ChainNode, domain: Chain) -> list[int]:
    """The blocks of a domain whose receipts are not confirmed, ascending."""
    last = c.state.confirmed[domain].domain_block_number
    return sorted(n for d, n in c.state.receipts if d == domain and n > last)


def confirm_receipts(c: ChainNode, domain: Chain) -> None:
    """Those that have been there for D blocks, and with them their transfers. Decisions: of what comes instead of a
    pruned one D begins anew, since nobody has challenged it so far. What the books refuse is not confirmed, nor what is
    built on it."""
    for number in unconfirmed(c, domain):
        if domain in c.state.unbooked or c.block - c.state.receipts_at[domain, number] < c.options.challenge_period:
            return
        try:
            confirm_receipt(c, domain, c.state.receipts[domain, number])
        except XdmError as error:
            c.state.unbooked.add(domain)
            c.log("Refused", foreign=domain, nonce=number, call="submit_receipt", error=error.name)


def confirm_receipt(c: ChainNode, domain: Chain, er: Receipt) -> None:
    with transaction(c):
        settle(c, domain, er)
        c.state.confirmed[domain] = er
    c.events.append(
        Event(
            "Final",
            domain,
            er.domain_block_number,
            c.block,
            root=er.final_state_root,
            confirmed_at=c.block,
            amount=c.state.domain_balances.get(domain, 0),
        )
    )


def prove_fraud(c: ChainNode, domain: Chain, number: int) -> None:
    """Prune a receipt and all that were built on it. A confirmed one is beyond proof."""
    with transaction(c):
        if number <= c.state.confirmed[domain].domain_block_number:
            raise XdmError("ChallengingGenesisReceipt" if number == 0 else "ReceiptAlreadyConfirmed")
        for n in [n for n in unconfirmed(c, domain) if n >= number]:
            del c.state.receipts[domain, n], c.state.receipts_at[domain, n]
            c.state.pruned.add((domain, n))
        c.state.head_receipt[domain] = max(n for d, n in c.state.receipts if d == domain)
        c.log("FraudProved", foreign=domain, nonce=number)


def with_parent(c: ChainNode, domain: Chain, er: Receipt) -> Receipt:
    """The receipt as an operator submits it: on top of the one that consensus has."""
    head = c.state.receipts[domain, c.state.head_receipt[domain]]
    return replace(er, parent_receipt_hash=receipt_hash(head))
