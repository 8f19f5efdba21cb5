"""The operators of each chain: who submits the execution receipt of a block, and is paid for it (XDM reference 3.6).

A domain's block is executed by all operators that are online; each of them submits its receipt. A block of the
consensus chain has no receipt: its author stands in the place of the submitters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.faults import Fault
from causeway.model.frame import Frame
from causeway.protocols.contract import Chains
from causeway.protocols.draws import Draw, drawn
from causeway.protocols.xdm.chains import CONSENSUS_POSITION, Network
from causeway.protocols.xdm.fault_kinds import ABSENT, CHANCE, OPERATOR
from causeway.protocols.xdm.state import encode_set


def split_rewards(amount: int, operators: Sequence[int], number: int) -> list[tuple[int, int]]:
    """Split what a block pays for one receipt among the operators who submitted it (3.6).

    Each gets the same amount. The units that remain go one each to operators in ascending order, beginning with the one
    at position ``number`` modulo their count, so that over many receipts nobody is preferred.

    Args:
        amount: the sum of the fees, in units.
        operators: who submitted the receipt, ascending; at least one.
        number: the number of the block that the receipt is of.

    Returns:
        (operator, units) of every operator that gets any.
    """
    count = len(operators)
    share, rest = divmod(amount, count)
    parts = [share + ((place - number) % count < rest) for place in range(count)]
    return [(operator, part) for operator, part in zip(operators, parts, strict=True) if part]


@dataclass(frozen=True)
class Operators:
    """The operators of all chains: ``count`` on each, numbered from 0.

    ``absences``: the faults that keep operators from submitting receipts, or from making blocks of the consensus chain.
    """

    count: int
    absences: tuple[tuple[int, Fault], ...]
    network: Network
    seed: int

    @classmethod
    def of(cls, count: int, faults: Sequence[Fault], network: Network, seed: int) -> Operators:
        """Create the operators of a scenario.

        Raises:
            InvalidInput: an absent operator does not exist, or every operator of a chain may be absent.
        """
        absences = tuple((row, fault) for row, fault in enumerate(faults) if fault.kind == ABSENT)
        names = dict(zip(network.numbers.tolist(), network.names, strict=True))
        absent: dict[int, set[int]] = {}
        for _, fault in absences:
            operator = fault.args[OPERATOR]
            assert fault.source is not None
            if operator >= count:
                where = f'kind = "{ABSENT}", chain = "{names[fault.source]}", operator = {operator}'
                raise InvalidInput(f"faults: {where}: allowed: 0 to {count - 1} (options.operators = {count})")
            absent.setdefault(fault.source, set()).add(operator)
        for chain, operators in absent.items():
            if len(operators) == count:
                raise InvalidInput(
                    f'faults: kind = "{ABSENT}", chain = "{names[chain]}": all of its {count} operators may be absent; '
                    "allowed: at least one that never is, or nobody submits receipts"
                )
        return cls(count, absences, network, seed)

    def submitters(self, chain: int, number: int) -> list[int]:
        """Return who submits the receipt of a block, ascending; of the consensus chain the author of the block."""
        return self._submitters_of(chain, number, self._online(chain, number))

    def default_submitters(self, chain: int, number: int) -> list[int]:
        """Return who submits the receipt of a block, or is its author, when no operator is absent."""
        return self._submitters_of(chain, number, list(range(self.count)))

    def absences_at(self, chains: Chains, number: int) -> dict[int, list[int]]:
        """Return, of those of ``chains`` of which some operators are absent, who submits the receipts of a block."""
        concerned = {fault.source for _, fault in self.absences if fault.acts(number - 1)}
        online = {chain: self._online(chain, number) for chain in chains.tolist() if self._number(chain) in concerned}
        return {
            chain: self._submitters_of(chain, number, present)
            for chain, present in online.items()
            if len(present) < self.count
        }

    def encoded(self, taken: Frame) -> pa.BinaryArray:
        """Return who submits each receipt of a table with the columns ``domain`` and ``number``."""
        rows = zip(taken["domain"].tolist(), taken["number"].tolist(), strict=True)
        return pa.array([encode_set(self.submitters(*row)) for row in rows], pa.binary())

    def _submitters_of(self, chain: int, number: int, online: list[int]) -> list[int]:
        if chain != CONSENSUS_POSITION:
            return online
        words = drawn(Draw.AUTHOR, self.seed, self._number(chain), number)
        return [online[int(np.random.Generator(words).integers(len(online)))]]

    def _online(self, chain: int, number: int) -> list[int]:
        place = self._number(chain)
        absent = set()
        for row, fault in self.absences:
            if fault.source == place and fault.acts(number - 1):
                words = drawn(Draw.ABSENT, self.seed, place, number, row)
                if np.random.Generator(words).random() < fault.args[CHANCE]:
                    absent.add(fault.args[OPERATOR])
        return [operator for operator in range(self.count) if operator not in absent]

    def _number(self, chain: int) -> int:
        return int(self.network.numbers[chain])
