"""Under which blocks operators prove now, and the tries of the storage of these blocks (XDM reference X-4, X-5).

The trie of a chain's provable block was kept when the block was made. Where it was not, an earlier one is moved on by
the log of storage changes; where none is at hand it is built from the tables of that block's height, or from those of
an earlier one and the log since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from causeway.model.frame import Frame, empty_frame
from causeway.protocols.contract import AnyKernel, Chains, Inputs, Nearest, View
from causeway.protocols.partition import part
from causeway.protocols.xdm.chain_tries import NOWHERE, ChainTries, tries_of
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.consensus import anchor_number
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.history import height_of, heights_frame, remembers, spans_between
from causeway.protocols.xdm.relay import provable_number
from causeway.protocols.xdm.state import State
from causeway.protocols.xdm.storage import STORAGE_SCHEMA, changes


@dataclass(frozen=True)
class Provable:
    """The blocks that operators of chains prove under in a block.

    ``numbers``: of each chain's; ``following``: the block of the consensus chain that is shown as final from this one
    on, whose storage has the receipts that are shown with it; what operators prove of the chain itself is under the one
    that was shown before. ``rebuilt``: the height of the block, for chains whose trie is built anew; ``spans``: where
    the log has what the tries are moved on by: chain, first and last height.
    """

    numbers: Mapping[int, int]
    following: int | None
    rebuilt: Mapping[int, int]
    spans: tuple[tuple[int, int, int], ...]

    def wanted(self) -> Frame:
        """Return at which heights chains' states are needed, or earlier ones with what the log has since
        (``PAST_SCHEMA``)."""
        columns = np.array(list(self.rebuilt.items()), dtype=np.int64).reshape(-1, 2)
        return Frame(
            {"chain": columns[:, 0].astype(np.uint32), "height": columns[:, 1].astype(np.uint64)}, len(columns)
        )

    def at_hand(self, kernel: AnyKernel, inputs: Inputs[State]) -> dict[int, Nearest[State]]:
        """Return what was read for each chain whose trie is built anew."""
        found = {}
        for chain, height in self.rebuilt.items():
            then = inputs.nearest["storage"][height]
            found[chain] = replace(then, state=part(kernel, then.state, np.array([chain], dtype=np.uint32), 0))
        return found

    def rows(self) -> dict[str, Frame]:
        """Return the rows of the log that are needed, as spans of heights."""
        return {"storage": heights_frame(self.spans)} if self.spans else {}


NOTHING = Provable({}, None, {}, ())


def what_is_provable(state: State, chains: Chains, view: View, context: Context, *, forks: bool) -> Provable:
    """Return what operators of ``chains`` prove under now. ``forks``: heights of the log may be abandoned ones."""
    tries = tries_of(state, context)
    # The number of the consensus block that is shown as final from this block on, None as long as there is none.
    if not context.has_consensus:
        following = None
    else:
        found = anchor_number(state["blocks"], context.number, context.options.archiving_depth)
        following = None if found is None else int(state["blocks"]["number"][found[1]])
    numbers: dict[int, int] = {}
    rebuilt: dict[int, int] = {}
    spans: list[tuple[int, int, int]] = []
    for chain in chains.tolist():
        number = provable_number(chain, view)
        then = following if chain == CONSENSUS_POSITION else None
        first = then if number is None else number
        if first is None:
            continue
        known = -1 if tries is None else tries.number[chain]
        if context.network.follows and (first < known or not remembers(state, chain, first)):
            continue  # another lake's consensus chain says of this one what it has not said
        if tries is None or tries.nearest(chain, first) < 0:
            rebuilt[chain] = height_of(state, chain, first)
            known = first
        numbers[chain] = first
        last = first if then is None else then
        known = known if tries is None else max(known, tries.nearest(chain, last))
        if last > known:
            spans += spans_between(state, chain, known, last, forks=forks)
    return Provable(numbers, following, rebuilt, tuple(spans))


def moved_tries(
    state: State,
    provable: Provable,
    nearest: Mapping[int, Nearest[State]],
    logged: Mapping[str, Frame],
    context: Context,
) -> ChainTries:
    """Return the tries of the chains of a block, those that operators prove under moved on to what is provable now.

    ``nearest``: of each chain whose trie is built anew, what is at hand of it at its provable block; ``logged``: what
    ``Provable.rows`` asked for.
    """
    tries = tries_of(state, context)
    if tries is None:
        tries = ChainTries.of(context.chains)
        tries.change(changes(None, state, context))
    tries.height = NOWHERE
    for chain, number in provable.numbers.items():
        tries.show(chain, number)
    for chain, then in nearest.items():
        one = replace(context, chains=np.array([chain], dtype=np.uint32))
        tries.move(changes(None, then.state, one), {})
        tries.move(then.rows.filter(then.rows["chain"] == chain), {})
    if "storage" in logged:
        rows = logged["storage"]
        tries.move(rows.filter(rows["chain"] != CONSENSUS_POSITION), {})
    tries.number |= provable.numbers
    return tries


def move_anchor(tries: ChainTries, provable: Provable, logged: Mapping[str, Frame]) -> None:
    """Move the storage of the consensus chain on to that of the block which is shown as final from now on."""
    if provable.following is None:
        return
    tries.show(CONSENSUS_POSITION, provable.following)
    rows = logged.get("storage", empty_frame(STORAGE_SCHEMA))
    tries.move(rows.filter(rows["chain"] == CONSENSUS_POSITION), {CONSENSUS_POSITION: provable.following})
