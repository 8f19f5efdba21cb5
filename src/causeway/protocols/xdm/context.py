"""The context of a block, and the compute fees of requests.

A fee covers the execution of a request and of its response. It has a part by the weights of its chain and, on a channel
with fee model ``v0``, the relay fee of the channel.

Reference: XDM, section 3.8.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import U64, Rows

from causeway.core.frame import Frame
from causeway.protocols.shared.execution import ProgramRunner
from causeway.protocols.xdm.chains import CONSENSUS_POSITION, DomainNetwork
from causeway.protocols.xdm.operators import ChainSigners, Operators
from causeway.protocols.xdm.options import ChainWeights, XdmOptions
from causeway.protocols.xdm.planned_calls import PlannedCalls, RepeatedTicks
from causeway.protocols.xdm.state import FeeModel

MAX_FEE = 2**64 - 2
"""Maximum fee of a call.

A more expensive call is refused with BalanceOverflow, without burning anything.
"""

_BEYOND = MAX_FEE + 1


@dataclass(frozen=True)
class ComputeFees:
    """Compute fees of all chains by fee model and position, in units.

    Attributes:
        response: Fees paid at the source on arrival of the response, uint64, shape (models, chains).
        message: Fees paid at the destination. A fee above ``MAX_FEE`` is 2**64 - 1.
    """

    response: U64
    message: U64

    @classmethod
    def of(cls, options: XdmOptions, names: list[str]) -> ComputeFees:
        """Compute the fees of chains from their weights.

        Args:
            options: Weights, price of weight and multiplier of ``v1``.
            names: Chain names by position.

        Raises:
            InvalidInput: The options name an unknown chain.
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
        """Return the fees of a request on each channel.

        Args:
            channels: ``CHANNELS_SCHEMA``.
            rows: Rows of ``channels``.

        Returns:
            Fees of the response (at the source) and of the message (at the destination), uint64, and a mask of requests
            above ``MAX_FEE`` in total; their fees are 0.
        """
        chain, model, relay = (channels[name][rows] for name in ("chain", "fee_model", "relay_fee"))
        src, over = _plus(self.response[model, chain], relay)
        dst, over_message = _plus(self.message[model, chain], relay)
        over |= over_message | (src > np.uint64(MAX_FEE) - dst)
        return np.where(over, np.uint64(0), src), np.where(over, np.uint64(0), dst), over

    def of_messages(self, channels: Frame, rows: Rows, handled: npt.NDArray[np.bool_]) -> U64:
        """Return the minted fee of each message by the destination's weights (D-4, ``recomputed``).

        Args:
            channels: ``CHANNELS_SCHEMA``.
            rows: Rows of ``channels``.
            handled: Mask of messages with a handler; the others mint the relay fee alone.
        """
        chain, model, relay = (channels[name][rows] for name in ("chain", "fee_model", "relay_fee"))
        fees, over = _plus(np.where(handled, self.message[model, chain], np.uint64(0)), relay)
        return np.where(over, np.uint64(0), fees)


def _plus(fees: U64, relay: U64) -> tuple[U64, npt.NDArray[np.bool_]]:
    """Return fees plus relay fees, and a mask of sums above ``MAX_FEE``; those are 0."""
    over = fees == np.uint64(_BEYOND)
    over |= relay > np.uint64(MAX_FEE) - np.minimum(fees, np.uint64(MAX_FEE))
    return np.where(over, np.uint64(0), fees + relay), over


def _by_model(weights: list[int], options: XdmOptions) -> U64:
    """Return compute fees by fee model, from weights."""
    compute = [weight // options.weight_per_unit for weight in weights]
    fees = np.zeros((len(FeeModel), len(weights)), dtype=np.uint64)
    fees[FeeModel.V0] = [min(fee, _BEYOND) for fee in compute]
    fees[FeeModel.V1] = [min(fee * options.fee_multiplier, _BEYOND) for fee in compute]
    return fees


def block_number(tick: int) -> int:
    """Return the block number of a tick; genesis is block 0.

    Args:
        tick: Tick of the block.
    """
    return tick + 1


@dataclass(frozen=True)
class Context:
    """The inputs of a block besides its state.

    Attributes:
        height: Height of the lake.
        tick: Tick of the block.
        seed: Seed of all random numbers.
        chains: Positions of the chains that make the block, ascending.
        network: Fixed properties of the network.
        options: Options of the protocol.
        programs: Executor of the programs.
        planned: Planned calls.
        fees: Compute fees of requests.
        operators: Operators of chains.
        signers: Signing keys of chains.
        again: By chain, earlier ticks with planned calls to repeat after a fork.
    """

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
    again: RepeatedTicks

    @cached_property
    def number(self) -> int:
        """Block number of all chains at this tick."""
        return block_number(self.tick)

    @cached_property
    def has_consensus(self) -> bool:
        """True if the consensus chain makes this block."""
        return bool(len(self.chains)) and int(self.chains[0]) == CONSENSUS_POSITION
