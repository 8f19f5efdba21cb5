"""The workload of ``domains``: calls from programs of every domain to programs of every other, under a short K and D.

Depths decide how much waits, not what a message costs. So they are short here: what is measured is full of traffic.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import InvalidInput

from benchmarks.cycles.workload import Cycles, CycleTraffic
from benchmarks.workload import payloads
from causeway.config.topology import CHAINS_SCHEMA, Topology
from causeway.core.frame import Frame, concat, empty_frame
from causeway.network.deploy import partition_chains
from causeway.programs.runner import Programs
from causeway.protocols.contract import Chains, RoundResult, Tick
from causeway.protocols.shared.state_tables import sort_table
from causeway.protocols.xdm.chains import CONSENSUS_POSITION, PROGRAMS_ENDPOINT, add_consensus_chain
from causeway.protocols.xdm.consensus.commitment import commit_block
from causeway.protocols.xdm.errors import OK
from causeway.protocols.xdm.kernel import XdmKernel
from causeway.protocols.xdm.options import XdmOptions
from causeway.protocols.xdm.state import RESPONSE, ChannelState, RequestKind, State
from causeway.protocols.xdm.storage import ChainTries
from causeway.protocols.xdm.tables import (
    CHANNELS_SCHEMA,
    HISTORY_SCHEMA,
    RELAYING_SCHEMA,
    RESPONSES_SCHEMA,
    STATE_TABLES,
)
from causeway.protocols.xdm.wire import ENDPOINT
from causeway.tick.deployment import Deployment

DEPTH, PERIOD = 2, 3
"""K and D."""

DEPLOYED = 256
"""How far ahead a message may be, as deployed: operators prove one more of a lane in a block."""

ROOM = 2**31
"""Requests of a channel without a response: more than there are."""


@dataclass(frozen=True)
class Domains:
    """``messages`` calls a tick for ``ticks`` ticks, each from a program to one of another domain, and answered.

    ``programs`` are spread evenly over ``domains``, between any two of which there is a channel; bodies are
    ``payload_bytes`` long and all differ. ``ahead``: the option ``max_future_nonces``. ``others``: further entries in
    the storage of each domain: responses of a channel with the consensus chain that nobody has acknowledged.
    """

    messages: int
    ticks: int = 1
    domains: int = 15
    programs: int = 15_000
    payload_bytes: int = 64
    ahead: int = DEPLOYED
    others: int = 0
    calls: Cycles = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise ``InvalidInput`` for numbers that do not fit together."""
        if self.others < 0:
            raise InvalidInput(f"others: {self.others}; at least 0 is allowed")
        work = Cycles(self.messages, self.ticks, self.domains, self.programs, self.payload_bytes)
        object.__setattr__(self, "calls", work)

    @property
    def cycles(self) -> int:
        """Return how many messages there are in all, each with its response."""
        return self.calls.cycles

    @property
    def channels(self) -> int:
        """Return between how many pairs of domains there are channels."""
        return self.domains * (self.domains - 1) // 2

    def topology(self) -> Topology:
        """Return the domains, their programs, each a ``caller``, and a consensus chain."""
        numbers = np.arange(self.domains, dtype=np.uint64)
        chains = pa.Table.from_arrays([numbers, [f"domain-{number}" for number in numbers]], schema=CHAINS_SCHEMA)
        return add_consensus_chain(replace(self.calls.topology(), chains=chains))

    def deployment(self, partitions: int) -> Deployment:
        """Return the network made ready for an executor, its chains cut into at most ``partitions`` buckets."""
        topology = self.topology()
        options = XdmOptions(
            archiving_depth=DEPTH,
            challenge_period=PERIOD,
            max_future_nonces=self.ahead,
            max_outgoing_messages=ROOM,
        )
        kernel = FilledKernel(topology, Programs(topology), options, others=self.others)
        return Deployment(
            kernel, CycleTraffic(self.calls), partition_chains(kernel.weights(), partitions), kernel.numbers()
        )


@dataclass(frozen=True)
class FilledKernel(XdmKernel):
    """The kernel, with ``others`` entries more in the storage of each domain from height 0 on."""

    others: int = 0

    def genesis(self, chains: Chains, coming: int | None = None) -> RoundResult[State]:
        """Return the state at height 0."""
        result = super().genesis(chains, coming)
        if not self.others:
            return result
        domains = chains[chains != CONSENSUS_POSITION]
        tables = {name: result.state[name] for name in ("channels", "next_channels")}
        for own, foreign in ((domains, CONSENSUS_POSITION), (CONSENSUS_POSITION, self._domains)):
            if np.isin(own, chains).all():
                for name, rows in _channels(own, foreign, self.others).items():
                    tables[name] = sort_table(
                        STATE_TABLES[name], concat([tables[name], rows.select(tables[name].names)])
                    )
        responses, relaying = _left(domains, self.others)
        context = replace(self.context(chains, Tick(0, -1)), height=0)
        tables |= {"responses": responses, "relaying": relaying, "history": empty_frame(HISTORY_SCHEMA)}
        made = commit_block(None, result.state.with_tables(**tables), ChainTries.of(chains), {}, None, context)
        logs = {**result.logs, "storage": made.storage}
        return replace(result, state=made.state, headers=made.headers, logs=logs)

    @property
    def _domains(self) -> Chains:
        return np.arange(1, len(self.network.names), dtype=np.uint32)


def _channels(chain: Any, foreign: Any, others: int) -> dict[str, Frame]:
    """Return open channels between chains and others, over which so many requests came and went."""
    chain, foreign = (column.astype(np.uint32) for column in np.broadcast_arrays(np.atleast_1d(chain), foreign))
    columns: dict[str, Any] = dict.fromkeys(CHANNELS_SCHEMA.names, np.uint64(0))
    columns |= {"chain": chain, "foreign": foreign, "state": np.uint8(ChannelState.OPEN), "has_owner": np.uint8(0)}
    columns |= {"max_outgoing": np.uint32(ROOM), "next_channel": np.uint64(1)}
    columns |= dict.fromkeys(("next_inbox", "next_outbox", "next_response"), np.uint64(others))
    rows = Frame({"chain": chain}, len(chain)).with_columns(**columns)
    return {"channels": rows, "next_channels": rows}


def _left(domains: Chains, others: int) -> tuple[Frame, Frame]:
    """Return responses of each domain to the consensus chain which nobody has acknowledged, and what its operators
    remember of them: that they are proved, and received."""
    source = domains.repeat(others)
    index = np.tile(np.arange(others, dtype=np.uint64), len(domains))
    numbers = (source.astype(np.uint64) << np.uint64(32)) | index
    columns: dict[str, Any] = dict.fromkeys(RESPONSES_SCHEMA.names, np.uint64(0))
    columns |= {"source": source, "destination": np.uint32(CONSENSUS_POSITION), "substream": np.uint64(RESPONSE)}
    columns |= {
        "index": index,
        "layer": np.uint8(ENDPOINT),
        "asked": np.uint8(RequestKind.ENDPOINT),
        "error": np.uint8(OK),
    }
    columns |= {"endpoint": np.uint64(PROGRAMS_ENDPOINT), "payload": payloads(numbers, 64)}
    responses = Frame({"source": source}, len(source)).with_columns(**columns).select(RESPONSES_SCHEMA.names)
    lanes = Frame({"source": domains}, len(domains)).with_columns(
        destination=np.uint32(CONSENSUS_POSITION),
        substream=np.uint64(RESPONSE),
        proved=np.uint64(others),
        expected=np.uint64(others),
        since=np.uint64(0),
        until=np.uint64(others),
    )
    return responses, lanes.select(RELAYING_SCHEMA.names)
