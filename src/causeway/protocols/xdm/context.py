"""What a block may know besides its chains' states and its inputs.

What a request costs (XDM reference 3.8): for its execution at its destination, and for that of its response.

A fee has a part that its chain's weights decide and, on a channel with the fee model ``v0``, that channel's relay fee.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import U64, Rows

from causeway.core.frame import Frame
from causeway.protocols.shared.execution import ProgramRunner
from causeway.protocols.xdm.chains import CONSENSUS_POSITION, DomainNetwork
from causeway.protocols.xdm.operators import ChainSigners, Operators
from causeway.protocols.xdm.options import ChainWeights, XdmOptions
from causeway.protocols.xdm.planned_calls import NONE_AGAIN, Again, PlannedCalls
from causeway.protocols.xdm.state import FeeModel

MAX_FEE = 2**64 - 2
"""No call costs more; where it would, it is refused with BalanceOverflow, and nothing is burned."""

_BEYOND = MAX_FEE + 1


@dataclass(frozen=True)
class ComputeFees:
    """The compute fees of all chains, by fee model and position, in units.

    ``response``: paid at the source when the response has come; ``message``: paid at the destination. One above
    ``MAX_FEE`` is 2**64 - 1, however much it is.
    """

    response: U64
    message: U64

    @classmethod
    def of(cls, options: XdmOptions, names: list[str]) -> ComputeFees:
        """Compute the fees of chains, each with the weights that it knows.

        Args:
            options: the weights, the price of weight and the multiplier of ``v1``.
            names: the chains, by position.

        Raises:
            InvalidInput: there are weights of a chain that does not exist.
        """
        unknown = sorted(set(options.weights) - set(names))
        if unknown:
            listed = ", ".join(names)
            raise InvalidInput(f"options.weights.{unknown[0]}: no chain is called {unknown[0]!r}; there are {listed}")
        weights = [options.weights.get(name, ChainWeights()) for name in names]
        return cls(
            _by_model([options.response_weight if own.response is None else own.response for own in weights], options),
            _by_model([options.message_weight if own.message is None else own.message for own in weights], options),
        )

    def of_requests(self, channels: Frame, rows: Rows) -> tuple[U64, U64, npt.NDArray[np.bool_]]:
        """Return what a request on each of some channels costs its sender.

        Args:
            channels: ``CHANNELS_SCHEMA``.
            rows: rows of ``channels``.

        Returns:
            The fees for the response (at the source) and for the message (at the destination), 64 bits each, and which
            requests cost more than ``MAX_FEE`` together; the fees of those are 0.
        """
        chain, model, relay = (channels[name][rows] for name in ("chain", "fee_model", "relay_fee"))
        src, over = _plus(self.response[model, chain], relay)
        dst, too = _plus(self.message[model, chain], relay)
        over |= too | (src > np.uint64(MAX_FEE) - dst)
        return np.where(over, np.uint64(0), src), np.where(over, np.uint64(0), dst), over

    def of_messages(self, channels: Frame, rows: Rows, handled: npt.NDArray[np.bool_]) -> U64:
        """Return what the chain of each of some channels mints for a message by its own weights (D-4, ``recomputed``).

        ``handled``: messages that have a handler; for others it mints the relay fee alone.
        """
        chain, model, relay = (channels[name][rows] for name in ("chain", "fee_model", "relay_fee"))
        found, over = _plus(np.where(handled, self.message[model, chain], np.uint64(0)), relay)
        return np.where(over, np.uint64(0), found)


def _plus(fees: U64, relay: U64) -> tuple[U64, npt.NDArray[np.bool_]]:
    """Return fees with relay fees, and which sums are above ``MAX_FEE``; those are 0."""
    over = fees == np.uint64(_BEYOND)
    over |= relay > np.uint64(MAX_FEE) - np.minimum(fees, np.uint64(MAX_FEE))
    return np.where(over, np.uint64(0), fees + relay), over


def _by_model(weights: list[int], options: XdmOptions) -> U64:
    """Return the compute fees of weights, by fee model."""
    compute = [weight // options.weight_per_unit for weight in weights]
    fees = np.zeros((len(FeeModel), len(weights)), dtype=np.uint64)
    fees[FeeModel.V0] = [min(fee, _BEYOND) for fee in compute]
    fees[FeeModel.V1] = [min(fee * options.fee_multiplier, _BEYOND) for fee in compute]
    return fees


def block_number(tick: int) -> int:
    """Return the number of the blocks that chains make in a tick; genesis is block 0."""
    return tick + 1


@dataclass(frozen=True)
class Context:
    """A block's height and tick, the chains that make it (positions, ascending), the network, its programs, what
    the scenario plans, what requests cost, the operators of chains, and who signs for chains. ``again``: of chains the
    earlier ticks whose planned calls a fork took back, and their next block makes."""

    height: int
    tick: int
    seed: int
    chains: npt.NDArray[np.uint32]
    network: DomainNetwork
    options: XdmOptions
    programs: ProgramRunner
    planned: PlannedCalls
    fees: ComputeFees
    operators: Operators
    signers: ChainSigners
    again: Again = field(default_factory=lambda: NONE_AGAIN)

    @property
    def number(self) -> int:
        """Return the number of the block that every chain makes now."""
        return block_number(self.tick)

    @property
    def has_consensus(self) -> bool:
        """Return whether the consensus chain is among the chains."""
        return bool(len(self.chains)) and int(self.chains[0]) == CONSENSUS_POSITION
