"""All that 1.2 and section 5 promise, on the record of a network, the oracle's or another engine's."""

from tests.spec.ibc.accounts import funds_conserved
from tests.spec.ibc.clients import x1_limits, x3_x4_x11_clients
from tests.spec.ibc.invariants import (
    c1_to_c5_causality,
    g1_exactly_once_in_order,
    g2_authenticity,
    g4_atomic,
    g10_failures_are_results,
)
from tests.spec.ibc.network import Network
from tests.spec.ibc.record import Record, record_of
from tests.spec.ibc.states import conserved, g5_immutable, g6_destination, g7_isolation, g8_bounds, g9_relay_neutrality


def of_block(record: Record) -> list[str]:
    """What the newest states say, after every block."""
    funds = funds_conserved(record.funds)
    return [*g6_destination(record), *g7_isolation(record), *g8_bounds(record), *conserved(record), *funds]


def of_history(record: Record) -> list[str]:
    """What the whole log and all states say, at the end of a network."""
    log, ordered = record.log, record.options.order == "ordered"
    return [
        *g1_exactly_once_in_order(log, ordered),
        *g2_authenticity(log),
        *g4_atomic(log),
        *g5_immutable(record),
        *g10_failures_are_results(log),
        *c1_to_c5_causality(log, ordered),
        *x1_limits(log, record.options),
        *x3_x4_x11_clients(log, record.options),
    ]


def of_two(one: Record, other: Record) -> list[str]:
    """What two runs say of each other, at rest, whose relays alone differ."""
    return g9_relay_neutrality(one, other)


def violations(network: Network) -> list[str]:
    """Everything, of the oracle."""
    record = record_of(network)
    return [*of_history(record), *of_block(record)]
