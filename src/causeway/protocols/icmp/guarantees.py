"""What egress queues and channels guarantee, in words (ICMP reference 1.2, 1.3)."""

from __future__ import annotations

from collections.abc import Iterator

from causeway.protocols.guarantees import Guarantee
from causeway.protocols.icmp.options import IcmpOptions


def guarantees(options: IcmpOptions) -> Iterator[Guarantee]:
    """Yield one statement a topic."""
    hrmp = options.channels == "hrmp"
    yield Guarantee("order", "yes", "relay block by relay block, within one by sender and index", "1.2 G1")
    yield Guarantee(
        "causal", "yes", "relay blocks are consumed in their order, along one relay chain", "1.2 G1, G3, G9"
    )
    yield Guarantee("exactly_once", "yes", "along one relay chain", "1.2 G3, G9")
    if hrmp:
        yield Guarantee("authentic", "yes", "a hash chain that the relay chain has", "5.2 X-6")
    else:
        yield Guarantee("authentic", "yes", "a list has the root that its sender posted", "1.2 G4")
    if options.watermark_mode == "now_minus_1":
        yield Guarantee("no_gaps", "no", "what a block does not consume is skipped", "4 D-12")
    else:
        yield Guarantee("no_gaps", "yes", "whole relay blocks up to the watermark", "1.2 G2, G3")
    yield Guarantee("answered", "no", "an answer is a message as any other", "1.3")
    yield Guarantee("one_answer", "no", "it is the program's affair", "1.2")
    yield Guarantee("called_off", "no", "nothing times out", "1.3 L3")
    yield Guarantee("final_first", "partly", "along one relay chain; a fork takes all of it back", "1.2 G9")
    yield Guarantee("value", "partly", "of what is consumed; a message may be dropped", "1.2 G3")
    if hrmp:
        yield Guarantee("held_back", "yes", "channels have a capacity", "5.2 X-6")
    else:
        yield Guarantee("held_back", "no", "messages pile up while a chain makes no blocks", "1.3 L3")
    how = "bodies come by gossip; what has another root is none"
    yield Guarantee("any_carrier", "yes", how, "1.2 G4, 1.3 L1")
    yield Guarantee("no_third_chain", "no", "the relay chain has every root and watermark", "2.2")
