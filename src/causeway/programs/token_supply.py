"""Whether tokens are conserved over all transfer programs of a network, from their books alone.

Rules, at every height at which all zones have made a block, whatever is under way:

1. On each program, accounts and escrow of a denomination are its supply there.
2. Vouchers are covered: what program Q holds in escrow for program P, less the vouchers that P has made for it, is
   what is under way between the two: at least nothing, and at most what their open transfers are about.
3. So is the whole: accounts on all zones, what is under way and what is in escrow for strangers are together the supply
   at home.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import cbor2

from causeway.programs.token_packet import hop, trace_of

Books = Mapping[str, Any]


class SupplyBroken(Exception):
    """Tokens were lost or made."""


@dataclass(frozen=True)
class Supply:
    """Where the tokens of one denomination are, by its program at home.

    ``total``: the supply at home; ``home``: in accounts at home; ``abroad``: vouchers in accounts on other zones;
    ``under_way``: in packets, or in receipts that are still to bring it back. ``beyond``: in escrow for programs whose
    books are not among those seen.
    """

    total: int
    home: int
    abroad: int
    under_way: int
    beyond: int = 0


def books_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the books of a transfer program from its row of state (as ``Network.program_state`` gives it)."""
    books: dict[str, Any] = cbor2.loads(row["books"])
    return books


def supply(books: Mapping[int, Books]) -> dict[tuple[int, str], Supply]:
    """Return where all tokens are, by (program at home, denomination).

    ``books``: of every transfer program of the network, by its number. Vouchers of a program that is not among them are
    left out: nobody can say what they stand for. Raises ``SupplyBroken`` with the program and the denomination.
    """
    home: dict[tuple[int, str], int] = defaultdict(int)
    abroad: dict[tuple[int, str], int] = defaultdict(int)
    under_way: dict[tuple[int, str], int] = defaultdict(int)
    beyond: dict[tuple[int, str], int] = defaultdict(int)
    for number, own in books.items():
        _require_balanced(number, own)
        for denom, accounts in own["accounts"].items():
            origin = _origin(number, denom, books)
            if origin is not None:
                (abroad if trace_of(denom)[0] else home)[origin] += sum(accounts.values())
    for holder, peer, denom, gap in _gaps(books):
        origin = _origin(holder, denom, books)
        if origin is not None:
            (under_way if peer in books else beyond)[origin] += gap
    found = {}
    for number, own in books.items():
        for denom, total in own["supply"].items():
            if trace_of(denom)[0]:
                continue
            key = number, denom
            found[key] = Supply(total, home[key], abroad[key], under_way[key], beyond[key])
            if total != home[key] + abroad[key] + under_way[key] + beyond[key]:
                raise SupplyBroken(f"program {number}, {denom}: {found[key]} does not add up")
    return found


def _require_balanced(number: int, own: Books) -> None:
    held: dict[str, int] = defaultdict(int)
    for denom, accounts in own["accounts"].items():
        held[denom] += sum(accounts.values())
    for escrow in own["escrow"].values():
        for denom, amount in escrow.items():
            held[denom] += amount
    for denom in held.keys() | own["supply"].keys():
        if held[denom] != own["supply"].get(denom, 0):
            stated = own["supply"].get(denom, 0)
            raise SupplyBroken(f"program {number}, {denom}: accounts and escrow {held[denom]}, supply {stated}")


def _gaps(books: Mapping[int, Books]) -> Iterator[tuple[int, int, str, int]]:
    """Yield (holder, peer, denomination at the holder, escrow less vouchers); raise where it cannot be."""
    open_amounts: dict[tuple[int, int, str], int] = defaultdict(int)
    pairs: set[tuple[int, int, str]] = set()
    for number, own in books.items():
        for _, peer, denom, amount in own["open"].values():
            if denom.startswith(hop(peer)):
                open_amounts[peer, number, denom.removeprefix(hop(peer))] += amount
            else:
                open_amounts[number, peer, denom] += amount
        pairs |= {(number, peer, denom) for peer, escrow in own["escrow"].items() for denom in escrow}
        for denom in own["supply"]:
            peers, _ = trace_of(denom)
            if peers and peers[0] in books:
                pairs.add((peers[0], number, denom.removeprefix(hop(peers[0]))))
    for holder, peer, denom in sorted(pairs):
        escrow = books[holder]["escrow"].get(peer, {}).get(denom, 0)
        if peer not in books:
            yield holder, peer, denom, escrow
            continue
        vouchers = books[peer]["supply"].get(hop(holder) + denom, 0)
        most = open_amounts[holder, peer, denom]
        if not 0 <= escrow - vouchers <= most:
            text = f"program {holder}, {denom}: escrow for {peer} {escrow}, vouchers there {vouchers}, open {most}"
            raise SupplyBroken(text)
        yield holder, peer, denom, escrow - vouchers


def _origin(number: int, denom: str, books: Mapping[int, Books]) -> tuple[int, str] | None:
    """Return where a token that program ``number`` keeps is at home; None when that program's books are not here."""
    peers, base = trace_of(denom)
    if any(peer not in books for peer in peers):
        return None
    return (peers[-1] if peers else number), base
