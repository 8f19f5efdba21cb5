"""What the safety statements of 1.2 are checked on: the log and the states of a network, whichever engine made them."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from tests.spec.ibc.accounts import Balance, balances
from tests.spec.ibc.events import Row
from tests.spec.ibc.network import Network
from tests.spec.ibc.options import Options
from tests.spec.ibc.programs import Reply
from tests.spec.ibc.queue import Store


@dataclass(frozen=True)
class Record:
    """A network up to its newest block.

    `history`: (zone, height) -> what was in its queues, from height 0 on; `stores`: the same of now. `unwritten`:
    (zone, remote) -> slots of the receipt queue that wait for their value; its keys are the connections.
    `permissions`: zone -> type -> the modules that may send it. `held`: the value that programs have and that is in
    the zones' local lanes, `installed`: what programs began with. `funds`: the accounts of relayers.
    """

    log: Sequence[Row]
    options: Options
    height: int
    order: Sequence[str]
    stores: Mapping[str, Store]
    history: Mapping[tuple[str, int], Store]
    unwritten: Mapping[tuple[str, str], Set[int]]
    permissions: Mapping[str, Mapping[str, Set[int | str]]]
    held: int
    installed: int
    funds: Sequence[Balance] = ()

    def peers(self, name: str) -> list[str]:
        return [remote for zone, remote in self.unwritten if zone == name]


def record_of(network: Network) -> Record:
    """The oracle's."""
    held = 0
    for zone in network.zones.values():
        held += sum(zone.app.balances.values()) + sum(key.cycles for key in zone.app.open_local)
        held -= sum(zone.app.accepted.values())  # counted in balances, and with the requests that are open
        held += sum(message.refund for _, message in zone.app.local if isinstance(message, Reply))
    return Record(
        network.log,
        network.options,
        network.height,
        network.order,
        {name: zone.store for name, zone in network.zones.items()},
        network.history,
        {(name, r): one.unwritten for name, zone in network.zones.items() for r, one in zone.connections.items()},
        {name: zone.permissions for name, zone in network.zones.items()},
        held,
        sum(len(here) for here in network.programs.values()) * network.balance,
        () if network.accounts is None else balances(network.accounts),
    )
