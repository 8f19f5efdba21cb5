"""The state of one program instance, read from the lake without Spark: for unit tests, and for a look."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc

from causeway.model.errors import InvalidInput
from causeway.model.text import unknown
from causeway.model.topology import Topology
from causeway.pipeline.lake import Lake, Manifest
from causeway.programs.catalogue import program_class
from causeway.programs.kept import read_kept
from causeway.programs.scalar import Program


def program_state(lake: Lake, manifest: Manifest, topology: Topology, name: str) -> Any:
    """Return the state of the instance ``name`` at the last height of a commit: what a scalar program keeps, or the
    columns of its row.

    None where nothing is installed, or where the program is on no chain. Raises ``InvalidInput`` for an unknown name.
    """
    found = topology.programs.filter(pc.equal(topology.programs["name"], name)).to_pylist()
    if not found:
        raise InvalidInput(f"program: {unknown('program', name, topology.programs['name'].to_pylist())}")
    program = found[0]["program"]
    if program is None:
        return None
    for table in lake.state(manifest, f"program_{program}"):
        rows = table.filter(pc.equal(table["program"], found[0]["number"])).to_pylist()
        if rows:
            scalar = issubclass(program_class(program), Program)
            return read_kept(rows[0]["state"])[0] if scalar else rows[0]
    return None
