"""Splits of chains (``[[splits]]``): the moves that they make, and the checks of a scenario that has some."""

from __future__ import annotations

from collections.abc import Sequence

from causeway.model.errors import InvalidInput
from causeway.model.text import shown
from causeway.model.topology import Topology
from causeway.network.settings import MoveSection, SplitSection


def split_moves(sections: Sequence[SplitSection]) -> list[tuple[str, MoveSection]]:
    """Return the moves that splits make, each with its key in the scenario."""
    return [
        (f"splits[{place}].programs[{row}]", MoveSection(tick=section.tick, program=name, chain=section.into))
        for place, section in enumerate(sections)
        for row, name in enumerate(section.programs)
    ]


def check_splits(topology: Topology, path: str) -> None:
    """Check where the programs of a topology with moves are before and after each of its splits.

    Raises:
        InvalidInput: A program of a chain that is split goes to a third chain, or one that was on another chain, or on
            none, comes to the new chain.
    """
    due = {(split.tick, split.chain): split for split in topology.membership.splits}
    born = {(split.tick, split.into): split for split in topology.membership.splits}
    if not due:
        return
    programs = topology.programs
    hosts = dict(zip(programs["number"].to_pylist(), programs["chain"].to_pylist(), strict=True))
    names = dict(zip(programs["number"].to_pylist(), programs["name"].to_pylist(), strict=True))
    chains = dict(zip(topology.chains["number"].to_pylist(), topology.chains["name"].to_pylist(), strict=True))
    for move in topology.moves.sort_by("tick").to_pylist():
        tick, program, target = move["tick"], move["program"], move["chain"]
        before, name = hosts.get(program), shown(str(names.get(program, program)))
        left = None if before is None else due.get((tick, before))
        comes = None if target is None else born.get((tick, target))
        if left is not None and target not in (left.chain, left.into):
            text = f"allowed: {shown(chains[left.chain])} and {shown(chains[left.into])}"
            raise InvalidInput(
                f"{path}: splits: {name} leaves {shown(chains[left.chain])} at tick {tick}, at which that is split; "
                f"{text}"
            )
        if comes is not None and before != comes.chain:
            raise InvalidInput(
                f"{path}: splits: {name} comes to {shown(chains[comes.into])} at tick {tick}; allowed at the split "
                f"that it begins with: programs of {shown(chains[comes.chain])}"
            )
        hosts[program] = target


__all__ = ["check_splits", "split_moves"]
