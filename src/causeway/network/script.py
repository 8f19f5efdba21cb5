"""Scripted traffic: the messages stand in the scenario file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.ingress_call import encode_calls
from causeway.model.topology import CHAINS_SCHEMA, PROGRAMS_SCHEMA, Topology
from causeway.model.traffic import INGRESS_SCHEMA
from causeway.network.directory import Directory
from causeway.network.traffic_settings import CallSection, ScriptSection

U64Array = npt.NDArray[np.uint64]

Homes = Mapping[int, int | None]

_MASK = 2**64 - 1


@dataclass(frozen=True)
class ScriptedTraffic:
    """The messages of a script, one table row a ``[[traffic.send]]``; ``count`` says how often it is sent.

    ``sends``: ``INGRESS_SCHEMA`` with the columns ``tick`` and ``count`` in front, sorted by tick, chain, order in
    the file.
    """

    sends: pa.Table

    def rows(self, tick: int, chains: U64Array) -> pa.Table:
        """Return the rows of ``tick`` for ``chains``, by chain, then in the order of the file."""
        ticks = self.sends["tick"].to_numpy()
        first, end = (int(np.searchsorted(ticks, np.uint64(tick), side=side)) for side in ("left", "right"))
        part = self.sends.slice(first, end - first)
        places = np.flatnonzero(np.isin(part["chain"].to_numpy(), chains))
        places = np.repeat(places, part["count"].to_numpy()[places].astype(np.int64))
        return part.select(INGRESS_SCHEMA.names).take(pa.array(places)).cast(INGRESS_SCHEMA)

    def next_tick(self, tick: int) -> int | None:
        """Return the first tick at or after ``tick`` with any row."""
        ticks = self.sends["tick"].to_numpy()
        place = int(np.searchsorted(ticks, np.uint64(tick)))
        return int(ticks[place]) if place < len(ticks) else None

    def topology(self) -> Topology:
        """Return no chains and no programs: a script uses those of the file."""
        return Topology(CHAINS_SCHEMA.empty_table(), PROGRAMS_SCHEMA.empty_table())

    def rows_a_tick(self) -> float:
        """Return how many rows a tick with any has on average."""
        ticks = len(np.unique(self.sends["tick"].to_numpy()))
        return float(self.sends["count"].to_numpy().sum()) / max(ticks, 1)


def homes_of(topology: Topology) -> Homes:
    """Return on which chain each program is at genesis, by numbers; None for none."""
    programs = topology.programs
    return dict(zip(programs["number"].to_pylist(), programs["chain"].to_pylist(), strict=True))


def scripted_traffic(section: ScriptSection, homes: Homes, moves: pa.Table, directory: Directory) -> ScriptedTraffic:
    """Return the traffic of a script; ``homes``: see ``homes_of``. ``InvalidInput`` names the send whose program or
    chain is unknown."""
    changes = moves.to_pylist()
    rows = []
    for position, send in enumerate(section.send):
        key = f"traffic.send[{position}]"
        receiver = directory.program(send.to, f"{key}.to")
        if send.chain is not None:
            chain = directory.member(send.chain, send.tick, f"{key}.chain")
        else:
            host = homes.get(receiver)
            for change in changes:
                if change["program"] == receiver and change["tick"] <= send.tick:
                    host = change["chain"]
            if host is None:
                text = f"missing; {send.to} is on no chain at tick {send.tick}, so say where the message comes in"
                raise directory.fail(f"{key}.chain", text)
            chain = host
        payload = send.content if send.call is None else _call(send.call, directory, key)
        rows.append(
            {
                "tick": send.tick,
                "count": send.count,
                "chain": chain,
                "receiver": receiver,
                "sender": send.sender,
                "method": send.method_name,
                "payload": payload,
            }
        )
    schema = pa.schema([pa.field("tick", pa.uint64()), pa.field("count", pa.uint64()), *INGRESS_SCHEMA])
    rows.sort(key=lambda row: (row["tick"], row["chain"]))
    return ScriptedTraffic(pa.Table.from_pylist(rows, schema=schema))


def _call(call: CallSection, directory: Directory, key: str) -> bytes:
    receiver = directory.program(call.receiver, f"{key}.call.receiver")
    high, low = np.array([[call.amount >> 64], [call.amount & _MASK]], dtype=np.uint64)
    body = pa.array([call.content], pa.binary())
    payload: bytes = encode_calls(np.array([receiver], dtype=np.uint64), high, low, call.method, body)[0].as_py()
    return payload
