"""Tickets: draws, settlement, and no gain from forging, replaying, withholding or grinding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import DIGEST_BYTES
from causeway_proofs.tendermint.validators import SigningKey

from causeway.gossip.tickets.ticket import (
    Settlement,
    Ticket,
    Tickets,
    TicketVerdict,
    commit,
    derive_nonces,
    derive_secrets,
)
from causeway.gossip.tickets.trading import TicketOptions
from causeway.protocols.shared.digests import digests

NETWORK, ROOT = bytes(range(32)), bytes(range(32, 64))
PAYER, PAYEE, OTHER = (SigningKey.from_name(name) for name in ("payer", "payee", "other"))
OPTIONS = TicketOptions.model_validate({"mode": "on", "odds": 8, "deposit": 1_000, "bond": 500})


def public(key: SigningKey) -> bytes:
    return key.public_key.data


def derive_key(
    derive: Callable[..., np.ndarray], owner: SigningKey, other: SigningKey, serial: int, *more: np.ndarray
) -> bytes:
    keys, others = digests([owner.seed]), digests([public(other)])
    return bytes(derive(keys, others, np.array([serial], dtype=np.uint64), *more).tobytes())


def secret_of(serial: int, payer: SigningKey = PAYER, payee: SigningKey = PAYEE) -> bytes:
    return derive_key(derive_secrets, payee, payer, serial)


def ticket_of(serial: int, block: int = 0, payer: SigningKey = PAYER, payee: SigningKey = PAYEE) -> Ticket:
    """Return the ticket that an honest payer issues for an honest payee's delivery."""
    commitment = commit(digests([secret_of(serial, payer, payee)])).tobytes()
    nonce = derive_key(derive_nonces, payer, payee, serial, digests([ROOT]), digests([commitment]))
    numbers = {"serial": serial, "price": OPTIONS.price, "odds": OPTIONS.odds, "block": block}
    return Ticket(NETWORK, public(payer), public(payee), ROOT, commitment, nonce, **numbers)


def serials(wins: bool, count: int, payer: SigningKey = PAYER, payee: SigningKey = PAYEE) -> list[int]:
    """Return serial numbers of winning or losing tickets."""
    found = []
    for serial in range(1, 10_000):
        if ticket_of(serial, 0, payer, payee).wins(secret_of(serial, payer, payee)) == wins:
            found.append(serial)
            if len(found) == count:
                return found
    raise AssertionError("no such tickets")


def settlement(deposit: int = 1_000) -> Settlement:
    chain = Settlement(NETWORK, OPTIONS)
    chain.open_account(public(PAYER), deposit, OPTIONS.bond)
    return chain


def test_winning_ticket_is_paid_once_and_value_is_conserved() -> None:
    chain, (serial,) = settlement(), serials(True, 1)
    ticket, secret = ticket_of(serial), secret_of(serial)
    signature = ticket.sign(PAYER)
    assert chain.claim(public(PAYEE), ticket, signature, secret) is TicketVerdict.OK
    assert chain.claim(public(PAYEE), ticket, signature, secret) is TicketVerdict.AlreadyClaimed
    account = chain.accounts[public(PAYER)]
    assert (account.deposit, account.bond) == (1_000 - 64, 500)
    assert (chain.earned[public(PAYEE)], chain.burned) == (64 - 32, 32)


def test_forged_altered_stolen_and_losing_tickets_are_rejected_without_effect() -> None:
    chain, (serial,), (loser,) = settlement(), serials(True, 1), serials(False, 1)
    ticket, secret = ticket_of(serial), secret_of(serial)
    signature, mine = ticket.sign(PAYER), public(PAYEE)
    before = repr(chain)
    changes: dict[str, Any] = {
        "root": bytes(32),
        "nonce": bytes(32),
        "serial": serial + 1,
        "block": 1,
        "payer": public(OTHER),
    }
    chain.advance(1)
    for name, value in changes.items():
        altered = replace(ticket, **{name: value})
        assert chain.claim(mine, altered, signature, secret) is TicketVerdict.BadSignature, name
    stolen = replace(ticket, payee=public(OTHER))
    cases = [
        (public(OTHER), ticket, signature, secret, TicketVerdict.NotPayee),
        (public(OTHER), stolen, signature, secret, TicketVerdict.BadSignature),
        (mine, replace(ticket, network=bytes(32)), signature, secret, TicketVerdict.WrongNetwork),
        (mine, replace(ticket, price=10**6), signature, secret, TicketVerdict.WrongTerms),
        (mine, replace(ticket, odds=1), signature, secret, TicketVerdict.WrongTerms),
        (mine, ticket, ticket.sign(OTHER), secret, TicketVerdict.BadSignature),
        (mine, ticket, ticket.sign(PAYEE), secret, TicketVerdict.BadSignature),
        (mine, ticket, signature[:-1], secret, TicketVerdict.BadSignature),
        (mine, ticket, signature, secret_of(serial + 1), TicketVerdict.BadSecret),
        (mine, ticket, signature, secret[:-1], TicketVerdict.BadSecret),
        (mine, ticket_of(loser), ticket_of(loser).sign(PAYER), secret_of(loser), TicketVerdict.Lost),
        (mine, ticket_of(serial, 2), ticket_of(serial, 2).sign(PAYER), secret, TicketVerdict.FromTheFuture),
    ]
    for claimant, claimed, signed, opened, verdict in cases:
        assert chain.claim(claimant, claimed, signed, opened) is verdict
    chain.number = 0
    assert repr(chain) == before


def test_ticket_expires_and_its_serial_number_is_then_released() -> None:
    chain, (first, second) = settlement(), serials(True, 2)
    claim = [(ticket_of(serial), ticket_of(serial).sign(PAYER), secret_of(serial)) for serial in (first, second)]
    chain.advance(OPTIONS.lifetime)
    assert chain.claim(public(PAYEE), *claim[0]) is TicketVerdict.OK and len(chain.claimed) == 1
    chain.advance(OPTIONS.lifetime + 1)
    # Forgotten tickets cannot be claimed again: they expired.
    assert not chain.claimed
    for each in claim:
        assert chain.claim(public(PAYEE), *each) is TicketVerdict.Expired


def test_chain_never_goes_back_and_accounts_never_overdraw() -> None:
    chain, (serial,) = settlement(), serials(True, 1)
    claim = public(PAYEE), ticket_of(serial), ticket_of(serial).sign(PAYER), secret_of(serial)
    assert chain.claim(*claim) is TicketVerdict.OK
    chain.advance(20)
    with pytest.raises(InvalidInput, match="relay block 5: allowed: 20 or a later one"):
        chain.advance(5)
    assert chain.claim(*claim) is TicketVerdict.Expired
    for amounts in ((-900, 0), (0, -1)):
        with pytest.raises(InvalidInput, match="allowed: 0 or more"):
            chain.open_account(public(PAYER), *amounts)


def test_payer_without_account_pays_nothing_and_its_tickets_are_rejected() -> None:
    chain, (serial,) = Settlement(NETWORK, OPTIONS), serials(True, 1)
    ticket = ticket_of(serial)
    assert chain.claim(public(PAYEE), ticket, ticket.sign(PAYER), secret_of(serial)) is TicketVerdict.NoAccount
    assert not chain.accepts(public(PAYER)) and chain.earned[public(PAYEE)] == 0
    with pytest.raises(InvalidInput, match="bond: 499; allowed: 500 or more"):
        chain.open_account(public(PAYER), 1_000, 499)
    chain.open_account(public(PAYER), OPTIONS.prize - 1, 500)
    assert not chain.accepts(public(PAYER))
    chain.open_account(public(PAYER), 1, 0)
    assert chain.accepts(public(PAYER))


def test_double_spent_deposit_forfeits_the_bond_without_paying_accomplices() -> None:
    """The deposit covers one prize and a half; the payer owes one prize to each of two payees."""
    chain = settlement(OPTIONS.prize + OPTIONS.prize // 2)
    (first,), (second,) = serials(True, 1), serials(True, 1, payee=OTHER)
    one, two = ticket_of(first), ticket_of(second, payee=OTHER)
    assert chain.claim(public(PAYEE), one, one.sign(PAYER), secret_of(first)) is TicketVerdict.OK
    assert not chain.accepts(public(PAYER))
    secret = secret_of(second, payee=OTHER)
    assert chain.claim(public(OTHER), two, two.sign(PAYER), secret) is TicketVerdict.Overdrawn
    # The payer is left with nothing; even if both payees are the payer, it lost the bond and the fees.
    assert public(PAYER) not in chain.accounts
    got = chain.earned[public(PAYEE)] + chain.earned[public(OTHER)]
    assert got == 96 - 2 * OPTIONS.fee and chain.burned == OPTIONS.bond + 2 * OPTIONS.fee
    assert chain.claim(public(OTHER), two, two.sign(PAYER), secret) is TicketVerdict.AlreadyClaimed


def test_leaving_payer_pays_all_tickets_before_withdrawal() -> None:
    chain = settlement()
    chain.advance(3)
    serial = next(number for number in range(1, 200) if ticket_of(number, 3).wins(secret_of(number)))
    ticket = ticket_of(serial, 3)
    with pytest.raises(InvalidInput, match="withdrawal in relay block 3, not announced"):
        chain.withdraw(public(PAYER))
    chain.leave(public(PAYER))
    assert not chain.accepts(public(PAYER))
    with pytest.raises(InvalidInput, match="closing since relay block 3"):
        chain.open_account(public(PAYER), 1, 0)
    chain.advance(3 + OPTIONS.lifetime)
    assert chain.claim(public(PAYEE), ticket, ticket.sign(PAYER), secret_of(serial)) is TicketVerdict.OK
    # A payee may have accepted a ticket of a block ahead of the announcement.
    chain.advance(3 + OPTIONS.lifetime + OPTIONS.slack)
    with pytest.raises(InvalidInput, match="announced in relay block 3; allowed: 13 blocks after leave"):
        chain.withdraw(public(PAYER))
    chain.advance(4 + OPTIONS.lifetime + OPTIONS.slack)
    assert chain.withdraw(public(PAYER)) == 1_000 - OPTIONS.prize + 500 and not chain.accounts


def columns(count: int) -> tuple[Tickets, np.ndarray]:
    numbers = np.arange(1, count + 1, dtype=np.uint64)
    payer, payee = (np.repeat(digests([key]), count, axis=0) for key in (public(PAYER), public(PAYEE)))
    secrets = derive_secrets(np.repeat(digests([PAYEE.seed]), count, axis=0), payer, numbers)
    root = np.repeat(digests([ROOT]), count, axis=0)
    nonces = derive_nonces(np.repeat(digests([PAYER.seed]), count, axis=0), payee, numbers, root, commit(secrets))
    price, odds, block = (np.full(count, number, dtype=np.uint64) for number in (OPTIONS.price, OPTIONS.odds, 0))
    return Tickets(NETWORK, payer, payee, root, commit(secrets), nonces, numbers, price, odds, block), secrets


def test_columns_and_single_tickets_agree_in_bytes_and_draws() -> None:
    tickets, secrets = columns(300)
    payloads, wins = tickets.payloads(), tickets.wins(secrets)
    for row in range(300):
        ticket, secret = ticket_of(row + 1), secrets[row].tobytes()
        payload = ticket.payload()
        assert payloads[row].tobytes() == payload and ticket.opens(secret)
        # Draw by definition, without the columns.
        digest = blake2b(b"causeway-draw\x01" + payload + secret, digest_size=DIGEST_BYTES).digest()
        assert ticket.wins(secret) == bool(wins[row]) == (int.from_bytes(digest[:8], "little") % OPTIONS.odds == 0)


def test_expected_payment_is_the_price() -> None:
    tickets, secrets = columns(20_000)
    assert is_fair(tickets.wins(secrets)) and OPTIONS.prize == OPTIONS.price * OPTIONS.odds


def is_fair(wins: np.ndarray) -> bool:
    """Return whether one in eight wins, within four standard deviations."""
    return bool(abs(wins.mean() - 1 / 8) < 4 * (0.125 * 0.875 / len(wins)) ** 0.5)


def grind(tickets: Tickets, guesses: list[np.ndarray]) -> Tickets:
    """Return tickets with nonces under which no guessed secret wins, found by trial."""
    nonce = tickets.nonce.copy()
    for _ in range(30):
        likely = np.any([replace(tickets, nonce=nonce).wins(guess) for guess in guesses], axis=0)
        if not likely.any():
            break
        nonce[likely] = commit(nonce[likely])
    assert not likely.any()
    return replace(tickets, nonce=nonce)


def test_payer_grinding_nonces_pays_no_less() -> None:
    """The payer guesses secrets: the commitment, the nonce, and the claimed secret of the previous ticket."""
    tickets, secrets = columns(4_000)
    ground = grind(tickets, [tickets.commitment, tickets.nonce, np.roll(secrets, 1, axis=0)])
    assert (ground.nonce != tickets.nonce).any(axis=1).mean() > 0.2 and is_fair(ground.wins(secrets))
    # With the secrets themselves it would pay nothing: a party that knows both sides can grind the draw.
    assert not grind(tickets, [secrets]).wins(secrets).any()


def test_payee_grinding_secrets_wins_no_more() -> None:
    """The payee repeats a serial number with a known nonce and a secret that wins under it."""
    tickets, secrets = columns(2_000)
    for _ in range(45):
        losing = ~replace(tickets, commitment=commit(secrets)).wins(secrets)
        secrets[losing] = commit(secrets[losing])
    ground = replace(tickets, commitment=commit(secrets))
    assert ground.wins(secrets).mean() > 0.99
    keys = np.repeat(digests([PAYER.seed]), len(secrets), axis=0)
    again = derive_nonces(keys, tickets.payee, tickets.serial, tickets.root, ground.commitment)
    ground = replace(ground, nonce=again)
    redrawn = (again != tickets.nonce).any(axis=1)
    assert redrawn.mean() > 0.8 and is_fair(ground.wins(secrets)[redrawn])
    # Given the ticket, no other secret opens its commitment.
    losing_row = int(np.flatnonzero(~ground.wins(secrets))[0])
    chosen = {name: getattr(ground, name)[losing_row].tobytes() for name in ("commitment", "nonce")}
    ticket = replace(ticket_of(losing_row + 1), **chosen)
    signature = ticket.sign(PAYER)
    chain = settlement()
    assert chain.claim(public(PAYEE), ticket, signature, secrets[losing_row].tobytes()) is TicketVerdict.Lost
    assert chain.claim(public(PAYEE), ticket, signature, secret_of(losing_row + 1)) is TicketVerdict.BadSecret


def test_conflicting_options_are_rejected() -> None:
    for given, said in (({"odds": 12}, "12: must be a power of two"), ({"credit": 33}, "33: must be at most credit_")):
        with pytest.raises(ValueError, match=said):
            TicketOptions.model_validate(given)
    # 8 * 64 - 32 for 64 bodies is 480 / 64 per body: more than 7, less than 8.
    for cost, pays in ((7, True), (8, False)):
        assert TicketOptions.model_validate({"mode": "on", "cost": cost}).pays is pays
    assert not TicketOptions.model_validate({"mode": "off"}).pays
