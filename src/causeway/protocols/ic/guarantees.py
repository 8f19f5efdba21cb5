"""What streams guarantee, in words (IC reference 1.2 to 1.4)."""

from __future__ import annotations

from collections.abc import Iterator

from causeway.protocols.guarantees import Guarantee
from causeway.protocols.ic.options import IcOptions

_LANES = {
    "flat": "",
    "per_destination": "; lanes are of a subnet and a receiver",
    "per_source": "; lanes are of a sender and a subnet",
}
"""What one sequence of indices is of, where that is not two subnets."""


def guarantees(options: IcOptions) -> Iterator[Guarantee]:
    """Yield one statement a topic."""
    how = f"requests of a pair; answers come in any order{_LANES[options.substreams]}"
    yield Guarantee("order", "yes", how, "1.2 G3")
    yield Guarantee("causal", "partly", "requests of a pair; not answers, nor what other pairs send", "1.2 G2, G3")
    yield Guarantee("exactly_once", "yes", "one verdict an index of a stream", "1.2 G1, G7")
    if options.certified:
        yield Guarantee("authentic", "yes", "streams are certified by their subnet", "1.2 G2, 1.4")
    else:
        yield Guarantee("authentic", "partly", 'believed unproved (certification = "off")', "1.2 G2")
    yield Guarantee("no_gaps", "yes", "streams are judged index by index", "1.2 G6")
    yield Guarantee("answered", "yes", "by data, or by a reject that the subnets make", "1.2 G5, 1.3 L2")
    yield Guarantee("one_answer", "yes", "one a call and caller", "1.2 G4")
    if options.timeouts == "on":
        how = f"a request that has waited {options.request_lifetime_seconds} s to leave its subnet, not later"
        yield Guarantee("called_off", "partly", how, "5 X-3")
    else:
        yield Guarantee("called_off", "no", "an answer is waited for as long as it takes", "1.3 L2")
    yield Guarantee("final_first", "yes", "every height is final", "1.4")
    yield Guarantee("value", "yes", "cycles are in balances, queues and streams", "1.2 G9")
    if options.limits == "deployed":
        how = f"streams of {options.limit.stream_messages:,} messages, queues of {options.limit.queue_capacity:,}"
        yield Guarantee("held_back", "yes", how, "5 X-4, X-6")
    else:
        yield Guarantee("held_back", "no", 'streams and queues have no limit (limits = "none")', "5 X-4, X-6")
    yield Guarantee("any_carrier", "yes", "payload builders pull; what is not certified is refused", "3.9, 1.3 L1")
    yield Guarantee("no_third_chain", "partly", "subnets share a registry and a root key", "1.4")
