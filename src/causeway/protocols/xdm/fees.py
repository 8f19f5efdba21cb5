"""What a request costs (XDM reference 3.8): for its execution at its destination, and for that of its response."""

from __future__ import annotations

from causeway.protocols.xdm.options import XdmOptions

MAX_FEE = 2**64 - 1
"""No call costs more; where it would, it is refused with BalanceOverflow, and nothing is burned."""


def fees(options: XdmOptions) -> tuple[int, int]:
    """Return the fees that are collected with a request: of its own chain, and of the other."""
    message = options.message_weight // options.weight_per_unit
    response = options.response_weight // options.weight_per_unit
    if options.fee_model == "v0":
        return response + options.relay_fee, message + options.relay_fee
    return response * options.fee_multiplier, message * options.fee_multiplier
