"""What a request costs (XDM reference 3.8): for its execution at its destination, and for that of its response."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from causeway.model.errors import InvalidInput
from causeway.model.order import U64
from causeway.protocols.xdm.options import ChainWeights, XdmOptions

MAX_FEE = 2**64 - 1
"""No call costs more; where it would, it is refused with BalanceOverflow, and nothing is burned."""


@dataclass(frozen=True)
class Fees:
    """What requests of each chain cost, by position: ``src`` is paid there when the response has come, ``dst`` at the
    destination. Where ``over``, they cost too much, and both are 0. ``relay``: the part that is for relaying."""

    src: U64
    dst: U64
    over: npt.NDArray[np.bool_]
    relay: int

    @classmethod
    def of(cls, options: XdmOptions, names: list[str]) -> Fees:
        """Return those of chains, each with the weights that it knows. Raises ``InvalidInput`` for weights of a chain
        that there is not."""
        unknown = sorted(set(options.weights) - set(names))
        if unknown:
            listed = ", ".join(names)
            raise InvalidInput(f"options.weights.{unknown[0]}: no chain is called {unknown[0]!r}; there are {listed}")
        pairs = [_of_chain(options, name) for name in names]
        over = np.array([sum(pair) > MAX_FEE for pair in pairs], dtype=bool)
        src, dst = (
            np.array([0 if sum(pair) > MAX_FEE else pair[which] for pair in pairs], dtype=np.uint64)
            for which in range(2)
        )
        return cls(src, dst, over, options.relay_fee if options.fee_model == "v0" else 0)


def _of_chain(options: XdmOptions, name: str) -> tuple[int, int]:
    own = options.weights.get(name, ChainWeights())
    response = (options.response_weight if own.response is None else own.response) // options.weight_per_unit
    message = (options.message_weight if own.message is None else own.message) // options.weight_per_unit
    if options.fee_model == "v0":
        return response + options.relay_fee, message + options.relay_fee
    return response * options.fee_multiplier, message * options.fee_multiplier
