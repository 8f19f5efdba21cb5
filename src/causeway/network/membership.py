"""What it means for programs that chains come and go: where they are at genesis, and the moves that this makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.membership import ALWAYS, Span
from causeway.model.topology import PROGRAMS_SCHEMA, Topology

Move = dict[str, int | None]
"""A row of ``MOVES_SCHEMA``."""


def at_genesis(topology: Topology) -> Topology:
    """Return the topology with the programs of chains that come later on no chain."""
    late = [chain for chain, span in topology.membership.spans.items() if span.first]
    if not late:
        return topology
    programs = topology.programs
    hosts = programs["chain"].combine_chunks()
    waits = pc.is_in(hosts, value_set=pa.array(late, pa.uint64()))
    hosts = pc.if_else(waits, pa.scalar(None, pa.uint64()), hosts)
    programs = programs.set_column(programs.schema.get_field_index("chain"), PROGRAMS_SCHEMA.field("chain"), hosts)
    return replace(topology, programs=programs)


def moves_of_membership(topology: Topology, moves: Sequence[Move]) -> list[Move]:
    """Return the moves that chains make by coming and going, besides ``moves``, which the scenario says.

    The programs of a chain that comes later are on it from then on, unless they were moved elsewhere before. Those that
    are on a chain when it goes are on no chain. ``topology``: with programs on the chains that the scenario says.
    """
    spans = topology.membership.spans
    if not spans:
        return []
    chains = topology.programs["chain"]
    at_home = topology.programs.filter(pc.is_in(chains, value_set=pa.array(list(spans), pa.uint64())))
    homes = dict(zip(at_home["number"].to_pylist(), at_home["chain"].to_pylist(), strict=True))
    concerned = {*homes, *(move["program"] for move in moves if move["chain"] in spans)}
    own: dict[int, list[tuple[int, int | None]]] = {program or 0: [] for program in concerned}
    for move in sorted(moves, key=lambda move: move["tick"] or 0):
        mine = own.get(move["program"] or 0)
        if mine is not None:
            mine.append((move["tick"] or 0, move["chain"]))
    return [
        {"tick": tick, "program": program, "chain": chain}
        for program, stays in sorted(own.items())
        for tick, chain in _moves_of_program(homes.get(program), stays, spans)
    ]


def _moves_of_program(
    home: int | None, moves: list[tuple[int, int | None]], spans: Mapping[int, Span]
) -> list[tuple[int, int | None]]:
    """Return the moves of one program (tick, chain) besides ``moves``: to its home, and off chains that go."""
    first = spans.get(home, ALWAYS).first if home is not None else 0
    elsewhere = bool(moves) and moves[0][0] <= first
    made: list[tuple[int, int | None]] = [(first, home)] if first and not elsewhere else []
    stays = ([(first, home)] if not elsewhere else []) + moves
    ends = [tick for tick, _ in stays[1:]] + [None]
    for (_, chain), end in zip(stays, ends, strict=True):
        last = spans.get(chain, ALWAYS).last if chain is not None else None
        if last is not None and (end is None or end > last + 1):
            made.append((last + 1, None))
    return made
