"""Relayers as the network of the oracle wants them: they submit what the relays say, and watchers show forks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.spec import ibc
from tests.support.ibc.ibc_relays import Relays


@dataclass
class OneRelayer:
    """One of the relayers, as the oracle's network wants it."""

    name: str
    number: int
    relays: Relays

    def calls(self, view: ibc.View, zone: ibc.Zone) -> Iterator[ibc.Submission]:
        return self.relays.submissions(view, zone.chain_id, self.number)


@dataclass
class Watchers:
    """Relayers that have seen two headers of a zone show them to whom it may concern, before anything else."""

    relays: Relays
    name: str = "watchers"

    def calls(self, view: ibc.View, zone: ibc.Zone) -> Iterator[ibc.Submission]:
        scenario = self.relays.scenario
        names, coordination = list(scenario.relayers), scenario.relay.get("coordination", "none")
        forks = [remote for remote in view.order if (remote, self.relays.tick) in scenario.forks]
        for number, name in enumerate(names[:1] if coordination == "leader" else names):
            for remote in forks if view.height > 1 else ():
                others = coordination == "partition" and view.order.index(remote) % len(names) != number
                if others or remote not in zone.connections or (zone.chain_id, remote) in view.frozen:
                    continue
                first = view.headers[remote]
                second = replace(first, root=bytes([first.root[0] ^ 1]) + first.root[1:])
                self.relays.net.genuine.add(second)
                evidence = first, second
                shown = ibc.Submission(zone.chain_id, "submitMisbehaviour", remote, evidence, name, 100)
                yield shown
                if self.relays.net.outcomes[-1][1] == "NeedIntermediateHeader":
                    yield from self.relays.bring(zone.chain_id, remote, first.height, name)
                    if first.height in self.relays.trusted(zone.chain_id, remote):
                        yield shown
