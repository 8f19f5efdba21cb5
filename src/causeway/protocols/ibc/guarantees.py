"""What queues guarantee, in words (IBC reference 1.2 to 1.4)."""

from __future__ import annotations

from collections.abc import Iterator

from causeway.protocols.guarantees import Guarantee
from causeway.protocols.ibc.options import IbcOptions


def guarantees(options: IbcOptions) -> Iterator[Guarantee]:
    """Yield one statement a topic."""
    ordered = options.order == "ordered"
    if ordered:
        yield Guarantee("order", "yes", "all packets and receipts of a connection", "1.2 C4, C5, G1")
        yield Guarantee("causal", "yes", "between each two zones; over a third one it may be overtaken", "1.2 C1 to C5")
    else:
        yield Guarantee("order", "no", 'packets come in any order (order = "unordered")', "5 X-6")
        yield Guarantee(
            "causal", "partly", "no effect before its cause, but packets overtake (not C4, C5)", "1.2, 5 X-6"
        )
    yield Guarantee("exactly_once", "yes", "one receipt an index", "1.2 G1, G4")
    yield Guarantee("authentic", "yes", "proved under a header that two thirds signed", "1.2 G2, 2.6")
    if ordered and not options.limited:
        yield Guarantee("no_gaps", "yes", "indices 0, 1, 2, ...", "1.2 G1")
    else:
        yield Guarantee(
            "no_gaps", "partly", "but for packets that timed out" if ordered else "in the end", "5 X-1, X-6"
        )
    relays = "if a relayer with funds runs and headers are followed"
    yield Guarantee("answered", "yes", f"by a receipt or a time-out, {relays}", "1.3 L1")
    yield Guarantee("one_answer", "yes", "commit or rollback, one of both", "1.2 G4")
    if options.limited:
        yield Guarantee("called_off", "yes", "proved by the other side's queue; it must be alive", "5 X-1")
    else:
        yield Guarantee("called_off", "no", "packets have no limit", "5 X-1")
    yield Guarantee("final_first", "yes", "blocks are final once signed", "1.4")
    yield Guarantee("value", "yes", "a failed packet is rolled back", "1.2 G4")
    yield Guarantee("held_back", "no", "a queue has no limit", "2.2")
    yield Guarantee("any_carrier", "yes", "relayers change fees and delay, nothing else", "1.2 G9")
    yield Guarantee("no_third_chain", "yes", "each is the other's light client", "1.4, 5 X-4")
