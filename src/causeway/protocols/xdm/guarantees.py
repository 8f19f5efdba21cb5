"""What channels guarantee, in words (XDM reference 1.2 to 1.4)."""

from __future__ import annotations

from collections.abc import Iterator

from causeway.protocols.guarantees import Guarantee
from causeway.protocols.xdm.options import XdmOptions


def guarantees(options: XdmOptions) -> Iterator[Guarantee]:
    """Yield one statement a topic."""
    yield Guarantee("order", "yes", "requests and responses of a channel, by nonce", "1.2 G1")
    yield Guarantee("causal", "partly", "within a channel; channels overtake each other", "1.2 G1, G2")
    yield Guarantee("exactly_once", "yes", "a nonce is processed once", "1.2 G1")
    yield Guarantee("authentic", "yes", "storage proof under a mountain range of final blocks", "1.2 G2, 2.4")
    yield Guarantee("no_gaps", "yes", "nonces 0, 1, 2, ...", "1.2 G1")
    yield Guarantee("answered", "yes", "if operators of both chains relay and include", "1.3 L1")
    yield Guarantee("one_answer", "yes", "one response a nonce", "1.2 G3")
    yield Guarantee("called_off", "no", "what is lost blocks its channel until it is proved again", "1.3 L2")
    depth, period = options.archiving_depth, options.challenge_period
    how = f"{depth:,} blocks deep on the consensus chain, of a domain after {period:,} more"
    yield Guarantee("final_first", "yes", how, "1.2 G4")
    yield Guarantee("value", "yes", "fees and transfers are in books that add up", "1.2 G7, G8")
    yield Guarantee("held_back", "yes", f"{options.max_outgoing_messages:,} unanswered a channel", "1.2 G6")
    yield Guarantee("any_carrier", "yes", "the proof alone is enough", "1.2 G2")
    yield Guarantee("no_third_chain", "no", "the consensus chain orders, confirms and archives", "1.4")
